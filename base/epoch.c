#include "base/epoch.h"

#include <assert.h>
#include <time.h>

#define LOOK_AGAIN_NS (200 * 1000) /* who waits is in no hurry, and who leaves should not have to look for him */

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
		if (atomic_load(&e->number) == number) /* else somebody waits, and may not have seen us */
			return number % 2;
		atomic_fetch_sub(&e->nr_inside[number % 2], 1);
	}
}

void epoch_leave(struct epoch *e, unsigned ticket)
{
	atomic_fetch_sub(&e->nr_inside[ticket], 1);
}

/* The period before the current one has been waited for: only those of the current one are inside. */
void epoch_wait(struct epoch *e)
{
	uint64_t number;

	mutex_lock(&e->waiting);
	number = atomic_fetch_add(&e->number, 1);
	while (atomic_load(&e->nr_inside[number % 2]) > 0)
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_AGAIN_NS }, NULL);
	mutex_unlock(&e->waiting);
}
