/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Helper threads for work that can be done in parallel. They are started with the first such work. The calling thread
 * works as well and waits only for helpers that have joined: if all are busy, it does the work alone.
 *
 * Thread rule: pack_crew_run() from any thread; init and release while no thread is in it.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/mutex.h"

#define PACK_CREW_MAX 3u /* threads; always fewer than there are processors */

struct pack_crew_work;

struct pack_crew {
	struct mutex lock; /* leaf; not held while work() runs */
	struct cond posted, left;
	struct pack_crew_work *first GUARDED_BY(lock); /* work that wants more helpers */
	bool started GUARDED_BY(lock), stop GUARDED_BY(lock);
	pthread_t thread[PACK_CREW_MAX] GUARDED_BY(lock);
	unsigned nr GUARDED_BY(lock);
};

void pack_crew_init(struct pack_crew *c);
void pack_crew_release(struct pack_crew *c);
/* Call work(userdata) in this thread and, concurrently, in up to `nr` helpers. Returns when all have returned. */
void pack_crew_run(struct pack_crew *c, unsigned nr, void (*work)(void *userdata), void *userdata);
