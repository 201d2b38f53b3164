/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Replicas of other nodes' directories, for ckptfs-compact --replicas. They are read through .ckptfs/nodes and arranged
 * by their names on those nodes, so that the ranks of all nodes form one step.
 */
#pragma once

#include "tools/analyze/analyze_files.h"

/* Adds `directory` and this node's replicas below it. A negative errno is reported. */
int compact_replicas_add(struct files *fs, const char *directory);
