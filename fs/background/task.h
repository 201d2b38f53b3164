/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Long work that the daemon does on request, such as a collection: one run at a time, in a thread of its own, which can
 * be asked to stop. A run belongs to the descriptor that it was requested on: when that is closed, for example because
 * its process is killed, the run is stopped.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"

struct task_status {
	uint64_t run; /* number of the run in this mount, from 1; 0: there was none */
	bool running;
	int error; /* after it has ended */
};

struct task {
	const char *name; /* of the thread; constant, as are the two below */
	int (*work)(void *userdata);
	void *userdata;

	struct mutex lock; /* leaf; guards the fields below, and the status that the owner of the task reports */
	struct task_status status GUARDED_BY(lock);
	bool stop GUARDED_BY(lock); /* for task_goes_on() */
	_Atomic uint64_t holder; /* ops_holder() of the descriptor; 0: none. Changed under the lock */
	bool has_thread GUARDED_BY(lock); /* to be joined */
	pthread_t thread GUARDED_BY(lock);
};

void task_init(struct task *t, const char *name, int (*work)(void *userdata), void *userdata);
void task_release(struct task *t); /* stops a running one, and waits for it */

bool task_is_idle(struct task *t) REQUIRES(t->lock);
int task_start(struct task *t, uint64_t holder) REQUIRES(t->lock); /* must be idle */
void task_stop(struct task *t); /* soon; does not wait */
/* The holder is gone: stop the task if it belongs to this one. Cheap otherwise. Returns whether it did. */
bool task_release_holder(struct task *t, uint64_t holder);
bool task_goes_on(struct task *t); /* for work(): false after a request to stop */
