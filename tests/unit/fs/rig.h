/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What tests of fs/ share. */
#pragma once

struct fs;

/* Nodes collect together, and nobody refers to what is lent here: so it is given up, and freed. */
void rig_collect(struct fs *fs);
