/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What tests of fs/ share. */
#pragma once

struct fs;

/* All nodes collect together. No peer refers to a chunk that is pinned here, so all are unpinned and freed. */
void rig_collect(struct fs *fs);
