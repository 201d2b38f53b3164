#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"

struct engine;
struct extent;
struct extent_list;

/* A chunk that has been stored once more. */
struct move {
	uint32_t pack, off, len; /* where it was */
	struct addr to;
};

void moves_sort(struct move *m, size_t nr); /* by where they were */
/* Of sorted ones the first that ends behind `a` in its pack, and begins before `end`; NULL: there is none. */
const struct move *move_of(const struct move *m, size_t nr, struct addr a, uint32_t end);

/* Make all files refer to the new places. `m` is ordered by pack and offset, without overlaps, and not empty; the
 * caller holds gc.lock. On an error some do and some do not: both are right. Costs a pass over all recipes. From then
 * on until repoint_end() whatever enters the log refers to the new places, too. Borrows `m` as long. */
int repoint(struct engine *e, const struct move *m, size_t nr);
void repoint_end(struct engine *e);
/* For what enters the log: 1 and the new places in *ret, which the caller releases; 0: none has moved. view_lock held
 * shared. */
int repoint_new(struct engine *e, const struct extent *x, size_t nr, struct extent_list *ret);
