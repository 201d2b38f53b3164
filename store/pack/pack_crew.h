/*
 * Threads that help whoever has work that several can do at once. They start with the first such work. Who asks for
 * help works as well, and waits only for those who came: if all are busy, it is as if there were none.
 *
 * Thread rule: pack_crew_run() from any thread; init and release with nobody in it.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/mutex.h"

#define PACK_CREW_MAX 3u /* threads, and never as many as there are processors */

struct pack_crew_work;

struct pack_crew {
	struct mutex lock; /* leaf; not held while anyone works */
	struct cond posted, left;
	struct pack_crew_work *first GUARDED_BY(lock); /* of which more may take part */
	bool started GUARDED_BY(lock), stop GUARDED_BY(lock);
	pthread_t thread[PACK_CREW_MAX] GUARDED_BY(lock);
	unsigned nr GUARDED_BY(lock);
};

void pack_crew_init(struct pack_crew *c);
void pack_crew_release(struct pack_crew *c);
/* Calls work(userdata) here and, at the same time, in up to `nr` others. All have returned when it returns. */
void pack_crew_run(struct pack_crew *c, unsigned nr, void (*work)(void *userdata), void *userdata);
