# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/empty-machine.sh
