/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/ops/name_drops.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/ops/notify.h"
#include "fs/places.h"
#include "fs/subuids.h"

/* Threads are started when all others are busy, and kept. */
static const struct places places = { .all = 64, .reserved = 4, .per_user = 4 };

struct drop {
	struct drop *next;
	uint64_t dir;
	uint32_t user; /* see fs/subuids.h */
	bool is_root;
	void (*done)(void *arg);
	void *arg;
	char name[];
};

struct dropper {
	struct name_drops *all;
	struct dropper *next;
	struct notify_thread thread;
	struct drop *drop; /* in progress; all->lock */
};

struct name_drops {
	name_drop_fn *fn; /* constant, as `userdata` */
	void *userdata;

	struct mutex lock; /* leaf */
	struct cond work;
	struct drop *first, **last GUARDED_BY(lock);
	struct dropper *threads GUARDED_BY(lock);
	unsigned nr_idle GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
};

static bool may_begin(struct name_drops *all, const struct drop *d) REQUIRES(all->lock)
{
	unsigned nr = 0, nr_own = 0;

	for (const struct dropper *t = all->threads; t; t = t->next) {
		if (!t->drop)
			continue;
		if (t->drop->dir == d->dir)
			return false;
		nr++;
		nr_own += t->drop->user == d->user;
	}
	return places_has_room(&places, nr, nr_own, d->is_root);
}

/* Where the first drop is linked that may begin; NULL: none may. */
static struct drop **find_ready(struct name_drops *all) REQUIRES(all->lock)
{
	for (struct drop **at = &all->first; *at; at = &(*at)->next)
		if (may_begin(all, *at))
			return at;
	return NULL;
}

static struct drop *unlink_drop(struct name_drops *all, struct drop **at) REQUIRES(all->lock)
{
	struct drop *d = *at;

	*at = d->next;
	if (all->last == &d->next)
		all->last = at;
	return d;
}

static int start_thread(struct name_drops *all) REQUIRES(all->lock);

/* See that a thread takes the next drop, if one may begin. */
static void wake(struct name_drops *all) REQUIRES(all->lock)
{
	int r;

	if (!find_ready(all))
		return;
	r = all->nr_idle > 0 ? 0 : start_thread(all);
	if (r < 0)
		log_errno(r, "names: cannot start a thread"); /* one of the others takes it later */
	cond_signal(&all->work);
}

/* NULL: the daemon is ending. */
static struct drop *wait_for_drop(struct dropper *t)
{
	struct name_drops *all = t->all;
	struct drop **at;

	mutex_lock(&all->lock);
	while (!(at = find_ready(all)) && !all->stop) {
		all->nr_idle++;
		cond_wait(&all->work, &all->lock);
		all->nr_idle--;
	}
	t->drop = at ? unlink_drop(all, at) : NULL;
	if (t->drop)
		wake(all);
	mutex_unlock(&all->lock);
	return t->drop;
}

static void end_drop(struct drop *d)
{
	if (d->done)
		d->done(d->arg);
	free(d);
}

static void *run(void *userdata)
{
	struct dropper *t = userdata;
	struct name_drops *all = t->all;
	struct drop *d;

	while ((d = wait_for_drop(t))) {
		notify_thread_enter(&t->thread);
		all->fn(all->userdata, d->dir, d->name);
		notify_thread_leave(&t->thread);
		mutex_lock(&all->lock);
		t->drop = NULL;
		mutex_unlock(&all->lock);
		end_drop(d);
	}
	notify_thread_end(&t->thread);
	return NULL;
}

static int start_thread(struct name_drops *all)
{
	struct dropper *t;
	int r;

	if (all->stop)
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->all = all;
	r = pthread_create(&t->thread.thread, NULL, run, t);
	if (r != 0) {
		free(t);
		return -r;
	}
	t->next = all->threads;
	all->threads = t;
	return 0;
}

int name_drops_new(name_drop_fn *fn, void *userdata, struct name_drops **ret)
{
	struct name_drops *all = calloc(1, sizeof(*all));
	int r;

	if (!all)
		return -ENOMEM;
	all->fn = fn;
	all->userdata = userdata;
	all->last = &all->first;
	mutex_init(&all->lock);
	cond_init(&all->work);
	mutex_lock(&all->lock);
	r = start_thread(all); /* so that there is always one */
	mutex_unlock(&all->lock);
	if (r < 0) {
		free(all);
		return r;
	}
	*ret = all;
	return 0;
}

bool name_drops_stop(struct name_drops *all, uint64_t until_ns)
{
	struct dropper *t;
	bool ended = true;

	mutex_lock(&all->lock);
	all->stop = true;
	cond_broadcast(&all->work);
	t = all->threads; /* none is added any more */
	mutex_unlock(&all->lock);
	for (; t; t = t->next)
		ended &= notify_thread_join(&t->thread, 0, until_ns);
	while (ended && (t = all->threads)) {
		all->threads = t->next;
		free(t);
	}
	return ended;
}

void name_drops_free(struct name_drops *all)
{
	if (!all)
		return;
	name_drops_stop(all, UINT64_MAX);
	cond_release(&all->work);
	mutex_release(&all->lock);
	free(all);
}

int name_drops_add(struct name_drops *all, uint32_t uid, bool is_root, uint64_t dir, const char *name,
		   void (*done)(void *arg), void *arg)
{
	size_t size = strlen(name) + 1;
	struct drop *d = malloc(sizeof(*d) + size);
	bool stopped;

	if (!d)
		return -ENOMEM;
	*d = (struct drop){ .dir = dir, .user = subuids_user(uid), .is_root = is_root, .done = done, .arg = arg };
	memcpy(d->name, name, size);
	mutex_lock(&all->lock);
	stopped = all->stop;
	if (!stopped) {
		*all->last = d;
		all->last = &d->next;
		wake(all);
	}
	mutex_unlock(&all->lock);
	if (stopped)
		end_drop(d); /* the mount is going away, with its cache of names */
	return 0;
}
