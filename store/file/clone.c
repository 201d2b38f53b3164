/*
 * Clones: a range of one file gets the extents of a range of another.
 *
 * One record of the log says so for up to 64 MiB, however many extents there are: "what the other file has there at
 * this place of the log". For that to be what the recipe in memory gets, both files are locked from looking at the one
 * until the record is in the log, and what can fail is done before. Where that cannot be had, because the other file is
 * gone or some of its extents are being moved elsewhere (repoint.c), or this one is being written, extents are told one
 * by one.
 *
 * In memory, whole segments that go to the same place of a file that had nothing there are shared, not copied
 * (layer.h). Not so while a collection wants to hear of each extent that enters the log.
 *
 * From the first look at an extent until it is in the log nothing may be freed (e->users).
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"
#include "store/engine/repoint.h"

/* What goes into one segment of the file. */
struct piece {
	uint64_t off, len;
	struct segment *shared; /* all of it; NULL: */
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

/* Segments as they are, or extents? */
static bool shares(const struct content *from, const struct content *to, const struct clone *cl, const struct piece *p)
{
	const struct engine *e = to->e;
	bool whole = p->len == SEGMENT_SIZE || cl->from_off + cl->len >= from->logged.size;

	return cl->off == cl->from_off && p->off % SEGMENT_SIZE == 0 && whole && !to->in_view &&
	       !segment_tree_find(&to->segments, p->off / SEGMENT_SIZE) && !e->repointed.m &&
	       !atomic_load(&e->gc.window);
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

/* Is any of it on its way elsewhere? Then the log must say where to. */
static int pieces_moved(struct engine *e, const struct pieces *ps)
{
	struct extent_list moved = { 0 };
	int r = 0;

	for (size_t i = 0; i < ps->nr && r == 0; i++)
		r = repoint_new(e, ps->p[i].l.x, ps->p[i].l.nr, &moved);
	extent_list_release(&moved);
	return r;
}

/* Both are locked. 0: not this way. */
static int clone_locked(struct content *from, struct content *to, struct clone *cl, struct pieces *ps)
	REQUIRES(from->lock, to->lock)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;
	struct segment *s;
	int r;

	if (from->dropped)
		return 0;
	r = content_catch_up(to, SIZE_MAX); /* so that all its segments are there to be seen */
	if (r == 0)
		r = pieces_collect(from, to, cl, ps);
	if (r == 0)
		r = pieces_moved(to->e, ps);
	if (r != 0)
		return MIN(r, 0);
	if (to->in_view) { /* then it is in one segment */
		r = content_segment(to, cl->off / SEGMENT_SIZE, true, &s);
		if (r < 0)
			return r;
	}
	cl->size = MAX(to->logged.size, cl->off + cl->len);
	cl->mtime_ns = cl->ctime_ns = (int64_t)now_ns();
	clone_encode(cl, &rec);
	r = log_append(to->e, RECORD_CLONE, &rec, &to->log_end);
	if (r == 0)
		r = pieces_apply(to, cl, ps);
	if (r == 0)
		to->live = to->logged;
	return r < 0 ? r : 1;
}

/* Both, by their numbers, with all in the recipes that was written before; false: more is being written to `to`. */
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

/* 1, 0: not this way, or what went wrong. */
static int clone_once(struct content *from, struct content *to, struct clone *cl,
		      struct pieces *ps) NO_THREAD_SAFETY_ANALYSIS /* the two may be one */
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

/* Extent by extent, in one record: at most 1 MiB. */
static int copy_once(struct content *from, struct content *to, struct clone *cl)
{
	struct extent_list l = { 0 };
	int r;

	cl->len = MIN(cl->len, SEGMENT_SIZE);
	content_lock_quiet(from);
	r = content_extents(from, cl->from_off, cl->len, &l);
	content_unlock_quiet(from);
	if (r == 0) {
		content_lock_quiet(to);
		r = content_set_extents(to, cl->off, cl->len, &l);
		content_unlock_quiet(to);
	}
	extent_list_release(&l);
	return r;
}

#define CLONES_MAX 256u /* 16 GiB */

/* All of it at once: 1. 0: not this way. */
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
	r = lock_both(from, to) && len == from->logged.size ? content_clone_later(from, to, cl, nr) : 0;
	unlock_both(from, to);
	epoch_leave(&to->e->users, ticket);
	return r;
}

int content_clone(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len,
		  uint64_t *ret)
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
	if (to->e->conf.read_only)
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
	while (done < len && r >= 0) {
		struct clone cl = {
			.ino = to->ino,
			.off = to_off + done,
			.len = MIN(len - done, (uint64_t)CLONE_MAX),
			.from = from->ino,
			.from_off = from_off + done,
		};
		unsigned ticket;

		r = log_admit_growth(to->e, RECORD_BYTES * (cl.len / SEGMENT_SIZE + 1));
		if (r == 0)
			r = view_admit_growth(to->e);
		if (r < 0)
			break;
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
