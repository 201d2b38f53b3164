# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
./solver --checkpoint /mnt/ckpt/step.0100
ckptfs-seal /mnt/ckpt/step.0100
