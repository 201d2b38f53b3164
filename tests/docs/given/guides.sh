# SPDX-License-Identifier: GPL-3.0-or-later
# What the guides take as given, as commands.sh; Python finds the package, and TOP is the source tree.
TOP=$PWD
. tests/docs/given/commands.sh
export TOP PYTHONPATH=$TOP/client/python
