/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Storing chunks for peers, and making files of chunks that peers store.
 *
 * Keep: chunks that are not here are written into frames of their own, which no round offers. Then the journal records,
 * with the pack marks, that they are pinned.                                 crash before: unreferenced chunks
 * The in-memory table may hold a remote address of such a chunk. The new address replaces it, so lookups find it.
 *
 * Pin: chunks that are here and durable are recorded likewise. Only chunks that a commit has made durable are
 * pinned, so this never waits: the round that requests the pin may belong to a commit in progress. Chunks of frames
 * whose records a round is about to write are not pinned, and none are while a collection runs that may move them.
 *
 * Refer: chunks that are unknown here get addresses in frames of remote chunks only. These frames are `arriving`
 * until a commit has recorded them with the pack marks; until then only this module uses these addresses.
 *                                                                            crash before: unreferenced addresses
 * Then files may refer to them.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/recipes.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/file/content.h"
#include "store/file/extents/segment.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/log/commit.h"
#include "store/remote/remote.h"

#define CHUNK_MAX PACK_FRAME_BYTES

static bool is_chunk_len(uint32_t len)
{
	return len > 0 && len <= CHUNK_MAX && (len <= PACK_VARIED_LEN_MAX || len % PACK_BLOCK == 0);
}

static uint32_t frame_of(struct addr a)
{
	return (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* The kind of frame for a chunk of this length. */
static uint32_t frame_kind(uint32_t len)
{
	return len % PACK_BLOCK == 0 ? len : PACK_VARIED;
}

static struct addr add_to_frame(struct pack_frame *f, uint32_t kind, struct fp fp, const void *data, uint32_t len)
{
	return kind == PACK_VARIED ? pack_frame_add_varied(f, fp, data, len) : pack_frame_add(f, fp, data);
}

/* Adds the address to the in-memory table, unless it has one for this fingerprint. */
static void index_chunk(struct engine *e, struct fp fp, struct addr a, uint8_t number) REQUIRES(append_lock)
{
	if (!fptable_find(dedup_table(e, DEDUP_RECENT), fp))
		fptable_insert(dedup_table(e, DEDUP_RECENT), fp, a, number); /* on ENOMEM the chunk may be stored twice */
}

/* Likewise, but replaces an address: this one has its bytes here. */
static void index_chunk_here(struct engine *e, struct fp fp, struct addr a, uint8_t number) REQUIRES(append_lock)
{
	struct fptable_slot *s = fptable_find(dedup_table(e, DEDUP_RECENT), fp);

	if (!s) {
		index_chunk(e, fp, a, number);
	} else if (s->pack != FPTABLE_PLACEHOLDER) {
		s->pack = a.pack;
		s->off = a.off;
		s->number = number;
	}
}

/* --- keep --- */

struct keeping {
	struct engine *e;
	const struct cluster_chunk *chunks;
	struct addr *where;
	size_t nr;
};

/* Writes the chunks from `i` on that fit one frame. *ret_end: the first one not handled; chunks that are here already
 * are skipped. */
static int keep_frame(struct keeping *k, size_t i, size_t *ret_end)
{
	uint32_t kind = frame_kind(k->chunks[i].len);
	struct engine *e = k->e;
	struct pack_frame *f;
	int r;

	r = packs_frame_open(e->packs, PACK_SMALL, kind, &f);
	if (r < 0)
		return r;
	dedup_lock(e);
	for (; i < k->nr; i++) {
		const struct cluster_chunk *c = &k->chunks[i];

		if (!addr_is_none(k->where[i]))
			continue;
		if (frame_kind(c->len) != kind || !pack_frame_takes(f, c->len))
			break;
		k->where[i] = add_to_frame(f, kind, c->fp, c->data, c->len);
		/* the table had no local address, or the chunk would have been found */
		index_chunk_here(e, c->fp, k->where[i], pack_frame_last(f));
	}
	dedup_unlock(e);
	*ret_end = i;
	r = packs_frame_write(e->packs, f);
	if (r < 0)
		packs_frame_abandon(e->packs, f); /* writers that share chunks of it get an error and store them */
	return r;
}

static int read_frame(struct engine *e, struct addr a, struct pack_frame_rec *rec)
{
	return packs_frame_rec(e->packs, a.pack, frame_of(a), rec) <= 0 || rec->damaged ? -EIO : 0;
}

/* Finds the number of the chunk at `a` in its frame. */
static int number_of(const struct pack_frame_rec *rec, struct addr a, uint32_t *ret)
{
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (pack_rec_addr(rec, i).off == a.off) {
			*ret = i;
			return 0;
		}
	return -EIO;
}

static int compare_addr(const void *a, const void *b)
{
	const struct addr *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

int shares_note_pinned(struct engine *e, struct addr *where, size_t nr, struct buf *records)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(freep) struct share_frame *note = malloc(sizeof(*note));
	int r = rec && note ? 0 : -ENOMEM;

	qsort(where, nr, sizeof(*where), compare_addr);
	for (size_t i = 0; i < nr && r >= 0;) {
		struct addr first = where[i];
		uint32_t number;

		r = share_get(e->db, first.pack, frame_of(first), note);
		if (r == 0)
			*note = (struct share_frame){ .settled = true };
		if (r >= 0)
			r = read_frame(e, first, rec);
		for (; r >= 0 && i < nr && pack_same_frame(where[i], first); i++) {
			r = number_of(rec, where[i], &number);
			if (r < 0 || share_bit(note->pinned, number))
				continue;
			if (share_bit(note->remote, number))
				return -EAGAIN; /* remote by now */
			share_set(note->pinned, number);
			e->shares->totals.nr_pinned++;
			e->shares->totals.pinned_bytes += pack_rec_len(rec, number);
		}
		if (r >= 0)
			shares_put(note, first.pack, frame_of(first), records);
	}
	return MIN(r, 0);
}

static int keep_chunks(struct keeping *k)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct engine *e = k->e;
	struct pack_marks marks;
	int r = 0;

	for (size_t i = 0; i < k->nr && r >= 0; i++) {
		r = shares_find(e, k->chunks[i].fp, k->chunks[i].len, true, &k->where[i]);
		if (r == 0)
			k->where[i] = ADDR_NONE;
	}
	for (size_t i = 0; i < k->nr && r >= 0;)
		if (addr_is_none(k->where[i]))
			r = keep_frame(k, i, &i);
		else
			i++;
	for (size_t i = 0; i < k->nr && r >= 0; i++) /* a collection in progress must not free them */
		freed_referred(e, &(struct extent){ .len = k->chunks[i].len, .addr = k->where[i] }, 1);
	if (r >= 0)
		r = commit_frames(e, &marks);
	if (r < 0)
		return r;
	mutex_lock(&e->shares->lock);
	r = shares_any_moved(e, k->where, k->nr) ? -EAGAIN : shares_note_pinned(e, k->where, k->nr, &records);
	if (r == 0)
		r = shares_commit(e, NULL, &records); /* with `marks`, or those of a later commit */
	mutex_unlock(&e->shares->lock);
	return r;
}

int engine_cluster_keep(struct engine *e, const struct cluster_chunk *chunks, size_t nr)
{
	_cleanup_(freep) struct addr *where = calloc(MAX(nr, (size_t)1), sizeof(*where));
	struct keeping k = { e, chunks, where, nr };
	unsigned ticket;
	int r;

	if (!where)
		return -ENOMEM;
	if (e->read_only)
		return -EROFS;
	for (size_t i = 0; i < nr; i++)
		if (!is_chunk_len(chunks[i].len) || !fp_is_of(&e->key, chunks[i].fp, chunks[i].data, chunks[i].len))
			return -EBADMSG;
	r = shares_settling(e, false);
	if (r < 0)
		return r;
	ticket = epoch_enter(&e->users);
	r = keep_chunks(&k);
	epoch_leave(&e->users, ticket);
	shares_settled(e);
	return r;
}

/* --- pin --- */

struct pinning {
	struct addr where; /* ADDR_NONE: not here, or not durable yet */
	bool *ret;
};

static int by_place(const void *a, const void *b)
{
	return compare_addr(&((const struct pinning *)a)->where, &((const struct pinning *)b)->where);
}

static int find_durable(struct engine *e, const struct fp *fps, size_t nr, struct pinning *l) REQUIRES(gc_lock)
{
	struct pack_marks marks;

	commit_durable(e, &marks);
	for (size_t i = 0; i < nr; i++) {
		uint32_t len;
		int r = shares_find_here(e, fps[i], &l[i].where, &len);

		if (r < 0)
			return r;
		if (r == 0 || !pack_marks_cover(&marks, l[i].where.pack, frame_of(l[i].where)))
			l[i].where = ADDR_NONE;
	}
	return 0;
}

/* Pins chunks of one frame. Chunks pinned before are recorded again: that record may not be durable yet. */
static int pin_frame(struct engine *e, struct pinning *l, size_t nr, struct buf *records) REQUIRES(e->shares->lock)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(freep) struct share_frame *note = malloc(sizeof(*note));
	bool any = false;
	uint32_t number;
	int r;

	if (!rec || !note)
		return -ENOMEM;
	r = share_get(e->db, l->where.pack, frame_of(l->where), note);
	if (r < 0 || (r > 0 && !note->settled))
		return MIN(r, 0);
	if (r == 0)
		*note = (struct share_frame){ .settled = true };
	if (read_frame(e, l->where, rec) < 0)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		if (number_of(rec, l[i].where, &number) < 0 || share_bit(note->remote, number))
			continue;
		if (!share_bit(note->pinned, number)) {
			e->shares->totals.nr_pinned++;
			e->shares->totals.pinned_bytes += pack_rec_len(rec, number);
		}
		share_set(note->pinned, number);
		*l[i].ret = any = true;
	}
	if (any)
		shares_put(note, l->where.pack, frame_of(l->where), records);
	return 0;
}

static int pin(struct engine *e, struct pinning *l, size_t nr)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	int r = 0;

	mutex_lock(&e->shares->lock);
	for (size_t i = 0, n; i < nr && r == 0 && !atomic_load(&e->shares->has_left); i += n) {
		for (n = 1; i + n < nr && pack_same_frame(l[i].where, l[i + n].where); n++)
			;
		if (!addr_is_none(l[i].where))
			r = pin_frame(e, &l[i], n, &records);
	}
	if (r == 0 && (records.len > 0 || buf_error(&records) < 0))
		r = shares_commit(e, NULL, &records);
	mutex_unlock(&e->shares->lock);
	return r;
}

int engine_cluster_pin(struct engine *e, const struct fp *fps, size_t nr, bool *pinned)
{
	_cleanup_(freep) struct pinning *l = calloc(MAX(nr, (size_t)1), sizeof(*l));
	unsigned ticket;
	int r;

	memset(pinned, 0, nr * sizeof(*pinned));
	if (!l)
		return -ENOMEM;
	if (e->read_only)
		return -EROFS;
	for (size_t i = 0; i < nr; i++)
		l[i].ret = &pinned[i];
	if (!gc_trylock(e))
		return 0;
	/* a cluster collection is running: it may just have found the chunk unreferenced */
	if (shares_settling(e, false) < 0) {
		gc_unlock(e);
		return 0;
	}
	ticket = epoch_enter(&e->users);
	r = find_durable(e, fps, nr, l);
	if (r == 0) {
		qsort(l, nr, sizeof(*l), by_place);
		r = pin(e, l, nr);
	}
	epoch_leave(&e->users, ticket);
	shares_settled(e);
	gc_unlock(e);
	if (r < 0)
		memset(pinned, 0, nr * sizeof(*pinned));
	return r;
}

int engine_cluster_pin_all(struct engine *e, const struct fp *fps, size_t nr)
{
	_cleanup_(freep) bool *pinned = calloc(MAX(nr, (size_t)1), sizeof(*pinned));
	unsigned ticket;
	int r = pinned ? engine_cluster_pin(e, fps, nr, pinned) : -ENOMEM;

	ticket = epoch_enter(&e->users);
	for (size_t i = 0; i < nr && r == 0; i++) {
		struct addr a;
		uint32_t len;

		if (!pinned[i])
			r = shares_find_here(e, fps[i], &a, &len);
	}
	epoch_leave(&e->users, ticket);
	return r > 0 ? -EAGAIN : r;
}

/* --- refer --- */

struct referring {
	struct engine *e;
	const struct content_piece *pieces;
	struct addr *where; /* of the chunks */
	uint8_t *number; /* of chunks in new frames, for pack_hint() */
	bool *is_new;
	size_t nr;
	struct share_owners owners;
};

static bool same_chunk(const struct content_piece *a, const struct content_piece *b)
{
	return fp_equal(a->fp, b->fp) && a->chunk_len == b->chunk_len;
}

/* Adjacent pieces may be of the same new chunk, so each piece is compared with the last new one. */
static int refer_frame(struct referring *rf, size_t i, size_t *ret_end)
{
	static const uint8_t zeros[CHUNK_MAX];
	_cleanup_(freep) struct unsettled *u = calloc(1, sizeof(*u));
	uint32_t kind = frame_kind(rf->pieces[i].chunk_len);
	struct engine *e = rf->e;
	uint32_t nr = 0;
	int r;

	if (!u)
		return -ENOMEM;
	r = packs_frame_open(e->packs, PACK_SMALL, kind, &u->f);
	if (r < 0)
		return r;
	pack_frame_place(u->f, &u->pack, &u->frame);
	u->note.unconfirmed = true;
	for (size_t last = i; i < rf->nr; i++) {
		const struct content_piece *p = &rf->pieces[i];

		if (!addr_is_none(rf->where[i]) || fp_is_none(p->fp))
			continue;
		if (nr > 0 && same_chunk(p, &rf->pieces[last])) {
			rf->where[i] = rf->where[last];
			continue;
		}
		if (frame_kind(p->chunk_len) != kind || !pack_frame_takes(u->f, p->chunk_len))
			break;
		rf->where[i] = add_to_frame(u->f, kind, p->fp, zeros, p->chunk_len);
		rf->number[i] = pack_frame_last(u->f);
		rf->is_new[i] = true;
		share_set(u->note.remote, nr);
		u->note.owners[nr++] = rf->owners;
		last = i;
		u->nr_more++;
		u->more_bytes += p->chunk_len;
	}
	*ret_end = i;
	r = packs_frame_write_partly(e->packs, u->f, u->note.remote);
	if (r < 0) {
		packs_frame_abandon(e->packs, u->f);
		return r;
	}
	shares_settling(e, true);
	dedup_lock(e);
	u->next = e->shares->arriving;
	e->shares->arriving = TAKE(u);
	dedup_unlock(e);
	return 0;
}

static int find_pieces(struct referring *rf)
{
	for (size_t i = 0; i < rf->nr; i++) {
		const struct content_piece *p = &rf->pieces[i];
		int r;

		rf->where[i] = ADDR_NONE;
		if (fp_is_none(p->fp))
			continue;
		if (!is_chunk_len(p->chunk_len) || p->from >= p->chunk_len || p->len > p->chunk_len - p->from ||
		    p->len == 0)
			return -EINVAL;
		if (i > 0 && same_chunk(p, &rf->pieces[i - 1])) {
			rf->where[i] = rf->where[i - 1];
			continue;
		}
		r = shares_find(rf->e, p->fp, p->chunk_len, false, &rf->where[i]);
		if (r < 0)
			return r;
		if (r == 0)
			rf->where[i] = ADDR_NONE;
	}
	return 0;
}

/* Sets the extents of a run that starts with piece number `first`. */
static int set_extents(struct referring *rf, const struct cluster_run *run, size_t first)
{
	_cleanup_(extent_list_release) struct extent_list l = { 0 };
	uint64_t base = run->off, at = run->off;
	int r = 0;

	for (size_t i = first; i < first + run->nr && r == 0; i++) {
		const struct content_piece *p = &rf->pieces[i];

		for (uint64_t done = 0, n; done < p->len && r == 0; done += n, at += n) {
			uint64_t hole_end = round_down(at + (p->len - done), SEGMENT_SIZE);
			struct addr a = rf->where[i];

			n = MIN(p->len - done, SEGMENT_SIZE - at % SEGMENT_SIZE);
			if (fp_is_none(p->fp) && l.nr == 0) /* one record for the whole segments of the hole */
				n = hole_end > at + n ? hole_end - at : n;
			a.off += p->from + (uint32_t)done;
			if (!fp_is_none(p->fp))
				r = extent_list_add(&l, (uint32_t)(at - base), (uint32_t)n, a);
			if (r == 0 && (at + n) % SEGMENT_SIZE == 0) {
				r = content_set_extents(run->c, base, at + n - base, &l);
				base = at + n;
				l.nr = 0;
			}
		}
	}
	if (r == 0 && at > base)
		r = content_set_extents(run->c, base, at - base, &l);
	return r;
}

static int refer(struct referring *rf, const struct cluster_run *runs, size_t nr_runs)
{
	struct engine *e = rf->e;
	struct pack_marks marks;
	int r = find_pieces(rf);

	for (size_t i = 0; i < rf->nr && r == 0;)
		if (addr_is_none(rf->where[i]) && !fp_is_none(rf->pieces[i].fp))
			r = refer_frame(rf, i, &i);
		else
			i++;
	if (r == 0)
		r = commit_frames(e, &marks);
	if (r < 0)
		return r;
	dedup_lock(e);
	for (size_t i = 0; i < rf->nr; i++)
		if (rf->is_new[i])
			index_chunk(e, rf->pieces[i].fp, rf->where[i], rf->number[i]);
	dedup_unlock(e);
	for (size_t i = 0, first = 0; i < nr_runs && r == 0; first += runs[i++].nr)
		r = set_extents(rf, &runs[i], first);
	return r;
}

static size_t nr_pieces(const struct cluster_run *runs, size_t nr_runs)
{
	size_t nr = 0;

	for (size_t i = 0; i < nr_runs; i++)
		nr += runs[i].nr;
	return nr;
}

int engine_cluster_refer(struct engine *e, const struct cluster_run *runs, size_t nr_runs,
			 const struct content_piece *pieces, const struct cluster_node *owner)
{
	size_t nr = nr_pieces(runs, nr_runs);
	_cleanup_(freep) struct addr *where = calloc(MAX(nr, (size_t)1), sizeof(*where));
	_cleanup_(freep) uint8_t *number = calloc(MAX(nr, (size_t)1), 1);
	_cleanup_(freep) bool *is_new = calloc(MAX(nr, (size_t)1), sizeof(*is_new));
	struct referring rf = { e, pieces, where, number, is_new, nr, { 0 } };
	unsigned ticket;
	int r;

	if (!where || !number || !is_new)
		return -ENOMEM;
	if (e->read_only)
		return -EROFS;
	mutex_lock(&e->shares->lock);
	r = shares_number(e, owner, &rf.owners.node[0]);
	e->shares->totals.any_unconfirmed = true;
	atomic_store(&e->shares->any_unconfirmed, true);
	mutex_unlock(&e->shares->lock);
	rf.owners.nr = 1;
	if (r < 0)
		return r;
	r = shares_settling(e, false);
	if (r < 0)
		return r;
	ticket = epoch_enter(&e->users);
	r = refer(&rf, runs, nr_runs);
	epoch_leave(&e->users, ticket);
	shares_settled(e);
	return r;
}
