# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
export PYTHONPATH=$OLDPWD/gpu/lib CKPTFS_GPU_LIBRARY=$OLDPWD/build/gpu/libckptfs-gpu.so.0
mkdir /mnt/ckpt/run1
