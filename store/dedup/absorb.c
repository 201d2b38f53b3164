/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Absorbing fingerprints from memory into RocksDB, in bulk.
 *
 * New fingerprints collect in `recent`. When it is full it becomes `frozen`, which is still searched, and is ingested
 * as one sorted file. After that they stay in `kept`, where they are found faster than in RocksDB, until their memory
 * is needed. The marks of the last commit before freezing record what has been absorbed: everything before them was in
 * the table. Crash before these marks are written: the tables of those frames are read once more.
 */
#include "store/dedup/absorb.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_state.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/filter.h"
#include "store/file/file_table.h"
#include "store/gc/moves.h"
#include "store/log/commit.h"
#include "store/log/record_format.h"

#define ABSORB_AT_CLOSE 65536 /* rereading fewer from the packs is faster than merging them into RocksDB */
#define QUIET_NS (1000 * 1000 * 1000ull)
#define QUIET_PART 64 /* fraction of a full table worth ingesting while writers are idle; at least ABSORB_AT_CLOSE */

/*
 * Ingesting costs CPU time that a burst of checkpoints needs, so it waits for a quiet moment while memory allows: half
 * of the cache, rounded down to a power of two of slots. A table doubles at 7/8, and writers continue until the
 * background thread checks again, so it counts as full at 3/4. With 256 MiB of cache that is 12 GiB of new pages.
 */
static size_t entries_max(const struct engine *e)
{
	size_t slots = 64;

	if (e->conf.ingest_entries)
		return e->conf.ingest_entries;
	while (2 * slots * sizeof(struct fptable_slot) <= e->conf.cache / 2)
		slots *= 2;
	return slots / 4 * 3;
}

/* Nothing new for a while? Called often, by the background thread alone. */
static bool is_quiet(struct engine *e) REQUIRES_SHARED(append_lock)
{
	uint64_t now = monotonic_ns();

	if (e->dedup->recent.nr != e->dedup->quiet.nr)
		e->dedup->quiet.since_ns = now;
	e->dedup->quiet.nr = e->dedup->recent.nr;
	return now - e->dedup->quiet.since_ns >= QUIET_NS;
}

/* At least what closing would ingest: otherwise an idle mount would enlarge the index, and it would seem to grow by what
 * was called last, such as a compaction that gains nothing. */
static size_t quiet_entries(const struct engine *e, size_t max)
{
	return e->conf.ingest_entries ? MAX(max / QUIET_PART, (size_t)1) : MAX(max / QUIET_PART, (size_t)ABSORB_AT_CLOSE);
}

static bool has_enough(struct engine *e) REQUIRES_SHARED(append_lock)
{
	size_t max = entries_max(e);

	if (e->dedup->recent.nr >= max || e->dedup->frozen.nr > 0) /* still frozen: ingesting it failed before */
		return true;
	return is_quiet(e) && e->dedup->recent.nr >= quiet_entries(e, max);
}

bool absorb_wanted(struct engine *e)
{
	bool wanted;

	dedup_lock_shared(e); /* several times a second: to hold it alone would stop all writers each time */
	wanted = has_enough(e) && !moving_is_on(e);
	dedup_unlock_shared(e);
	return wanted;
}

static int put_absorbed(struct engine *e, const struct pack_marks *marks)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta("absorbed");
	int r;

	marks_encode(marks, &value);
	r = buf_error(&value);
	if (r < 0)
		return r;
	r = db_batch_new(e->db, &batch);
	if (r < 0)
		return r;
	db_batch_put(batch, key.b, key.len, value.data, value.len);
	return db_batch_apply(batch);
}

static size_t largest_part(const struct fptable *t)
{
	size_t max = 1;

	for (unsigned i = 0; i < FPTABLE_PARTS; i++)
		max = MAX(max, t->part[i].nr);
	return max;
}

static size_t entries_of(const struct fptable_part *p, struct fingerprint_entry *ret)
{
	size_t n = 0;

	for (const struct fptable_slot *s = p->slots; s < p->slots + p->size; s++)
		if (s->pack) {
			uint32_t block = pack_hint((struct addr){ .pack = s->pack, .off = s->off }, s->number);

			ret[n++] = (struct fingerprint_entry){ fptable_slot_fp(s), s->pack, block };
		}
	return n;
}

/* Ingest in key order, one part after the other: sorting a copy of the whole table would need twice its memory
 * again. */
static int ingest(struct engine *e, const struct fptable *t)
{
	_cleanup_(freep) struct fingerprint_entry *entries = malloc(largest_part(t) * sizeof(*entries));
	_cleanup_(db_ingestion_freep) struct db_ingestion *in = NULL;
	int r;

	if (!entries)
		return -ENOMEM;
	r = db_ingestion_new(e->db, &in);
	for (unsigned i = 0; i < FPTABLE_PARTS && r == 0; i++) {
		size_t n = entries_of(&t->part[i], entries);

		filter_add(e, entries, n);
		r = fingerprints_add(in, entries, n);
	}
	return r < 0 ? r : db_ingestion_commit(in);
}

/* Turn `recent` into `frozen`, unless a frozen table is left that could not be ingested. */
static void freeze(struct engine *e)
{
	struct pack_marks marks;

	commit_marks(e, &marks);
	dedup_lock(e);
	if (moving_is_on(e))
		marks = *moving_marks(e); /* opening a store: chunks beyond these marks are not in the table */
	if (e->dedup->frozen.nr == 0) {
		fptable_release(&e->dedup->frozen);
		e->dedup->frozen = e->dedup->recent;
		e->dedup->recent = (struct fptable){ 0 };
		e->dedup->frozen_marks = marks; /* even if the table was empty: then everything has been absorbed */
	}
	dedup_unlock(e);
}

static int add_all(struct fptable *t, const struct fptable *from)
{
	int r = fptable_reserve(t, from);

	if (r < 0)
		return r;
	for (const struct fptable_part *p = from->part; p < from->part + FPTABLE_PARTS; p++)
		for (const struct fptable_slot *s = p->slots; s < p->slots + p->size; s++)
			if (s->pack && !fptable_find(t, fptable_slot_fp(s)) &&
			    fptable_insert(t, fptable_slot_fp(s), (struct addr){ .pack = s->pack, .off = s->off },
					   s->number) < 0)
				return -ENOMEM;
	return 0;
}

/* Merge frozen and kept, or take only frozen if both are too many. absorb_lock keeps both unchanged. */
static struct fptable to_keep(struct engine *e, const struct fptable *frozen, const struct fptable *kept)
{
	size_t max = entries_max(e) / 2;
	struct fptable t = { 0 };

	if (frozen->nr > max)
		return t;
	if (add_all(&t, frozen) < 0 || (frozen->nr + kept->nr <= max && add_all(&t, kept) < 0))
		fptable_release(&t);
	return t;
}

static bool is_moving(struct engine *e)
{
	bool on;

	dedup_lock_shared(e);
	on = moving_is_on(e);
	dedup_unlock_shared(e);
	return on;
}

/* One thread at a time. `frozen` does not change while it is ingested, so it is read without append_lock. 0: not
 * now. */
static int freeze_and_ingest(struct engine *e, bool loading)
{
	struct fptable kept;
	int r = 0;

	mutex_lock(&e->dedup->absorb_lock);
	if (!loading && is_moving(e)) {
		mutex_unlock(&e->dedup->absorb_lock);
		return 0;
	}
	freeze(e);
	if (e->dedup->frozen.nr > 0) {
		r = ingest(e, &e->dedup->frozen);
		if (r == 0) {
			kept = to_keep(e, &e->dedup->frozen, &e->dedup->kept);
			dedup_lock(e);
			fptable_release(&e->dedup->kept);
			e->dedup->kept = kept;
			fptable_release(&e->dedup->frozen);
			e->dedup->absorb_generation++;
			dedup_wake(e);
			dedup_unlock(e);
		}
	}
	mutex_unlock(&e->dedup->absorb_lock);
	return r < 0 ? r : 1;
}

/* Free `kept` when new entries need the memory. Not during an absorption, which reads it: then later. */
static void free_kept(struct engine *e) REQUIRES(append_lock)
{
	if (e->dedup->kept.nr == 0 || e->dedup->recent.nr < entries_max(e) / 2 || !mutex_trylock(&e->dedup->absorb_lock))
		return;
	fptable_release(&e->dedup->kept);
	mutex_unlock(&e->dedup->absorb_lock);
}

int absorb(struct engine *e)
{
	int r = freeze_and_ingest(e, false);

	return r <= 0 ? r : put_absorbed(e, &e->dedup->frozen_marks);
}

int absorb_if_many(struct engine *e)
{
	size_t max = entries_max(e), many;
	bool wanted;

	dedup_lock(e);
	many = MIN(quiet_entries(e, max), (size_t)ABSORB_AT_CLOSE);
	wanted = e->dedup->recent.nr + e->dedup->frozen.nr >= many && !moving_is_on(e); /* waits for another thread */
	dedup_unlock(e);
	return wanted ? absorb(e) : 0;
}

int absorb_at_close(struct engine *e)
{
	return e->dedup->recent.nr >= ABSORB_AT_CLOSE ? absorb(e) : 0;
}

int absorb_loaded(struct engine *e)
{
	int r = freeze_and_ingest(e, true);

	return r < 0 ? r : put_absorbed(e, &e->dedup->frozen_marks);
}

void absorb_share_memory(struct engine *e)
{
	uint64_t needed, spare, segments = files_memory(e), borrowed = 0;

	/* Until the next call `recent` may double while the old one still exists, or be frozen and get a successor. */
	dedup_lock_shared(e);
	needed = 3 * fptable_memory(&e->dedup->recent) + fptable_memory(&e->dedup->frozen) + fptable_memory(&e->dedup->kept) +
		 fingerprint_filter_bytes(&e->dedup->filter.in_use) + fingerprint_filter_bytes(&e->dedup->filter.next);
	dedup_unlock_shared(e);
	spare = e->conf.cache / 16 * 9 - MIN(needed, e->conf.cache / 16 * 9);
	files_set_limit(e, e->conf.cache / 8 + spare / 2);
	if (segments > e->conf.cache / 8)
		borrowed = MIN(segments - e->conf.cache / 8, spare / 2);
	packs_set_table_memory(e->packs, e->conf.cache / 16 + spare - borrowed);
}

/* While a frozen table is being ingested. */
static size_t recent_max(const struct engine *e)
{
	return e->conf.ingest_entries ? 2 * e->conf.ingest_entries : entries_max(e) / 2;
}

bool absorb_has_room(struct engine *e)
{
	const struct dedup *d = e->dedup;

	return (d->kept.nr == 0 || d->recent.nr < entries_max(e) / 2) && (d->frozen.nr == 0 || d->recent.nr < recent_max(e));
}

int absorb_throttle(struct engine *e)
{
	size_t max = recent_max(e);
	int r;

	assert(dedup_is_locked(e));
	free_kept(e);
	while (e->dedup->recent.nr >= max && e->dedup->frozen.nr > 0) {
		r = db_stopped(e->db); /* then it would never be ingested */
		if (r < 0)
			return r;
		if (!dedup_wait_for(e, 1000 * 1000 * 1000))
			break; /* the disk may be full: memory is bounded by what the disk still accepts */
	}
	return 0;
}

/* Memory has another address for this chunk. If that one is remote and this one is local, use this one. */
static void load_again(struct engine *e, struct fptable_slot *s, struct addr a, uint8_t number) REQUIRES(append_lock)
{
	if (!e->remote || packs_is_remote(e->packs, (struct addr){ .pack = s->pack, .off = s->off }) <= 0 ||
	    packs_is_remote(e->packs, a) != 0)
		return;
	s->pack = a.pack;
	s->off = a.off;
	s->number = number;
}

static int load_frame(struct engine *e, const struct pack_frame_rec *rec, bool may_be_copies)
{
	int r = 0;

	dedup_lock(e);
	for (uint32_t i = 0; i < rec->nr_chunks && r == 0; i++) {
		struct addr a = pack_rec_addr(rec, i);
		struct fptable_slot *s;

		if (fp_is_none(rec->fps[i]))
			continue;
		if (may_be_copies)
			r = moving_find(e, rec->fps[i], a, pack_rec_len(rec, i));
		s = r == 0 ? fptable_find(&e->dedup->recent, rec->fps[i]) : NULL;
		if (s)
			load_again(e, s, a, pack_rec_number(rec, i));
		else if (r == 0)
			r = fptable_insert(&e->dedup->recent, rec->fps[i], a, pack_rec_number(rec, i));
	}
	dedup_unlock(e);
	return r;
}

static bool is_full(struct engine *e)
{
	bool full;

	dedup_lock(e);
	full = has_enough(e);
	dedup_unlock(e);
	return full;
}

/* The next frame that RocksDB has not absorbed, without reading anything of those that it has. */
static int next_frame(struct pack_iter *it, const struct pack_marks *absorbed, struct pack_frame_rec *ret)
{
	for (; it->pack < it->end_pack; it->pack++, it->frame = 0) {
		it->frame = MAX(it->frame, pack_marks_end(absorbed, it->pack));
		if (it->frame < UINT32_MAX)
			return pack_iter_next(it, ret);
	}
	return 0;
}

/* Load frames that RocksDB has not absorbed: those beyond the marks of an interrupted move, or all others. */
static int load_frames(struct engine *e, const struct pack_marks *absorbed, bool may_be_copies, struct pack_frame_rec *rec)
{
	struct pack_iter it = pack_iter(e->packs, 1, 0);
	int r;

	while ((r = next_frame(&it, absorbed, rec)) > 0) {
		if (rec->damaged || pack_marks_cover(absorbed, rec->pack, rec->frame))
			continue; /* from a pack behind the one that had been reached */
		if (may_be_copies != (moving_is_on(e) && !pack_marks_cover(moving_marks(e), rec->pack, rec->frame)))
			continue;
		r = load_frame(e, rec, may_be_copies);
		if (r == 0 && !may_be_copies && is_full(e))
			/* its marks are recorded when all is loaded and more is absorbed */
			r = freeze_and_ingest(e, true);
		if (r < 0)
			return r;
	}
	return r;
}

/* Copies come last and stay in memory until the originals have been released (moves.c). For a store opened read-only,
 * or during an index rebuild, that is left to the next mount. */
int absorb_load(struct engine *e)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	struct ns_key key = ns_key_meta("absorbed");
	struct pack_marks absorbed = { 0 };
	int r;

	if (!rec)
		return -ENOMEM;
	r = db_get(e->db, DB_VIEW, key.b, key.len, &value);
	if (r > 0)
		r = marks_decode(value.data, value.len, &absorbed);
	if (r < 0)
		return r;
	r = load_frames(e, &absorbed, false, rec);
	if (r == 0 && moving_is_on(e) && !e->read_only)
		r = load_frames(e, &absorbed, true, rec);
	return r;
}
