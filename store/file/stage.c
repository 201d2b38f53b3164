/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing: from write() to jobs.
 *
 * A large aligned write becomes a job as it is, without a copy. Everything else is copied into the file's stage: a
 * buffer for 1 MiB of pages with one contiguous range of new bytes. Bytes adjacent to or overlapping this range join
 * it. A write elsewhere, a full buffer, a read of the range, a flush, the timer, or memory pressure turns the stage
 * into a job. cut_hooks.h determines page boundaries; a stage lies within one part of the
 * grid.
 *
 * Files chunked by content have another kind of stage, for one contiguous range anywhere: recut.c.
 *
 * A job consists of whole pages. If the range ends inside a page with existing bytes, those are read first, after
 * waiting for the jobs that may still change them. All this happens under the file's lock, so jobs are in write order.
 */
#include "store/file/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/buffers.h"
#include "store/dedup/compress.h"
#include "store/dedup/write_jobs.h"
#include "store/file/content_state.h"
#include "store/file/file_state.h"
#include "store/file/recut.h"
#include "store/file/reservation.h"
#include "store/log/view.h"

#define TAKE_MIN KiB(64)   /* a smaller write is not worth a whole buffer */
#define INLINE_MAX KiB(64) /* a smaller job takes less time here than handing it to a worker */

static void staged_unlink(struct content *c) REQUIRES(c->e->files->lock)
{
	struct engine *e = c->e;

	*(c->prev_staged ? &c->prev_staged->next_staged : &e->files->staged_first) = c->next_staged;
	*(c->next_staged ? &c->next_staged->prev_staged : &e->files->staged_last) = c->prev_staged;
	c->prev_staged = c->next_staged = NULL;
}

static void stage_begin(struct content *c, struct engine_buffer *b, uint64_t off) REQUIRES(c->lock)
{
	struct engine *e = c->e;

	c->stage_is_cut = c->by_content;
	if (c->stage_is_cut) {
		recut_begin(c, b, off);
	} else {
		uint64_t start, end;

		grid_part(&c->grid, off, &start, &end);
		c->stage_base = start + round_down(off - start, (uint64_t)ENGINE_BUFFER_SIZE);
		c->stage_start = c->stage_end = (uint32_t)(off - c->stage_base);
	}
	c->stage = b;
	mutex_lock(&e->files->lock);
	c->refs++;
	c->prev_staged = e->files->staged_last;
	*(e->files->staged_last ? &e->files->staged_last->next_staged : &e->files->staged_first) = c;
	e->files->staged_last = c;
	mutex_unlock(&e->files->lock);
}

/* Size of the stage, limited by its part of the grid. */
static uint32_t stage_room(const struct content *c) REQUIRES(c->lock)
{
	uint64_t start, end;

	grid_part(&c->grid, c->stage_base, &start, &end);
	return (uint32_t)MIN((uint64_t)ENGINE_BUFFER_SIZE, end - c->stage_base);
}

/* Passes the stage's reference to the caller. */
static struct engine_buffer *stage_end(struct content *c)
{
	struct engine_buffer *b = TAKE(c->stage);

	mutex_lock(&c->e->files->lock);
	staged_unlink(c);
	mutex_unlock(&c->e->files->lock);
	return b;
}

/* Complete the first and last page of the stage with the file's old bytes. No job may be changing them
 * (stage_wait()). */
static int stage_fill(struct content *c, uint32_t *ret_start, uint32_t *ret_end) REQUIRES(c->lock)
{
	uint32_t page = (uint32_t)c->e->conf.page, start = c->stage_start, end = c->stage_end;
	uint32_t head = (uint32_t)round_down(start, page), tail = (uint32_t)round_up(end, page);
	uint32_t room = MIN(tail, stage_room(c)), old_max = MAX(end, room), old_end;
	uint64_t base = c->stage_base;
	int r;

	if (head < start) {
		r = content_read_logged(c, c->stage->data + head, start - head, base + head);
		if (r < 0)
			return r;
	}
	old_end = c->logged.size > base + end ? (uint32_t)MIN(c->logged.size - base, (uint64_t)old_max) : end;
	if (old_end > end) {
		r = content_read_logged(c, c->stage->data + end, old_end - end, base + end);
		if (r < 0)
			return r;
	}
	memset(c->stage->data + old_end, 0, tail - old_end);
	*ret_start = head;
	*ret_end = old_end;
	return 0;
}

/* --- jobs of the file, in the order of the writes --- */

/* Give the job its place in that order. */
static void job_submit(struct content *c, struct job *j) REQUIRES(c->lock)
{
	assert(mutex_held(&c->lock));
	*c->jobs_end = j;
	c->jobs_end = &j->next_in_file;
	c->nr_submitted++;
	j->compress = c->compress;
	j->is_auto = c->is_auto;
	job_begins(j);
}

void jobs_wait(struct content *c)
{
	assert(mutex_held(&c->lock));
	compress_wait_begins(c->e);
	cond_wait(&c->drained, &c->lock);
	compress_wait_ends(c->e);
}

void jobs_wait_range(struct content *c, uint64_t off, uint64_t len)
{
	struct job *j;

again:
	assert(mutex_held(&c->lock));
	for (j = c->jobs; j; j = j->next_in_file)
		if (j->off < off + len && off < j->off + j->len) {
			jobs_wait(c);
			goto again;
		}
}

/* Queue the job before any wait: the thread we wait for may depend on it. */
static void queue_remaining(struct job **remaining)
{
	if (remaining)
		job_queue(TAKE(*remaining));
}

/* Wait for jobs that may still change the old bytes that complete the stage. */
static void stage_wait(struct content *c) REQUIRES(c->lock)
{
	uint32_t page = (uint32_t)c->e->conf.page;
	uint64_t head = c->stage_base + round_down(c->stage_start, page);
	uint64_t tail = c->stage_base + round_down(c->stage_end, page);

	if (c->stage_is_cut) {
		recut_wait(c);
		return;
	}
	if (c->stage_start % page)
		jobs_wait_range(c, head, page);
	if (c->stage && !c->stage_is_cut && c->stage_end % page)
		jobs_wait_range(c, tail, page);
}

/* Turn the stage into a job, which takes its buffer. */
static int stage_job(struct content *c, struct job **ret) REQUIRES(c->lock)
{
	uint32_t start = 0, end = 0;
	int r = 0;

	if (c->stage_is_cut) {
		*ret = recut_finish(c);
	} else {
		r = stage_fill(c, &start, &end);
		*ret = r == 0 ? job_new(c, c->stage, c->stage->data + start, c->stage_base + start, end - start) : NULL;
	}
	return r == 0 && !*ret ? -ENOMEM : r;
}

int stage_flush(struct content *c, struct job **remaining)
{
	struct engine_buffer *b;
	struct job *j;
	int r;

	assert(mutex_held(&c->lock));
	queue_remaining(remaining);
	/* Waiting drops the lock: check again afterwards, since other threads may have flushed or added data. */
	while (c->stage) {
		uint64_t seen = c->nr_finished;

		stage_wait(c);
		if (seen == c->nr_finished)
			break;
	}
	if (!c->stage)
		return 0;
	r = stage_job(c, &j);
	b = stage_end(c);
	if (r < 0) { /* this data is lost: the next flush reports it */
		content_failed(c, r);
		engine_buffer_put(c->e, b);
		content_close(c);
		return r;
	}
	j->time_ns = c->stage_time_ns;
	job_submit(c, j);
	if (remaining) {
		*remaining = j;
	} else if (j->len > INLINE_MAX) {
		job_queue(j);
	} else {
		mutex_unlock(&c->lock);
		job_run(j);
		mutex_lock(&c->lock);
	}
	content_close(c); /* the stage's reference; the caller has its own */
	return 0;
}

bool stages_flush_oldest(struct engine *e)
{
	struct content *c;

	mutex_lock(&e->files->lock);
	c = e->files->staged_first;
	if (c)
		c->refs++;
	mutex_unlock(&e->files->lock);
	if (!c)
		return false;
	mutex_lock(&c->lock);
	stage_flush(c, NULL); /* the next flush reports an error */
	mutex_unlock(&c->lock);
	content_close(c);
	return true;
}

int stages_flush_all(struct engine *e)
{
	size_t most = 0;

	/* Those staged now, not those that keep arriving. */
	mutex_lock(&e->files->lock);
	for (struct content *c = e->files->staged_first; c; c = c->next_staged)
		most++;
	mutex_unlock(&e->files->lock);
	while (most-- > 0 && stages_flush_oldest(e))
		;
	return 0;
}

static void live_written(struct content *c, uint64_t end) REQUIRES(c->lock)
{
	c->live.size = MAX(c->live.size, end);
	content_note_times(c);
	c->live.mtime_ns = c->live.ctime_ns = (int64_t)now_ns();
}

/* Number of bytes at off that the stage accepts. */
static size_t stage_takes(const struct content *c, uint64_t off, size_t len) REQUIRES(c->lock)
{
	uint64_t at = off - c->stage_base;

	if (!c->stage)
		return 0;
	if (c->stage_is_cut)
		return recut_takes(c, off, len);
	if (off < c->stage_base || at >= stage_room(c))
		return 0;
	len = MIN(len, (size_t)(stage_room(c) - at));
	return at > c->stage_end || at + len < c->stage_start ? 0 : len;
}

/* New data may determine page boundaries. */
static void stage_follow_grid(struct content *c, const void *p, size_t len, uint64_t off) REQUIRES(c->lock)
{
	if (!c->by_content)
		grid_follow(c->e->cuts, &c->grid, p, len, off, c->live.size, (uint32_t)c->e->conf.page);
}

static void stage_add(struct content *c, const void *p, size_t len, uint64_t off) REQUIRES(c->lock)
{
	uint32_t at = (uint32_t)(off - c->stage_base);

	memcpy(c->stage->data + at, p, len);
	c->stage_start = MIN(c->stage_start, at);
	c->stage_end = MAX(c->stage_end, at + (uint32_t)len);
	live_written(c, off + len);
	c->stage_time_ns = c->live.mtime_ns;
}

/* Continue a full stage chunked by content in *b. */
static int stage_advance(struct content *c, struct engine_buffer **b, struct job **remaining) REQUIRES(c->lock)
{
	struct job *j = recut_advance(c, *b);

	if (!j)
		return -ENOMEM;
	*b = NULL;
	job_submit(c, j);
	queue_remaining(remaining);
	if (remaining)
		*remaining = j;
	else
		job_queue(j);
	return 0;
}

/* Start a stage. If jobs have to be waited for first, which drops the lock, do nothing: the caller checks again. */
static void stage_try_begin(struct content *c, struct engine_buffer **b, uint64_t off, struct job **remaining)
	REQUIRES(c->lock)
{
	uint64_t seen = c->nr_finished;

	if (c->by_content) {
		queue_remaining(remaining);
		jobs_wait_range(c, off - MIN(off, (uint64_t)RECUT_FRONT), RECUT_FRONT + 1);
	}
	if (seen == c->nr_finished)
		stage_begin(c, TAKE(*b), off);
}

static int buffer_wait(struct content *c, struct engine_buffer **ret, struct job **remaining) REQUIRES(c->lock)
{
	int r = buffer_try(c->e, ret);

	if (r == 0) {
		queue_remaining(remaining);
		mutex_unlock(&c->lock);
		r = engine_buffer_get(c->e, ret);
		mutex_lock(&c->lock);
	}
	return MIN(r, 0);
}

/* Stage the first bytes, as many as fit; *ret is their number. May drop and retake the lock. */
static int write_piece(struct content *c, const void *p, size_t len, uint64_t off, struct job **remaining, size_t *ret)
	REQUIRES(c->lock)
{
	struct engine_buffer *b = NULL;
	size_t n;
	int r = 0;

	stage_follow_grid(c, p, len, off);
	while ((n = stage_takes(c, off, len)) == 0 && r == 0) {
		bool goes_on = c->stage && c->stage_is_cut && recut_is_full(c, off);

		if (c->stage && !goes_on)
			stage_flush(c, remaining); /* not an error of this write: the next flush reports it */
		else if (!b)
			r = buffer_wait(c, &b, remaining);
		else if (goes_on)
			r = stage_advance(c, &b, remaining);
		else
			stage_try_begin(c, &b, off, remaining);
	}
	engine_buffer_put(c->e, b); /* unused: another writer's stage took the bytes */
	if (r == 0 && c->is_away)
		r = -EREMOTE;
	if (r < 0)
		return r;
	stage_add(c, p, n, off);
	if (!c->stage_is_cut && c->stage_start == 0 && c->stage_end == ENGINE_BUFFER_SIZE)
		stage_flush(c, remaining);
	*ret = n;
	return 0;
}

static int write_check(struct content *c, size_t len, uint64_t off)
{
	if (c->e->read_only)
		return -EROFS;
	if (off != CONTENT_APPEND && (off > CONTENT_MAX_SIZE || len > CONTENT_MAX_SIZE - off))
		return -EFBIG;
	return content_admit_write(c, off, len);
}

static int write_copy(struct content *c, const void *p, size_t len, uint64_t off, struct job **remaining)
{
	const uint8_t *from = p;
	int r;

	r = write_check(c, len, off);
	if (r < 0 || len == 0)
		return r;
	atomic_fetch_add_explicit(&c->e->count.written, len, memory_order_relaxed);
	mutex_lock(&c->lock);
	if (off == CONTENT_APPEND)
		off = c->live.size;
	while (len > 0 && r == 0) {
		size_t n = 0;

		r = write_piece(c, from, len, off, remaining, &n);
		from += n;
		off += n;
		len -= n;
	}
	mutex_unlock(&c->lock);
	return r;
}

int content_write(struct content *c, const void *p, size_t len, uint64_t off)
{
	return write_copy(c, p, len, off, NULL);
}

/* Number of bytes, in whole pages, that can become a job as they are; a partial last page joins the stage. */
static uint32_t takeable(struct content *c, const struct engine_buffer *b, const uint8_t *p, size_t len, uint64_t off)
{
	uint64_t page = c->e->conf.page, start, end;
	size_t at = (size_t)(p - b->data), whole = round_down(len, page);

	if (c->by_content || (uintptr_t)p % PACK_BLOCK || at + whole > ENGINE_BUFFER_SIZE || whole < TAKE_MIN)
		return 0;
	mutex_lock(&c->lock);
	stage_follow_grid(c, p, len, off);
	grid_part(&c->grid, off, &start, &end);
	mutex_unlock(&c->lock);
	return (off - start) % page || whole > end - off ? 0 : (uint32_t)whole;
}

int content_write_buffer(struct content *c, struct engine_buffer **b, const void *p, size_t len, uint64_t off,
			 struct job **remaining)
{
	uint32_t whole = off == CONTENT_APPEND ? 0 : takeable(c, *b, p, len, off);
	_cleanup_(freep) uint8_t *tail = NULL;
	struct job *j;
	size_t n = 0;
	int r;

	*remaining = NULL;
	if (whole == 0)
		return write_copy(c, p, len, off, remaining);
	r = write_check(c, len, off);
	if (r < 0)
		return r;
	/* a copy: the job owns the buffer, which may be reused by the kernel before the tail is staged */
	if (len > whole) {
		tail = malloc(len - whole);
		if (!tail)
			return -ENOMEM;
		memcpy(tail, (const uint8_t *)p + whole, len - whole);
	}
	j = job_new(c, *b, p, off, whole);
	if (!j)
		return -ENOMEM;
	mutex_lock(&c->lock);
	while (c->stage)
		stage_flush(c, NULL); /* earlier data; not an error of this write */
	if (c->is_away) {
		mutex_unlock(&c->lock);
		content_close(c); /* the job's reference */
		free(j);
		return -EREMOTE;
	}
	live_written(c, off + whole);
	j->time_ns = c->live.mtime_ns;
	job_submit(c, j);
	*b = NULL;
	if (len > whole) {
		job_queue(j); /* before anything that may wait for a buffer: this one must be on its way back */
		for (size_t done = 0; r == 0 && done < len - whole; done += n)
			r = write_piece(c, tail + done, len - whole - done, off + whole + done, NULL, &n);
	} else {
		*remaining = j;
	}
	mutex_unlock(&c->lock);
	atomic_fetch_add_explicit(&c->e->count.written, len, memory_order_relaxed);
	return r;
}

int content_flush(struct content *c)
{
	uint64_t upto;
	int r;

	mutex_lock(&c->lock);
	while (c->stage)
		stage_flush(c, NULL); /* errors are reported below */
	upto = c->nr_submitted;
	while (c->nr_finished < upto)
		jobs_wait(c);
	r = c->nr_errors_reported < c->nr_errors ? c->error : 0;
	mutex_unlock(&c->lock);
	return r;
}

void content_failed(struct content *c, int r)
{
	c->error = r;
	c->nr_errors++;
}

uint64_t content_errors(struct content *c)
{
	uint64_t n;

	mutex_lock(&c->lock);
	n = c->nr_errors_reported; /* an error not reported yet is also reported to a new opener */
	mutex_unlock(&c->lock);
	return n;
}

/* The error to report to this opener, if it has not been reported to it yet. */
static int take_error(struct content *c, uint64_t *seen)
{
	int r = 0;

	mutex_lock(&c->lock);
	if ((seen ? *seen : c->nr_errors_reported) < c->nr_errors)
		r = c->error;
	c->nr_errors_reported = c->nr_errors;
	if (seen)
		*seen = c->nr_errors;
	mutex_unlock(&c->lock);
	return r;
}

void content_flushed(struct engine_waiter *w)
{
	struct content *c = w->c;
	struct engine *e = c->e;
	int r = take_error(c, w->seen);

	compress_wait_ends(e); /* for jobs; waiting for the commit is counted separately */
	content_close(c);
	if (r < 0)
		w->done(w, r);
	else
		engine_sync_then(e, w);
}

void content_sync_then(struct content *c, uint64_t *seen, struct engine_waiter *w)
{
	bool flushed;

	w->c = content_ref(c);
	w->seen = seen;
	compress_wait_begins(c->e);
	mutex_lock(&c->lock);
	while (c->stage)
		stage_flush(c, NULL); /* content_flushed() reports errors */
	w->target = c->nr_submitted;
	flushed = c->nr_finished >= w->target;
	if (!flushed) {
		w->next = c->waiters;
		c->waiters = w;
	}
	mutex_unlock(&c->lock);
	if (flushed)
		content_flushed(w);
}

void content_lock_quiet(struct content *c) NO_THREAD_SAFETY_ANALYSIS /* returns with both held */
{
	struct engine *e = c->e;

	for (;;) {
		mutex_lock(&c->lock);
		while (c->stage || c->jobs) {
			if (c->stage)
				stage_flush(c, NULL);
			else
				jobs_wait(c);
		}
		mutex_unlock(&c->lock);
		/* A job needs view_lock to finish, so take it only now and check everything again. */
		view_lock_shared(e);
		mutex_lock(&c->lock);
		if (!c->stage && !c->jobs)
			return;
		mutex_unlock(&c->lock);
		view_unlock_shared(e);
	}
}

void content_unlock_quiet(struct content *c)
{
	mutex_unlock(&c->lock);
	view_unlock_shared(c->e);
}

/* --- options of new bytes --- */

void content_set_compress(struct content *c, const struct compress *how)
{
	mutex_lock(&c->lock);
	c->compress = how ? *how : c->e->conf.compress;
	mutex_unlock(&c->lock);
}

void content_set_chunking(struct content *c, const enum chunking *how)
{
	enum chunking chunking = how ? *how : c->e->conf.chunking;

	mutex_lock(&c->lock);
	c->by_content = chunking == CHUNKING_CDC;
	c->is_auto = chunking == CHUNKING_AUTO;
	mutex_unlock(&c->lock);
}
