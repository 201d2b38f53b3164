# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/ckptfs.sh
mkdir -p /local
