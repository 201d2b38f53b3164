/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

struct engine;
struct extent;
struct extent_list;

/* A chunk that has been copied. */
struct move {
	uint32_t pack, off, len; /* old place */
	struct addr to;
};

void moves_sort(struct move *m, size_t nr); /* by old place */
/* In sorted moves, the first one that ends after `a` in its pack and begins before `end`; NULL: none. */
const struct move *move_of(const struct move *m, size_t nr, struct addr a, uint32_t end);

/* Makes all files refer to the new places. `m` is sorted by pack and offset, without overlaps, and not empty; the
 * caller holds gc_lock. On error some files do and some do not: both are valid. Costs a pass over all recipes. From
 * then on until repoint_end() everything that enters the log refers to the new places, too. Borrows `m` until then. */
int repoint(struct engine *e, const struct move *m, size_t nr);
void repoint_end(struct engine *e);
bool repoint_is_on(const struct engine *e); /* view_lock held */
/* For references that enter the log: 1 and the new places in *ret, which the caller releases; 0: none has moved. The
 * caller holds view_lock shared. */
int repoint_new(struct engine *e, const struct extent *x, size_t nr, struct extent_list *ret);
