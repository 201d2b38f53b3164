# SPDX-License-Identifier: GPL-3.0-or-later
# A tier that a node has flushed to.
. tests/docs/given/commands.sh
mkdir -p /lustre/me/ckpt.tier /mnt/node
ckptfs mount -o tier=dir:/lustre/me/ckpt.tier /local/node.store /mnt/node
mkdir -p /mnt/node/run1/step.0200
head -c 3M /dev/urandom >/mnt/node/run1/step.0200/state
ckptfs seal --quiet --wait=tier /mnt/node/run1/step.0200
umount.ckptfs /mnt/node
