/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/task.h"

#include <assert.h>

void task_init(struct task *t, const char *name, int (*work)(void *userdata), void *userdata)
{
	*t = (struct task){ .name = name, .work = work, .userdata = userdata };
	mutex_init(&t->lock);
}

static void *run(void *arg)
{
	struct task *t = arg;
	int r;

	pthread_setname_np(pthread_self(), t->name);
	r = t->work(t->userdata);
	mutex_lock(&t->lock);
	t->status.error = r;
	t->status.running = false;
	mutex_unlock(&t->lock);
	return NULL;
}

bool task_is_idle(struct task *t)
{
	return !t->status.running;
}

int task_start(struct task *t, uint64_t holder)
{
	int r;

	assert(task_is_idle(t));
	if (t->has_thread)
		pthread_join(t->thread, NULL); /* it has ended, or is about to and takes no lock any more */
	t->stop = false;
	atomic_store(&t->holder, holder);
	t->status.run++;
	t->status.error = 0;
	r = pthread_create(&t->thread, NULL, run, t);
	t->has_thread = t->status.running = r == 0;
	return -r;
}

void task_stop(struct task *t)
{
	mutex_lock(&t->lock);
	t->stop = true;
	mutex_unlock(&t->lock);
}

bool task_release_holder(struct task *t, uint64_t holder)
{
	bool is_ours;

	if (atomic_load(&t->holder) != holder)
		return false;
	mutex_lock(&t->lock);
	is_ours = atomic_load(&t->holder) == holder; /* another run may have begun */
	if (is_ours) {
		t->stop = true;
		atomic_store(&t->holder, 0);
	}
	mutex_unlock(&t->lock);
	return is_ours;
}

bool task_goes_on(struct task *t)
{
	bool stop;

	mutex_lock(&t->lock);
	stop = t->stop;
	mutex_unlock(&t->lock);
	return !stop;
}

void task_release(struct task *t)
{
	bool has_thread;

	task_stop(t);
	mutex_lock(&t->lock);
	has_thread = t->has_thread;
	mutex_unlock(&t->lock);
	if (has_thread)
		pthread_join(t->thread, NULL);
	mutex_release(&t->lock);
}
