/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Written bytes that wait in memory until there are enough of them for a job. */
#pragma once

#include "store/file/content.h"

struct engine_waiter;
struct job;

/* Everything `w` waits for is in the log: continue with waiting for a commit. */
void content_flushed(struct engine_waiter *w);
/* May drop and retake the lock. The job is queued or done or, with `deferred`, left to the caller; earlier data is
 * queued. */
int stage_flush(struct content *c, struct job **deferred) REQUIRES(c->lock);
int stages_flush_all(struct engine *e);
bool stages_flush_oldest(struct engine *e); /* false: nothing is staged */
