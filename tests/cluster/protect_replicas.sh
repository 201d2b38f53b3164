#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The same with two owners of each page, as a mount has them unless told otherwise: then what a node only refers to is not sent, if its partner refers to it, too.
PROTECT_REPLICAS=2 exec "$(dirname "$0")/protect.sh"
