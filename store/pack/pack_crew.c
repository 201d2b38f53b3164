/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/pack_crew.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

/* On the caller's stack; listed while it wants more helpers. */
struct pack_crew_work {
	struct pack_crew_work *next;
	void (*work)(void *userdata);
	void *userdata;
	unsigned nr_wanted, nr_in;
};

void pack_crew_init(struct pack_crew *c)
{
	*c = (struct pack_crew){ 0 };
	mutex_init(&c->lock);
	cond_init(&c->posted);
	cond_init(&c->left);
}

static void unlist(struct pack_crew *c, const struct pack_crew_work *w) REQUIRES(c->lock)
{
	struct pack_crew_work **at = &c->first;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
}

static void *help(void *userdata)
{
	struct pack_crew *c = userdata;

	mutex_lock(&c->lock);
	while (!c->stop) {
		struct pack_crew_work *w = c->first;

		if (!w) {
			cond_wait(&c->posted, &c->lock);
			continue;
		}
		w->nr_in++;
		if (--w->nr_wanted == 0)
			unlist(c, w);
		mutex_unlock(&c->lock);
		w->work(w->userdata);
		mutex_lock(&c->lock);
		if (--w->nr_in == 0)
			cond_broadcast(&c->left);
	}
	mutex_unlock(&c->lock);
	return NULL;
}

static void start_threads(struct pack_crew *c) REQUIRES(c->lock)
{
	unsigned nr = MIN(nr_processors() - 1, PACK_CREW_MAX);

	c->started = true;
	for (; c->nr < nr; c->nr++) {
		int r = pthread_create(&c->thread[c->nr], NULL, help, c);

		if (r != 0) { /* continue with the threads there are */
			log_warning("packs: %u threads that help to decode, and no more: %s", c->nr, strerror(r));
			return;
		}
	}
}

void pack_crew_release(struct pack_crew *c)
{
	mutex_lock(&c->lock);
	c->stop = true;
	cond_broadcast(&c->posted);
	mutex_unlock(&c->lock);
	for (unsigned i = 0; i < c->nr; i++)
		pthread_join(c->thread[i], NULL);
	cond_release(&c->left);
	cond_release(&c->posted);
	mutex_release(&c->lock);
}

void pack_crew_run(struct pack_crew *c, unsigned nr, void (*work)(void *userdata), void *userdata)
{
	struct pack_crew_work w = { .work = work, .userdata = userdata };

	if (nr == 0) {
		work(userdata);
		return;
	}
	mutex_lock(&c->lock);
	if (!c->started)
		start_threads(c);
	w.nr_wanted = MIN(nr, c->nr);
	if (w.nr_wanted > 0) {
		w.next = c->first;
		c->first = &w;
		for (unsigned i = 0; i < w.nr_wanted; i++)
			cond_signal(&c->posted);
	}
	mutex_unlock(&c->lock);
	work(userdata);
	mutex_lock(&c->lock);
	unlist(c, &w);
	while (w.nr_in > 0)
		cond_wait(&c->left, &c->lock);
	mutex_unlock(&c->lock);
}
