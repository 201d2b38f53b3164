/*
 * Long work that the daemon does on request, such as a collection: one piece at a time, in a thread of its own, which
 * can be asked to stop. It is done for whoever has the descriptor open that it was asked for on: when that is closed,
 * as it is when its process is killed, nobody wants it any more.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"

struct task_status {
	uint64_t run; /* which one of this mount, from 1; 0: there was none */
	bool running;
	int error; /* of one that has ended */
};

struct task {
	const char *name; /* constant, as the two below; of the thread */
	int (*work)(void *userdata);
	void *userdata;

	struct mutex lock; /* leaf; guards what follows, and what the owner of the task tells of it */
	struct task_status status GUARDED_BY(lock);
	bool stop GUARDED_BY(lock); /* task_goes_on() */
	_Atomic uint64_t holder; /* ops_holder() of the descriptor; 0: nobody's. Changed under the lock */
	bool has_thread GUARDED_BY(lock); /* to be joined */
	pthread_t thread GUARDED_BY(lock);
};

void task_init(struct task *t, const char *name, int (*work)(void *userdata), void *userdata);
void task_release(struct task *t); /* stops what is running, and waits for it */

bool task_is_idle(struct task *t) REQUIRES(t->lock);
int task_start(struct task *t, uint64_t holder) REQUIRES(t->lock); /* an idle one */
void task_stop(struct task *t); /* soon; does not wait */
/* The holder is gone: stop, if it is this one's. Cheap if it is not. Whether it was. */
bool task_let_go(struct task *t, uint64_t holder);
bool task_goes_on(struct task *t); /* for work(): nobody has asked it to stop */
