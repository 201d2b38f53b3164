/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Preloaded into programs of which images are taken: the stack becomes as large as it may, as DMTCP has it do in all
 * that it launches. So stacks can be compared with those of its images.
 */
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEFT (256u << 10) /* for what comes before */

__attribute__((constructor)) static void grow(void)
{
	long page = sysconf(_SC_PAGESIZE);
	volatile char here = 0;
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur < 2 * LEFT)
		return;
	for (rlim_t down = (rlim_t)page; down < limit.rlim_cur - LEFT; down += (rlim_t)page)
		(void)*(volatile char *)((uintptr_t)&here - down); /* the kernel lets it grow by touching */
}
