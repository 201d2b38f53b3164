# SPDX-License-Identifier: GPL-3.0-or-later
# As commands.sh, without the mount and the store.
. tests/docs/given/commands.sh
umount.ckptfs /mnt/ckpt
rm -r /data/ckpt.store
