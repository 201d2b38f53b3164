/*
 * Giving up the places that chunks have moved from (moving.c). All files refer to the new ones and nobody is about to
 * refer to an old one, so these are dead by name: no window, no marks. That matters where chunks are of varied
 * lengths, since a collection marks blocks and may keep a dead chunk beside a live one. Kept, it would be there twice:
 * found by nobody once the other copy is collected, and found by its neighbours for all that.
 *
 * Like a collection: into the log what is gone ('F'), and the caller commits that; then memory forgets it. In a store
 * that shares chunks with other nodes it goes beside the log, with what was noted of these chunks. The space is punched
 * out by the next collection, which sees that nobody has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "index/freed.h"
#include "store/engine/gc.h"
#include "store/engine/repoint.h"

#define FRAMES_PER_TX 512u

static uint32_t frame_of(const struct move *m)
{
	return (m->off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* How many of the sorted moves are from the frame of the first. */
static size_t same_frame(const struct move *m, size_t nr)
{
	size_t n = 1;

	while (n < nr && m[n].pack == m->pack && frame_of(&m[n]) == frame_of(m))
		n++;
	return n;
}

static void forget_in(struct fptable *t, struct fp fp, struct addr a)
{
	const struct fptable_slot *s = fptable_find(t, fp);

	if (s && s->pack == a.pack && s->off == a.off)
		fptable_remove(t, fp);
}

/* Those of a frame's chunks that have moved. Memory knows the new places sooner; the old ones must not come to light
 * again. */
static void take_out(struct engine *e, const struct move *m, size_t nr, const struct pack_frame_rec *rec,
		     struct freed_frame *f, struct freed_totals *ret)
{
	uint32_t i = 0;

	mutex_lock(&e->absorb_lock); /* nobody reads `frozen` and `kept` without the other lock now */
	mutex_lock(&e->append_lock);
	for (size_t k = 0; k < nr; k++) {
		struct addr a = { .pack = m[k].pack, .off = m[k].off };

		while (i < rec->nr_chunks && pack_rec_addr(rec, i).off < a.off)
			i++;
		if (i == rec->nr_chunks || pack_rec_addr(rec, i).off != a.off || fp_is_none(rec->fps[i]))
			continue;
		forget_in(&e->recent, rec->fps[i], a);
		forget_in(&e->frozen, rec->fps[i], a);
		forget_in(&e->kept, rec->fps[i], a);
		f->gone[i / 64] |= UINT64_C(1) << i % 64;
		ret->nr_chunks++;
		ret->bytes += pack_rec_len(rec, i);
	}
	mutex_unlock(&e->append_lock);
	mutex_unlock(&e->absorb_lock);
}

/* `nr` moves from one frame. What cannot be read stays: damage is fsck's business. */
static int vacate_frame(struct engine *e, const struct move *m, size_t nr, struct pack_frame_rec *rec,
			struct engine_tx *tx, struct shares_gone *gone, struct freed_totals *ret)
{
	struct freed_frame f = { 0 };
	int r;

	*gone = (struct shares_gone){ .pack = m->pack, .frame = frame_of(m) };
	r = packs_frame_rec(e->packs, m->pack, frame_of(m), rec);
	if (r <= 0 || rec->damaged)
		return r == -ENOMEM ? r : 0;
	r = freed_get(e->db, m->pack, frame_of(m), &f);
	if (r < 0)
		return r;
	f.punched = false;
	take_out(e, m, nr, rec, &f, ret);
	memcpy(gone->gone, f.gone, sizeof(gone->gone));
	freed_put_frame(tx, m->pack, frame_of(m), &f);
	return 0;
}

/* Frames up to the bound of a transaction; *done is how many moves they were. */
static int vacate_some(struct engine *e, const struct move *m, size_t nr, bool is_shared, struct pack_frame_rec *rec,
		       size_t *done, struct freed_totals *ret)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(freep) struct shares_gone *shared = calloc(FRAMES_PER_TX, sizeof(*shared));
	struct freed_totals totals, some = { 0 };
	size_t n, frames = 0;
	int r = shared ? 0 : -ENOMEM;

	*done = 0;
	for (; frames < FRAMES_PER_TX && *done < nr && r == 0; frames++, *done += n) {
		n = same_frame(m + *done, nr - *done);
		r = vacate_frame(e, m + *done, n, rec, &tx, &shared[frames], &some);
	}
	if (r < 0)
		return r;
	freed_so_far(e, &totals);
	totals.nr_chunks += some.nr_chunks;
	totals.bytes += some.bytes;
	r = is_shared ? freed_give_up(e, &tx, &totals, shared, frames) : freed_apply(e, &tx, &totals);
	if (r < 0)
		return r;
	ret->nr_chunks += some.nr_chunks;
	ret->bytes += some.bytes;
	return 0;
}

int vacate(struct engine *e, const struct move *m, size_t nr, bool is_shared, struct freed_totals *ret)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	int r = rec ? 0 : -ENOMEM;

	atomic_store(&e->gc.any, true);
	for (size_t i = 0, n; i < nr && r == 0; i += n)
		r = vacate_some(e, m + i, nr - i, is_shared, rec, &n, ret);
	return r;
}

/* As in gc_sweep.c: whoever has read a table before what is gone was in the log may put it back a moment later. */
void vacate_forget_tables(struct engine *e, const struct move *m, size_t nr)
{
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < nr; i += same_frame(m + i, nr - i))
			packs_forget_table(e->packs, m[i].pack, frame_of(&m[i]));
		epoch_wait(&e->users);
	}
}
