/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From unmarked chunks to free space on disk: steps 3 to 7 of gc.c.
 *
 * A frame table that was read into memory before step 5 does not have the freed chunks. It is dropped after step 5, but
 * a thread that had read it before may put it back a moment later. So the sweep waits for all such threads and drops
 * the table once more. It then also waits for the threads that have used the table meanwhile, before it closes the
 * window, which refuses gc-pending chunks. (tests/protocol/gc.pml shows what goes wrong without any of these.)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/freed.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/gc/gc.h"
#include "store/gc/gc_freed.h"
#include "store/gc/gc_state.h"
#include "store/gc/moves.h"
#include "store/remote_hooks.h"
#include "store/space.h"

#define FRAMES_PER_TX 512u

static_assert(FREED_WORDS == PACK_GONE_WORDS, "a frame's chunks");

static struct gc_bits first_bits(uint32_t n)
{
	struct gc_bits b = { 0 };

	for (uint32_t i = 0; i < n; i++)
		gc_set_bit(&b, i);
	return b;
}

static struct gc_bits and_not(struct gc_bits a, const struct gc_bits *b)
{
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		a.w[i] &= ~b->w[i];
	return a;
}

static struct gc_bits either(struct gc_bits a, const struct gc_bits *b)
{
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		a.w[i] |= b->w[i];
	return a;
}

static bool overlap(const struct gc_bits *a, const struct gc_bits *b)
{
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		if (a->w[i] & b->w[i])
			return true;
	return false;
}

static struct gc_bits live_chunks(const struct gc *g, size_t at, const struct pack_frame_rec *rec)
{
	return gc_window_live_chunks(g->w, at, rec->ends, rec->nr_chunks);
}

static uint32_t bytes_of(const struct pack_frame_rec *rec, const struct gc_bits *chunks)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		n += gc_bit(chunks, i) ? pack_rec_len(rec, i) : 0;
	return n;
}

/* Stored size of these chunks, with their share of the frame table. */
static uint64_t stored_of(const struct pack_frame_rec *rec, const struct gc_bits *chunks)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (gc_bit(chunks, i))
			n += pack_rec_stored(rec, pack_rec_start(rec, i), rec->ends[i]) + PACK_BLOCK / PACK_FRAME_BLOCKS;
	return n;
}

static void set_fresh(struct gc_pending *d, const struct pack_frame_rec *rec, struct gc_bits fresh)
{
	d->fresh = fresh;
	d->blocks = gc_blocks_of_chunks(&fresh, rec->ends, rec->nr_chunks);
	d->starts = gc_starts_of_chunks(&fresh, rec->ends, rec->nr_chunks);
	d->bytes = bytes_of(rec, &fresh);
}

static int add_pending(struct gc *g, const struct gc_pending *d)
{
	if (g->nr_pending == g->size_pending) {
		size_t size = MAX(2 * g->size_pending, (size_t)256);
		struct gc_pending *more = realloc(g->pending, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		g->pending = more;
		g->size_pending = size;
	}
	g->pending[g->nr_pending++] = *d;
	return 0;
}

/* 1: some of its chunks were freed before, but may not have been punched yet. */
static int is_unpunched(struct engine *e, const struct gc_pending *d)
{
	struct freed_frame f;
	int r;

	if (gc_count(&d->gone) == 0)
		return 0;
	r = freed_get(e->db, d->pack, d->frame, &f);
	return r <= 0 ? r : !f.punched;
}

/* Keeps all chunks of the frame: a round has not settled it yet. */
static void leave_alone(struct gc *g, const struct pack_frame_rec *rec)
{
	struct extent x = { .len = pack_rec_start(rec, rec->nr_chunks), .addr = rec->first };

	gc_window_mark(g->w, &x, 1);
}

static int look_at_frame(struct gc *g, struct gc_pack *p, const struct pack_frame_rec *rec)
{
	struct gc_pending d = {
		.pack = rec->pack,
		.frame = rec->frame,
		.chunk_len = rec->chunk_len,
		.nr_chunks = rec->nr_chunks,
		.at = p->first + rec->frame,
	};
	struct gc_bits all = first_bits(rec->nr_chunks), live;
	uint32_t disk;
	int r;

	if (rec->damaged)
		return 0; /* contents unknown: left to fsck */
	r = g->e->remote ? g->e->remote->is_settling(g->e, rec->pack, rec->frame) : 0;
	if (r != 0) {
		leave_alone(g, rec);
		return MIN(r, 0);
	}
	p->nr_blocks += (pack_rec_start(rec, rec->nr_chunks) + PACK_BLOCK - 1) / PACK_BLOCK;
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (fp_is_none(rec->fps[i]))
			gc_set_bit(&d.gone, i);
	p->nr_chunks += rec->nr_chunks - gc_count(&d.gone);
	live = live_chunks(g, d.at, rec);
	set_fresh(&d, rec, and_not(and_not(all, &d.gone), &live));
	live = and_not(live, &d.gone);
	disk = pack_rec_disk(rec, d.fresh.w);
	p->disk_bytes += disk;
	g->report->dead_disk += pack_rec_disk(rec, d.gone.w) - disk;
	p->live_stored += stored_of(rec, &live);
	g->report->live_chunks += gc_count(&live);
	g->report->live_bytes += bytes_of(rec, &live);
	g->report->dead_bytes += d.bytes;
	g->report->dead_chunks += gc_count(&d.fresh);
	r = is_unpunched(g->e, &d);
	if (r < 0)
		return r;
	return r > 0 || gc_count(&d.fresh) > 0 ? add_pending(g, &d) : 0;
}

static int look_at_pack(struct gc *g, struct gc_pack *p, struct pack_frame_rec *rec)
{
	struct pack_iter it = pack_iter(g->e->packs, p->pack, 0);
	int r;

	it.end_pack = p->pack + 1;
	while ((r = pack_iter_next(&it, rec)) > 0 && rec->frame < p->nr_frames) {
		gc_pace(g, PACK_BLOCK);
		r = look_at_frame(g, p, rec);
		if (r < 0)
			return r;
		g->report->nr_frames++;
	}
	g->report->nr_packs++;
	return MIN(r, 0);
}

int gc_find_dead(struct gc *g)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	int r = rec ? 0 : -ENOMEM;

	for (size_t i = 0; i < g->w->nr_packs && r == 0; i++) {
		r = look_at_pack(g, &g->w->packs[i], rec);
		if (r == 0 && !gc_goes_on(g))
			r = -ECANCELED;
	}
	return r;
}

/* --- step 3 and 4 --- */

static void mark_pending(struct gc *g)
{
	for (struct gc_pending *d = g->pending; d < g->pending + g->nr_pending; d++)
		gc_window_set_pending(g->w, d->at, &d->starts); /* sharing checks the block where a chunk begins */
}

/* Reads the chunk ends again, as few frames need them. If they cannot be read, all chunks of the frame are kept. */
static void keep_shared_chunks(struct gc *g, struct gc_pending *d)
{
	struct pack_frame_rec rec;
	struct gc_bits live;

	if (packs_frame_rec(g->e->packs, d->pack, d->frame, &rec) <= 0 || rec.damaged || rec.nr_chunks != d->nr_chunks)
		rec.nr_chunks = 0;
	live = live_chunks(g, d->at, &rec);
	set_fresh(d, &rec, rec.nr_chunks > 0 ? and_not(d->fresh, &live) : (struct gc_bits){ 0 });
}

static void keep_shared(struct gc *g)
{
	for (struct gc_pending *d = g->pending; d < g->pending + g->nr_pending; d++) {
		struct gc_bits live = gc_window_live(g->w, d->at);

		if (overlap(&live, &d->blocks))
			keep_shared_chunks(g, d);
	}
	mark_pending(g);
}

static uint64_t nr_live_blocks(const struct gc *g, const struct gc_pack *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->nr_frames; i++) {
		struct gc_bits live = gc_window_live(g->w, p->first + i);

		n += gc_count(&live);
	}
	return n;
}

static bool is_dead(const struct gc *g, const struct gc_pack *p)
{
	return p->is_full && nr_live_blocks(g, p) == 0;
}

/* Chunks to copy if the pack is moved. *d points to the first frame of the pack (frames are sorted), and is advanced
 * past them. */
static size_t nr_kept(const struct gc *g, const struct gc_pack *p, const struct gc_pending **d)
{
	uint64_t n = p->nr_chunks;

	for (; *d < g->pending + g->nr_pending && (*d)->pack == p->pack; (*d)++)
		n -= gc_count(&(*d)->fresh);
	return n;
}

/* Would storing the live chunks again save enough space? For compressed packs this includes the pack being written, as
 * nothing else returns that space. */
static bool is_wasteful(struct gc *g, struct gc_pack *p)
{
	/* margin of one part, so that small chunks, which fill no blocks, are not moved again and again */
	if ((p->live_stored + PACK_PART_BYTES) * 100 >= p->disk_bytes * g->conf->move_below)
		return false;
	p->is_full = p->is_full || packs_end(g->e->packs, p->pack, p->nr_places);
	return p->is_full;
}

static int list_sparse(struct gc *g)
{
	const struct gc_pending *d = g->pending;

	g->sparse = calloc(g->w->nr_packs, sizeof(*g->sparse));
	if (!g->sparse)
		return -ENOMEM;
	for (size_t i = 0; i < g->w->nr_packs; i++) {
		struct gc_pack *p = &g->w->packs[i];
		uint64_t n = nr_live_blocks(g, p);
		size_t kept = nr_kept(g, p, &d);
		bool is_sparse = p->is_full && n * 100 < p->nr_blocks * g->conf->move_below;

		if (n == 0 || (g->e->remote && g->e->remote->has_pack(g->e, p->pack)))
			continue;
		if (is_sparse || is_wasteful(g, p))
			g->sparse[g->nr_sparse++] = (struct sparse){ .pack = p->pack, .nr_live = kept };
	}
	return 0;
}

/* Ends packs without live chunks, so that they can be removed. Otherwise an emptied store would keep the hints to all
 * chunks of its last packs. */
static void end_dead_packs(struct gc *g)
{
	for (size_t i = 0; i < g->w->nr_packs; i++) {
		struct gc_pack *p = &g->w->packs[i];

		if (!p->is_full && nr_live_blocks(g, p) == 0)
			p->is_full = packs_end(g->e->packs, p->pack, p->nr_places);
	}
}

static void mark_dead_packs(struct gc *g)
{
	struct gc_pending *d = g->pending, *end = g->pending + g->nr_pending;

	for (size_t i = 0; i < g->w->nr_packs; i++) {
		const struct gc_pack *p = &g->w->packs[i];
		bool dead = is_dead(g, p);

		for (; d < end && d->pack == p->pack; d++)
			d->with_pack = dead;
	}
}

/* --- step 5 --- */

static void put_frame(struct engine_tx *tx, const struct gc_pending *d, bool punched)
{
	struct gc_bits gone = either(d->gone, &d->fresh);
	struct freed_frame f = { .punched = punched };

	memcpy(f.gone, gone.w, sizeof(f.gone));
	freed_put_frame(tx, d->pack, d->frame, &f);
}

static void put_pack(struct engine_tx *tx, uint32_t pack)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	freed_pack_encode(&value);
	tx->records.failed |= buf_error(&value) < 0;
	engine_tx_del_prefix(tx, freed_key_pack(pack));
	engine_tx_put(tx, freed_key_pack(pack), value.data, value.len);
}

static void count_gone(struct freed_totals *t, const struct gc_pending *d)
{
	t->nr_chunks += gc_count(&d->fresh);
	t->bytes += d->bytes;
}

static bool is_shared(const struct gc *g)
{
	return g->e->remote && g->e->remote->any(g->e);
}

static int log_frames(struct gc *g, const struct gc_pending *from, const struct gc_pending *end)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(freep) struct remote_freed *shared = NULL;
	struct freed_totals totals;
	size_t nr = 0;

	if (is_shared(g)) {
		shared = calloc((size_t)(end - from), sizeof(*shared));
		if (!shared)
			return -ENOMEM;
	}
	freed_so_far(g->e, &totals);
	for (const struct gc_pending *d = from; d < end; d++)
		if (!d->with_pack && gc_count(&d->fresh) > 0) {
			struct gc_bits gone = either(d->gone, &d->fresh);

			put_frame(&tx, d, false);
			count_gone(&totals, d);
			if (shared) {
				shared[nr] = (struct remote_freed){ .pack = d->pack, .frame = d->frame };
				memcpy(shared[nr].gone, gone.w, sizeof(gone.w));
			}
			nr++;
		}
	return nr > 0 ? freed_apply(g->e, &tx, &totals, shared, nr) : 0;
}

static int log_packs(struct gc *g)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(freep) struct remote_freed *shared = NULL;
	struct freed_totals totals;
	size_t nr = 0;

	if (is_shared(g)) {
		shared = calloc(MAX(g->w->nr_packs, (size_t)1), sizeof(*shared));
		if (!shared)
			return -ENOMEM;
	}
	freed_so_far(g->e, &totals);
	for (size_t i = 0; i < g->w->nr_packs; i++)
		if (is_dead(g, &g->w->packs[i])) {
			put_pack(&tx, g->w->packs[i].pack);
			if (shared)
				shared[nr] = (struct remote_freed){ .pack = g->w->packs[i].pack, .frame = UINT32_MAX };
			nr++;
		}
	for (const struct gc_pending *d = g->pending; d < g->pending + g->nr_pending; d++)
		if (d->with_pack)
			count_gone(&totals, d);
	return nr > 0 ? freed_apply(g->e, &tx, &totals, shared, nr) : 0;
}

static int log_what_is_gone(struct gc *g)
{
	/* Pin records are written beside the log, so the log must have the deletions first. */
	int r = is_shared(g) ? engine_sync(g->e) : 0;

	atomic_store(&g->e->gc->any, true);
	for (size_t i = 0, n; i < g->nr_pending && r == 0; i += n) {
		n = MIN(g->nr_pending - i, (size_t)FRAMES_PER_TX);
		r = log_frames(g, g->pending + i, g->pending + i + n);
	}
	if (r == 0)
		r = log_packs(g);
	return r == 0 ? engine_sync(g->e) : r;
}

/* --- step 6 --- */

static int compare_pending(const void *a, const void *b)
{
	const struct gc_pending *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return x->frame < y->frame ? -1 : x->frame > y->frame;
}

/* Does the slot lead to a chunk that is freed? A chunk of varied length may begin in the same block as a freed one; its
 * slot must stay, as RocksDB may not have it yet. */
static bool is_pending(const struct gc *g, const struct fptable_slot *s)
{
	struct addr a = { .pack = s->pack, .off = s->off };
	const struct gc_pending key = { .pack = s->pack, .frame = (s->off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE }, *d;

	if (s->pack == 0 || !gc_window_is_pending(g->w, a))
		return false;
	d = bsearch(&key, g->pending, g->nr_pending, sizeof(*d), compare_pending); /* sorted already */
	return !d || d->chunk_len != PACK_VARIED || gc_bit(&d->fresh, s->number);
}

static void forget_in(const struct gc *g, struct fptable *t) REQUIRES(append_lock)
{
	for (const struct fptable_part *p = t->part; p < t->part + FPTABLE_PARTS; p++)
		for (size_t i = 0; i < p->size;) {
			if (is_pending(g, &p->slots[i]))
				fptable_remove(t, fptable_slot_fp(&p->slots[i])); /* may move another slot here */
			else
				i++;
		}
}

static void forget_hints(struct gc *g)
{
	struct engine *e = g->e;

	dedup_lock_tables(e);
	for (int i = 0; i < NR_DEDUP_TABLES; i++)
		forget_in(g, dedup_table(e, i));
	dedup_unlock_tables(e);
}

static void forget_tables(struct gc *g)
{
	for (const struct gc_pending *d = g->pending; d < g->pending + g->nr_pending; d++)
		packs_forget_table(g->e->packs, d->pack, d->frame);
}

/* --- step 7 --- */

static int remove_packs(struct gc *g)
{
	int r = 0;

	for (size_t i = 0; i < g->w->nr_packs && r == 0; i++)
		if (is_dead(g, &g->w->packs[i])) {
			r = packs_remove(g->e->packs, g->w->packs[i].pack);
			g->report->nr_removed++;
		}
	return r;
}

static int punch_some(struct gc *g, const struct gc_pending *from, const struct gc_pending *end)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int r = 0;

	for (const struct gc_pending *d = from; d < end && r == 0; d++) {
		struct gc_bits gone = either(d->gone, &d->fresh);

		if (d->with_pack || gc_count(&gone) == 0)
			continue;
		r = packs_punch(g->e->packs, d->pack, d->frame, d->chunk_len, d->nr_chunks, gone.w);
		if (reserve_helps(g->e, r)) /* at a quota, btrfs refuses even to free blocks */
			r = packs_punch(g->e->packs, d->pack, d->frame, d->chunk_len, d->nr_chunks, gone.w);
		if (r == 0)
			put_frame(&tx, d, true);
	}
	return r == 0 && tx.records.len > 0 ? engine_tx_apply(g->e, &tx) : r;
}

static int punch(struct gc *g)
{
	int r = 0;

	for (size_t i = 0, n; i < g->nr_pending && r == 0 && gc_goes_on(g); i += n) {
		n = MIN(g->nr_pending - i, (size_t)FRAMES_PER_TX);
		r = punch_some(g, g->pending + i, g->pending + i + n);
	}
	return r;
}

static void count_freed(struct gc *g)
{
	for (const struct gc_pending *d = g->pending; d < g->pending + g->nr_pending; d++) {
		g->report->freed_chunks += gc_count(&d->fresh);
		g->report->freed_bytes += d->bytes;
	}
}

/* Steps 3 to 6. */
static int free_pending(struct gc *g)
{
	struct engine *e = g->e;
	int r;

	mark_pending(g);
	epoch_wait(&e->users);
	keep_shared(g);
	end_dead_packs(g);
	mark_dead_packs(g);
	r = log_what_is_gone(g);
	if (r == 0) {
		count_freed(g);
		r = remove_packs(g);
	}
	forget_hints(g); /* even on failure: the log has all or part of it, and will commit it when it can */
	for (unsigned i = 0; i < 2; i++) {
		forget_tables(g);
		epoch_wait(&e->users);
	}
	if (r == 0)
		r = list_sparse(g);
	gc_window_shut(g);
	return r;
}

static bool has_pending(const struct gc *g)
{
	for (const struct gc_pending *d = g->pending; d < g->pending + g->nr_pending; d++)
		if (gc_count(&d->fresh) > 0)
			return true;
	return false;
}

int gc_sweep(struct gc *g)
{
	bool may_double = has_pending(g);
	int r;

	r = may_double ? moving_begin(g->e) : 0;
	if (r < 0)
		return r;
	r = free_pending(g);
	if (r == 0 && may_double)
		r = gc_merge_twins(g);
	if (r < 0 && may_double)
		moving_abort(g->e);
	gc_window_close(g);
	return r < 0 ? r : punch(g);
}
