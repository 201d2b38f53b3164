/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/reading/tier_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/util.h"

#define PATIENCE_NS UINT64_C(2000000000)

struct list {
	struct tier_job *first, **end;
};

struct tier_pool {
	struct mutex lock; /* leaf */
	struct cond changed; /* a job was added, or stop */
	struct cond ended; /* a thread has ended */
	struct list urgent GUARDED_BY(lock), others GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
	unsigned nr_running GUARDED_BY(lock); /* threads that have not ended */
	unsigned nr; /* threads; constant */
	pthread_t threads[];
};

static void list_add(struct list *l, struct tier_job *j)
{
	j->next = NULL;
	*l->end = j;
	l->end = &j->next;
}

static struct tier_job *list_take(struct list *l)
{
	struct tier_job *j = l->first;

	if (!j)
		return NULL;
	l->first = j->next;
	if (!l->first)
		l->end = &l->first;
	return j;
}

static void *work(void *userdata)
{
	struct tier_pool *pool = userdata;
	struct tier_job *j;

	mutex_lock(&pool->lock);
	while (!pool->stop) {
		j = list_take(&pool->urgent);
		if (!j)
			j = list_take(&pool->others);
		if (!j) {
			cond_wait(&pool->changed, &pool->lock);
			continue;
		}
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
	pool->urgent.end = &pool->urgent.first;
	pool->others.end = &pool->others.first;
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

void tier_pool_submit(struct tier_pool *pool, struct tier_job *j, bool is_urgent)
{
	mutex_lock(&pool->lock);
	list_add(is_urgent ? &pool->urgent : &pool->others, j);
	cond_signal(&pool->changed);
	mutex_unlock(&pool->lock);
}

bool tier_pool_is_stopping(struct tier_pool *pool)
{
	bool stop;

	mutex_lock(&pool->lock);
	stop = pool->stop;
	mutex_unlock(&pool->lock);
	return stop;
}

void tier_pool_pause(struct tier_pool *pool, unsigned ms)
{
	uint64_t until = monotonic_ns() + ms * UINT64_C(1000000), now;

	mutex_lock(&pool->lock);
	while (!pool->stop && (now = monotonic_ns()) < until)
		cond_wait_for(&pool->ended, &pool->lock, until - now);
	mutex_unlock(&pool->lock);
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
