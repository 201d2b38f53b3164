# SPDX-License-Identifier: GPL-3.0-or-later
# As guides.sh, with ckptfs installed into /usr.
. tests/docs/given/guides.sh
meson install -C "$TOP/build" --no-rebuild >/dev/null
