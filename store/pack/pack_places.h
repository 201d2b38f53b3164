/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A set of damaged places (pack, offset). It is empty in the life of almost every store, and then a lookup is one load.
 * Thread rule: any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

struct pack_places {
	_Atomic size_t nr;
	struct mutex lock; /* leaf */
	uint64_t *slots GUARDED_BY(lock); /* pack << 32 | off; 0: free; linear probing, at most half full */
	size_t nr_slots GUARDED_BY(lock); /* a power of two, or 0 */
};

void pack_places_init(struct pack_places *s);
void pack_places_release(struct pack_places *s);

/* true: it was not in the set. Without memory it is not recorded, and the result is always true. */
bool pack_places_add(struct pack_places *s, uint32_t pack, uint32_t off);
bool pack_places_remove(struct pack_places *s, uint32_t pack, uint32_t off); /* true: it was there */
bool pack_places_has_slow(struct pack_places *s, uint32_t pack, uint32_t off);

static inline bool pack_places_has(struct pack_places *s, uint32_t pack, uint32_t off)
{
	if (atomic_load_explicit(&s->nr, memory_order_acquire) == 0)
		return false;
	return pack_places_has_slow(s, pack, off);
}
