/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One file's bytes: the object, and its recipe in memory. write_back.c writes it to the view.
 *
 * A content is reference-counted: by openers, jobs, its stage, and the list of dirty contents, which view.c empties. It
 * has two states: `live`, as seen by applications, and `logged`, as recorded in the log. The recipe belongs to the
 * logged state. Both are equal when nothing is staged and no job is in flight.
 */
#include "store/file/content_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/engine_state.h"
#include "store/file/file_state.h"
#include "store/file/pending_changes.h"
#include "store/gc/gc_freed.h"
#include "store/gc/repoint.h"
#include "store/file/extents/layer_run.h"
#include "store/dedup/champions.h"
#include "store/dedup/write_jobs.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/reservation.h"
#include "store/journal/journal.h"
#include "store/log/txlog.h"
#include "store/log/view.h"
#include "store/space.h"

static struct content **bucket_of(struct engine *e, uint64_t ino)
{
	return &e->files->buckets[ino * 0x9e3779b97f4a7c15u >> 50]; /* 14 bits: CONTENT_BUCKETS */
}

static_assert(CONTENT_BUCKETS == 1 << 14, "bucket_of() takes 14 bits");

static struct content *find_locked(struct engine *e, uint64_t ino) REQUIRES(e->files->lock)
{
	struct content *c = *bucket_of(e, ino);

	while (c && c->ino != ino)
		c = c->next;
	if (c)
		c->refs++;
	return c;
}

int content_lookup(struct engine *e, uint64_t ino, struct content **ret)
{
	struct content *c;

	mutex_lock(&e->files->lock);
	c = find_locked(e, ino);
	mutex_unlock(&e->files->lock);
	if (!c)
		return 0;
	*ret = c;
	return 1;
}

struct engine *content_engine(const struct content *c)
{
	return c->e;
}

uint64_t content_ino(const struct content *c)
{
	return c->ino;
}

struct champions *content_champions(const struct content *c)
{
	return c->champions;
}

struct content *content_ref(struct content *c)
{
	c->refs++;
	return c;
}

static struct content *content_alloc(struct engine *e, uint64_t ino)
{
	struct content *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->champions = champions_new(c);
	if (!c->champions) {
		free(c);
		return NULL;
	}
	c->e = e;
	c->ino = ino;
	c->refs = 1;
	c->jobs_end = &c->jobs;
	c->grid = GRID_OF_FILE;
	c->compress = e->conf.compress;
	c->by_content = e->conf.chunking == CHUNKING_CDC;
	c->is_auto = e->conf.chunking == CHUNKING_AUTO;
	mutex_init(&c->lock);
	cond_init(&c->drained);
	return c;
}

/* Approximate bytes written to the view per extent of the top layer, which may be new or already there. The layers
 * below belong to the source. */
#define EXTENT_IN_VIEW 8u

void segment_count(struct engine *e, struct segment *s)
{
	size_t counted = sizeof(*s) + s->size * sizeof(*s->x) + s->filed.size * sizeof(*s->filed.v);
	size_t waiting = s->dirty ? counted + (s->layers ? s->layers->nr * EXTENT_IN_VIEW : 0) : 0;

	if (counted != s->counted)
		atomic_fetch_add(&e->files->segment_memory, counted - s->counted);
	if (waiting != s->waiting)
		atomic_fetch_add(&e->files->dirty_segment_memory, waiting - s->waiting);
	s->counted = counted;
	s->waiting = waiting;
}

/* s must not be in a tree. */
void segment_free(struct engine *e, struct segment *s)
{
	atomic_fetch_sub(&e->files->segment_memory, s->counted);
	atomic_fetch_sub(&e->files->dirty_segment_memory, s->waiting);
	segment_release(s);
	free(s);
}

static struct segment *segment_new(struct engine *e, uint64_t number)
{
	struct segment *s = calloc(1, sizeof(*s));

	if (s)
		*s = (struct segment){ .number = number, .memory = &e->files->segment_memory };
	return s;
}

static void add_segment(struct content *c, struct segment *s) REQUIRES(c->lock)
{
	segment_tree_add(&c->segments, s);
	c->nr_segments++;
	c->nr_clean += !s->dirty;
	segment_count(c->e, s);
}

void content_forget_run(struct content *c)
{
	run_put(c->run);
	c->run = NULL;
}

static void remove_segment(struct content *c, struct segment *s)
{
	segment_tree_remove(&c->segments, s);
	c->nr_segments--;
	c->nr_clean -= !s->dirty;
	segment_free(c->e, s);
}

/* Free all segments, or only those equal to the view. */
static void segments_free(struct content *c, bool only_clean)
{
	struct segment *s, *next;

	content_forget_run(c);
	for (s = segment_tree_from(&c->segments, 0); s; s = next) {
		next = segment_tree_from(&c->segments, s->number + 1);
		if (!only_clean || !s->dirty)
			remove_segment(c, s);
	}
}

static void content_free(struct content *c)
{
	content_release_space(c);
	space_take_back(c->e, c->spent);
	content_forget_pending(c);
	segments_free(c, false);
	champions_free(c->champions);
	cond_release(&c->drained);
	mutex_release(&c->lock);
	free(c);
}

/* Find the content or insert `fresh`. The result is referenced either way. */
static struct content *find_or_add(struct engine *e, struct content *fresh)
{
	struct content *c;

	mutex_lock(&e->files->lock);
	c = find_locked(e, fresh->ino);
	if (!c) {
		fresh->next = *bucket_of(e, fresh->ino);
		*bucket_of(e, fresh->ino) = fresh;
		c = fresh;
	}
	mutex_unlock(&e->files->lock);
	return c;
}

int content_open(struct engine *e, uint64_t ino, struct content **ret)
{
	struct content *fresh = content_alloc(e, ino), *c;
	int r;

	if (!fresh)
		return -ENOMEM;
	mutex_lock(&fresh->lock); /* a thread that finds it in the table waits until it is loaded */
	c = find_or_add(e, fresh);
	if (c == fresh) {
		r = ns_get_content(e->db, ino, &fresh->logged);
		fresh->load_error = MIN(r, 0);
		fresh->in_view = r > 0;
		fresh->live = fresh->logged;
	}
	mutex_unlock(&fresh->lock);
	if (c != fresh)
		content_free(fresh);
	mutex_lock(&c->lock);
	r = c->load_error < 0 ? c->load_error : content_load_away(c);
	mutex_unlock(&c->lock);
	if (r < 0) {
		content_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* false: it may be the last reference. */
static bool close_one_of_many(struct content *c)
{
	unsigned refs = c->refs;

	while (refs > 1)
		if (atomic_compare_exchange_weak(&c->refs, &refs, refs - 1))
			return true;
	return false;
}

void content_close(struct content *c)
{
	struct content **p;
	struct engine *e;

	if (!c || close_one_of_many(c))
		return;
	e = c->e;
	mutex_lock(&e->files->lock);
	if (--c->refs > 0) {
		mutex_unlock(&e->files->lock);
		return;
	}
	for (p = bucket_of(e, c->ino); *p != c; p = &(*p)->next)
		;
	*p = c->next;
	mutex_unlock(&e->files->lock);
	content_set_champions(c, NULL, 0);
	content_free(c);
}

/* --- segments --- */

/* 1/0/<0; 0: a hole. */
static int read_recipe(struct content *c, uint64_t number, struct stack *ret) REQUIRES(c->lock)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = c->in_view && !c->dropped ? recipe_get(c->e->db, c->ino, number, &value) : 0;

	if (r <= 0)
		return r;
	r = stack_read(c->e->db, NULL, value.data, value.len, ret);
	if (r == -EBADMSG)
		return log_errno(r, "inode %" PRIu64 ": damaged recipe of segment %" PRIu64 " in the index", c->ino,
				 number);
	return r < 0 ? r : 1;
}

/* Loads a segment, which may have changes that segment_settle() would apply. */
static int segment_as_it_is(struct content *c, uint64_t number, bool make, struct segment **ret) REQUIRES(c->lock)
{
	struct stack stack;
	struct segment *s;
	int r = content_catch_up(c, SIZE_MAX);

	assert(mutex_held(&c->lock));
	if (r < 0)
		return r;
	s = segment_tree_find(&c->segments, number);
	if (s) {
		*ret = s;
		return 1;
	}
	stack.nr = 0;
	r = read_recipe(c, number, &stack);
	if (r < 0)
		return r;
	if (r == 0 && !make)
		return 0;
	/* Only if enough can be freed: it visits all segments, and the dirty ones alone may exceed the limit. */
	if (atomic_load(&c->e->files->segment_memory) > atomic_load(&c->e->files->segment_limit) && c->nr_clean > c->nr_segments / 8)
		segments_free(c, true);
	s = segment_new(c->e, number);
	r = s && stack.nr > 0 ? stack_into_segment(&stack, s) : s ? 0 : -ENOMEM;
	stack_release(&stack);
	if (r < 0) {
		free(s);
		return r;
	}
	add_segment(c, s);
	*ret = s;
	return 1;
}

static int settle_segment(struct content *c, struct segment *s) REQUIRES(c->lock)
{
	int r;

	if (!s->layers || s->x)
		return 0;
	r = segment_settle(s);
	segment_count(c->e, s);
	return r;
}

int content_segment(struct content *c, uint64_t number, bool make, struct segment **ret)
{
	int r = segment_as_it_is(c, number, make, ret), q = r > 0 ? settle_segment(c, *ret) : 0;

	return q < 0 ? q : r;
}

/*
 * The first segment >= from with data, in memory or in the view. 1/0/<0. Segments emptied in memory are skipped there,
 * with one look-up in the view for a row of them.
 */
int content_next_segment(struct content *c, uint64_t from, uint64_t *ret)
{
	bool in_view = c->in_view && !c->dropped, is_known = false;
	uint64_t n = 0; /* first one >= from in the view, if is_known */
	int r = content_catch_up(c, SIZE_MAX);

	while (r >= 0) {
		struct segment *s = segment_tree_from(&c->segments, from);

		if (s && s->number == from) {
			if (!segment_is_empty(s)) {
				*ret = from;
				return 1;
			}
			from++;
			continue;
		}
		if (!is_known || n < from) {
			r = in_view ? recipe_next(c->e->db, c->ino, from, &n) : 0;
			n = r > 0 ? n : UINT64_MAX;
			is_known = true;
		}
		if (r >= 0 && (!s || n < s->number)) {
			*ret = n;
			return n != UINT64_MAX;
		}
		from = s ? s->number : from;
	}
	return r;
}

/* --- changing the logged state --- */

static void content_mark_dirty(struct content *c)
{
	struct engine *e = c->e;

	if (c->dirty)
		return;
	c->dirty = true;
	mutex_lock(&e->files->lock);
	c->refs++;
	dirty_append(e->files, c);
	mutex_unlock(&e->files->lock);
}

/* Created and dropped between two flushes: nothing to write to the view. */
static void content_unmark_dirty(struct content *c)
{
	struct engine *e = c->e;
	bool listed;

	mutex_lock(&e->files->lock);
	listed = c->dirty_at != NULL; /* else it is about to be written back, and there will be nothing to write */
	if (listed)
		dirty_remove(e->files, c);
	mutex_unlock(&e->files->lock);
	if (!listed)
		return;
	c->dirty = false;
	content_close(c); /* the list's reference */
}

/* Record the frames of the version in the view, before the first change to it. */
static int note_filed(struct content *c, struct segment *s) REQUIRES(c->lock)
{
	int r = settle_segment(c, s);

	return r < 0 ? r : frames_set_of(s->x, s->nr, &s->filed);
}

/* `keeps`: bytes between the extents stay. */
static int replace_in_segment(struct content *c, uint64_t number, uint32_t off, uint32_t len, const struct extent *x,
			      size_t nr, bool keeps) REQUIRES(c->lock)
{
	struct engine *e = c->e;
	struct segment *s;
	int64_t grown;
	bool was_dirty;
	int r;

	content_forget_run(c);
	r = segment_as_it_is(c, number, nr > 0, &s);
	if (r <= 0)
		return r;
	was_dirty = s->dirty;
	r = was_dirty ? 0 : note_filed(c, s);
	if (r == 0 && !keeps)
		r = settle_segment(c, s);
	if (r == 0)
		r = keeps ? segment_patch(s, off, x, nr, &grown) : segment_replace(s, off, len, x, nr, &grown);
	if (r < 0) {
		if (!was_dirty)
			frames_set_release(&s->filed);
		return r;
	}
	c->nr_clean -= !was_dirty;
	segment_count(e, s);
	c->logged.mapped += (uint64_t)grown;
	atomic_fetch_add(&e->files->logical, grown);
	return 0;
}

/* Replace the part of the range that falls into one segment, with extents relative to that part. */
static int replace_part(struct content *c, uint64_t number, uint32_t off, uint32_t len, const struct replace *rp)
	REQUIRES(c->lock)
{
	uint64_t part = number * SEGMENT_SIZE + off - rp->off; /* start of this part in the range */
	struct extent_list l = { 0 };
	int r = 0;

	if (len == rp->len)
		return replace_in_segment(c, number, off, len, rp->x, rp->nr, rp->keeps);
	for (size_t i = 0; i < rp->nr && r == 0; i++) {
		uint64_t start = MAX((uint64_t)rp->x[i].off, part);
		uint64_t end = MIN((uint64_t)rp->x[i].off + rp->x[i].len, part + len);
		struct addr a = rp->x[i].addr;

		if (start >= end)
			continue;
		a.off += (uint32_t)(start - rp->x[i].off);
		r = extent_list_add(&l, (uint32_t)(start - part), (uint32_t)(end - start), a);
	}
	if (r == 0)
		r = replace_in_segment(c, number, off, len, l.x, l.nr, false);
	extent_list_release(&l);
	return r;
}

/*
 * Punch a hole over many segments: visit only those that exist. None behind the range is searched: a file that shrinks
 * in parts has only empty ones there, and passing over all of them for each part takes quadratic time.
 */
static int punch_segments(struct content *c, uint64_t off, uint64_t end) REQUIRES(c->lock)
{
	uint64_t n = off / SEGMENT_SIZE;
	int r = 0;

	while (n * SEGMENT_SIZE < end && (r = content_next_segment(c, n, &n)) > 0 && n * SEGMENT_SIZE < end) {
		uint64_t start = MAX(off, n * SEGMENT_SIZE), stop = MIN(end, (n + 1) * SEGMENT_SIZE);

		r = replace_in_segment(c, n, (uint32_t)(start % SEGMENT_SIZE), (uint32_t)(stop - start), NULL, 0, false);
		if (r < 0)
			return r;
		n++;
	}
	return MIN(r, 0);
}

int content_apply_extents(struct content *c, const struct replace *rp)
{
	uint64_t end = rp->off + rp->len, at = rp->off;
	int r = rp->len > 0 ? content_catch_up(c, SIZE_MAX) : 0;

	assert(mutex_held(&c->lock));
	if (r < 0)
		return r;
	content_mark_dirty(c);
	if (rp->nr == 0 && rp->len > 0)
		r = punch_segments(c, rp->off, end);
	while (rp->nr > 0 && at < end && r == 0) {
		uint64_t stop = MIN(end, round_down(at, SEGMENT_SIZE) + SEGMENT_SIZE);

		r = replace_part(c, at / SEGMENT_SIZE, (uint32_t)(at % SEGMENT_SIZE), (uint32_t)(stop - at), rp);
		at = stop;
	}
	return r;
}

void content_is_changed(struct content *c, const struct replace *rp)
{
	assert(mutex_held(&c->lock));
	content_mark_dirty(c);
	c->logged.size = rp->size;
	c->logged.mtime_ns = rp->mtime_ns;
	c->logged.ctime_ns = rp->ctime_ns;
}

int content_apply(struct content *c, const struct replace *rp)
{
	int r = content_apply_extents(c, rp);

	if (r == 0)
		content_is_changed(c, rp);
	return r;
}

int content_replay(struct content *c, const struct replace *rp)
{
	int r;

	mutex_lock(&c->lock);
	r = content_apply(c, rp);
	c->live = c->logged;
	mutex_unlock(&c->lock);
	return r;
}

/*
 * Load the affected segments first: once the change is in the log, only lack of memory can make it fail. Those of a
 * hole are not loaded, because there may be any number of them (pending_changes.c).
 */
static int preload(struct content *c, const struct replace *rp) REQUIRES(c->lock)
{
	struct segment *s;
	int r;

	if (rp->nr == 0)
		return 0;
	for (uint64_t n = rp->off / SEGMENT_SIZE; n * SEGMENT_SIZE < rp->off + rp->len; n++) {
		r = segment_as_it_is(c, n, true, &s);
		if (r < 0)
			return r;
	}
	return 0;
}

static int log_as_they_are(struct content *c, const struct replace *rp, size_t nr) REQUIRES(c->lock)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY, records = BUF_EMPTY;
	_cleanup_(freep) struct pending_change *spare = NULL;
	int r = 0;

	if (c->in_view && rp->nr == 0 && rp->len > 0) { /* nr is 1 then */
		spare = pending_for_hole();
		r = spare ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < nr && r == 0; i++) {
		buf_clear(&rec);
		replace_encode(&rp[i], &rec);
		journal_record_add(&records, rp[i].keeps ? RECORD_PATCH : RECORD_REPLACE, rec.data, rec.len);
		r = buf_error(&rec);
		if (r == 0)
			r = preload(c, &rp[i]);
	}
	if (r == 0)
		r = log_append_records(c->e, &records, &c->log_end);
	for (size_t i = 0; i < nr && r == 0; i++) {
		freed_referred(c->e, rp[i].x, rp[i].nr);
		r = content_apply(c, &rp[i]);
		if (r < 0 && spare) {
			content_queue_hole(c, TAKE(spare), &rp[i]);
			r = 0;
		}
	}
	return r;
}

/* For extents that have to be redirected, or a file in the view: loaded segments may be evicted again if there are
 * many. */
static int log_one_by_one(struct content *c, const struct replace *rp, size_t nr) REQUIRES(c->lock)
{
	int r = 0;

	for (size_t i = 0; i < nr && r >= 0; i++) {
		struct extent_list moved = { 0 };
		struct replace to_new = rp[i];

		r = repoint_new(c->e, rp[i].x, rp[i].nr, &moved);
		if (r > 0) {
			to_new.x = moved.x;
			to_new.nr = moved.nr;
		}
		if (r >= 0)
			r = log_as_they_are(c, &to_new, 1);
		extent_list_release(&moved);
	}
	return r;
}

int content_log(struct content *c, const struct replace *rp, size_t nr)
{
	assert(mutex_held(&c->lock));
	return repoint_is_on(c->e) || c->in_view ? log_one_by_one(c, rp, nr) : log_as_they_are(c, rp, nr);
}

/* Does the file still exist? Changes are locked out. */
static int exists(struct content *c) REQUIRES(c->lock)
{
	struct ns_content content;

	if (c->dropped)
		return 0;
	return c->dirty ? 1 : ns_get_content(c->e->db, c->ino, &content);
}

static int repoint_segment(struct content *c, uint64_t number) REQUIRES(c->lock)
{
	struct extent_list l = { 0 };
	struct segment *s;
	struct replace rp;
	int r = exists(c);

	if (r > 0)
		r = content_segment(c, number, false, &s);
	if (r > 0)
		r = repoint_new(c->e, s->x, s->nr, &l);
	if (r <= 0)
		return r;
	rp = (struct replace){
		.ino = c->ino,
		.size = c->logged.size,
		.mtime_ns = c->logged.mtime_ns,
		.ctime_ns = c->logged.ctime_ns,
		.off = number * SEGMENT_SIZE,
		.len = l.x[l.nr - 1].off + l.x[l.nr - 1].len,
		.x = l.x,
		.nr = l.nr,
	};
	r = content_log(c, &rp, 1);
	extent_list_release(&l);
	return r;
}

int content_repoint(struct content *c, uint64_t number)
{
	int r;

	mutex_lock(&c->lock);
	r = repoint_segment(c, number);
	mutex_unlock(&c->lock);
	return r;
}

void content_load_segment(struct content *c, uint64_t number)
{
	struct segment *s;

	mutex_lock(&c->lock);
	content_segment(c, number, false, &s);
	mutex_unlock(&c->lock);
}

int segment_shared(struct content *from, uint64_t number, struct segment **ret)
{
	struct segment *s, *new;
	int r;

	assert(mutex_held(&from->lock));
	r = from->is_away ? -EREMOTE : segment_as_it_is(from, number, false, &s);
	if (r <= 0 || segment_is_empty(s))
		return MIN(r, 0);
	new = segment_new(from->e, number);
	r = new ? segment_share(s, new) : -ENOMEM;
	segment_count(from->e, s);
	if (r < 0) {
		free(new);
		return r;
	}
	*ret = new;
	return 1;
}

void content_add_segment(struct content *c, struct segment *s)
{
	assert(mutex_held(&c->lock) && !segment_tree_find(&c->segments, s->number));
	content_forget_run(c);
	content_mark_dirty(c);
	add_segment(c, s);
	c->logged.mapped += s->layers->mapped;
	atomic_fetch_add(&c->e->files->logical, s->layers->mapped);
}

int content_add_layers(struct content *c, uint64_t number, struct layer *l)
{
	struct segment *s = segment_new(c->e, number);

	if (!s)
		return -ENOMEM;
	segment_put_layers(s, layer_get(l));
	s->dirty = true;
	add_segment(c, s);
	return 0;
}

void content_unmap(struct content *c, uint64_t bytes)
{
	assert(mutex_held(&c->lock));
	bytes = MIN(bytes, c->logged.mapped); /* a damaged recipe may have said otherwise */
	c->logged.mapped -= bytes;
	atomic_fetch_sub(&c->e->files->logical, (int64_t)bytes);
}

void content_free_segments(struct content *c, uint64_t from, uint64_t to)
{
	struct segment *s, *next;

	assert(mutex_held(&c->lock));
	content_forget_run(c);
	for (s = segment_tree_from(&c->segments, from); s && s->number < to; s = next) {
		next = segment_tree_from(&c->segments, s->number + 1);
		content_unmap(c, s->layers && !s->x ? s->layers->mapped : segment_mapped(s));
		remove_segment(c, s);
	}
}

void content_forget(struct content *c)
{
	assert(mutex_held(&c->lock));
	atomic_fetch_sub(&c->e->files->logical, (int64_t)c->logged.mapped);
	content_forget_pending(c);
	segments_free(c, false);
	c->dropped = true;
	c->logged = c->live = (struct ns_content){ 0 };
	if (c->dirty && !c->in_view)
		content_unmark_dirty(c);
}

void content_free_clean_segments(struct content *c)
{
	assert(mutex_held(&c->lock));
	segments_free(c, true);
}

/* --- finished jobs --- */

static void log_job(struct content *c, struct job *j) REQUIRES(c->lock)
{
	struct replace rp = {
		.ino = c->ino,
		.size = MAX(c->logged.size, j->off + j->len),
		.mtime_ns = j->time_ns,
		.ctime_ns = j->time_ns,
		.off = j->off,
		.len = j->len,
		.x = j->extents.x,
		.nr = j->extents.nr,
	};
	int r = j->error;

	if (c->dropped)
		return;
	if (r == 0)
		r = content_log(c, &rp, 1);
	if (r < 0)
		content_failed(c, r);
}

/* Remove the waiters that wait for no further job. */
static struct engine_waiter *flushed(struct content *c) REQUIRES(c->lock)
{
	struct engine_waiter **p = &c->waiters, *list = NULL, *w;

	while ((w = *p)) {
		if (w->target > c->nr_finished) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		w->next = list;
		list = w;
	}
	return list;
}

void content_job_done(struct content *c, struct job *j, struct job **ret_logged, struct engine_waiter **ret_flushed)
{
	struct job *logged = NULL, *next;

	view_lock_shared(c->e);
	mutex_lock(&c->lock);
	j->done = true;
	while ((next = c->jobs) && next->done) {
		c->jobs = next->next_in_file;
		if (!c->jobs)
			c->jobs_end = &c->jobs;
		log_job(c, next);
		c->nr_finished++;
		next->next_in_file = logged;
		logged = next;
	}
	*ret_logged = logged;
	*ret_flushed = flushed(c);
	cond_broadcast(&c->drained);
	mutex_unlock(&c->lock);
	view_unlock_shared(c->e);
}
