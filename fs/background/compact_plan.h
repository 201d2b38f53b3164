/*
 * What is to be compacted, as it comes piece by piece from a user's program: files, variables, and where these lie in
 * those. Nothing of it is trusted but that the files were open. Belongs to one thread at a time.
 */
#pragma once

#include "client/ioctl.h"
#include "store/engine/engine.h"

#define COMPACT_FILES_MAX 65536u
#define COMPACT_VARIABLES_MAX 100000u
#define COMPACT_EXTENTS_MAX (1024u * 1024)

/* All zeros at first. */
struct compact_plan {
	uint64_t *inos;
	size_t nr_files, room_files;
	struct compact_variable *variable; /* pointers to extents are set by compact_plan_finish() */
	size_t nr_variables, room_variables;
	struct compact_extent *extent; /* one variable's behind the other's */
	size_t nr_extents, room_extents;
};

void compact_plan_release(struct compact_plan *p);
/* Its number is *ret. -E2BIG, -ENOMEM. */
int compact_plan_add_file(struct compact_plan *p, uint64_t ino, uint32_t *ret);
/* -EINVAL: no such type, file or extent; -E2BIG, -ENOMEM: some of them may have been added, which is no harm. */
int compact_plan_add(struct compact_plan *p, const struct ckptfs_compact_add *a);
/* It can be run, and nothing is added any more. */
void compact_plan_finish(struct compact_plan *p);
