/*
 * Directories of other nodes that this one has copies of, for ckptfs-compact --replicas: they are looked at through
 * .ckptfs/nodes, and arranged by the names that they have on their nodes, so that ranks of all of them are one step.
 */
#pragma once

#include "tools/analyze/analyze_files.h"

/* `directory`, and below it what this node has of others. 0, or a negative errno after having said why; as
 * files_add(). */
int compact_replicas_add(struct files *fs, const char *directory);
