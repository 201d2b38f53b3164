#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The same with parity over several nodes in place of whole copies; and nodes die while it is made.
PROTECT=xor exec "$(dirname "$0")/protect.sh"
