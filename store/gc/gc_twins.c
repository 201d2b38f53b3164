/*
 * Chunks that a collection has doubled. Whoever finds a condemned chunk stores its bytes again. If then the chunk is
 * pardoned, or was only refused because it shares a block with one that goes, there are two of it, both with users. As
 * with moves (moving.c) that must not last: the older one is taken for moved to the newer one, which memory knows.
 *
 * It is all between the note of a move and its end, so a mount does the same after a crash. Frames of which nothing was
 * refused have no twins, and those that have are few: each is looked at once more.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/gc.h"
#include "store/engine/repoint.h"

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

/* Where memory has it; nowhere: then it was to be stored again and that failed, and memory knows this one as it did
 * before. */
static int find_twin(struct engine *e, const struct pack_frame_rec *rec, uint32_t i, struct addr *ret)
{
	const struct fptable_slot *s;
	int r = 0;

	mutex_lock(&e->append_lock);
	s = fptable_find(&e->recent, rec->fps[i]);
	if (s)
		*ret = (struct addr){ .pack = s->pack, .off = s->off };
	else
		r = fptable_insert(&e->recent, rec->fps[i], pack_rec_addr(rec, i), pack_rec_number(rec, i));
	mutex_unlock(&e->append_lock);
	return s ? 1 : r;
}

static int look_at_frame(struct twins *t, const struct pack_frame_rec *rec, struct doomed *d)
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
			gc_set_bit(&d->gone, i); /* when all is done: it is punched with the others */
	}
	return r;
}

int gc_merge_twins(struct gc *g)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	struct freed_totals gone = { 0 };
	struct twins t = { .e = g->e };
	int r = rec ? 0 : -ENOMEM;

	for (struct doomed *d = g->doomed; d < g->doomed + g->nr_doomed && r >= 0; d++) {
		if (d->with_pack || !atomic_load(&g->w->refused[d->at]) || shares_has_pack(g->e, d->pack))
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
