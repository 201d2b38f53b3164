# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
mkdir -p /mnt/ckpt/run7
./solver --checkpoint /mnt/ckpt/run7/step.0100
ckptfs-seal /mnt/ckpt/run7/step.0100
