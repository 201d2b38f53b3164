/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/control/process_usage.h"

#define FDS 5
#define BYTES MiB(64)

static void descriptors_are_counted(void **state _unused_)
{
	struct process_usage before, after;
	struct rlimit limit;
	int fd[FDS];

	process_usage(&before);
	for (int i = 0; i < FDS; i++)
		fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	process_usage(&after);
	assert_int_equal(after.open_fds, before.open_fds + FDS);
	for (int i = 0; i < FDS; i++)
		close(fd[i]);
	process_usage(&after);
	assert_int_equal(after.open_fds, before.open_fds);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(after.max_fds, limit.rlim_cur);
}

/* The kernel counts pages per processor first, so a few are missing. */
static void memory_counts_once_it_is_used(void **state _unused_)
{
	struct process_usage before, after;
	char *p;

	process_usage(&before);
	p = malloc(BYTES);
	assert_non_null(p);
	memset(p, 1, BYTES);
	process_usage(&after);
	assert_true(((volatile char *)p)[BYTES - 1] == 1);
	assert_true(before.resident_bytes > 0);
	assert_true(after.resident_bytes > before.resident_bytes + BYTES / 4 * 3);
	free(p);
}

/* Work until a tenth of a second of processor time is used, however long that takes. */
static void processor_time_is_that_of_the_process(void **state _unused_)
{
	clock_t until = clock() + CLOCKS_PER_SEC / 10;
	struct process_usage before, after;

	process_usage(&before);
	while (clock() < until)
		;
	process_usage(&after);
	assert_true(after.cpu_ns >= before.cpu_ns + 90000000);
	assert_true(after.cpu_ns <= ((uint64_t)clock() + 1) * (1000000000 / CLOCKS_PER_SEC));
}

/* Ticks of the kernel are 10 ms, and it rounds down. */
static void a_child_started_after_its_parent_and_before_now(void **state _unused_)
{
	uint64_t ours = process_started_ns(), before = now_ns();
	pid_t pid;
	int status;

	assert_true(ours > 0 && ours <= before);
	pid = fork();
	if (pid == 0) {
		uint64_t theirs = process_started_ns();

		_exit(theirs + 20000000 >= before && theirs <= now_ns() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(descriptors_are_counted),
		cmocka_unit_test(memory_counts_once_it_is_used),
		cmocka_unit_test(processor_time_is_that_of_the_process),
		cmocka_unit_test(a_child_started_after_its_parent_and_before_now),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
