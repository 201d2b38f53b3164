# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
head -c 1M /dev/urandom >STATE
