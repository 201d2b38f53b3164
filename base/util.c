#include "base/util.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

void closep(int *fd)
{
	int saved = errno; /* runs on the way out of functions that are about to return -errno */

	if (*fd >= 0)
		close(*fd);
	errno = saved;
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
