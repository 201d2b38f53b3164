/* SPDX-License-Identifier: GPL-3.0-or-later */
/* fsync(2) of a content, as the daemon does it: without a thread that waits, except that here the caller waits. */
#pragma once

#include <semaphore.h>
#include <stddef.h>

#include "base/util.h"
#include "store/engine.h"

struct content_synced {
	struct engine_waiter w;
	sem_t done;
	int r;
};

static void content_synced(struct engine_waiter *w, int r)
{
	struct content_synced *s = container_of(w, struct content_synced, w);

	s->r = r;
	sem_post(&s->done);
}

static inline int content_sync(struct content *c)
{
	struct content_synced s = { .w.done = content_synced };

	sem_init(&s.done, 0, 0);
	content_sync_then(c, NULL, &s.w);
	while (sem_wait(&s.done) < 0)
		; /* EINTR */
	sem_destroy(&s.done);
	return s.r;
}
