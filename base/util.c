/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/util.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void closep(int *fd)
{
	int saved = errno; /* runs on the way out of functions that are about to return -errno */

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

int list_grow(void *list, size_t nr, size_t *room, size_t size)
{
	size_t more = MAX(2 * *room, (size_t)16);
	void *p;

	if (nr < *room)
		return 0;
	if (more > SIZE_MAX / size)
		return -ENOMEM;
	memcpy(&p, list, sizeof(p));
	p = realloc(p, more * size);
	if (!p)
		return -ENOMEM;
	memcpy(list, &p, sizeof(p));
	*room = more;
	return 0;
}

unsigned nr_processors(void)
{
	cpu_set_t set;
	long nr;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return (unsigned)CPU_COUNT(&set);
	nr = sysconf(_SC_NPROCESSORS_ONLN); /* more than the set has room for */
	return nr > 1 ? (unsigned)nr : 1;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

uint64_t monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
