/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Merges chunks that a collection has caused to be stored twice. A writer that finds a gc-pending chunk stores its
 * bytes again. If the chunk is then kept, or was refused only because it shares a block with a freed one, there are two
 * copies, both in use. As with moves (moves.c) this must not last: the older one is treated as moved to the newer one,
 * which is in the in-memory table.
 *
 * All of this happens between the move record and its end, so a mount does the same after a crash. Frames without a
 * refusal have no twins. The others are few, and each is examined once more.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "index/freed.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/gc/gc.h"
#include "store/gc/moves.h"
#include "store/gc/repoint.h"
#include "store/remote_hooks.h"

struct twins {
	struct engine *e;
	struct move *m;
	size_t nr, size;
};

static int add_twin(struct twins *t, struct addr a, uint32_t len, struct addr to)
{
	if (t->nr == t->size) {
		size_t size = MAX(2 * t->size, (size_t)256);
		struct move *m = realloc(t->m, size * sizeof(*m));

		if (!m)
			return -ENOMEM;
		t->m = m;
		t->size = size;
	}
	t->m[t->nr++] = (struct move){ .pack = a.pack, .off = a.off, .len = len, .to = to };
	return 1;
}

/* Finds the other place in the in-memory table. If there is none, storing the chunk again has failed, and the table
 * gets this place back. */
static int find_twin(struct engine *e, const struct pack_frame_rec *rec, uint32_t i, struct addr *ret)
{
	const struct fptable_slot *s;
	int r = 0;

	dedup_lock(e);
	s = fptable_find(dedup_table(e, DEDUP_RECENT), rec->fps[i]);
	if (s)
		*ret = (struct addr){ .pack = s->pack, .off = s->off };
	else
		r = fptable_insert(dedup_table(e, DEDUP_RECENT), rec->fps[i], pack_rec_addr(rec, i), pack_rec_number(rec, i));
	dedup_unlock(e);
	return s ? 1 : r;
}

static int look_at_frame(struct twins *t, const struct pack_frame_rec *rec, struct gc_pending *d)
{
	int r = 0;

	for (uint32_t i = 0; i < rec->nr_chunks && r >= 0; i++) {
		struct addr a = pack_rec_addr(rec, i), twin;

		if (fp_is_none(rec->fps[i]))
			continue;
		r = find_twin(t->e, rec, i, &twin);
		if (r <= 0 || addr_equal(twin, a) || packs_wait(t->e->packs, twin) < 0)
			r = MIN(r, 0);
		else
			r = add_twin(t, a, pack_rec_len(rec, i), twin);
		if (r > 0)
			gc_set_bit(&d->gone, i); /* punched together with the others */
	}
	return r;
}

int gc_merge_twins(struct gc *g)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	struct freed_totals gone = { 0 };
	struct twins t = { .e = g->e };
	int r = rec ? 0 : -ENOMEM;

	for (struct gc_pending *d = g->pending; d < g->pending + g->nr_pending && r >= 0; d++) {
		if (d->with_pack || !atomic_load(&g->w->refused[d->at]))
			continue;
		if (g->e->remote && g->e->remote->has_pack(g->e, d->pack))
			continue;
		r = packs_frame_rec(g->e->packs, d->pack, d->frame, rec);
		if (r > 0 && !rec->damaged)
			r = look_at_frame(&t, rec, d);
	}
	if (r >= 0)
		r = moving_complete(g->e, t.m, t.nr, &gone);
	g->report->freed_chunks += gone.nr_chunks;
	g->report->freed_bytes += gone.bytes;
	free(t.m);
	return r;
}
