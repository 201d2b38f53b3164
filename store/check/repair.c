/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Repairs chunks that cannot be overwritten. A damaged chunk that was compressed together with others has no place of
 * its own. When its bytes are written again they are stored like a new chunk (dedup.c). This module keeps both places,
 * and the background thread repoints all files from the old place to the new one.
 *
 * Memory is bounded: a chunk that does not fit is recorded when it is written the next time. A crash loses the list:
 * the files that share the damaged chunk still do, and writing it again repairs them.
 */
#include "store/check/repair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/gc/collector.h"
#include "store/gc/repoint.h"

#define REPAIR_MAX 4096u /* chunks: 16 MiB of pages between two ticks of the background thread, 24 bytes each */

struct repairs {
	struct mutex lock; /* leaf */
	struct move *moves GUARDED_BY(lock); /* damaged chunks and their new locations; NULL: none */
	size_t nr GUARDED_BY(lock);
	bool too_many GUARDED_BY(lock); /* the overflow has been logged */
};

struct repairs *repairs_new(void)
{
	struct repairs *r = calloc(1, sizeof(*r));

	if (r)
		mutex_init(&r->lock);
	return r;
}

void repairs_free(struct repairs *r)
{
	if (!r)
		return;
	mutex_release(&r->lock);
	free(r->moves);
	free(r);
}

void repair_note(struct engine *e, struct addr damaged, uint32_t len, struct addr to)
{
	struct move m = { .pack = damaged.pack, .off = damaged.off, .len = len, .to = to };
	bool is_first_too_many = false;

	mutex_lock(&e->repairs->lock);
	if (!e->repairs->moves)
		e->repairs->moves = calloc(REPAIR_MAX, sizeof(*e->repairs->moves));
	if (e->repairs->moves && e->repairs->nr < REPAIR_MAX) {
		e->repairs->moves[e->repairs->nr++] = m;
	} else {
		is_first_too_many = !e->repairs->too_many;
		e->repairs->too_many = true;
	}
	mutex_unlock(&e->repairs->lock);
	if (is_first_too_many)
		log_warning("pack %" PRIu32 " offset %" PRIu32
			    ": too many chunks to repair at once; write its content again",
			    m.pack, m.off);
}

static int compare(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* Is the same chunk still at both places, and intact at the new one? It may have been freed or damaged since. */
static bool is_good(struct engine *e, const struct move *m, uint8_t *bytes)
{
	struct addr old = { .pack = m->pack, .off = m->off }, start;
	struct fp old_fp, fp;
	uint32_t len;

	if (packs_chunk_at(e->packs, old, &start, &len, &old_fp) <= 0 || !addr_equal(start, old) || len != m->len)
		return false;
	if (packs_chunk_at(e->packs, m->to, &start, &len, &fp) <= 0 || !addr_equal(start, m->to) || len != m->len)
		return false;
	return !fp_is_none(fp) && fp_equal(fp, old_fp) && packs_read(e->packs, m->to, len, bytes) == 0;
}

/* Sorts, removes duplicates, and keeps only usable moves. */
static size_t tidy(struct engine *e, struct move *m, size_t nr, uint8_t *bytes)
{
	size_t n = 0;

	qsort(m, nr, sizeof(*m), compare);
	for (size_t i = 0; i < nr; i++)
		if ((n == 0 || compare(&m[n - 1], &m[i]) != 0) && is_good(e, &m[i], bytes))
			m[n++] = m[i];
	return n;
}

static int repair(struct engine *e, struct move *m, size_t nr)
{
	_cleanup_(freep) uint8_t *bytes = aligned_alloc(PACK_BLOCK, PACK_FRAME_BYTES);
	int r;

	if (!bytes)
		return -ENOMEM;
	nr = tidy(e, m, nr, bytes);
	r = nr > 0 ? repoint(e, m, nr) : 0;
	repoint_end(e);
	for (size_t i = 0; r == 0 && i < nr; i++)
		packs_set_replaced(e->packs, (struct addr){ .pack = m[i].pack, .off = m[i].off });
	return r;
}

static void put_back(struct engine *e, const struct move *m, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		repair_note(e, (struct addr){ .pack = m[i].pack, .off = m[i].off }, m[i].len, m[i].to);
}

static int repair_noted(struct engine *e) REQUIRES(gc_lock)
{
	_cleanup_(freep) struct move *m = NULL;
	size_t nr;
	int r;

	mutex_lock(&e->repairs->lock);
	m = TAKE(e->repairs->moves);
	nr = e->repairs->nr;
	e->repairs->nr = 0;
	e->repairs->too_many = false;
	mutex_unlock(&e->repairs->lock);
	r = nr > 0 ? repair(e, m, nr) : 0;
	if (r < 0)
		put_back(e, m, nr);
	return r;
}

int repair_tend(struct engine *e)
{
	size_t nr;
	int r;

	mutex_lock(&e->repairs->lock);
	nr = e->repairs->nr;
	mutex_unlock(&e->repairs->lock);
	if (nr == 0 || !gc_trylock(e)) /* a collection is running: retry later */
		return 0;
	r = repair_noted(e);
	gc_unlock(e);
	return r;
}

int repair_now(struct engine *e)
{
	int r;

	if (gc_is_running(e))
		return 0;
	gc_wait_lock(e); /* waits for the background thread, which may be processing part of the list */
	r = repair_noted(e);
	gc_unlock(e);
	return r;
}
