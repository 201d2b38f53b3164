/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunks of a batch that may be the same as stored ones: an address is a hint, the table of its pack has the full
 * fingerprint. A stored chunk is used if it may be shared and is intact; a damaged copy is repaired.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/dedup/dedup.h"
#include "store/engine_state.h"
#include "store/gc/gc_freed.h"

/* With `verify`, equal fingerprints are not enough. */
static bool same_bytes(struct batch *b, unsigned i, struct addr a)
{
	_cleanup_(freep) uint8_t *stored = NULL;

	if (!b->e->conf.verify)
		return true;
	stored = aligned_alloc(PACK_BLOCK, round_up(batch_len(b, i), PACK_BLOCK));
	if (!stored || packs_read(b->e->packs, a, batch_len(b, i), stored) < 0)
		return packs_is_damaged(b->e->packs, a); /* the caller repairs it */
	if (memcmp(stored, batch_chunk(b, i), batch_len(b, i)) == 0)
		return true;
	atomic_fetch_add_explicit(&b->e->count.verified_different, batch_len(b, i), memory_order_relaxed);
	return false;
}

/* Ensure that the chunk at `a` is intact, repairing it if necessary. If it cannot be overwritten, the caller looks
 * for another copy or stores one; repair.c then redirects all files that share the damaged one. */
static bool make_good(struct batch *b, unsigned i, struct addr a)
{
	int r = packs_is_damaged(b->e->packs, a) ?
			packs_repair_chunk(b->e->packs, a, batch_chunk(b, i), batch_len(b, i)) :
			0;

	if (r == -EOPNOTSUPP) {
		if (!b->any_damaged)
			memset(b->damaged, 0, sizeof(b->damaged));
		b->any_damaged = true;
		b->damaged[i] = a;
	} else if (r < 0) {
		b->alone[i] = true;
	}
	return r == 0;
}

bool batch_use_known(struct batch *b, unsigned i, struct addr a, enum cause cause)
{
	if (freed_is_gc_pending(b->e, a) || !batch_may_refer(b, a))
		return false;
	if (!same_bytes(b, i, a)) {
		b->alone[i] = true;
		return false;
	}
	if (!make_good(b, i, a))
		return false;
	b->addr[i] = a;
	b->cause[i] = cause;
	return true;
}

bool batch_matches(struct batch *b, unsigned i, struct addr hint, struct addr *ret)
{
	uint32_t len;
	struct fp fp;

	return packs_find(b->e->packs, hint, ret, &len, &fp) > 0 && len == batch_len(b, i) && fp_equal(fp, b->fps[i]);
}

struct addr batch_after(const struct batch *b, struct addr a, unsigned i, unsigned k)
{
	a.off += b->at[k] - b->at[i];
	return a;
}

/* Number of addresses from i on that are adjacent in one frame, so that a single table lookup covers them. */
static unsigned run_length(const struct batch *b, const struct addr *a, unsigned i)
{
	unsigned n = 1;

	while (i + n < b->n && addr_equal(a[i + n], batch_after(b, a[i], i, i + n)) && pack_same_frame(a[i], a[i + n]))
		n++;
	return n;
}

/* batch_compare() for variable lengths: a chunk matches if one of the same length starts at its address. */
static void compare_varied(struct batch *b, const struct addr *a, enum cause cause)
{
	struct pack_chunk there[PAGES_MAX];
	bool was_there = true;
	int nr_found;

	for (unsigned i = 0, n; i < b->n; i += n) {
		n = 1;
		if (addr_is_none(a[i]))
			continue;
		if (was_there) /* otherwise probably none of them is */
			n = run_length(b, a, i);
		nr_found = packs_chunks(b->e->packs, a[i], b->at[i + n] - b->at[i], n, there);
		was_there = nr_found > 0;
		for (unsigned k = 0; k < n; k++) {
			if (nr_found <= (int)k || there[k].off != a[i + k].off || there[k].len != batch_len(b, i + k)) {
				n = k + 1; /* boundaries differ from here on: look up again */
				break;
			}
			if (b->cause[i + k] == UNKNOWN && fp_equal(there[k].fp, b->fps[i + k]))
				batch_use_known(b, i + k, a[i + k], cause);
		}
	}
}

void batch_compare(struct batch *b, const struct addr *a, enum cause cause)
{
	struct fp fps[PAGES_MAX];
	int nr_found;

	if (!b->page) {
		compare_varied(b, a, cause);
		return;
	}
	for (unsigned i = 0, n; i < b->n; i += n) {
		n = 1;
		if (addr_is_none(a[i]) || a[i].off % PACK_BLOCK)
			continue;
		n = run_length(b, a, i);
		nr_found = packs_fps(b->e->packs, a[i], b->page, n, fps);
		for (unsigned k = i; nr_found > 0 && k < i + (unsigned)nr_found; k++)
			if (b->cause[k] == UNKNOWN && fp_equal(fps[k - i], b->fps[k]))
				batch_use_known(b, k, a[k], cause);
	}
}
