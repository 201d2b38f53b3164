# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
checkpoints /mnt/ckpt/run7
rm /mnt/ckpt/run7/ckpt.0001
for step in 1 2 3 4 5 6; do
	./solver --checkpoint /mnt/ckpt/run1/step.$step
	ckptfs-seal --quiet /mnt/ckpt/run1/step.$step
done
