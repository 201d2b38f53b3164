# SPDX-License-Identifier: GPL-3.0-or-later
# A page of a file is damaged in its pack, and another directory has the same file.
. tests/docs/given/commands.sh
mkdir /backup /backup/run7 /mnt/ckpt/run7
head -c 64K /dev/urandom >/backup/run7/ckpt.0041
cp /backup/run7/ckpt.0041 /mnt/ckpt/run7/
umount.ckptfs /mnt/ckpt
/usr/bin/python3 - /backup/run7/ckpt.0041 /data/ckpt.store/packs/*.pack <<'DAMAGE'
import sys
page, found = open(sys.argv[1], "rb").read()[3 << 12:4 << 12], 0
for pack in sys.argv[2:]:
    with open(pack, "r+b") as f:
        at = f.read().find(page)
        if at >= 0:
            f.seek(at + 1000)
            f.write(bytes(16))
            found += 1
sys.exit(found != 1)
DAMAGE
mount.ckptfs /data/ckpt.store /mnt/ckpt
