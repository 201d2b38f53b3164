/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Cluster collection: the part of one node (cluster_calls.h).
 *
 * A reference to a chunk of another node is a settled pin record that marks the chunk as remote. Chunks that no file
 * refers to have lost theirs in the last local collection (pins_gc.c). So the marks cover everything that a file here
 * may ever refer to again, and no recipe has to be read. Unpinning what no node has marked is safe because a new
 * reference is either marked or points to a chunk that is not unpinned:
 *   - Marking waits for rounds that may still write records here (`nr_settling`); a record left by a failed round is an
 *     error. This node counts as taking part in a round from its decision on. If it is so late that its peers have
 *     ended the round, and may collect, it records nothing (round.h).
 *   - A later round refers to chunks that its owners pin in new frames. Only frames before the pack marks of the time
 *     of marking are ever unpinned (`marked`).
 *   - Storing and pinning of chunks that exist here, and references to such chunks, fail from the mark to the end
 *     (`collecting`). There are no rounds in that time: they might rely on earlier rounds that agents have cached
 *     (mpi-agent/agent/collects.c makes them drop that cache).
 * All nodes that may hold references must take part: engine_cluster_missing() checks every node that this one has ever
 * registered, and each of them checks its own.
 *
 * Crash: a node that dies after marking refers to no more than it has marked, and has forgotten the window. A node that
 * dies while unpinning has done part of it; each frame and its totals are in one group of the journal. Without an end,
 * everything stays pinned.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/log/commit.h"
#include "store/remote/remote.h"

#define SETTLE_NS (UINT64_C(5) * 1000000000) /* a round still writes some frames after its end has arrived */
#define FRAMES_PER_GROUP 512u
#define FILTER_HASHES 8u

/* --- participants --- */

int shares_settling(struct engine *e, bool even_then)
{
	int r = 0;

	mutex_lock(&e->shares->lock);
	if (e->shares->collecting && !even_then)
		r = -EAGAIN;
	else
		e->shares->nr_settling++;
	mutex_unlock(&e->shares->lock);
	return r;
}

void shares_settled(struct engine *e)
{
	mutex_lock(&e->shares->lock);
	assert(e->shares->nr_settling > 0);
	e->shares->nr_settling--;
	cond_broadcast(&e->shares->settled);
	mutex_unlock(&e->shares->lock);
}

static bool is_here(const struct cluster_node *here, size_t nr, const uint8_t id[CLUSTER_ID_LEN])
{
	for (size_t i = 0; i < nr; i++)
		if (memcmp(here[i].id, id, CLUSTER_ID_LEN) == 0)
			return true;
	return false;
}

int shares_register_peers(struct engine *e, const struct cluster_node *nodes, size_t nr)
{
	uint32_t nr_before = e->shares->totals.nr_nodes;
	uint16_t number;
	int r = 0;

	for (size_t i = 0; i < nr && r == 0; i++) {
		if (memcmp(nodes[i].id, e->dirs.sb.store_id, CLUSTER_ID_LEN) == 0)
			continue;
		r = shares_number(e, &nodes[i], &number);
		if (r < 0 || !e->shares->nodes[number].is_forgotten)
			continue;
		if (number < nr_before)
			log_notice("node %s: registered; if it was forgotten before, its remote chunks may be gone",
				   nodes[i].name);
		shares_forget(e, number, false);
	}
	return r;
}

int engine_cluster_register_peers(struct engine *e, const struct cluster_node *nodes, size_t nr)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	int r;

	if (e->read_only)
		return -EROFS;
	mutex_lock(&e->shares->lock);
	r = shares_register_peers(e, nodes, nr);
	if (r == 0 && e->shares->waiting.len > 0)
		r = shares_commit(e, NULL, &records);
	mutex_unlock(&e->shares->lock);
	return r;
}

int engine_cluster_missing(struct engine *e, const struct cluster_node *here, size_t nr, struct cluster_node *ret)
{
	int missing = 0;

	mutex_lock(&e->shares->lock);
	for (uint32_t i = 0; i < e->shares->totals.nr_nodes && !missing; i++) {
		const struct share_node *n = &e->shares->nodes[i];

		if (n->is_forgotten || memcmp(n->id, e->dirs.sb.store_id, CLUSTER_ID_LEN) == 0 ||
		    is_here(here, nr, n->id))
			continue;
		static_assert(sizeof(ret->id) == sizeof(n->id) && sizeof(ret->name) == sizeof(n->name), "as they are");
		memcpy(ret->id, n->id, sizeof(ret->id));
		memcpy(ret->name, n->name, sizeof(ret->name));
		missing = 1;
	}
	mutex_unlock(&e->shares->lock);
	return missing;
}

int engine_cluster_forget(struct engine *e, const char *name)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	bool is_known = false;
	int r = 0;

	if (e->read_only)
		return -EROFS;
	mutex_lock(&e->shares->lock);
	for (uint32_t i = 0; i < e->shares->totals.nr_nodes; i++) {
		if (strcmp(e->shares->nodes[i].name, name) != 0)
			continue;
		is_known = true;
		if (!e->shares->nodes[i].is_forgotten)
			shares_forget(e, i, true);
	}
	if (e->shares->waiting.len > 0)
		r = shares_commit(e, NULL, &records);
	mutex_unlock(&e->shares->lock);
	if (r == 0 && is_known)
		log_notice("node %s: forgotten; chunks that only it refers to can be collected", name);
	return r < 0 ? r : is_known ? 0 : -ENOENT;
}

/* The node is registered and its is_forgotten has this value. */
static bool is_registered(struct engine *e, const uint8_t id[CLUSTER_ID_LEN], bool is_forgotten)
{
	bool yes = false;

	mutex_lock(&e->shares->lock);
	for (uint32_t i = 0; i < e->shares->totals.nr_nodes && !yes; i++)
		yes = e->shares->nodes[i].is_forgotten == is_forgotten &&
		      memcmp(e->shares->nodes[i].id, id, CLUSTER_ID_LEN) == 0;
	mutex_unlock(&e->shares->lock);
	return yes;
}

bool engine_cluster_is_expected(struct engine *e, const uint8_t id[CLUSTER_ID_LEN])
{
	return is_registered(e, id, false);
}

bool engine_cluster_is_forgotten(struct engine *e, const uint8_t id[CLUSTER_ID_LEN])
{
	return is_registered(e, id, true);
}

uint64_t engine_cluster_nr_referred(struct engine *e)
{
	uint64_t nr;

	mutex_lock(&e->shares->lock);
	nr = e->shares->totals.nr_remote;
	mutex_unlock(&e->shares->lock);
	return nr;
}

/* --- windows and filters --- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static bool is_in_window(const struct cluster_window *w, struct fp fp)
{
	return (mix(fp.lo) >> 32) * w->nr >> 32 == w->number;
}

struct filter_place {
	uint64_t at, step;
};

static struct filter_place filter_place_of(uint64_t seed, struct fp fp)
{
	return (struct filter_place){ mix(fp.lo ^ seed), mix(fp.hi + seed) | 1 };
}

static void marks_add(uint8_t *filter, size_t len, uint64_t seed, struct fp fp)
{
	struct filter_place p = filter_place_of(seed, fp);

	for (unsigned i = 0; i < FILTER_HASHES; i++, p.at += p.step)
		filter[p.at % (len * 8) / 8] |= (uint8_t)(1u << p.at % (len * 8) % 8);
}

static bool marks_have(const uint8_t *filter, size_t len, uint64_t seed, struct fp fp)
{
	struct filter_place p = filter_place_of(seed, fp);

	for (unsigned i = 0; i < FILTER_HASHES; i++, p.at += p.step)
		if (!(filter[p.at % (len * 8) / 8] >> p.at % (len * 8) % 8 & 1))
			return false;
	return true;
}

static bool is_window(const struct cluster_window *w, size_t len)
{
	return w->nr > 0 && w->number < w->nr && len >= CLUSTER_FILTER_MIN && len <= CLUSTER_FILTER_MAX;
}

static bool same_window(const struct cluster_window *a, const struct cluster_window *b)
{
	return a->number == b->number && a->nr == b->nr && a->seed == b->seed;
}

/* --- iterating over pin records --- */

struct notes {
	struct engine *e;
	struct db_iter *it;
	uint32_t pack, frame;
	struct share_frame f;
	struct pack_frame_rec rec; /* valid if notes_rec() returned 1 */
};

static int notes_new(struct engine *e, struct notes **ret)
{
	struct ns_key prefix = share_key_totals();
	struct notes *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	n->e = e;
	r = db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &n->it);
	if (r < 0) {
		free(n);
		return r;
	}
	*ret = n;
	return 0;
}

static void notes_freep(struct notes **n)
{
	if (!*n)
		return;
	db_iter_freep(&(*n)->it);
	free(*n);
}

static int notes_next(struct notes *n)
{
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	while ((r = db_iter_next(n->it, &key, &key_len, &value, &value_len)) > 0) {
		r = share_key_decode(key, key_len, &n->pack, &n->frame);
		if (r == 0 && n->pack > 0)
			r = share_frame_decode(value, value_len, &n->f);
		if (r < 0)
			return log_errno(r, "index: a pin record is damaged: run fsck.ckptfs");
		if (n->pack > 0)
			return 1;
	}
	return r;
}

/* 1; 0: the frame is gone, and its record by now, too; -EBADMSG: it cannot be read */
static int notes_rec(struct notes *n)
{
	struct engine *e = n->e;
	unsigned ticket = epoch_enter(&e->users);
	int r = packs_frame_rec(e->packs, n->pack, n->frame, &n->rec);

	epoch_leave(&e->users, ticket);
	if (r < 0 || (r > 0 && !n->rec.damaged))
		return r;
	r = share_get(e->db, n->pack, n->frame, &n->f);
	return r > 0 ? -EBADMSG : r;
}

/* --- marking --- */

static int begin_window(struct engine *e, const struct cluster_window *w)
{
	uint64_t until_ns = monotonic_ns() + SETTLE_NS, now;
	int r = 0;

	mutex_lock(&e->shares->lock);
	e->shares->collecting = true;
	e->shares->window = *w;
	while (e->shares->nr_settling > 0 && (now = monotonic_ns()) < until_ns)
		cond_wait_for(&e->shares->settled, &e->shares->lock, until_ns - now);
	if (e->shares->nr_settling > 0) {
		e->shares->collecting = false;
		r = -EAGAIN;
	}
	commit_marks(e, &e->shares->marked);
	mutex_unlock(&e->shares->lock);
	return r;
}

void engine_cluster_end_collection(struct engine *e)
{
	mutex_lock(&e->shares->lock);
	e->shares->collecting = false;
	mutex_unlock(&e->shares->lock);
}

static int mark_all(struct engine *e, const struct cluster_window *w, uint8_t *filter, size_t len)
{
	_cleanup_(notes_freep) struct notes *n = NULL;
	int r = notes_new(e, &n);

	while (r >= 0 && (r = notes_next(n)) > 0) {
		if (!n->f.settled || !share_any(n->f.remote))
			continue;
		r = notes_rec(n);
		if (r < 0)
			return log_errno(r, "pack %u frame %u: cannot read the fingerprints of its remote chunks",
					 n->pack, n->frame);
		for (uint32_t i = 0; r > 0 && i < n->rec.nr_chunks; i++)
			if (share_bit(n->f.remote, i) && !fp_is_none(n->rec.fps[i]) && is_in_window(w, n->rec.fps[i]))
				marks_add(filter, len, w->seed, n->rec.fps[i]);
	}
	return r;
}

int engine_cluster_mark(struct engine *e, const struct cluster_window *w, uint8_t *filter, size_t len)
{
	int r;

	if (!is_window(w, len))
		return -EINVAL;
	if (e->read_only)
		return -EROFS;
	r = begin_window(e, w);
	if (r < 0)
		return r;
	r = mark_all(e, w, filter, len);
	if (r < 0)
		engine_cluster_end_collection(e);
	return r;
}

/* --- unpinning --- */

struct unpinning {
	struct engine *e;
	const struct cluster_window *w;
	const uint8_t *filter;
	size_t len;
	struct pack_marks marked;
	struct cluster_unpinned sums;
	struct remote_freed *frames; /* chunks to unpin, by frame */
	size_t nr;
};

static int unpin_frame(struct unpinning *u, const struct remote_freed *g, struct pack_frame_rec *rec,
		       struct share_frame *f, struct buf *records) REQUIRES(u->e->shares->lock)
{
	struct share_totals *t = &u->e->shares->totals;
	int r = share_get(u->e->db, g->pack, g->frame, f);

	if (r > 0)
		r = packs_frame_rec(u->e->packs, g->pack, g->frame, rec);
	if (r <= 0 || rec->damaged)
		return MIN(r, 0);
	for (uint32_t i = 0; i < rec->nr_chunks; i++) {
		uint32_t len = pack_rec_len(rec, i);

		if (!share_bit(g->gone, i) || !share_bit(f->pinned, i))
			continue;
		share_unset(f->pinned, i);
		t->nr_pinned -= MIN(t->nr_pinned, UINT64_C(1));
		t->pinned_bytes -= MIN(t->pinned_bytes, (uint64_t)len);
		u->sums.nr_dropped++;
		u->sums.dropped_bytes += len;
	}
	if (!share_any(f->remote) && !share_any(f->pinned))
		shares_del(g->pack, g->frame, records);
	else
		shares_put(f, g->pack, g->frame, records);
	return 0;
}

static int unpin_some(struct unpinning *u)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct cluster_unpinned sums = u->sums;
	struct share_totals totals;
	int r = rec && f ? 0 : -ENOMEM;

	mutex_lock(&u->e->shares->lock);
	totals = u->e->shares->totals;
	if (!u->e->shares->collecting || !same_window(&u->e->shares->window, u->w))
		r = -ESTALE;
	for (size_t i = 0; i < u->nr && r == 0; i++)
		r = unpin_frame(u, &u->frames[i], rec, f, &records);
	if (r == 0 && records.len > 0)
		r = shares_commit(u->e, NULL, &records);
	if (r < 0) {
		u->e->shares->totals = totals;
		u->sums = sums;
	}
	mutex_unlock(&u->e->shares->lock);
	u->nr = 0;
	return r;
}

/* Chunks of frames that cannot be read stay pinned. */
static int unpin_unmarked(struct unpinning *u, struct notes *n)
{
	struct remote_freed g = { .pack = n->pack, .frame = n->frame };
	bool any = false;
	int r;

	if (!share_any(n->f.pinned) || !pack_marks_cover(&u->marked, n->pack, n->frame))
		return 0;
	r = notes_rec(n);
	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	for (uint32_t i = 0; i < n->rec.nr_chunks; i++) {
		if (!share_bit(n->f.pinned, i) || fp_is_none(n->rec.fps[i]) || !is_in_window(u->w, n->rec.fps[i]))
			continue;
		if (marks_have(u->filter, u->len, u->w->seed, n->rec.fps[i])) {
			u->sums.nr_kept++;
			u->sums.kept_bytes += pack_rec_len(&n->rec, i);
		} else {
			share_set(g.gone, i);
			any = true;
		}
	}
	if (any)
		u->frames[u->nr++] = g;
	return u->nr == FRAMES_PER_GROUP ? unpin_some(u) : 0;
}

static int unpin_all(struct unpinning *u)
{
	_cleanup_(notes_freep) struct notes *n = NULL;
	int r = notes_new(u->e, &n);

	while (r >= 0 && (r = notes_next(n)) > 0)
		r = unpin_unmarked(u, n);
	return r == 0 ? unpin_some(u) : r;
}

int engine_cluster_unpin(struct engine *e, const struct cluster_window *w, const uint8_t *filter, size_t len,
			 struct cluster_unpinned *ret)
{
	_cleanup_(freep) struct remote_freed *frames = calloc(FRAMES_PER_GROUP, sizeof(*frames));
	struct unpinning u = { .e = e, .w = w, .filter = filter, .len = len, .frames = frames };
	int r = 0;

	if (!is_window(w, len))
		return -EINVAL;
	if (!frames)
		return -ENOMEM;
	mutex_lock(&e->shares->lock);
	if (!e->shares->collecting || !same_window(&e->shares->window, w))
		r = -ESTALE;
	u.marked = e->shares->marked;
	mutex_unlock(&e->shares->lock);
	if (r < 0)
		return r;
	r = unpin_all(&u);
	if (r != -ESTALE)
		engine_cluster_end_collection(e);
	if (r == 0)
		*ret = u.sums;
	return r;
}
