/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A call that may block for ever is abandoned, and holds nothing of the process that made it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/apart.h"
#include "base/util.h"

#define LONG_NS UINT64_C(600000000000)

static void report(const void *arg _unused_)
{
}

static int run(void (*call)(const void *, void *), const void *arg, uint64_t for_ns, int *ret)
{
	const struct apart a = { .call = call, .report = report, .arg = arg, .until_ns = monotonic_ns() + for_ns };

	return apart_call(&a, ret, sizeof(*ret));
}

static void add_one(const void *arg, void *ret)
{
	*(int *)ret = *(const int *)arg + 1;
}

static void an_answer_is_returned(void **state _unused_)
{
	int answer = 0;

	assert_int_equal(run(add_one, &(int){ 41 }, LONG_NS, &answer), 1);
	assert_int_equal(answer, 42);
}

static void die(const void *arg _unused_, void *ret _unused_)
{
	raise(SIGKILL);
}

static void a_call_that_dies_is_an_error(void **state _unused_)
{
	int answer = 7;

	assert_int_equal(run(die, NULL, LONG_NS, &answer), -EIO);
	assert_int_equal(answer, 7);
}

static void wait_for_ever(const void *arg _unused_, void *ret _unused_)
{
	for (;;)
		pause();
}

static void a_call_that_is_late_is_killed(void **state _unused_)
{
	int answer = 7, status;

	assert_int_equal(run(wait_for_ever, NULL, 1000000, &answer), 0);
	assert_int_equal(answer, 7);
	assert_true(wait(&status) > 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static bool four_times(const void *arg)
{
	return ++**(unsigned *const *)arg <= 4;
}

static void a_call_is_given_up_when_told(void **state _unused_)
{
	unsigned nr = 0, *p = &nr;
	const struct apart a = { .call = wait_for_ever, .arg = &p, .go_on = four_times };
	int answer = 7;

	assert_int_equal(apart_call(&a, &answer, sizeof(answer)), 0);
	assert_int_equal(nr, 5);
	assert_true(wait(NULL) > 0);
}

static void is_open(const void *arg, void *ret)
{
	*(int *)ret = fcntl(*(const int *)arg, F_GETFD) >= 0;
}

static void the_call_has_no_open_files(void **state _unused_)
{
	int fds[2], answer;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] == 3) /* it answers by this one */
			continue;
		assert_int_equal(run(is_open, &fds[i], LONG_NS, &answer), 1);
		assert_false(answer);
	}
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_returned),
		cmocka_unit_test(a_call_that_dies_is_an_error),
		cmocka_unit_test(a_call_that_is_late_is_killed),
		cmocka_unit_test(a_call_is_given_up_when_told),
		cmocka_unit_test(the_call_has_no_open_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
