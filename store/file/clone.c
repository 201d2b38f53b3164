/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Clones: a range of one file gets the extents of a range of another.
 *
 * One log record covers up to 64 MiB, whatever the number of extents: it stands for the extents that the source has at
 * this point of the log. For the recipe in memory to get the same ones, both files are locked from reading the source
 * until the record is in the log, and everything that can fail is done before. If that is impossible, because the
 * source is gone, or some of its extents are being moved (repoint.c), or the target is being written, the extents are
 * logged individually.
 *
 * In memory, whole segments are shared instead of copied (layer.h) if they go to the same offset of a file that has
 * nothing there. This is not done during a collection, which has to see each extent that enters the log.
 *
 * From the first look at an extent until it is in the log, nothing may be freed (e->users).
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/domains.h"
#include "store/file/content_state.h"
#include "store/file/pending_changes.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/gc/repoint.h"
#include "store/log/txlog.h"
#include "store/log/view.h"

/* The part that goes into one segment of the target. */
struct piece {
	uint64_t off, len;
	struct segment *shared; /* the whole segment; NULL: `l` */
	struct extent_list l; /* relative to off */
};

#define PIECES_MAX (CLONE_MAX / SEGMENT_SIZE + 1)

struct pieces {
	struct piece p[PIECES_MAX];
	size_t nr;
};

static void pieces_release(struct engine *e, struct pieces *ps)
{
	while (ps->nr > 0) {
		struct piece *p = &ps->p[--ps->nr];

		extent_list_release(&p->l);
		if (p->shared)
			segment_free(e, p->shared);
	}
}

/* Share the segment, rather than copy its extents? */
static bool shares(const struct content *from, const struct content *to, const struct clone *cl, const struct piece *p)
{
	const struct engine *e = to->e;
	bool whole = p->len == SEGMENT_SIZE || cl->from_off + cl->len >= from->logged.size;

	return cl->off == cl->from_off && p->off % SEGMENT_SIZE == 0 && whole && !to->in_view &&
	       !segment_tree_find(&to->segments, p->off / SEGMENT_SIZE) && !repoint_is_on(e) &&
	       !gc_has_window(e);
}

/* The piece at `done` is a hole: extend it over the hole that follows. */
static int extend_hole(struct content *from, const struct clone *cl, uint64_t done, struct piece *p) REQUIRES(from->lock)
{
	uint64_t begin = cl->from_off + done, end;
	int r = content_hole_end(from, begin + p->len, cl->from_off + cl->len, &end);

	if (r == 0)
		p->len = end - begin;
	return r;
}

static int pieces_collect(struct content *from, const struct content *to, const struct clone *cl, struct pieces *ps)
	REQUIRES(from->lock, to->lock)
{
	uint64_t done = 0;
	int r = 0;

	for (ps->nr = 0; done < cl->len && r >= 0; ps->nr++) {
		struct piece *p = &ps->p[ps->nr];

		*p = (struct piece){ .off = cl->off + done };
		p->len = MIN(cl->len - done, SEGMENT_SIZE - p->off % SEGMENT_SIZE);
		if (shares(from, to, cl, p))
			r = segment_shared(from, p->off / SEGMENT_SIZE, &p->shared);
		else
			r = content_extents(from, cl->from_off + done, p->len, &p->l);
		if (r >= 0 && !p->shared && p->l.nr == 0)
			r = extend_hole(from, cl, done, p);
		done += p->len;
	}
	return MIN(r, 0);
}

static int piece_apply(struct content *to, const struct clone *cl, struct piece *p) REQUIRES(to->lock)
{
	struct replace rp = {
		.ino = to->ino,
		.size = cl->size,
		.mtime_ns = cl->mtime_ns,
		.ctime_ns = cl->ctime_ns,
		.off = p->off,
		.len = p->len,
		.x = p->l.x,
		.nr = p->l.nr,
	};

	if (p->shared) {
		content_add_segment(to, TAKE(p->shared));
		rp.len = 0;
	}
	freed_referred(to->e, p->l.x, p->l.nr);
	return content_apply(to, &rp);
}

static int pieces_apply(struct content *to, const struct clone *cl, struct pieces *ps) REQUIRES(to->lock)
{
	int r = 0;

	for (size_t i = 0; i < ps->nr && r == 0; i++)
		r = piece_apply(to, cl, &ps->p[i]);
	return r;
}

/* Is any extent being moved? Then the log must contain the new address. */
static int pieces_moved(struct engine *e, const struct pieces *ps)
{
	struct extent_list moved = { 0 };
	int r = 0;

	for (size_t i = 0; i < ps->nr && r == 0; i++)
		r = repoint_new(e, ps->p[i].l.x, ps->p[i].l.nr, &moved);
	extent_list_release(&moved);
	return r;
}

/* Both are locked. 0: not possible. */
static int clone_locked(struct content *from, struct content *to, struct clone *cl, struct pieces *ps)
	REQUIRES(from->lock, to->lock)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;
	struct segment *s;
	int r;

	if (from->dropped || to->is_away)
		return to->is_away ? -EREMOTE : 0;
	r = content_catch_up(to, SIZE_MAX); /* so that all of its segments are visible */
	if (r == 0)
		r = pieces_collect(from, to, cl, ps);
	if (r == 0)
		r = pieces_moved(to->e, ps);
	if (r != 0)
		return MIN(r, 0);
	if (to->in_view) { /* then the range is within one segment */
		r = content_segment(to, cl->off / SEGMENT_SIZE, true, &s);
		if (r < 0)
			return r;
	}
	cl->size = MAX(to->logged.size, cl->off + cl->len);
	content_note_times(to);
	cl->mtime_ns = cl->ctime_ns = (int64_t)now_ns();
	clone_encode(cl, &rec);
	r = log_append(to->e, RECORD_CLONE, &rec, &to->log_end);
	if (r == 0)
		r = pieces_apply(to, cl, ps);
	if (r == 0)
		to->live = to->logged;
	return r < 0 ? r : 1;
}

/* Lock both, in order of their numbers, with earlier writes in the recipes. False: `to` is being written again. */
static bool lock_both(struct content *from, struct content *to) NO_THREAD_SAFETY_ANALYSIS
{
	struct content *first = from->ino < to->ino ? from : to, *second = first == from ? to : from;

	content_lock_quiet(second);
	content_unlock_quiet(second);
	content_lock_quiet(first);
	if (second != first)
		mutex_lock(&second->lock);
	return !to->stage && !to->jobs;
}

static void unlock_both(struct content *from, struct content *to) NO_THREAD_SAFETY_ANALYSIS
{
	if (from != to)
		mutex_unlock(&from->lock);
	content_unlock_quiet(to);
}

/* 1; 0: not possible; <0. */
static int clone_once(struct content *from, struct content *to, struct clone *cl,
		      struct pieces *ps) NO_THREAD_SAFETY_ANALYSIS /* the two may be the same file */
{
	int r = 0;

	if (lock_both(from, to)) {
		if (to->in_view)
			cl->len = MIN(cl->len, SEGMENT_SIZE - cl->off % SEGMENT_SIZE);
		r = clone_locked(from, to, cl, ps);
	}
	unlock_both(from, to);
	pieces_release(to->e, ps);
	return r;
}

/* Log the extents individually, in one record: at most 1 MiB. */
static int copy_once(struct content *from, struct content *to, struct clone *cl)
{
	struct extent_list l = { 0 };
	int r;

	cl->len = MIN(cl->len, SEGMENT_SIZE);
	content_lock_quiet(from);
	r = content_extents(from, cl->from_off, cl->len, &l);
	content_unlock_quiet(from);
	if (r == 0)
		r = content_set_extents(to, cl->off, cl->len, &l);
	extent_list_release(&l);
	return r;
}

/* If `from` has a hole longer than a segment, log it as one record; *ret is its length, or 0. */
static int clone_hole(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		      uint64_t *ret)
{
	static const struct extent_list nothing = { 0 };
	uint64_t end = from_off;
	int r;

	*ret = 0;
	if (len <= SEGMENT_SIZE)
		return 0;
	content_lock_quiet(from);
	r = content_hole_end(from, from_off, from_off + len, &end);
	content_unlock_quiet(from);
	if (r < 0 || end == from_off)
		return r;
	r = content_set_extents(to, to_off, end - from_off, &nothing);
	*ret = end - from_off;
	return r;
}

#define CLONES_MAX 256u /* 16 GiB */
#define SOME_NS 20000000u

/* Clone the whole file at once: 1. 0: not possible. */
static int clone_all(struct content *from, struct content *to, uint64_t len) NO_THREAD_SAFETY_ANALYSIS /* see lock_both() */
{
	struct clone cl[CLONES_MAX];
	int64_t now = (int64_t)now_ns();
	unsigned ticket;
	size_t nr = 0;
	int r;

	if (len == 0 || len > CLONES_MAX * (uint64_t)CLONE_MAX)
		return 0;
	for (uint64_t off = 0; off < len; off += CLONE_MAX, nr++) {
		uint64_t n = MIN(len - off, (uint64_t)CLONE_MAX);

		cl[nr] = (struct clone){ .ino = to->ino, .size = off + n, .mtime_ns = now, .ctime_ns = now, .off = off,
					 .len = n, .from = from->ino, .from_off = off };
	}
	r = log_admit_growth(to->e, RECORD_BYTES * nr);
	if (r == 0)
		r = view_admit_growth(to->e);
	if (r < 0)
		return r;
	ticket = epoch_enter(&to->e->users);
	r = lock_both(from, to) && len == from->logged.size ? content_clone_pending(from, to, cl, nr) : 0;
	unlock_both(from, to);
	epoch_leave(&to->e->users, ticket);
	return r;
}

/* At least one step of up to 64 MiB; none begins after `until_ns`. */
static int clone_until(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		       uint64_t until_ns, uint64_t *ret)
{
	struct pieces *ps;
	uint64_t done = 0;
	int r = 0;

	mutex_lock(&from->lock);
	len = from_off < from->live.size ? MIN(len, from->live.size - from_off) : 0;
	mutex_unlock(&from->lock);
	if (len > CONTENT_MAX_SIZE || to_off > CONTENT_MAX_SIZE - len)
		return -EFBIG;
	if (from == to && from_off < to_off + len && to_off < from_off + len)
		return -EINVAL;
	if (to->e->read_only)
		return -EROFS;
	r = content_may_share(from, to);
	if (r < 0)
		return r;
	if (from_off == 0 && to_off == 0 && from != to) {
		mutex_lock(&to->lock);
		to->made_from = from->ino;
		mutex_unlock(&to->lock);
		r = clone_all(from, to, len);
	}
	if (r > 0)
		*ret = len;
	if (r != 0)
		return MIN(r, 0);
	ps = calloc(1, sizeof(*ps));
	if (!ps)
		return -ENOMEM;
	while (done < len && r >= 0 && (done == 0 || monotonic_ns() < until_ns)) {
		struct clone cl = {
			.ino = to->ino,
			.off = to_off + done,
			.len = MIN(len - done, (uint64_t)CLONE_MAX),
			.from = from->ino,
			.from_off = from_off + done,
		};
		unsigned ticket;
		uint64_t hole = 0;

		r = cancel_check();
		if (r == 0)
			r = log_admit_growth(to->e, RECORD_BYTES * (cl.len / SEGMENT_SIZE + 1));
		if (r == 0)
			r = view_admit_growth(to->e);
		if (r == 0)
			r = clone_hole(from, cl.from_off, to, cl.off, len - done, &hole);
		if (r < 0)
			break;
		if (hole > 0) {
			done += hole;
			continue;
		}
		ticket = epoch_enter(&to->e->users);
		r = clone_once(from, to, &cl, ps);
		if (r == 0)
			r = copy_once(from, to, &cl);
		epoch_leave(&to->e->users, ticket);
		if (r >= 0)
			done += cl.len;
	}
	free(ps);
	if (r < 0 && done == 0)
		return r;
	*ret = done;
	return 0;
}

int content_clone(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		  uint64_t *ret)
{
	return clone_until(from, from_off, to, to_off, len, UINT64_MAX, ret);
}

int content_clone_some(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		       uint64_t *ret)
{
	return clone_until(from, from_off, to, to_off, len, monotonic_ns() + SOME_NS, ret);
}

int content_clone_again(struct content *from, struct content *to, const struct clone *cl) NO_THREAD_SAFETY_ANALYSIS
{
	struct content *first = from->ino < to->ino ? from : to, *second = first == from ? to : from;
	struct pieces *ps = calloc(1, sizeof(*ps));
	int r;

	if (!ps)
		return -ENOMEM;
	mutex_lock(&first->lock);
	if (second != first)
		mutex_lock(&second->lock);
	r = pieces_collect(from, to, cl, ps);
	if (r == 0)
		r = pieces_apply(to, cl, ps);
	to->live = to->logged;
	if (second != first)
		mutex_unlock(&second->lock);
	mutex_unlock(&first->lock);
	pieces_release(to->e, ps);
	free(ps);
	return r;
}
