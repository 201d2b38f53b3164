# SPDX-License-Identifier: GPL-3.0-or-later
# A tier that a node has flushed to, which is gone.
. tests/docs/given/guides.sh
mkdir -p /lustre/me/ckpt /mnt/node
ckptfs mount -o tier=dir:/lustre/me/ckpt /local/node.store /mnt/node
for step in 0100 0200; do
	mkdir -p "/mnt/node/run1/step.$step"
	head -c 3M /dev/urandom >"/mnt/node/run1/step.$step/state"
	ckptfs seal --quiet --wait=tier "/mnt/node/run1/step.$step"
done
umount.ckptfs /mnt/node
rm -r /local/node.store
echo 'import os, sys; assert os.path.getsize(sys.argv[2] + "/state") == 3 << 20 and "step.0200" in sys.argv[2]' >train.py
