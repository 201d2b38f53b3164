/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/util.h"

#define PATIENCE_NS UINT64_C(2000000000)

struct list {
	struct tier_job *first, **end;
};

struct tier_workers {
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
	struct tier_workers *w = userdata;
	struct tier_job *j;

	mutex_lock(&w->lock);
	while (!w->stop) {
		j = list_take(&w->urgent);
		if (!j)
			j = list_take(&w->others);
		if (!j) {
			cond_wait(&w->changed, &w->lock);
			continue;
		}
		mutex_unlock(&w->lock);
		j->run(j);
		mutex_lock(&w->lock);
	}
	w->nr_running--;
	cond_broadcast(&w->ended);
	mutex_unlock(&w->lock);
	return NULL;
}

int tier_workers_new(unsigned nr, struct tier_workers **ret)
{
	struct tier_workers *w = calloc(1, sizeof(*w) + nr * sizeof(w->threads[0]));
	int r = 0;

	if (!w)
		return -ENOMEM;
	mutex_init(&w->lock);
	cond_init(&w->changed);
	cond_init(&w->ended);
	w->urgent.end = &w->urgent.first;
	w->others.end = &w->others.first;
	while (w->nr < nr && r == 0) {
		mutex_lock(&w->lock);
		w->nr_running++;
		mutex_unlock(&w->lock);
		r = -pthread_create(&w->threads[w->nr], NULL, work, w);
		w->nr += r == 0;
	}
	if (r == 0) {
		*ret = w;
		return 0;
	}
	mutex_lock(&w->lock);
	w->nr_running--; /* the one that was not created */
	mutex_unlock(&w->lock);
	tier_workers_stop(w);
	tier_workers_free(w);
	return r;
}

void tier_workers_add(struct tier_workers *w, struct tier_job *j, bool is_urgent)
{
	mutex_lock(&w->lock);
	list_add(is_urgent ? &w->urgent : &w->others, j);
	cond_signal(&w->changed);
	mutex_unlock(&w->lock);
}

bool tier_workers_stopping(struct tier_workers *w)
{
	bool stop;

	mutex_lock(&w->lock);
	stop = w->stop;
	mutex_unlock(&w->lock);
	return stop;
}

void tier_workers_pause(struct tier_workers *w, unsigned ms)
{
	uint64_t until = monotonic_ns() + ms * UINT64_C(1000000), now;

	mutex_lock(&w->lock);
	while (!w->stop && (now = monotonic_ns()) < until)
		cond_wait_for(&w->ended, &w->lock, until - now);
	mutex_unlock(&w->lock);
}

bool tier_workers_stop(struct tier_workers *w)
{
	uint64_t until = monotonic_ns() + PATIENCE_NS, now;
	bool all;

	mutex_lock(&w->lock);
	w->stop = true;
	cond_broadcast(&w->changed);
	cond_broadcast(&w->ended);
	while (w->nr_running > 0 && (now = monotonic_ns()) < until)
		cond_wait_for(&w->ended, &w->lock, until - now);
	all = w->nr_running == 0;
	mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->nr; i++)
		if (all)
			pthread_join(w->threads[i], NULL);
		else
			pthread_detach(w->threads[i]);
	return all;
}

void tier_workers_free(struct tier_workers *w)
{
	if (!w)
		return;
	mutex_release(&w->lock);
	cond_release(&w->changed);
	cond_release(&w->ended);
	free(w);
}
