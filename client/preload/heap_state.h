/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a heap, in its range: see heap.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/preload/heap.h"

#define HEAP_NONE UINT32_MAX
#define HEAP_CLASSES 32u
#define HEAP_BINS 32u

enum unit_kind { UNIT_INSIDE /* not the first of its run */, UNIT_FREE, UNIT_SPAN, UNIT_LARGE };

struct unit {
	uint32_t next, prev; /* free: in the bin of its size; span: in the list of its class, if an object is free */
	uint32_t nr; /* units of the run: in its first unit and, if it is free, in its last */
	uint8_t kind, class;
};

struct heap_state {
	size_t range, table_len; /* bytes of the range; of them readable, for this struct */
	bool reserved; /* all of the range is mapped */
	uint8_t *data;
	uint32_t nr, top, readable; /* units: maximum; ever used; mapped readable and writable */
	uint32_t free[HEAP_BINS], spans[HEAP_CLASSES];
	struct unit unit[];
};

struct span {
	uint32_t nr, nr_free; /* objects */
	uint32_t first; /* offset of the first */
	uint32_t hint; /* words of `free` before this one are 0 */
	uint64_t free[];
};

/* The list of free runs of `nr` units. */
static inline uint32_t heap_bin_of(uint32_t nr)
{
	return 31 - (uint32_t)__builtin_clz(nr);
}

static inline uint8_t *heap_unit_at(const struct heap_state *s, uint32_t u)
{
	return s->data + (size_t)u * HEAP_UNIT;
}
