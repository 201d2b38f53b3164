# SPDX-License-Identifier: GPL-3.0-or-later
# What the examples of the manual pages take as given: the commands, a mount on /mnt/ckpt and a program that writes checkpoints.
PATH=$PWD/build/tools:$PWD/build/fs:$PWD/build/mpi-agent:$PATH
mkdir -p /data /mnt/ckpt
mount.ckptfs /data/ckpt.store /mnt/ckpt
cd /root
cat >solver <<'SOLVER'
#!/bin/sh
case $1 in
--checkpoint) mkdir -p "$2" && head -c 1M /dev/urandom >"$2/state" ;;
--restart) cat "$2/state" >/dev/null ;;
esac
SOLVER
chmod +x solver
checkpoints() { # DIRECTORY: of a run
	mkdir -p "$1"
	/usr/bin/python3 -c '
import random, struct, sys
values = [random.random() for _ in range(65536)]
for step in range(1, 4):
    with open(f"{sys.argv[1]}/ckpt.{step:04}", "wb") as f:
        f.write(struct.pack("65536d", *values))
    values = [v + 1e-9 for v in values]' "$1"
}
