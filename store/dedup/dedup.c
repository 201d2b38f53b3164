/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Deduplication of a job's chunks: pages or, chunked by content (chunker.h), of variable length.
 *
 *   chunk ─ all zero ─────────────────────────────▶ hole
 *     │ fingerprint
 *     ├─ same as the champion's at this offset? ──▶ champion   (compared with the pack's table, no lookup)
 *     ├─ same as the chunk after the last match? ─▶ successor  (likewise: neighbours stay neighbours)
 *     ├─ in memory: stored recently? ─────────────▶ memory
 *     ├─ in RocksDB? ─────────────────────────────▶ indexed    (unless the filter excludes it; one by one, after some
 *     │                                                        misses the rest in one batch)
 *     ├─ auto, and moved in the champion? ────────▶ shifted    (shifted.c; byte-exact: the rest of its pages is
 *     │                                                        chunked and goes through all steps again)
 *     └─ no: append ──────────────────────────────▶ fresh
 *
 * Every match is an address at which the pack's own table has the full fingerprint.
 *
 * When several writers bring the same new page at once, it must be stored exactly once. The last lookup in memory and
 * the reservation of the address therefore happen under one lock: that of the page's part of the tables, so that
 * batches append side by side, or append_lock (dedup_state.h). RocksDB needs no second lookup unless fingerprints were
 * absorbed into it meanwhile (absorb_generation).
 *
 * An address can be shared as soon as it is reserved, before the bytes are written. A job that shares it waits for the
 * write before its recipe refers to it; if the write failed, the job starts again. Crash: nothing in the log refers to
 * a frame that was not written.
 *
 * Many new pages get a frame of their own, written directly from the job's memory. A few are copied into a small
 * frame that jobs share (small_frames.h); it is written when it is full or at a commit. Its bytes are in memory, so
 * sharing them needs no wait. Chunks of variable length always go into such a frame: they are not aligned in memory,
 * and disks want whole blocks.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "index/fingerprints.h"
#include "store/check/repair.h"
#include "store/dedup/absorb.h"
#include "store/dedup/champions.h"
#include "store/dedup/compress.h"
#include "store/dedup/dedup.h"
#include "store/dedup/dedup_state.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/domains.h"
#include "store/dedup/small_frames.h"
#include "store/dedup/write_jobs.h"
#include "store/engine_state.h"
#include "store/file/content.h"
#include "store/gc/gc_freed.h"

#define TRIES_MAX 100u /* attempts to share a chunk after a failed write, until its writer removes the entry */
#define MISSES_MAX 4u /* consecutive misses before the rest is looked up in one batch */
#define SAMPLES 8u /* chunks of a batch that probably tell whether memory has any */
#define BULK_MIN (PACK_FRAME_BYTES / 4 * 3) /* bytes of new pages worth a separate frame: its table costs 0.5 % */

/* --- looking up --- */

/* Fingerprint runs of unknown chunks. */
static void fingerprint(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		unsigned start = i;

		while (i < b->n && b->cause[i] == UNKNOWN)
			i++;
		for (unsigned k = start; !b->page && k < i; k++)
			b->fps[k] = fp_of(&b->e->key, batch_chunk(b, k), batch_len(b, k));
		if (b->page && i > start)
			fp_of_each(&b->e->key, batch_chunk(b, start), b->page, i - start, b->fps + start);
		for (unsigned k = start; k < i && !fp_is_none(b->tweak); k++)
			b->fps[k] = fp_xor(b->fps[k], b->tweak);
	}
}

static unsigned nr_unknown(const struct batch *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < b->n; i++)
		n += b->cause[i] == UNKNOWN;
	return n;
}

static bool all_known(const struct batch *b)
{
	return memchr(b->cause, UNKNOWN, b->n) == NULL;
}

static void ask_file(struct batch *b, struct content *c)
{
	struct addr a[PAGES_MAX];

	if (content_addresses(c, b->off, b->at, b->n, a) == 0)
		batch_compare(b, a, CHAMPION); /* without it, lookups only take longer */
}

/* Try the file's own old bytes, then its champions until one matches most. */
static void ask_champions(struct batch *b)
{
	struct content *champions[CHAMPIONS_MAX];
	unsigned nr;

	ask_file(b, b->c);
	nr = champions_get(b->c, false, champions);
	for (unsigned i = 0; i < nr; i++) {
		unsigned before = nr_unknown(b);

		if (before > b->n / 2) {
			ask_file(b, champions[i]);
			champion_knew(b->c, champions[i], before - nr_unknown(b), b->n);
		}
		content_close(champions[i]);
	}
}

/* Chunk i has been found: the chunks that follow in its frame probably follow in the file too, except changed ones. */
static void ask_neighbours(struct batch *b, unsigned i)
{
	struct addr a[PAGES_MAX];

	for (unsigned k = 0; k < b->n; k++) {
		a[k] = k > i ? batch_after(b, b->addr[i], i, k) : ADDR_NONE;
		if (!addr_is_none(a[k]) && !pack_same_frame(a[k], b->addr[i]))
			a[k] = ADDR_NONE;
	}
	batch_compare(b, a, SUCCESSOR);
}

/* Those of one part. */
static void look_in_part(struct batch *b, unsigned part, const uint8_t *those, unsigned nr, struct addr *ret)
	REQUIRES_SHARED(append_lock)
{
	struct dedup *d = b->e->dedup;

	mutex_lock(&d->part[part].lock);
	for (unsigned k = 0; k < nr; k++)
		ret[those[k]] = batch_find_in_memory(b->e, b->fps[those[k]]);
	mutex_unlock(&d->part[part].lock);
}

/* Each lookup in memory is a cache miss: fetch them all before the first one stalls, with no lock of a part held. */
static void prefetch(const struct batch *b) REQUIRES_SHARED(append_lock)
{
	const struct dedup *d = b->e->dedup;

	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == UNKNOWN) {
			fptable_prefetch(&d->recent, b->fps[i]);
			fptable_prefetch(&d->frozen, b->fps[i]);
			fptable_prefetch(&d->kept, b->fps[i]);
		}
}

/* Can some unknown chunk be in RocksDB? */
static bool ask_filter(struct batch *b) REQUIRES_SHARED(append_lock)
{
	const struct fingerprint_filter *f = &b->e->dedup->filter.in_use;
	bool any = false;

	for (unsigned i = 0; i < b->n && f->blocks; i++)
		if (b->cause[i] == UNKNOWN)
			__builtin_prefetch(fingerprint_filter_block(f, fingerprint_key(b->fps[i])));
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == UNKNOWN) {
			b->absent[i] = f->blocks && !fingerprint_filter_has(f, fingerprint_key(b->fps[i]));
			any |= !b->absent[i];
		}
	return any;
}

/* Enough new pages for a frame of their own? */
static bool is_bulk(const struct batch *b)
{
	return b->page && nr_unknown(b) * (uint64_t)b->page >= BULK_MIN;
}

/* Has memory one of a few unknown pages? The first one is among them: a batch that brings the same pages at this moment
 * begins with it. */
static bool has_sample(struct batch *b) REQUIRES_SHARED(append_lock)
{
	struct addr a[PAGES_MAX];
	uint8_t i;

	for (unsigned at = 0; at < b->n; at += MAX(b->n / SAMPLES, 1u)) {
		const uint8_t *unknown = memchr(b->cause + at, UNKNOWN, b->n - at);

		if (!unknown)
			return false;
		i = (uint8_t)(unknown - b->cause);
		look_in_part(b, fptable_part_of(b->fps[i]), &i, 1, a);
		if (!addr_is_none(a[i]))
			return true;
	}
	return false;
}

/* Then a lookup beforehand is not needed: its pages are looked up when they get their places. But nothing except damage
 * is checked there, so not if a known page may be refused for other reasons. */
static bool seems_new(struct batch *b) REQUIRES_SHARED(append_lock)
{
	return is_bulk(b) && !b->e->remote && !b->e->conf.verify && !has_sample(b);
}

/* The addresses that memory has for unknown chunks. Returns whether some can be known: to memory, or to RocksDB. */
static bool look_in_memory(struct batch *b, struct addr *ret) REQUIRES_SHARED(append_lock)
{
	unsigned nr[FPTABLE_PARTS] = { 0 }, end = 0;
	uint8_t part[PAGES_MAX], those[PAGES_MAX];
	bool any = ask_filter(b);

	prefetch(b);
	for (unsigned i = 0; i < b->n; i++)
		ret[i] = ADDR_NONE;
	if (!any && seems_new(b))
		return false;
	for (unsigned i = 0; i < b->n; i++) {
		part[i] = (uint8_t)fptable_part_of(b->fps[i]);
		nr[part[i]] += b->cause[i] == UNKNOWN;
	}
	for (unsigned p = 0; p < FPTABLE_PARTS; p++) { /* nr[p]: where its chunks begin in `those` */
		unsigned n = nr[p];

		nr[p] = end;
		end += n;
	}
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == UNKNOWN)
			those[nr[part[i]]++] = (uint8_t)i;
	for (unsigned k = 0, n; k < end; k += n) {
		n = nr[part[those[k]]] - k;
		look_in_part(b, part[those[k]], those + k, n, ret);
	}
	for (unsigned k = 0; k < end; k++)
		any |= !addr_is_none(ret[those[k]]);
	return any;
}

static void use_memory(struct batch *b, const struct addr *a)
{
	for (unsigned i = 0; i < b->n; i++) {
		if (b->cause[i] != UNKNOWN || b->alone[i] || addr_is_none(a[i]))
			continue;
		if (batch_use_known(b, i, a[i], MEMORY))
			ask_neighbours(b, i);
		else
			b->refused[i] = a[i];
	}
}

/* Look up all chunks still unknown from `from` on in one batch. */
static int ask_index_all(struct batch *b, unsigned from)
{
	struct fp fps[PAGES_MAX];
	struct addr a[PAGES_MAX], found;
	unsigned n = 0, in_vain = 0;
	int r;

	for (unsigned i = from; i < b->n; i++)
		if (b->cause[i] == UNKNOWN && !b->absent[i] && !b->alone[i])
			fps[n++] = b->fps[i];
	r = n > 0 ? fingerprints_find(b->e->db, fps, n, a) : 0;
	if (r < 0)
		return r;
	n = 0;
	for (unsigned i = from; i < b->n; i++)
		if (b->cause[i] == UNKNOWN && !b->absent[i] && !b->alone[i]) {
			if (addr_is_none(a[n]))
				in_vain++;
			else if (batch_matches(b, i, a[n], &found))
				batch_use_known(b, i, found, INDEXED);
			n++;
		}
	atomic_fetch_add_explicit(&b->e->count.in_vain, in_vain, memory_order_relaxed);
	return 0;
}

/* A hit is often followed by its neighbours, which need no further lookup; several misses are followed by more. */
static int ask_index(struct batch *b)
{
	unsigned misses = 0;
	struct addr a;
	int r;

	for (unsigned i = 0; i < b->n; i++) {
		if (b->cause[i] != UNKNOWN || b->absent[i] || b->alone[i])
			continue;
		r = fingerprints_find(b->e->db, &b->fps[i], 1, &a);
		if (r < 0)
			return r;
		if (!addr_is_none(a) && batch_matches(b, i, a, &a) && batch_use_known(b, i, a, INDEXED)) {
			ask_neighbours(b, i);
			misses = 0;
		} else if (++misses == MISSES_MAX) {
			return ask_index_all(b, i + 1);
		}
	}
	return 0;
}

/*
 * A shared chunk may still be in flight. 1: all are written, 0: a write failed and its chunk is unknown again. The job
 * that failed removes its entry from `recent`. If that table has been frozen meanwhile the entry stays, so after some
 * tries this job stores its own copy.
 */
static int wait_for_shared(struct batch *b, unsigned nr_tries)
{
	struct addr there = ADDR_NONE; /* the last address waited for; covers its whole frame */
	int all = 1;

	for (unsigned i = 0; i < b->n; i++) {
		if (b->cause[i] == ZERO || b->cause[i] == SHIFTED || b->cause[i] == FRESH)
			continue;
		if (!addr_is_none(there) && pack_same_frame(there, b->addr[i]))
			continue;
		if (packs_wait(b->e->packs, b->addr[i]) == 0) {
			there = b->addr[i];
			continue;
		}
		b->addr[i] = ADDR_NONE;
		b->cause[i] = UNKNOWN;
		b->alone[i] = nr_tries >= TRIES_MAX;
		all = 0;
	}
	if (!all)
		sched_yield(); /* give the failed job time to remove its entry */
	return all;
}

/* --- appending --- */

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
	return freed_is_gc_pending(e, a) ? ADDR_NONE : a;
}

/* Entry in memory's table for a page of this job; its offset is the index of the page. */
#define PLACEHOLDER FPTABLE_PLACEHOLDER

/* An existing entry is gc-pending, damaged, not usable or was refused, or it would have been found. 1: inserted, which
 * the caller counts (fptable_count()); 0: replaced */
static int put_entry(struct dedup *d, struct fp fp, struct addr a, uint8_t number) REQUIRES_SHARED(append_lock)
{
	struct fptable_slot *s = fptable_find(&d->recent, fp);

	if (!s) {
		int r = fptable_insert_uncounted(&d->recent, fp, a, number);

		return r < 0 ? r : 1;
	}
	s->pack = a.pack;
	s->off = a.off;
	s->number = number;
	return 0;
}

static int claim_page(struct engine *e, struct fp fp, unsigned i) REQUIRES(append_lock)
{
	int r = put_entry(e->dedup, fp, (struct addr){ .pack = PLACEHOLDER, .off = i }, 0);

	if (r > 0)
		fptable_count(&e->dedup->recent, 1);
	return MIN(r, 0);
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

static struct addr add_chunk(const struct batch *b, unsigned i, struct pack_frame *f)
{
	if (b->page)
		return pack_frame_add(f, b->fps[i], batch_chunk(b, i));
	return pack_frame_add_varied(f, b->fps[i], batch_chunk(b, i), batch_len(b, i));
}

static void place_chunk(struct engine *e, struct batch *b, unsigned i, struct pack_frame *f) REQUIRES(append_lock)
{
	struct fptable_slot *s = b->alone[i] ? NULL : fptable_find(&e->dedup->recent, b->fps[i]);

	b->addr[i] = add_chunk(b, i, f);
	if (s) {
		s->pack = b->addr[i].pack;
		s->off = b->addr[i].off;
		s->number = pack_frame_last(f);
	}
}

static int bulk_frame(const struct batch *b, struct pack_frame **ret)
{
	int r = packs_frame_open(b->e->packs, PACK_BULK, b->page, ret);

	if (r == 0)
		pack_frame_set_compression(*ret, b->compression);
	return r;
}

/* Assign an address to every claimed chunk. *bulk is the job's own frame; `full` are small frames to be written now. */
static int place_all(struct engine *e, struct batch *b, unsigned nr, struct pack_frame **bulk, struct pack_frame **full,
		     unsigned *nr_full) REQUIRES(append_lock)
{
	bool is_deferring = e->remote && e->remote->is_deferring(e);
	int r = 0;

	if (b->page && nr * (uint64_t)b->page >= BULK_MIN && !is_deferring)
		r = bulk_frame(b, bulk);
	for (unsigned i = 0; i < b->n && r == 0; i++) {
		struct pack_frame *f = *bulk;

		if (b->cause[i] != CLAIMED)
			continue;
		if (!f)
			r = small_frame_for(e, &e->dedup->shared[0], b, i, full, nr_full, &f);
		if (r == 0)
			place_chunk(e, b, i, f);
	}
	for (unsigned i = 0; i < b->n && r == 0; i++)
		if (b->addr[i].pack == PLACEHOLDER)
			b->addr[i] = b->addr[b->addr[i].off];
	return r;
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

static void set_fresh(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED)
			b->cause[i] = FRESH;
}

/*
 * A batch beside others, with the lock held shared. Since its chunks were looked up, all that can have changed is that
 * another batch, or this one, has brought the same chunk, unless fingerprints were absorbed.
 *
 * Two batches that bring the same chunks must not take turns: they would fill two frames with every other chunk, and
 * all files that have them would read from both ever after. So a batch of which memory had some (`a`), or has the first
 * one by now (-EAGAIN), appends with the lock held alone, which waits until the other batch has claimed all.
 */

static bool may_append_beside(const struct batch *b, const struct addr *a, uint64_t generation)
	REQUIRES_SHARED(append_lock)
{
	for (unsigned i = 0; i < b->n; i++)
		if (!addr_is_none(a[i]) || b->alone[i])
			return false;
	return !b->e->remote && b->e->dedup->absorb_generation == generation && absorb_has_room(b->e);
}

/* Find chunk i, or give it the next place of the frame. It stays unknown if it is found and damaged. 1: there is a new
 * entry, to be counted */
static int claim_beside(struct batch *b, unsigned i, struct pack_frame *f) REQUIRES_SHARED(append_lock)
{
	struct dedup *d = b->e->dedup;
	struct mutex *lock = &d->part[fptable_part_of(b->fps[i])].lock;
	struct addr a;
	int r;

	mutex_lock(lock);
	a = batch_find_in_memory(b->e, b->fps[i]);
	if (!addr_is_none(a)) {
		if (!packs_is_damaged(b->e->packs, a)) {
			b->addr[i] = a;
			b->cause[i] = MEMORY;
		}
		mutex_unlock(lock);
		return 0;
	}
	a = add_chunk(b, i, f);
	r = put_entry(d, b->fps[i], a, pack_frame_last(f));
	mutex_unlock(lock);
	if (r < 0)
		return r;
	b->addr[i] = a;
	b->cause[i] = CLAIMED;
	return r;
}

/* Claim all that are unknown, in `bulk` or, if it is NULL, in shared frames. -EAGAIN: another batch has claimed the
 * first of them. */
static int claim_all_beside(struct batch *b, struct pack_frame *bulk, struct shared_frames *s, struct pack_frame **full,
			    unsigned *nr_full) REQUIRES_SHARED(append_lock)
{
	struct pack_frame *f = bulk;
	unsigned nr_inserted = 0;
	bool any = false;
	int r = 0;

	for (unsigned i = 0; i < b->n && r >= 0; i++) {
		if (b->cause[i] != UNKNOWN)
			continue;
		if (!bulk)
			r = small_frame_for(b->e, s, b, i, full, nr_full, &f);
		if (r >= 0)
			r = claim_beside(b, i, f);
		nr_inserted += r > 0;
		any |= b->cause[i] == CLAIMED;
		if (r >= 0 && !any)
			r = -EAGAIN;
	}
	fptable_count(&b->e->dedup->recent, nr_inserted);
	return MIN(r, 0);
}

/* In a frame of its own. As batch_append(), and -EAGAIN. */
static int append_bulk_beside(struct batch *b) RELEASE_SHARED(append_lock)
{
	struct engine *e = b->e;
	struct pack_frame *f;
	int r = bulk_frame(b, &f);

	if (r < 0) {
		dedup_unlock_shared(e);
		return r;
	}
	r = claim_all_beside(b, f, NULL, NULL, NULL);
	dedup_unlock_shared(e);
	if (r < 0) {
		dedup_lock(e);
		unclaim(e, b);
		dedup_unlock(e);
		packs_frame_abandon(e->packs, f);
		return r;
	}
	r = write_bulk(b, f);
	if (r < 0)
		return r;
	set_fresh(b);
	return all_known(b);
}

/* The same in frames that jobs share. On failure the chunks claimed so far stay known: their bytes are in a frame. */
static int append_shared_beside(struct batch *b) RELEASE_SHARED(append_lock)
{
	struct engine *e = b->e;
	struct shared_frames *s = shared_frames_take(e);
	bool has_room = small_frames_have_room(e);
	struct pack_frame *full[2]; /* as in batch_append() */
	unsigned nr_full = 0;
	int r = has_room ? claim_all_beside(b, NULL, s, full, &nr_full) : 0;

	shared_frames_put(s);
	dedup_unlock_shared(e);
	for (unsigned i = 0; i < nr_full; i++)
		small_frame_write(e, full[i]);
	if (r < 0)
		return r;
	if (!has_room)
		return small_frames_wait(e);
	set_fresh(b);
	return all_known(b);
}

static int append_beside(struct batch *b) RELEASE_SHARED(append_lock)
{
	return is_bulk(b) ? append_bulk_beside(b) : append_shared_beside(b);
}

/* 1: appended; 0: fingerprints were absorbed into RocksDB since `generation`, or it had to wait: look up again; <0. Drops
 * the lock. */
static int batch_append(struct batch *b, uint64_t generation) RELEASE(append_lock)
{
	struct pack_frame *bulk = NULL, *full[2]; /* 256 chunks of at most 1 MiB in all fill one, and perhaps another */
	struct engine *e = b->e;
	unsigned nr, nr_full = 0;
	bool begun = false, wants_round = false;
	int r;

	if (!small_frames_have_room(e)) {
		dedup_unlock(e);
		return small_frames_wait(e);
	}
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
		small_frame_write(e, full[i]);
	if (r < 0) {
		if (bulk)
			packs_frame_abandon(e->packs, bulk);
		return r;
	}
	if (bulk)
		r = write_bulk(b, bulk);
	if (r < 0)
		return r;
	set_fresh(b);
	return 1;
}

/* --- the whole batch --- */

static void count_causes(struct batch *b)
{
	struct engine_counters *k = &b->e->count;
	_Atomic uint64_t *const counter[] = {
		[ZERO] = &k->zero,     [CHAMPION] = &k->champion, [SUCCESSOR] = &k->successor,
		[MEMORY] = &k->memory, [INDEXED] = &k->indexed,	  [FRESH] = &k->fresh,
	}; /* take_shifted() counts SHIFTED, by bytes */
	uint64_t bytes[FRESH + 1] = { 0 };

	for (unsigned i = 0; i < b->n; i++)
		bytes[b->cause[i]] += batch_len(b, i);
	for (int i = ZERO; i <= FRESH; i++)
		if (bytes[i] && counter[i])
			atomic_fetch_add_explicit(counter[i], bytes[i], memory_order_relaxed);
}

static void note_damaged(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] != ZERO && !b->alone[i] && !addr_is_none(b->damaged[i]) &&
		    !addr_equal(b->addr[i], b->damaged[i]))
			repair_note(b->e, b->damaged[i], batch_len(b, i), b->addr[i]);
}

/* Extents of the first `len` bytes, which start at `base` of the job. */
static int extents_of(struct batch *b, uint32_t base, uint32_t len, struct extent_list *ret)
{
	int r = 0;

	for (unsigned i = 0; i < b->n && r == 0; i++)
		if (b->cause[i] != ZERO && b->cause[i] != SHIFTED)
			r = extent_list_add(ret, base + b->at[i], MIN(len, b->at[i + 1]) - b->at[i], b->addr[i]);
	return r;
}

/* Find each unknown chunk or append it. 1: done; 0: begin again; <0. */
static int find_or_append(struct batch *b)
{
	struct engine *e = b->e;
	struct addr a[PAGES_MAX];
	uint64_t generation;
	bool any;
	int r;

	dedup_lock_shared(e);
	generation = e->dedup->absorb_generation;
	any = look_in_memory(b, a);
	if (any) {
		dedup_unlock_shared(e);
		use_memory(b, a);
		r = all_known(b) ? 0 : ask_index(b);
		if (r < 0 || all_known(b))
			return r < 0 ? r : 1;
		dedup_lock_shared(e);
	}
	if (may_append_beside(b, a, generation)) {
		r = append_beside(b);
		if (r != -EAGAIN)
			return r;
	} else {
		dedup_unlock_shared(e);
	}
	dedup_lock(e);
	return batch_append(b, generation);
}

static int place_chunks(struct batch *b)
{
	unsigned nr_tries = 0;
	int r;

	do {
		do
			r = find_or_append(b);
		while (r == 0);
		if (r < 0)
			return r;
	} while (wait_for_shared(b, nr_tries++) == 0);
	return 0;
}

/* Reset: all chunks are UNKNOWN except zeros. n and at[] must be set. */
static void batch_clear(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++)
		b->cause[i] = mem_is_zero(batch_chunk(b, i), batch_len(b, i)) ? ZERO : UNKNOWN;
	memset(b->alone, 0, b->n);
	memset(b->addr, 0, b->n * sizeof(b->addr[0]));
	memset(b->refused, 0, b->n * sizeof(b->refused[0]));
	b->look.pack = 0;
	b->any_damaged = false;
}

void batch_begin(struct batch *b)
{
	fingerprint(b);
	ask_champions(b);
}

int batch_look(struct batch *b)
{
	struct addr a[PAGES_MAX];

	dedup_lock_shared(b->e);
	look_in_memory(b, a);
	dedup_unlock_shared(b->e);
	use_memory(b, a);
	return all_known(b) ? 0 : ask_index(b);
}

int batch_finish(struct batch *b, uint32_t base, uint32_t len, struct extent_list *ret)
{
	int r;

	if (!all_known(b) || wait_for_shared(b, 0) == 0) {
		r = place_chunks(b);
		if (r < 0)
			return r;
	}
	if (b->any_damaged)
		note_damaged(b);
	r = extents_of(b, base, len, ret);
	if (r == 0)
		count_causes(b);
	return r;
}

int batch_store_cuts(struct batch *b, const struct job *j, struct extent_list *ret)
{
	uint32_t base = 0;
	int r = 0;

	for (size_t done = 0; done < j->nr_cuts && r == 0; done += b->n, base += b->at[b->n]) {
		b->data = j->data + base;
		b->off = j->off + base;
		b->n = (unsigned)MIN(j->nr_cuts - done, (size_t)PAGES_MAX);
		b->at[0] = 0;
		for (unsigned i = 0; i < b->n; i++)
			b->at[i + 1] = j->cuts[done + i] - base;
		batch_clear(b);
		batch_begin(b);
		r = batch_finish(b, base, b->at[b->n], ret);
	}
	return r;
}

static int store_pages(struct batch *b, const struct job *j, struct extent_list *ret)
{
	b->n = (unsigned)((j->len + b->page - 1) / b->page);
	for (unsigned i = 0; i <= b->n; i++)
		b->at[i] = i * b->page;
	batch_clear(b);
	if (j->is_auto)
		return batch_store_shifted(b, j, ret);
	batch_begin(b);
	return batch_finish(b, 0, j->len, ret);
}

int dedup_store(struct engine *e, const struct job *j, struct extent_list *ret)
{
	_cleanup_(freep) struct batch *b = malloc(sizeof(*b));
	struct content *c = j->c;
	int r;

	if (!b)
		return -ENOMEM;
	r = content_tweak(c, &b->tweak);
	if (r < 0)
		return r;
	b->e = e;
	b->c = c;
	b->data = j->data;
	b->off = j->off;
	b->page = j->cuts ? PACK_VARIED : (uint32_t)e->conf.page;
	b->compression = compress_for_pack(j->compress);
	return j->cuts ? batch_store_cuts(b, j, ret) : store_pages(b, j, ret);
}
