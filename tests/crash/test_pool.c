/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Cases over a few processes, some of which are killed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/crash/pool.h"

#define CASES 20u
#define FATAL 7u

struct seen {
	_Atomic unsigned done[CASES];
	_Atomic unsigned kills; /* that are left for FATAL */
};

static enum pool_verdict run(void *userdata, int me _unused_, uint64_t nr, FILE *to _unused_)
{
	struct seen *s = userdata;

	if (nr == FATAL && s->kills > 0) {
		s->kills--;
		raise(SIGKILL);
	}
	s->done[nr]++;
	return POOL_RIGHT;
}

static void describe(void *userdata _unused_, int me _unused_, uint64_t nr)
{
	assert_int_equal(nr, FATAL);
}

static bool run_all(struct seen *s)
{
	char scratch[] = "/tmp/ckptfs-pool-XXXXXX", command[64];
	struct pool p = { .jobs = 3, .end = CASES, .run = run, .describe = describe, .userdata = s };
	bool good;

	p.scratch = mkdtemp(scratch);
	assert_non_null(p.scratch);
	good = pool_run(&p);
	snprintf(command, sizeof(command), "rm -r %s", scratch);
	assert_int_equal(system(command), 0);
	return good;
}

static int set_up(void **state)
{
	*state = mmap(NULL, sizeof(struct seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return *state == MAP_FAILED;
}

static int tear_down(void **state)
{
	return munmap(*state, sizeof(struct seen));
}

static void a_case_that_is_killed_once_is_done_again(void **state)
{
	struct seen *s = *state;

	s->kills = 1;
	assert_true(run_all(s));
	for (unsigned i = 0; i < CASES; i++)
		assert_int_equal(s->done[i], 1);
}

static void one_that_is_killed_twice_has_failed(void **state)
{
	struct seen *s = *state;

	s->kills = 2;
	assert_false(run_all(s));
	assert_int_equal(s->done[FATAL], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_case_that_is_killed_once_is_done_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_that_is_killed_twice_has_failed, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
