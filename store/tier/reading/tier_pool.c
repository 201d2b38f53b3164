/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/reading/tier_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/util.h"

#define PATIENCE_NS UINT64_C(2000000000)

#define NR_QUEUES (TIER_AHEAD + 1)

struct tier_pool {
	struct mutex lock; /* leaf */
	struct cond changed; /* a job was added, or stop */
	struct cond ended; /* a thread has ended */
	struct tier_job queues[NR_QUEUES] GUARDED_BY(lock); /* rings of jobs, by urgency */
	struct tier_job later GUARDED_BY(lock); /* likewise, by time */
	bool stop GUARDED_BY(lock);
	unsigned nr_running GUARDED_BY(lock); /* threads that have not ended */
	unsigned nr; /* threads; constant */
	pthread_t threads[];
};

static void ring_init(struct tier_job *ring)
{
	ring->next = ring->prev = ring;
}

static bool ring_is_empty(const struct tier_job *ring)
{
	return ring->next == ring;
}

static void ring_add_before(struct tier_job *at, struct tier_job *j)
{
	j->prev = at->prev;
	j->next = at;
	at->prev->next = j;
	at->prev = j;
}

static void ring_remove(struct tier_job *j)
{
	j->next->prev = j->prev;
	j->prev->next = j->next;
	j->next = j->prev = NULL;
}

static struct tier_job *ring_take(struct tier_job *ring)
{
	struct tier_job *j = ring_is_empty(ring) ? NULL : ring->next;

	if (j)
		ring_remove(j);
	return j;
}

/* The next job, or NULL and the time until the next one, 0: until one is submitted. */
static struct tier_job *take_job(struct tier_pool *pool, uint64_t *ret_wait_ns) REQUIRES(pool->lock)
{
	uint64_t now = ring_is_empty(&pool->later) ? 0 : monotonic_ns();
	struct tier_job *j = NULL;

	while (!ring_is_empty(&pool->later) && pool->later.next->due_ns <= now)
		ring_add_before(&pool->queues[TIER_URGENT], ring_take(&pool->later));
	*ret_wait_ns = ring_is_empty(&pool->later) ? 0 : pool->later.next->due_ns - now;
	for (unsigned i = 0; i < NR_QUEUES && !j; i++)
		j = ring_take(&pool->queues[i]);
	return j;
}

static void *work(void *userdata)
{
	struct tier_pool *pool = userdata;
	struct tier_job *j;
	uint64_t wait_ns;

	mutex_lock(&pool->lock);
	while (!pool->stop) {
		j = take_job(pool, &wait_ns);
		if (!j) {
			if (wait_ns > 0)
				cond_wait_for(&pool->changed, &pool->lock, wait_ns);
			else
				cond_wait(&pool->changed, &pool->lock);
			continue;
		}
		if (wait_ns > 0)
			cond_signal(&pool->changed); /* another thread must wait for the time of the next one */
		mutex_unlock(&pool->lock);
		j->run(j);
		mutex_lock(&pool->lock);
	}
	pool->nr_running--;
	cond_broadcast(&pool->ended);
	mutex_unlock(&pool->lock);
	return NULL;
}

int tier_pool_new(unsigned nr, struct tier_pool **ret)
{
	struct tier_pool *pool = calloc(1, sizeof(*pool) + nr * sizeof(pool->threads[0]));
	int r = 0;

	if (!pool)
		return -ENOMEM;
	mutex_init(&pool->lock);
	cond_init(&pool->changed);
	cond_init(&pool->ended);
	for (unsigned i = 0; i < NR_QUEUES; i++)
		ring_init(&pool->queues[i]);
	ring_init(&pool->later);
	while (pool->nr < nr && r == 0) {
		mutex_lock(&pool->lock);
		pool->nr_running++;
		mutex_unlock(&pool->lock);
		r = -pthread_create(&pool->threads[pool->nr], NULL, work, pool);
		pool->nr += r == 0;
	}
	if (r == 0) {
		*ret = pool;
		return 0;
	}
	mutex_lock(&pool->lock);
	pool->nr_running--; /* the one that was not created */
	mutex_unlock(&pool->lock);
	tier_pool_stop(pool);
	tier_pool_free(pool);
	return r;
}

void tier_pool_submit(struct tier_pool *pool, struct tier_job *j, enum tier_urgency urgency)
{
	mutex_lock(&pool->lock);
	ring_add_before(&pool->queues[urgency], j);
	cond_signal(&pool->changed);
	mutex_unlock(&pool->lock);
}

void tier_pool_submit_later(struct tier_pool *pool, struct tier_job *j, unsigned ms)
{
	struct tier_job *at;

	mutex_lock(&pool->lock);
	j->due_ns = monotonic_ns() + ms * UINT64_C(1000000);
	for (at = &pool->later; at->prev != &pool->later && at->prev->due_ns > j->due_ns;)
		at = at->prev;
	ring_add_before(at, j);
	cond_signal(&pool->changed); /* it may be the next one */
	mutex_unlock(&pool->lock);
}

bool tier_pool_withdraw(struct tier_pool *pool, struct tier_job *j)
{
	bool is_submitted;

	mutex_lock(&pool->lock);
	is_submitted = j->next != NULL;
	if (is_submitted)
		ring_remove(j);
	mutex_unlock(&pool->lock);
	return is_submitted;
}

bool tier_pool_is_stopping(struct tier_pool *pool)
{
	bool stop;

	mutex_lock(&pool->lock);
	stop = pool->stop;
	mutex_unlock(&pool->lock);
	return stop;
}

bool tier_pool_stop(struct tier_pool *pool)
{
	uint64_t until = monotonic_ns() + PATIENCE_NS, now;
	bool all;

	mutex_lock(&pool->lock);
	pool->stop = true;
	cond_broadcast(&pool->changed);
	cond_broadcast(&pool->ended);
	while (pool->nr_running > 0 && (now = monotonic_ns()) < until)
		cond_wait_for(&pool->ended, &pool->lock, until - now);
	all = pool->nr_running == 0;
	mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->nr; i++)
		if (all)
			pthread_join(pool->threads[i], NULL);
		else
			pthread_detach(pool->threads[i]);
	return all;
}

void tier_pool_free(struct tier_pool *pool)
{
	if (!pool)
		return;
	mutex_release(&pool->lock);
	cond_release(&pool->changed);
	cond_release(&pool->ended);
	free(pool);
}
