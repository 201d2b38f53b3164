/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Data on its way from write() into the log.
 *
 *   submitted (has its place in the file's order) -> run (chunked, fingerprinted, stored: any worker, any order)
 *     -> done -> drained into recipe and log, strictly in the file's order
 *
 * Because jobs drain in order, the logged state of a file is always that of a single moment. A failed job is skipped,
 * and its error is kept for the next flush, as for a page that could not be written back.
 */
#include "store/dedup/write_jobs.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/compress.h"
#include "store/dedup/dedup.h"
#include "store/file/content.h"
#include "store/file/stage.h"
#include "store/log/commit.h"
#include "store/log/txlog.h"
#include "store/log/view.h"
#include "store/space.h"

#define NR_WORKERS 3 /* keeps two cores and the disk busy; more only add context switches */

struct job_queue {
	struct mutex lock; /* leaf */
	struct cond cond, ended_cond;
	struct job *first, **last GUARDED_BY(lock);
	_Atomic uint64_t bytes; /* bytes of all existing jobs; decreased under the lock */
	bool sync_ahead GUARDED_BY(lock); /* a commit is expected: run its first half ahead */
	bool stop GUARDED_BY(lock);
	pthread_t workers[NR_WORKERS];
	unsigned nr_workers;
};

struct job_queue *job_queue_new(void)
{
	struct job_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	mutex_init(&q->lock);
	cond_init(&q->cond);
	cond_init(&q->ended_cond);
	q->last = &q->first;
	return q;
}

void job_queue_free(struct job_queue *q)
{
	if (!q)
		return;
	cond_release(&q->ended_cond);
	cond_release(&q->cond);
	mutex_release(&q->lock);
	free(q);
}

struct job *job_new(struct content *c, struct engine_buffer *b, const uint8_t *data, uint64_t off, uint32_t len)
{
	struct job *j = calloc(1, sizeof(*j));

	if (j)
		*j = (struct job){
			.c = content_ref(c), .b = b, .data = data, .off = off, .len = len, .time_ns = (int64_t)now_ns()
		};
	return j;
}

static void job_free(struct job *j)
{
	struct engine *e = j->c->e;

	mutex_lock(&e->queue->lock);
	atomic_fetch_sub(&e->queue->bytes, j->len);
	cond_broadcast(&e->queue->ended_cond);
	mutex_unlock(&e->queue->lock);
	engine_buffer_put(e, j->b);
	extent_list_release(&j->extents);
	free(j->cuts);
	epoch_leave(&e->users, j->ticket);
	compress_job_ends(e);
	content_close(j->c);
	free(j);
}

void job_submit(struct content *c, struct job *j)
{
	assert(mutex_held(&c->lock));
	*c->jobs_end = j;
	c->jobs_end = &j->next_in_file;
	c->nr_submitted++;
	atomic_fetch_add(&c->e->queue->bytes, j->len);
	compress_job_begins(c->e);
}

void job_queue(struct job *j)
{
	struct engine *e;

	if (!j)
		return;
	e = j->c->e;
	mutex_lock(&e->queue->lock);
	*e->queue->last = j;
	e->queue->last = &j->next_in_queue;
	cond_signal(&e->queue->cond);
	mutex_unlock(&e->queue->lock);
}

static void drain_one(struct content *c, struct job *j) REQUIRES(c->lock)
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

void job_run(struct job *j)
{
	struct content *c = content_ref(j->c);
	struct engine *e = c->e;
	struct job *drained = NULL, *next;
	struct engine_waiter *waiters, *w;

	space_spend(c);
	j->ticket = epoch_enter(&e->users);
	j->error = dedup_store(e, j, &j->extents);
	view_lock_shared(e);
	mutex_lock(&c->lock);
	j->done = true;
	while ((next = c->jobs) && next->done) {
		c->jobs = next->next_in_file;
		if (!c->jobs)
			c->jobs_end = &c->jobs;
		drain_one(c, next);
		c->nr_finished++;
		next->next_in_file = drained;
		drained = next;
	}
	waiters = flushed(c);
	cond_broadcast(&c->drained);
	mutex_unlock(&c->lock);
	view_unlock_shared(e);
	while ((next = drained)) {
		drained = next->next_in_file;
		job_free(next);
	}
	content_close(c);
	while ((w = waiters)) {
		waiters = w->next;
		content_flushed(w);
	}
	log_throttle(e);
}

static struct job *queue_take(struct engine *e)
{
	struct job *j;

	mutex_lock(&e->queue->lock);
	while (!e->queue->first && !e->queue->stop) {
		if (!e->queue->sync_ahead) {
			cond_wait(&e->queue->cond, &e->queue->lock);
			continue;
		}
		e->queue->sync_ahead = false;
		mutex_unlock(&e->queue->lock);
		commit_begin(e);
		mutex_lock(&e->queue->lock);
	}
	j = e->queue->first;
	if (j) {
		e->queue->first = j->next_in_queue;
		if (!e->queue->first)
			e->queue->last = &e->queue->first;
	}
	mutex_unlock(&e->queue->lock);
	return j;
}

static void *worker(void *arg)
{
	struct engine *e = arg;
	struct job *j;

	pthread_setname_np(pthread_self(), "ckptfs-worker");
	while ((j = queue_take(e)))
		job_run(j);
	return NULL;
}

void engine_sync_ahead(struct engine *e)
{
	mutex_lock(&e->queue->lock);
	e->queue->sync_ahead = true;
	cond_signal(&e->queue->cond);
	mutex_unlock(&e->queue->lock);
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

uint64_t jobs_bytes(struct engine *e)
{
	return atomic_load(&e->queue->bytes);
}

void jobs_wait_fewer(struct engine *e, uint64_t than)
{
	compress_wait_begins(e);
	mutex_lock(&e->queue->lock);
	while (jobs_bytes(e) >= than)
		cond_wait(&e->queue->ended_cond, &e->queue->lock);
	mutex_unlock(&e->queue->lock);
	compress_wait_ends(e);
}

int jobs_start(struct engine *e)
{
	for (; e->queue->nr_workers < NR_WORKERS; e->queue->nr_workers++) {
		int r = pthread_create(&e->queue->workers[e->queue->nr_workers], NULL, worker, e);

		if (r != 0)
			return -r;
	}
	return 0;
}

void jobs_stop(struct engine *e)
{
	mutex_lock(&e->queue->lock);
	e->queue->stop = true;
	cond_broadcast(&e->queue->cond);
	mutex_unlock(&e->queue->lock);
	while (e->queue->nr_workers > 0)
		pthread_join(e->queue->workers[--e->queue->nr_workers], NULL);
}
