/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Changes of a file that are in the log but not yet in its segments.
 *
 * A commit of a new version has to wait for the log to become durable, but not for updates in memory. The clone of a
 * whole file (layer_run.h) and the many small changes of a patch are therefore logged and then queued at the file. They
 * are applied to the segments after the commit has been answered, or earlier by the first access to a segment: the
 * recipe of the logged state consists of the segments and the queue. Any other change of segments applies the queue
 * first, so that everything takes effect in log order.
 *
 *   log ──▶ queued at the file ─ after the reply; or the next access; or writing into the view ─▶ segments
 *
 * Nothing can get lost: after a crash, or when the file is dropped, only the log counts. Sizes and times are updated at
 * once. The number of mapped bytes is late only if there are holes, so that content_stat() usually need not wait.
 * Applying can fail for lack of memory; the next access tries again.
 *
 * A hole in a file of the view is applied at once, but needs the view for that: which segments it covers is not known
 * before. If the view cannot be read then, the hole is queued, because the log has it already. Accesses to the file
 * fail until the view can be read again; they never see a part of the hole, or the size without the hole.
 *
 * Applying needs the file's lock only, because what the log says does not change. Queueing needs view_lock, shared,
 * like every change of the log. Queued changes count as references as soon as they are in the log.
 */
#include "store/file/pending_changes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/extents/layer_run.h"
#include "store/file/file_state.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/gc/repoint.h"
#include "store/journal/journal.h"
#include "store/log/txlog.h"

#define AT_ONCE 64u /* changes applied per hold of the file's lock in the background */

/* Changes queued together: segments of another file, or patches. */
struct pending_change {
	struct pending_change *next;
	size_t nr, done;
	struct run *run; /* NULL: patches */
	size_t bytes; /* accounted for it: in memory, and to be written to the view */
	struct extent *x; /* the extents of all patches */
	struct replace rp[];
};

static void pending_count(struct engine *e, struct pending_change *l)
{
	l->bytes = sizeof(*l) + l->nr * (l->run ? sizeof(struct segment) : sizeof(*l->rp));
	for (size_t i = 0; !l->run && i < l->nr; i++)
		l->bytes += l->rp[i].nr * sizeof(*l->rp[i].x);
	atomic_fetch_add(&e->files->segment_memory, l->bytes);
	atomic_fetch_add(&e->files->dirty_segment_memory, l->bytes);
}

static void pending_free(struct engine *e, struct pending_change *l)
{
	atomic_fetch_sub(&e->files->segment_memory, l->bytes);
	atomic_fetch_sub(&e->files->dirty_segment_memory, l->bytes);
	run_put(l->run);
	free(l->x);
	free(l);
}

static void pending_add(struct content *c, struct pending_change *l)
{
	struct pending_change **end = &c->pending;

	while (*end)
		end = &(*end)->next;
	*end = l;
	pending_count(c->e, l);
	content_forget_run(c);
}

/* May changes be queued? Not if they have to be redirected (repoint.c), or need segments that must be read first. */
static bool can_wait(const struct content *c)
{
	return !c->in_view && !c->dropped && !repoint_is_on(c->e);
}

#define EXTENT_BYTES 12u /* approximate size in a record */

static int encode(const struct replace *rp, size_t nr, struct buf *ret)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;
	size_t nr_extents = 0;

	for (size_t i = 0; i < nr; i++)
		nr_extents += rp[i].nr;
	(void)buf_reserve(ret, nr * RECORD_BYTES + nr_extents * EXTENT_BYTES);
	for (size_t i = 0; i < nr; i++) {
		buf_clear(&rec);
		replace_encode(&rp[i], &rec);
		journal_record_add(ret, RECORD_PATCH, rec.data, rec.len);
		ret->failed |= buf_error(&rec) < 0;
	}
	return buf_error(ret);
}

int content_log_pending(struct content *c, const struct replace *rp, size_t nr, struct extent_list *x)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct pending_change *l;
	int r = 0;

	assert(mutex_held(&c->lock));
	for (size_t i = 0; i < nr; i++)
		if (!rp[i].keeps)
			return 0;
	if (nr == 0 || !can_wait(c))
		return 0;
	l = malloc(sizeof(*l) + nr * sizeof(*l->rp));
	if (l)
		r = encode(rp, nr, &records);
	if (l && r == 0)
		r = log_append_records(c->e, &records, &c->log_end);
	if (!l || r < 0) {
		free(l);
		return l ? r : -ENOMEM;
	}
	*l = (struct pending_change){ .nr = nr, .x = TAKE(x->x) };
	*x = (struct extent_list){ 0 };
	for (size_t i = 0; i < nr; i++) {
		l->rp[i] = rp[i];
		freed_referred(c->e, rp[i].x, rp[i].nr);
	}
	pending_add(c, l);
	content_is_changed(c, &rp[nr - 1]);
	return 1;
}

struct pending_change *pending_for_hole(void)
{
	return calloc(1, sizeof(struct pending_change) + sizeof(struct replace));
}

void content_queue_hole(struct content *c, struct pending_change *l, const struct replace *rp)
{
	assert(mutex_held(&c->lock) && rp->nr == 0);
	l->nr = 1;
	l->rp[0] = *rp;
	pending_add(c, l);
	content_is_changed(c, rp);
}

/* It is empty, and no collection has to mark each extent. */
static bool can_get_all(const struct content *to)
{
	return can_wait(to) && to->nr_segments == 0 && !to->pending && to->logged.size == 0 && !gc_has_window(to->e);
}

int content_clone_pending(struct content *from, struct content *to, const struct clone *cl, size_t nr)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY, records = BUF_EMPTY;
	struct replace last = { .size = cl[nr - 1].size, .mtime_ns = cl[nr - 1].mtime_ns, .ctime_ns = cl[nr - 1].ctime_ns };
	struct pending_change *l;
	int r;

	assert(mutex_held(&from->lock) && mutex_held(&to->lock));
	if (from->dropped || from->pending || !from->run || !can_get_all(to))
		return 0;
	for (size_t i = 0; i < nr; i++) {
		buf_clear(&rec);
		clone_encode(&cl[i], &rec);
		journal_record_add(&records, RECORD_CLONE, rec.data, rec.len);
	}
	l = malloc(sizeof(*l));
	if (!l || buf_error(&rec) < 0) {
		free(l);
		return -ENOMEM;
	}
	r = log_append_records(to->e, &records, &to->log_end);
	if (r < 0) {
		free(l);
		return r;
	}
	*l = (struct pending_change){ .run = run_get(from->run), .nr = from->run->nr };
	pending_add(to, l);
	to->logged.mapped += l->run->mapped;
	atomic_fetch_add(&to->e->files->logical, (int64_t)l->run->mapped);
	content_note_times(to);
	content_is_changed(to, &last);
	to->live = to->logged;
	return 1;
}

static int catch_up_with(struct content *c, struct pending_change *l) REQUIRES(c->lock)
{
	if (l->run)
		return content_add_layers(c, l->done, l->run->v[l->done]);
	return content_apply_extents(c, &l->rp[l->done]);
}

int content_catch_up(struct content *c, size_t max)
{
	struct pending_change *l;
	int r = 0;

	assert(mutex_held(&c->lock));
	while (r == 0 && max > 0 && (l = c->pending)) {
		c->pending = NULL; /* the accesses below must not apply the queue again */
		for (; r == 0 && max > 0 && l->done < l->nr; max--) {
			r = catch_up_with(c, l);
			l->done += r == 0;
		}
		c->pending = l;
		if (l->done == l->nr) {
			c->pending = l->next;
			pending_free(c->e, l);
		}
	}
	return r;
}

void content_forget_pending(struct content *c)
{
	struct pending_change *l;

	while ((l = c->pending)) {
		c->pending = l->next;
		pending_free(c->e, l);
	}
}

/* Build the run, so that the next version can be cloned with one reference. */
static void make_run(struct content *c) REQUIRES(c->lock)
{
	uint64_t nr = (c->logged.size + SEGMENT_SIZE - 1) / SEGMENT_SIZE;

	if (!c->run && !c->dropped && c->nr_segments == nr)
		(void)run_new(&c->segments, (size_t)nr, &c->run); /* without it, clones are slower */
}

void content_catch_up_all(struct content *c)
{
	bool more;

	do {
		mutex_lock(&c->lock);
		more = content_catch_up(c, AT_ONCE) == 0 && c->pending;
		if (!c->pending)
			make_run(c);
		mutex_unlock(&c->lock);
	} while (more);
}
