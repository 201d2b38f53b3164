# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
checkpoints /mnt/ckpt/run7
