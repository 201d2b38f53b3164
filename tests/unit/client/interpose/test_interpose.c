/* SPDX-License-Identifier: GPL-3.0-or-later */
/* With libckptfs.so as programs have it: that this begins at all is the first test, with ThreadSanitizer above all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "reader.h"

static char dir[] = "/tmp/ckptfs-interpose.XXXXXX";

static int start(void **state _unused_)
{
	const struct ckptfs_options options = { .size = sizeof(options), .tracking = CKPTFS_TRACKING_MPROTECT };

	return mkdtemp(dir) ? ckptfs_init(dir, &options) : -1;
}

static int end(void **state _unused_)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return ckptfs_finish() < 0 ? -1 : system(command);
}

/* From a pipe, into a page that a checkpoint has closed. */
static void assert_reads(ssize_t (*call)(int, void *, size_t), const char *name)
{
	char *p = ckptfs_malloc(name, 8192);
	int fds[2];

	assert_non_null(p);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "hello", 5), 5);
	assert_int_equal(ckptfs_checkpoint(), 0);
	assert_int_equal(call(fds[0], p, 5), 5);
	assert_memory_equal(p, "hello", 5);
	close(fds[0]);
	close(fds[1]);
}

static void a_program_reads_into_a_closed_page(void **state _unused_)
{
	assert_reads(read, "program");
}

static void a_library_that_knows_nothing_does(void **state _unused_)
{
	assert_reads(reader_read, "library");
}

static void on_signal(int number _unused_)
{
}

static void handlers_are_what_was_set(void **state _unused_)
{
	struct sigaction action = { .sa_handler = on_signal }, old;

	assert_int_equal(sigaction(SIGSEGV, &action, &old), 0);
	assert_int_equal(sigaction(SIGSEGV, &old, &action), 0);
	assert_true(action.sa_handler == on_signal);
	assert_true(signal(SIGUSR1, on_signal) == SIG_DFL);
	assert_true(signal(SIGUSR1, SIG_DFL) == on_signal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_reads_into_a_closed_page),
		cmocka_unit_test(a_library_that_knows_nothing_does),
		cmocka_unit_test(handlers_are_what_was_set),
	};

	return cmocka_run_group_tests(tests, start, end);
}
