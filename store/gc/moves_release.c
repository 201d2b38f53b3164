/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Frees the places that chunks have moved from (moves.c). All files refer to the new places, and no writer is about to
 * refer to an old one, so the old ones are known to be dead without a window and marks. This matters for chunks of
 * varied lengths: a collection marks blocks and may keep a dead chunk beside a live one. If it were kept, there would
 * be two copies: lookups by fingerprint would not find it once the other copy is collected, but lookups through its
 * neighbours would.
 *
 * As in a collection, the log records the freed chunks ('F'), and the caller commits; then memory drops them. In a
 * store that shares chunks with other nodes, the records are written beside the log, together with the pin records of
 * these chunks. The next collection punches the space, as the records say that this was not done.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "index/freed.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/gc/gc.h"
#include "store/gc/gc_freed.h"
#include "store/gc/gc_state.h"
#include "store/gc/moves.h"
#include "store/gc/repoint.h"
#include "store/remote_hooks.h"

#define FRAMES_PER_TX 512u

static uint32_t frame_of(const struct move *m)
{
	return (m->off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* Number of sorted moves from the same frame as the first. */
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

/* Marks the moved chunks of a frame as freed. The in-memory table has the new places already; old ones must not become
 * visible again. */
static void take_out(struct engine *e, const struct move *m, size_t nr, const struct pack_frame_rec *rec,
		     struct freed_frame *f, struct freed_totals *ret)
{
	uint32_t i = 0;

	dedup_lock_tables(e);
	for (size_t k = 0; k < nr; k++) {
		struct addr a = { .pack = m[k].pack, .off = m[k].off };

		while (i < rec->nr_chunks && pack_rec_addr(rec, i).off < a.off)
			i++;
		if (i == rec->nr_chunks || pack_rec_addr(rec, i).off != a.off || fp_is_none(rec->fps[i]))
			continue;
		for (int t = 0; t < NR_DEDUP_TABLES; t++)
			forget_in(dedup_table(e, t), rec->fps[i], a);
		f->gone[i / 64] |= UINT64_C(1) << i % 64;
		ret->nr_chunks++;
		ret->bytes += pack_rec_len(rec, i);
	}
	dedup_unlock_tables(e);
}

/* `nr` moves from one frame. If its table cannot be read, the chunks stay: damage is left to fsck. */
static int release_moved_frame(struct engine *e, const struct move *m, size_t nr, struct pack_frame_rec *rec,
			struct engine_tx *tx, struct remote_freed *gone, struct freed_totals *ret)
{
	struct freed_frame f = { 0 };
	int r;

	*gone = (struct remote_freed){ .pack = m->pack, .frame = frame_of(m) };
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

/* Frames up to the limit of one transaction; *done: the number of their moves. */
static int release_moved_some(struct engine *e, const struct move *m, size_t nr, bool is_shared,
			      struct pack_frame_rec *rec,
		       size_t *done, struct freed_totals *ret)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(freep) struct remote_freed *shared = calloc(FRAMES_PER_TX, sizeof(*shared));
	struct freed_totals totals, some = { 0 };
	size_t n, frames = 0;
	int r = shared ? 0 : -ENOMEM;

	*done = 0;
	for (; frames < FRAMES_PER_TX && *done < nr && r == 0; frames++, *done += n) {
		n = same_frame(m + *done, nr - *done);
		r = release_moved_frame(e, m + *done, n, rec, &tx, &shared[frames], &some);
	}
	if (r < 0)
		return r;
	freed_so_far(e, &totals);
	totals.nr_chunks += some.nr_chunks;
	totals.bytes += some.bytes;
	r = freed_apply(e, &tx, &totals, is_shared ? shared : NULL, frames);
	if (r < 0)
		return r;
	ret->nr_chunks += some.nr_chunks;
	ret->bytes += some.bytes;
	return 0;
}

int release_moved(struct engine *e, const struct move *m, size_t nr, bool is_shared, struct freed_totals *ret)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	int r = rec ? 0 : -ENOMEM;

	atomic_store(&e->gc->any, true);
	atomic_store(&e->gc->unpunched, true);
	for (size_t i = 0, n; i < nr && r == 0; i += n)
		r = release_moved_some(e, m + i, nr - i, is_shared, rec, &n, ret);
	return r;
}

/* Twice, as in gc_sweep.c: a thread that read a table before the chunks were freed in the log may put it back. */
void release_moved_tables(struct engine *e, const struct move *m, size_t nr)
{
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < nr; i += same_frame(m + i, nr - i))
			packs_forget_table(e->packs, m[i].pack, frame_of(&m[i]));
		epoch_wait(&e->users);
	}
}
