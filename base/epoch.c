/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/epoch.h"

#include <assert.h>
#include <time.h>

#define POLL_NS (200 * 1000) /* waiters poll, so that leaving need not wake them */

void epoch_init(struct epoch *e)
{
	atomic_init(&e->number, 0);
	atomic_init(&e->nr_inside[0], 0);
	atomic_init(&e->nr_inside[1], 0);
	mutex_init(&e->waiting);
}

void epoch_release(struct epoch *e)
{
	assert(e->nr_inside[0] == 0 && e->nr_inside[1] == 0);
	mutex_release(&e->waiting);
}

unsigned epoch_enter(struct epoch *e)
{
	for (;;) {
		uint64_t number = atomic_load(&e->number);

		atomic_fetch_add(&e->nr_inside[number % 2], 1);
		if (atomic_load(&e->number) == number) /* otherwise a waiter may have missed this reader */
			return number % 2;
		atomic_fetch_sub(&e->nr_inside[number % 2], 1);
	}
}

void epoch_leave(struct epoch *e, unsigned ticket)
{
	atomic_fetch_sub(&e->nr_inside[ticket], 1);
}

/* The period before the current one was waited for earlier: all readers inside entered in the current one. */
void epoch_wait(struct epoch *e)
{
	uint64_t number;

	mutex_lock(&e->waiting);
	number = atomic_fetch_add(&e->number, 1);
	while (atomic_load(&e->nr_inside[number % 2]) > 0)
		nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
	mutex_unlock(&e->waiting);
}
