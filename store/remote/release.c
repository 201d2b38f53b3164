/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Releases local copies of chunks that other nodes store for this one. A chunk keeps its address, like one that a round
 * has assigned to peers (docs/decisions/cluster.md, "Local place, remote bytes"); only its bytes are dropped:
 *   1. the takers confirm that each chunk is durable and pinned there            crash: pins without a reference
 *   2. a pin record marks it as remote and names the owners; durable             crash before: nothing has happened
 *   3. wait for all readers that may have read the frame's table and are about to read its bytes
 *   4. punch the bytes out of the pack                                           crash before: the next release punches
 *                                                                                all remote chunks of the frame
 * The mark of a cluster collection cannot come between 1 and 2 (shares_settling()). If it comes before, the pin is
 * younger than it, or the owner has refused; if it comes after, it finds the record. So the chunks that this node
 * relies on stay pinned.
 *
 * Chunks pinned here stay, as peers rely on this node. So do chunks of a round that is not settled. Nothing is released
 * while chunks move (gc_lock).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/file/content.h"
#include "store/file/extents/segment.h"
#include "store/gc/collector.h"
#include "store/gc/moves.h"
#include "store/gc/repoint.h"
#include "store/log/commit.h"
#include "store/remote/remote.h"

#define BATCH 2048u /* chunks */

struct releasing {
	struct engine *e;
	const struct cluster_takers *takers;
	struct cluster_released *sums;
	struct share_owners owners;

	struct place {
		struct addr start;
		uint32_t len;
		struct fp fp;
		bool is_here, has; /* has: all takers have it */
	} v[BATCH];
	size_t nr;
	struct cluster_want wants[BATCH]; /* chunks stored here */
	bool has[BATCH];
	struct move m[BATCH]; /* in the form that release_moved_tables() takes */
	struct share_frame note;
	struct pack_frame_rec rec;
};

/* --- listing the chunks --- */

/* Adds the chunks of an extent from *done on, as far as they fit the batch. */
static int gather_extent(struct releasing *l, const struct extent *x, uint32_t *done)
{
	while (*done < x->len && l->nr < BATCH) {
		struct addr a = x->addr;
		struct pack_chunk_info info;
		int r;

		a.off += *done;
		r = packs_chunk_info(l->e->packs, a, &info);
		if (r <= 0)
			return r < 0 ? r : -EBADMSG;
		l->v[l->nr++] =
			(struct place){ .start = info.start, .len = info.len, .fp = info.fp, .is_here =
				!info.is_remote };
		*done += info.len - (a.off - info.start.off);
	}
	return 0;
}

/* Adds the chunks of the file from *off on; advances *off past those that fit the batch. 0: end of file. */
static int fill_batch(struct releasing *l, struct content *c, uint64_t *off)
{
	int r = 1;

	while (r > 0 && l->nr < BATCH) {
		_cleanup_(extent_list_release) struct extent_list x = { 0 };
		uint64_t base = *off, end;

		r = content_list_extents(c, base, &x, &end);
		for (size_t i = 0; i < x.nr && r > 0 && l->nr < BATCH; i++) {
			uint32_t done = 0;
			int q = gather_extent(l, &x.x[i], &done);

			*off = base + x.x[i].off + done;
			r = q < 0 ? q : r;
		}
		if (r > 0 && l->nr < BATCH)
			*off = end;
	}
	return r;
}

static int by_start(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->start.pack != y->start.pack)
		return x->start.pack < y->start.pack ? -1 : 1;
	return (x->start.off > y->start.off) - (x->start.off < y->start.off);
}

static void sort_chunks(struct releasing *l)
{
	size_t n = 0;

	qsort(l->v, l->nr, sizeof(*l->v), by_start);
	for (size_t i = 0; i < l->nr; i++)
		if (n == 0 || by_start(&l->v[n - 1], &l->v[i]) != 0)
			l->v[n++] = l->v[i];
	l->nr = n;
	for (size_t i = 0; i < n; i++)
		l->m[i] = (struct move){ .pack = l->v[i].start.pack, .off = l->v[i].start.off, .len = l->v[i].len };
}

/* Number of chunks from `i` on that are in the same frame. */
static size_t same_frame(const struct releasing *l, size_t i)
{
	size_t n = 1;

	while (i + n < l->nr && pack_same_frame(l->v[i].start, l->v[i + n].start))
		n++;
	return n;
}

/* --- step 1 --- */

static int find_holders(struct releasing *l)
{
	size_t n = 0;
	int r;

	for (size_t i = 0; i < l->nr; i++)
		if (l->v[i].is_here)
			l->wants[n++] = (struct cluster_want){ .fp = l->v[i].fp, .len = l->v[i].len };
	if (n == 0)
		return 0;
	memset(l->has, 0, n * sizeof(*l->has));
	r = l->takers->pin(l->takers->userdata, l->wants, n, l->has);
	n = 0;
	for (size_t i = 0; r == 0 && i < l->nr; i++) {
		l->v[i].has = l->v[i].is_here && l->has[n++];
		l->sums->nr_refused += l->v[i].is_here && !l->v[i].has;
	}
	return r;
}

/* --- step 2 --- */

static void note_chunk(struct releasing *l, struct place *p, uint32_t number) REQUIRES(l->e->shares->lock)
{
	struct share_totals *t = &l->e->shares->totals;

	if (!p->has || share_bit(l->note.remote, number) || share_bit(l->note.pinned, number) ||
	    !fp_equal(l->rec.fps[number], p->fp))
		return;
	share_set(l->note.remote, number);
	l->note.owners[number] = l->owners;
	t->nr_remote++;
	t->remote_bytes += p->len;
	l->sums->chunks++;
	l->sums->bytes += p->len;
}

static int note_frame(struct releasing *l, size_t from, size_t nr, struct buf *records) REQUIRES(l->e->shares->lock)
{
	struct addr a = l->v[from].start;
	uint32_t frame = pack_frame_of(a), number = 0;
	int r = share_get(l->e->db, a.pack, frame, &l->note);

	if (r < 0 || (r > 0 && !l->note.settled))
		return MIN(r, 0);
	if (r == 0)
		l->note = (struct share_frame){ .settled = true };
	r = packs_frame_rec(l->e->packs, a.pack, frame, &l->rec);
	if (r <= 0 || l->rec.damaged)
		return MIN(r, 0);
	for (size_t i = from; i < from + nr; i++) {
		while (number < l->rec.nr_chunks && pack_rec_addr(&l->rec, number).off < l->v[i].start.off)
			number++;
		if (number < l->rec.nr_chunks && pack_rec_addr(&l->rec, number).off == l->v[i].start.off)
			note_chunk(l, &l->v[i], number);
	}
	if (share_any(l->note.remote))
		shares_put(&l->note, a.pack, frame, records);
	return 0;
}

static int number_takers(struct releasing *l) REQUIRES(l->e->shares->lock)
{
	int r = 0;

	l->owners.nr = 0;
	for (uint32_t i = 0; i < l->takers->nr && r == 0; i++)
		r = shares_number(l->e, &l->takers->nodes[i], &l->owners.node[l->owners.nr++]);
	return r;
}

static int record_released(struct releasing *l, const struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct cluster_released sums = *l->sums;
	struct share_totals totals;
	int r;

	mutex_lock(&l->e->shares->lock);
	totals = l->e->shares->totals;
	r = number_takers(l);
	totals.nr_nodes = l->e->shares->totals.nr_nodes;
	for (size_t i = 0, n; i < l->nr && r == 0 && !atomic_load(&l->e->shares->has_left); i += n) {
		n = same_frame(l, i);
		if (pack_marks_cover(marks, l->v[i].start.pack, pack_frame_of(l->v[i].start)))
			r = note_frame(l, i, n, &records);
	}
	if (r == 0 && records.len > 0)
		r = shares_commit(l->e, NULL, &records);
	if (r < 0) {
		l->e->shares->totals = totals;
		*l->sums = sums;
	}
	mutex_unlock(&l->e->shares->lock);
	return r;
}

/* --- steps 3 and 4 --- */

static int punch_released(struct releasing *l)
{
	int r = 0;

	release_moved_tables(l->e, l->m, l->nr);
	for (size_t i = 0, n; i < l->nr && r == 0; i += n) {
		uint64_t unneeded[PACK_GONE_WORDS];
		struct addr a = l->v[i].start;

		n = same_frame(l, i);
		r = packs_frame_rec(l->e->packs, a.pack, pack_frame_of(a), &l->rec);
		if (r <= 0 || l->rec.damaged || !share_any(l->rec.remote)) {
			r = MIN(r, 0);
			continue;
		}
		memcpy(unneeded, l->rec.remote, sizeof(unneeded));
		for (uint32_t k = 0; k < l->rec.nr_chunks; k++)
			if (fp_is_none(l->rec.fps[k]))
				share_set(unneeded, k);
		r = packs_empty(l->e->packs, a.pack, pack_frame_of(a), l->rec.chunk_len, l->rec.nr_chunks, unneeded);
	}
	return r;
}

/* --- */

/* 1: more may remain, from *off on. */
static int release_batch(struct releasing *l, struct content *c, uint64_t *off) REQUIRES(gc_lock)
{
	struct pack_marks marks;
	unsigned ticket;
	int r, more;

	l->nr = 0;
	commit_durable(l->e, &marks);
	ticket = epoch_enter(&l->e->users);
	more = fill_batch(l, c, off);
	epoch_leave(&l->e->users, ticket);
	if (more < 0 || l->nr == 0)
		return more;
	sort_chunks(l);
	r = shares_settling(l->e, false);
	if (r < 0)
		return r;
	r = find_holders(l);
	if (r == 0)
		r = record_released(l, &marks);
	shares_settled(l->e);
	if (r == 0)
		r = punch_released(l);
	return r < 0 ? r : more;
}

int engine_cluster_release(struct content *c, const struct cluster_takers *takers, struct cluster_released *sums)
{
	struct engine *e = content_engine(c);
	struct releasing *l;
	uint64_t off = 0;
	int r;

	if (e->read_only)
		return -EROFS;
	if (takers->nr == 0 || takers->nr > CLUSTER_OWNERS_MAX)
		return -EINVAL;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->e = e;
	l->takers = takers;
	l->sums = sums;
	do {
		if (!gc_trylock(e)) { /* chunks may be about to move */
			r = -EAGAIN;
			break;
		}
		r = release_batch(l, c, &off);
		gc_unlock(e);
	} while (r > 0);
	free(l);
	return r;
}
