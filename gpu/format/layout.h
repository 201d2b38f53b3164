/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places of buffers in the file. Unchanged bytes should keep their place: then they equal the parent there and cost
 * nothing. So a buffer keeps its place while it fits, moves when it outgrows it, new buffers fill gaps first, and only
 * then the file grows. Pure functions.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct layout_place {
	char *name; /* ours */
	uint64_t off, len; /* len > 0 */
};

struct layout {
	struct layout_place *places; /* by offset */
	size_t nr;
};

#define LAYOUT_EMPTY ((struct layout){ 0 })

struct layout_want {
	const char *name;
	uint64_t len;
	uint64_t off; /* out: a multiple of DELTA_PAGE; of an empty buffer 0 */
};

void layout_release(struct layout *l); /* leaves LAYOUT_EMPTY */
/*
 * Places exactly these buffers; `ret_end` is where they end, a multiple of DELTA_PAGE. -EINVAL: duplicate name; -EFBIG:
 * more than fits into a file; -ENOMEM. After an error nothing has changed.
 */
int layout_arrange(struct layout *l, struct layout_want *wants, size_t nr, uint64_t *ret_end);
