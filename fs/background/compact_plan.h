/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A recoding plan, received piece by piece from a user's program: files, variables, and the extents of the variables in
 * the files. Nothing of it is trusted, except that the files were open. Belongs to one thread at a time.
 */
#pragma once

#include "client/ioctl.h"
#include "store/engine.h"

#define COMPACT_FILES_MAX 65536u
#define COMPACT_VARIABLES_MAX 100000u
#define COMPACT_EXTENTS_MAX (1024u * 1024)

/* Initially all zeros. */
struct compact_plan {
	uint64_t *inos;
	size_t nr_files, room_files;
	struct compact_variable *variable; /* compact_plan_finish() sets the pointers to extents */
	size_t nr_variables, room_variables;
	struct compact_extent *extent; /* grouped by variable */
	size_t nr_extents, room_extents;
};

void compact_plan_release(struct compact_plan *p);
/* *ret: number of the file in the plan. -E2BIG, -ENOMEM. */
int compact_plan_add_file(struct compact_plan *p, uint64_t ino, uint32_t *ret);
/* -EINVAL: no such type, file or extent; -E2BIG, -ENOMEM. On an error some may have been added, which does no harm. */
int compact_plan_add(struct compact_plan *p, const struct ckptfs_compact_add *a);
/* Nothing is added after this; the plan can be run. */
void compact_plan_finish(struct compact_plan *p);
