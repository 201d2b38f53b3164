/*
 * What is new gets a place in a pack, and is written.
 *
 * To be exact when several writers bring the same new page at once, the last look into memory and the reservation of
 * the place happen under one lock (append_lock); RocksDB needs no second look unless fingerprints moved into it
 * meanwhile (absorb_generation).
 *
 * A place given out before its bytes are written may be shared at once. Whoever shares waits for the write before its
 * recipe says so; if the write failed, it begins again. Crash: nothing in the log points at a frame that was not
 * written.
 *
 * Many new pages make a frame of their own, written from the job's memory; few are copied into the small frame that all
 * jobs share and that is written when it is full or at a commit. The small frame is in our hands: sharing needs no
 * wait. Chunks of varied lengths go to such a frame in any case: they lie anywhere in memory, and disks want whole
 * blocks.
 */
#include <errno.h>

#include "base/util.h"
#include "store/engine/dedup.h"
#include "store/engine/engine_internal.h"

#define BULK_MIN (PACK_FRAME_BYTES / 4 * 3) /* bytes of new pages worth a frame of their own: its table costs 0.5 % */

struct addr batch_find_in_memory(struct engine *e, struct fp fp)
{
	struct fptable_slot *s = fptable_find(&e->recent, fp);
	struct addr a;

	if (!s)
		s = fptable_find(&e->frozen, fp);
	if (!s)
		s = fptable_find(&e->kept, fp);
	if (!s)
		return ADDR_NONE;
	a = (struct addr){ .pack = s->pack, .off = s->off };
	return freed_condemned(e, a) ? ADDR_NONE : a;
}

/* A place in memory's table for a page of this very job: its offset is the index of the page. */
#define PLACEHOLDER FPTABLE_PLACEHOLDER

/* What memory may have there is condemned, damaged, not sure or was refused, or it would have been found. */
static int claim_page(struct engine *e, struct fp fp, unsigned i) REQUIRES(e->append_lock)
{
	struct addr a = { .pack = PLACEHOLDER, .off = i };
	struct fptable_slot *s = fptable_find(&e->recent, fp);

	if (!s)
		return fptable_insert(&e->recent, fp, a, 0);
	s->pack = a.pack;
	s->off = a.off;
	return 0;
}

static int claim(struct engine *e, struct batch *b, unsigned *ret_nr) REQUIRES(e->append_lock)
{
	unsigned nr = 0;
	int r;

	for (unsigned i = 0; i < b->n; i++) {
		struct addr a;

		if (b->cause[i] != UNKNOWN)
			continue;
		a = b->alone[i] ? ADDR_NONE : batch_find_in_memory(e, b->fps[i]);
		/* what is not sure, and came since it was asked for, costs a look into the index with the lock held: seldom */
		if (addr_is_none(a) || addr_equal(a, b->refused[i]) || packs_is_damaged(e->packs, a) ||
		    (a.pack != PLACEHOLDER && !shares_is_sure(e, a, &b->look))) {
			r = b->alone[i] ? 0 : claim_page(e, b->fps[i], i);
			if (r < 0)
				return r;
			b->cause[i] = CLAIMED;
			nr++;
		} else {
			b->addr[i] = a; /* maybe a placeholder: resolved below */
			b->cause[i] = MEMORY;
		}
	}
	*ret_nr = nr;
	return 0;
}

static void unclaim(struct engine *e, struct batch *b) REQUIRES(e->append_lock)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED || b->addr[i].pack == PLACEHOLDER) {
			if (b->cause[i] == CLAIMED && !b->alone[i])
				fptable_remove(&e->recent, b->fps[i]);
			b->addr[i] = ADDR_NONE;
			b->cause[i] = UNKNOWN;
		}
}

static void place(struct engine *e, struct batch *b, unsigned i, struct pack_frame *f) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = b->alone[i] ? NULL : fptable_find(&e->recent, b->fps[i]);

	if (b->page)
		b->addr[i] = pack_frame_add(f, b->fps[i], batch_chunk(b, i));
	else
		b->addr[i] = pack_frame_add_varied(f, b->fps[i], batch_chunk(b, i), batch_len(b, i));
	if (s) {
		s->pack = b->addr[i].pack;
		s->off = b->addr[i].off;
		s->number = pack_frame_last(f);
	}
}

/* Whose the first chunk in it is. */
static struct fp *shared_tweak(struct engine *e, const struct batch *b) REQUIRES(e->append_lock)
{
	return b->page ? &e->small_tweak : &e->varied_tweak;
}

/* The shared frame that takes a chunk like this. */
static struct pack_frame **shared_frame(struct engine *e, const struct batch *b) REQUIRES(e->append_lock)
{
	return b->page ? &e->small : &e->varied;
}

static int small_frame(struct engine *e, const struct batch *b, unsigned i, struct pack_frame **full, unsigned *nr_full)
	REQUIRES(e->append_lock)
{
	struct pack_frame **f = shared_frame(e, b);

	if (*f && !pack_frame_takes(*f, batch_len(b, i))) {
		struct pack_frame *now = collective_holds(e) ? collective_hold(e, TAKE(*f)) : TAKE(*f);

		if (now) {
			full[(*nr_full)++] = now;
			e->nr_filling++;
		}
	}
	if (*f)
		return 0;
	*shared_tweak(e, b) = b->tweak;
	return packs_frame_open(e->packs, PACK_SMALL, b->page, f);
}

/* A frame of its own is compressed as the file is to be; a shared one as anyone wants who is in it, unless they are of
 * several domains: how well bytes compress together tells how much alike they are. */
static void set_compression(struct engine *e, const struct batch *b, struct pack_frame *bulk) REQUIRES(e->append_lock)
{
	struct pack_frame *shared = *shared_frame(e, b);

	if (bulk)
		pack_frame_set_compression(bulk, b->compression);
	else if (shared && !fp_equal(b->tweak, *shared_tweak(e, b)))
		pack_frame_set_uncompressed(shared);
	else if (shared && b->compression.kind != PACK_COMPRESS_NONE)
		pack_frame_set_compression(shared, b->compression);
}

/* Give every claimed page its place. *bulk is the job's own frame, `full` are small frames that are to be written
 * now. */
static int place_all(struct engine *e, struct batch *b, unsigned nr, struct pack_frame **bulk, struct pack_frame **full,
		     unsigned *nr_full) REQUIRES(e->append_lock)
{
	int r = 0;

	if (b->page && nr * (uint64_t)b->page >= BULK_MIN && !collective_holds(e))
		r = packs_frame_open(e->packs, PACK_BULK, b->page, bulk);
	else if (nr > 0 && e->nr_unwritten >= NR_UNWRITTEN_MAX)
		r = e->unwritten_error;
	for (unsigned i = 0; i < b->n && r == 0; i++) {
		if (b->cause[i] != CLAIMED)
			continue;
		if (!*bulk)
			r = small_frame(e, b, i, full, nr_full);
		if (r == 0) {
			set_compression(e, b, *bulk);
			place(e, b, i, *bulk ? *bulk : *shared_frame(e, b));
		}
	}
	for (unsigned i = 0; i < b->n && r == 0; i++)
		if (b->addr[i].pack == PLACEHOLDER)
			b->addr[i] = b->addr[b->addr[i].off];
	return r;
}

/* A small frame that cannot be written now stays in memory, readable, and is tried again at the next commit. */
static void write_small(struct engine *e, struct pack_frame *f)
{
	int r = packs_frame_write(e->packs, f);

	mutex_lock(&e->append_lock);
	if (r < 0) {
		e->unwritten[e->nr_unwritten++] = f;
		e->unwritten_error = r;
	}
	e->nr_filling--;
	cond_broadcast(&e->filling_cond);
	mutex_unlock(&e->append_lock);
}

/* Room for another small frame, if there is any. What the disk refused it may take by now: one of it is tried again. */
static void wait_for_room(struct engine *e) REQUIRES(e->append_lock)
{
	bool tried = false;

	while (e->nr_filling + e->nr_unwritten >= NR_UNWRITTEN_MAX) {
		struct pack_frame *f;

		if (e->nr_filling > 0) {
			cond_wait(&e->filling_cond, &e->append_lock);
			continue;
		}
		if (tried)
			return;
		tried = true;
		f = e->unwritten[--e->nr_unwritten];
		e->nr_filling++;
		mutex_unlock(&e->append_lock);
		write_small(e, f);
		mutex_lock(&e->append_lock);
	}
}

static int write_bulk(struct batch *b, struct pack_frame *f)
{
	struct engine *e = b->e;
	int r = packs_frame_write(e->packs, f);

	if (r == 0)
		return 0;
	mutex_lock(&e->append_lock);
	unclaim(e, b);
	mutex_unlock(&e->append_lock);
	packs_frame_abandon(e->packs, f);
	return r;
}

static void note_written(struct engine *e, const struct batch *b) REQUIRES(e->append_lock)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED)
			alone_wrote(&e->alone, b->fps[i]);
}

int batch_append(struct batch *b, uint64_t generation)
{
	struct pack_frame *bulk = NULL, *full[2]; /* 256 chunks of 1 MiB at most fill one up, and perhaps another */
	struct engine *e = b->e;
	unsigned nr, nr_full = 0;
	bool wants_round, lets_go;
	int r;

	mutex_lock(&e->append_lock);
	wait_for_room(e);
	r = absorb_throttle(e);
	if (r < 0 || e->absorb_generation != generation) {
		mutex_unlock(&e->append_lock);
		return r;
	}
	lets_go = collective_lets_go(e); /* before the last frame that is held is full */
	r = claim(e, b, &nr);
	if (r == 0)
		r = place_all(e, b, nr, &bulk, full, &nr_full);
	if (r < 0)
		unclaim(e, b);
	else if (lets_go)
		note_written(e, b);
	else if (e->conf.cluster_calls && nr > 0)
		e->held_ns = monotonic_ns();
	wants_round = e->wants_round;
	e->wants_round = false;
	mutex_unlock(&e->append_lock);
	if (wants_round)
		collective_want(e);
	for (unsigned i = 0; i < nr_full; i++)
		write_small(e, full[i]);
	if (r < 0) {
		if (bulk)
			packs_frame_abandon(e->packs, bulk);
		return r;
	}
	if (bulk)
		r = write_bulk(b, bulk);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED)
			b->cause[i] = FRESH;
	return 1;
}

/* All small frames there are, in memory of the caller's. */
static int take_frames(struct engine *e, struct pack_frame ***ret, size_t *ret_nr) REQUIRES(e->append_lock)
{
	size_t nr = 0, max = e->nr_unwritten + e->nr_held + 2;
	_cleanup_(freep) struct pack_frame **frames = calloc(max, sizeof(*frames));

	if (!frames || !collective_make_room(e, e->nr_unwritten + 2))
		return -ENOMEM;
	while (e->nr_unwritten > 0)
		frames[nr++] = e->unwritten[--e->nr_unwritten];
	for (size_t i = 0; i < e->nr_held; i++)
		frames[nr++] = e->held[i];
	e->nr_held = 0;
	e->is_round_due = false;
	if (e->small)
		frames[nr++] = TAKE(e->small);
	if (e->varied)
		frames[nr++] = TAKE(e->varied);
	collective_arrive(e);
	*ret = TAKE(frames);
	*ret_nr = nr;
	return 0;
}

/* Of a cluster: those that could not be written are held. */
static int sync_in_round(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret)
{
	int r = collective_sync(e, frames, nr, ret);

	mutex_lock(&e->append_lock);
	collective_put_back(e, frames, nr);
	mutex_unlock(&e->append_lock);
	return r;
}

/*
 * Called by a commit: every chunk the log refers to is written, then durable. The sync's point is set under the lock
 * that frames are opened with, when no small frame is open: each frame before it is with a thread that is writing it.
 */
int dedup_sync_frames(struct engine *e, struct pack_marks *ret)
{
	_cleanup_(freep) struct pack_frame **frames = NULL;
	bool in_round;
	size_t nr = 0;
	int r;

	mutex_lock(&e->append_lock);
	r = take_frames(e, &frames, &nr);
	if (r < 0) {
		mutex_unlock(&e->append_lock);
		return r;
	}
	in_round = e->conf.cluster_calls || e->unsettled;
	if (in_round)
		e->nr_taken += nr;
	else
		e->nr_filling += (unsigned)nr;
	e->is_offering = in_round && nr > 0;
	packs_sync_begin(e->packs);
	mutex_unlock(&e->append_lock);
	if (in_round)
		return sync_in_round(e, frames, nr, ret);
	for (size_t i = 0; i < nr; i++)
		write_small(e, frames[i]);
	return packs_sync_end(e->packs, ret); /* a frame that cannot be written makes it fail */
}
