/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The lock of a store: a tool that has it for a moment does not make the next one fail. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine.h"
#include "store/superblock.h"

#define FOR_EVER ~0u

static unsigned nr_refusals; /* of flock(2), before it is called */
static unsigned nr_calls;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
	assert_true(operation & LOCK_NB);
	nr_calls++;
	if (nr_refusals == 0)
		return __real_flock(fd, operation);
	nr_refusals -= nr_refusals != FOR_EVER;
	errno = EWOULDBLOCK;
	return -1;
}

static int open_refused(unsigned nr)
{
	_cleanup_(store_dirs_release) struct store_dirs d = STORE_DIRS_NONE;
	const struct engine_conf conf = { .read_only = true };
	char path[] = "/tmp/ckptfs-superblock.XXXXXX", command[64];
	const struct engine_conf creates = { 0 };
	int r;

	assert_non_null(mkdtemp(path));
	nr_refusals = 0;
	assert_int_equal(store_dirs_open(path, &creates, &d), 0);
	store_dirs_release(&d);
	nr_refusals = nr;
	nr_calls = 0;
	d = STORE_DIRS_NONE;
	r = store_dirs_open(path, &conf, &d);
	snprintf(command, sizeof(command), "rm -r %s", path);
	assert_int_equal(system(command), 0);
	return r;
}

static void a_lock_that_is_soon_released_is_awaited(void **state)
{
	(void)state;
	assert_int_equal(open_refused(3), 0);
	assert_int_equal(nr_calls, 4);
}

static void a_lock_that_stays_is_busy(void **state)
{
	(void)state;
	assert_int_equal(open_refused(FOR_EVER), -EBUSY);
	assert_true(nr_calls > 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lock_that_is_soon_released_is_awaited),
		cmocka_unit_test(a_lock_that_stays_is_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
