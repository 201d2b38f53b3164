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
#include "store/file/reservation.h"
#include "store/file/stage.h"
#include "store/log/commit.h"
#include "store/log/txlog.h"

/* Half as many as there are processors: request threads do the rest of the work. Three keep two processors and the disk
 * busy. */
#define NR_WORKERS_MIN 3u
#define NR_WORKERS_MAX 16u

struct job_queue {
	struct mutex lock; /* leaf */
	struct cond cond, ended_cond;
	struct job *first, **last GUARDED_BY(lock);
	_Atomic uint64_t bytes; /* bytes of all existing jobs */
	_Atomic unsigned nr_waiters; /* threads that wait for fewer bytes; changed under the lock */
	bool sync_ahead GUARDED_BY(lock); /* a commit is expected: run its first half ahead */
	bool sync_packs GUARDED_BY(lock); /* a commit syncs its group, and the packs at the same time */
	bool stop GUARDED_BY(lock);
	pthread_t workers[NR_WORKERS_MAX];
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
	struct engine *e = content_engine(j->c);

	e->queue->bytes -= j->len;
	if (e->queue->nr_waiters > 0) { /* else one that comes now sees these bytes gone */
		mutex_lock(&e->queue->lock);
		cond_broadcast(&e->queue->ended_cond);
		mutex_unlock(&e->queue->lock);
	}
	engine_buffer_put(e, j->b);
	extent_list_release(&j->extents);
	free(j->cuts);
	epoch_leave(&e->users, j->ticket);
	compress_job_ends(e);
	content_close(j->c);
	free(j);
}

void job_begins(struct job *j)
{
	struct engine *e = content_engine(j->c);

	atomic_fetch_add(&e->queue->bytes, j->len);
	compress_job_begins(e);
}

void job_queue(struct job *j)
{
	struct engine *e;

	if (!j)
		return;
	e = content_engine(j->c);
	mutex_lock(&e->queue->lock);
	*e->queue->last = j;
	e->queue->last = &j->next_in_queue;
	cond_signal(&e->queue->cond);
	mutex_unlock(&e->queue->lock);
}

void job_run(struct job *j)
{
	struct engine *e = content_engine(j->c);
	struct content *c = content_ref(j->c);
	struct engine_waiter *waiters, *w;
	struct job *logged, *next;

	content_spend(c);
	j->ticket = epoch_enter(&e->users);
	j->error = dedup_store(e, j, &j->extents);
	content_job_done(c, j, &logged, &waiters);
	while ((next = logged)) {
		logged = next->next_in_file;
		job_free(next);
	}
	content_close(c);
	while ((w = waiters)) {
		waiters = w->next;
		content_flushed(w);
	}
	log_throttle(e);
}

static struct job *first_job(struct job_queue *q) REQUIRES(q->lock)
{
	struct job *j = q->first;

	if (j) {
		q->first = j->next_in_queue;
		if (!q->first)
			q->last = &q->first;
	}
	return j;
}

static struct job *queue_take(struct engine *e)
{
	struct job *j;

	mutex_lock(&e->queue->lock);
	while (e->queue->sync_packs || (!e->queue->first && !e->queue->stop)) {
		bool packs = e->queue->sync_packs;

		if (!packs && !e->queue->sync_ahead) {
			cond_wait(&e->queue->cond, &e->queue->lock);
			continue;
		}
		*(packs ? &e->queue->sync_packs : &e->queue->sync_ahead) = false;
		mutex_unlock(&e->queue->lock);
		if (packs)
			packs_sync_early(e->packs);
		else
			commit_begin(e);
		mutex_lock(&e->queue->lock);
	}
	j = first_job(e->queue);
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

bool jobs_help(struct engine *e)
{
	struct job *j;

	mutex_lock(&e->queue->lock);
	j = first_job(e->queue);
	mutex_unlock(&e->queue->lock);
	if (j)
		job_run(j);
	return j != NULL;
}

void engine_sync_ahead(struct engine *e)
{
	mutex_lock(&e->queue->lock);
	e->queue->sync_ahead = true;
	cond_signal(&e->queue->cond);
	mutex_unlock(&e->queue->lock);
}

void jobs_sync_packs(struct engine *e, bool wanted)
{
	mutex_lock(&e->queue->lock);
	e->queue->sync_packs = wanted;
	if (wanted)
		cond_signal(&e->queue->cond);
	mutex_unlock(&e->queue->lock);
}

uint64_t jobs_bytes(struct engine *e)
{
	return atomic_load(&e->queue->bytes);
}

void jobs_wait_fewer(struct engine *e, uint64_t than)
{
	compress_wait_begins(e);
	mutex_lock(&e->queue->lock);
	e->queue->nr_waiters++; /* before a look at the bytes */
	while (jobs_bytes(e) >= than)
		cond_wait(&e->queue->ended_cond, &e->queue->lock);
	e->queue->nr_waiters--;
	mutex_unlock(&e->queue->lock);
	compress_wait_ends(e);
}

int jobs_start(struct engine *e)
{
	unsigned half = MIN(engine_processors(e) / 2, NR_WORKERS_MAX), nr = MAX(half, NR_WORKERS_MIN);

	for (; e->queue->nr_workers < nr; e->queue->nr_workers++) {
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
