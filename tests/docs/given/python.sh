# SPDX-License-Identifier: GPL-3.0-or-later
# The module as pip installs it, and checkpoints to be cloned.
. tests/docs/given/commands.sh
cp -rL "$OLDPWD/client/python" module && /usr/bin/python3 -m pip --no-cache-dir install --quiet --no-index --target site ./module
export PYTHONPATH=$PWD/site
