/*
 * Appending new chunks to packs.
 *
 * When several writers bring the same new page at once, it must be stored exactly once. The last lookup in memory and
 * the reservation of the address therefore happen under one lock (append_lock). RocksDB needs no second lookup unless
 * fingerprints were absorbed into it meanwhile (absorb_generation).
 *
 * An address can be shared as soon as it is reserved, before the bytes are written. A job that shares it waits for the
 * write before its recipe refers to it; if the write failed, the job starts again. Crash: nothing in the log refers to
 * a frame that was not written.
 *
 * Many new pages get a frame of their own, written directly from the job's memory. A few are copied into the small
 * frame that all jobs share; it is written when it is full or at a commit. Its bytes are in memory, so sharing them
 * needs no wait. Chunks of variable length always go into such a frame: they are not aligned in memory, and disks want
 * whole blocks.
 */
#include <errno.h>

#include "base/util.h"
#include "store/dedup/absorb.h"
#include "store/dedup/dedup.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_state.h"
#include "store/dedup/dedup_tables.h"
#include "store/gc/gc_freed.h"

#define BULK_MIN (PACK_FRAME_BYTES / 4 * 3) /* bytes of new pages worth a separate frame: its table costs 0.5 % */

struct addr batch_find_in_memory(struct engine *e, struct fp fp)
{
	struct fptable_slot *s = fptable_find(&e->dedup->recent, fp);
	struct addr a;

	if (!s)
		s = fptable_find(&e->dedup->frozen, fp);
	if (!s)
		s = fptable_find(&e->dedup->kept, fp);
	if (!s)
		return ADDR_NONE;
	a = (struct addr){ .pack = s->pack, .off = s->off };
	return freed_condemned(e, a) ? ADDR_NONE : a;
}

/* Entry in memory's table for a page of this job; its offset is the index of the page. */
#define PLACEHOLDER FPTABLE_PLACEHOLDER

/* An existing entry is gc-pending, damaged, not usable or was refused, or it would have been found. */
static int claim_page(struct engine *e, struct fp fp, unsigned i) REQUIRES(append_lock)
{
	struct addr a = { .pack = PLACEHOLDER, .off = i };
	struct fptable_slot *s = fptable_find(&e->dedup->recent, fp);

	if (!s)
		return fptable_insert(&e->dedup->recent, fp, a, 0);
	s->pack = a.pack;
	s->off = a.off;
	return 0;
}

static int claim(struct engine *e, struct batch *b, unsigned *ret_nr) REQUIRES(append_lock)
{
	unsigned nr = 0;
	int r;

	for (unsigned i = 0; i < b->n; i++) {
		struct addr a;

		if (b->cause[i] != UNKNOWN)
			continue;
		a = b->alone[i] ? ADDR_NONE : batch_find_in_memory(e, b->fps[i]);
		/* an entry added since the lookup that is not usable costs an index lookup under the lock: rare */
		if (addr_is_none(a) || addr_equal(a, b->refused[i]) || packs_is_damaged(e->packs, a) ||
		    (a.pack != PLACEHOLDER && !batch_may_refer(b, a))) {
			r = b->alone[i] ? 0 : claim_page(e, b->fps[i], i);
			if (r < 0)
				return r;
			b->cause[i] = CLAIMED;
			nr++;
		} else {
			b->addr[i] = a; /* PLACEHOLDER: claimed earlier in this batch, place_all() sets it */
			b->cause[i] = MEMORY;
		}
	}
	*ret_nr = nr;
	return 0;
}

static void unclaim(struct engine *e, struct batch *b) REQUIRES(append_lock)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED || b->addr[i].pack == PLACEHOLDER) {
			if (b->cause[i] == CLAIMED && !b->alone[i])
				fptable_remove(&e->dedup->recent, b->fps[i]);
			b->addr[i] = ADDR_NONE;
			b->cause[i] = UNKNOWN;
		}
}

static void place_chunk(struct engine *e, struct batch *b, unsigned i, struct pack_frame *f) REQUIRES(append_lock)
{
	struct fptable_slot *s = b->alone[i] ? NULL : fptable_find(&e->dedup->recent, b->fps[i]);

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

/* Tweak of the first chunk in the shared frame. */
static struct fp *shared_tweak(struct engine *e, const struct batch *b) REQUIRES(append_lock)
{
	return b->page ? &e->dedup->small_tweak : &e->dedup->varied_tweak;
}

/* The shared frame for chunks like these. */
static struct pack_frame **shared_frame(struct engine *e, const struct batch *b) REQUIRES(append_lock)
{
	return b->page ? &e->dedup->small : &e->dedup->varied;
}

static int small_frame(struct engine *e, const struct batch *b, unsigned i, struct pack_frame **full, unsigned *nr_full)
	REQUIRES(append_lock)
{
	struct pack_frame **f = shared_frame(e, b);

	if (*f && !pack_frame_takes(*f, batch_len(b, i))) {
		struct pack_frame *now = TAKE(*f);

		if (e->remote)
			now = e->remote->defer(e, now);
		if (now) {
			full[(*nr_full)++] = now;
			e->dedup->nr_filling++;
		}
	}
	if (*f)
		return 0;
	*shared_tweak(e, b) = b->tweak;
	return packs_frame_open(e->packs, PACK_SMALL, b->page, f);
}

/* A separate frame is compressed as its file requests. A shared frame is compressed if any file in it requests it,
 * unless it holds several domains: how well bytes compress together reveals how similar they are. */
static void set_compression(struct engine *e, const struct batch *b, struct pack_frame *bulk) REQUIRES(append_lock)
{
	struct pack_frame *shared = *shared_frame(e, b);

	if (bulk)
		pack_frame_set_compression(bulk, b->compression);
	else if (shared && !fp_equal(b->tweak, *shared_tweak(e, b)))
		pack_frame_set_uncompressed(shared);
	else if (shared && b->compression.kind != PACK_COMPRESS_NONE)
		pack_frame_set_compression(shared, b->compression);
}

/* Assign an address to every claimed chunk. *bulk is the job's own frame; `full` are small frames to be written now. */
static int place_all(struct engine *e, struct batch *b, unsigned nr, struct pack_frame **bulk, struct pack_frame **full,
		     unsigned *nr_full) REQUIRES(append_lock)
{
	bool is_deferring = e->remote && e->remote->is_deferring(e);
	int r = 0;

	if (b->page && nr * (uint64_t)b->page >= BULK_MIN && !is_deferring)
		r = packs_frame_open(e->packs, PACK_BULK, b->page, bulk);
	else if (nr > 0 && e->dedup->nr_unwritten >= NR_UNWRITTEN_MAX)
		r = e->dedup->unwritten_error;
	for (unsigned i = 0; i < b->n && r == 0; i++) {
		if (b->cause[i] != CLAIMED)
			continue;
		if (!*bulk)
			r = small_frame(e, b, i, full, nr_full);
		if (r == 0) {
			set_compression(e, b, *bulk);
			place_chunk(e, b, i, *bulk ? *bulk : *shared_frame(e, b));
		}
	}
	for (unsigned i = 0; i < b->n && r == 0; i++)
		if (b->addr[i].pack == PLACEHOLDER)
			b->addr[i] = b->addr[b->addr[i].off];
	return r;
}

/* A small frame that cannot be written stays in memory, readable, and is retried at the next commit. */
static void write_small(struct engine *e, struct pack_frame *f)
{
	int r = packs_frame_write(e->packs, f);

	dedup_lock(e);
	if (r < 0) {
		e->dedup->unwritten[e->dedup->nr_unwritten++] = f;
		e->dedup->unwritten_error = r;
	}
	e->dedup->nr_filling--;
	dedup_wake(e);
	dedup_unlock(e);
}

/* Wait for room for another small frame. The disk may accept by now what it refused before: retry one such frame. */
static void wait_for_room(struct engine *e) REQUIRES(append_lock)
{
	bool tried = false;

	while (e->dedup->nr_filling + e->dedup->nr_unwritten >= NR_UNWRITTEN_MAX) {
		struct pack_frame *f;

		if (e->dedup->nr_filling > 0) {
			dedup_wait(e);
			continue;
		}
		if (tried)
			return;
		tried = true;
		f = e->dedup->unwritten[--e->dedup->nr_unwritten];
		e->dedup->nr_filling++;
		dedup_unlock(e);
		write_small(e, f);
		dedup_lock(e);
	}
}

static int write_bulk(struct batch *b, struct pack_frame *f)
{
	struct engine *e = b->e;
	int r = packs_frame_write(e->packs, f);

	if (r == 0)
		return 0;
	dedup_lock(e);
	unclaim(e, b);
	dedup_unlock(e);
	packs_frame_abandon(e->packs, f);
	return r;
}

int batch_append(struct batch *b, uint64_t generation)
{
	struct pack_frame *bulk = NULL, *full[2]; /* 256 chunks of at most 1 MiB in all fill one, and perhaps another */
	struct engine *e = b->e;
	unsigned nr, nr_full = 0;
	bool begun = false, wants_round = false;
	int r;

	dedup_lock(e);
	wait_for_room(e);
	r = absorb_throttle(e);
	if (r < 0 || e->dedup->absorb_generation != generation) {
		dedup_unlock(e);
		return r;
	}
	if (e->remote)
		begun = e->remote->append_begin(e);
	r = claim(e, b, &nr);
	if (r == 0)
		r = place_all(e, b, nr, &bulk, full, &nr_full);
	if (r < 0)
		unclaim(e, b);
	if (e->remote)
		wants_round = e->remote->append_end(e, begun, r < 0 ? NULL : b);
	dedup_unlock(e);
	if (wants_round)
		e->remote->request_round(e);
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

/* Take all small frames, in an array that the caller frees; it has room for the deferred ones. */
static int take_frames(struct engine *e, struct pack_frame ***ret, size_t *ret_nr) REQUIRES(append_lock)
{
	int nr_deferred = e->remote ? e->remote->sync_room(e, e->dedup->nr_unwritten + 2) : 0;
	_cleanup_(freep) struct pack_frame **frames = NULL;
	size_t nr = 0;

	if (nr_deferred < 0)
		return nr_deferred;
	frames = calloc(e->dedup->nr_unwritten + 2 + (size_t)nr_deferred, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	while (e->dedup->nr_unwritten > 0)
		frames[nr++] = e->dedup->unwritten[--e->dedup->nr_unwritten];
	if (e->dedup->small)
		frames[nr++] = TAKE(e->dedup->small);
	if (e->dedup->varied)
		frames[nr++] = TAKE(e->dedup->varied);
	*ret = TAKE(frames);
	*ret_nr = nr;
	return 0;
}

/*
 * Called by a commit: write every chunk that the log refers to, then make them durable. The sync point is set under
 * append_lock, under which frames are opened, when no small frame is open: every frame before it is being written by
 * some thread.
 */
int dedup_sync_frames(struct engine *e, struct pack_marks *ret)
{
	_cleanup_(freep) struct pack_frame **frames = NULL;
	bool is_remote = false;
	size_t nr = 0;
	int r;

	dedup_lock(e);
	r = take_frames(e, &frames, &nr);
	if (r < 0) {
		dedup_unlock(e);
		return r;
	}
	if (e->remote)
		is_remote = e->remote->sync_begin(e, frames, &nr);
	if (!is_remote)
		e->dedup->nr_filling += (unsigned)nr;
	packs_sync_begin(e->packs);
	dedup_unlock(e);
	if (is_remote)
		return e->remote->sync_frames(e, frames, nr, ret);
	for (size_t i = 0; i < nr; i++)
		write_small(e, frames[i]);
	return packs_sync_end(e->packs, ret); /* fails if a frame could not be written */
}
