/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Memory that two processes see: what is in use, and what the other end can do to it, which is nothing. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/wire/arena.h"

#define LEN ((size_t)1 << 20)

static void taken_memory_has_one_owner(void **state _unused_)
{
	_cleanup_(arena_putp) struct arena *a = NULL;
	uint8_t *p[4];

	assert_int_equal(arena_new(LEN, &a), 0);
	assert_int_equal(arena_len(a), LEN);
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++) {
		p[i] = arena_take(a, LEN / 4 - i);
		assert_non_null(p[i]);
		assert_int_equal((uintptr_t)p[i] % 4096, 0);
		memset(p[i], (int)i + 1, LEN / 4 - i);
	}
	assert_null(arena_take(a, 1));
	for (unsigned i = 0; i < ARRAY_SIZE(p); i++)
		for (size_t at = 0; at < LEN / 4 - i; at++)
			assert_int_equal(p[i][at], i + 1);
}

/* The first there is: the same memory is used again and again. */
static void what_is_given_back_comes_again(void **state _unused_)
{
	_cleanup_(arena_putp) struct arena *a = NULL;
	uint8_t *first, *second, *third;

	assert_int_equal(arena_new(LEN, &a), 0);
	first = arena_take(a, LEN / 4);
	second = arena_take(a, LEN / 4);
	third = arena_take(a, LEN / 2);
	arena_give_back(a, first, LEN / 4);
	assert_null(arena_take(a, LEN / 2));
	assert_ptr_equal(arena_take(a, LEN / 8), first);
	arena_give_back(a, third, LEN / 2);
	arena_give_back(a, second, LEN / 4);
	assert_ptr_equal(arena_take(a, LEN - LEN / 8), first + LEN / 8);
	assert_null(arena_take(a, 1));
}

/* Memory is made of large pages when it is first taken: what was there before, on both ends, stays. */
static void what_is_taken_later_changes_nothing_of_what_is_there(void **state _unused_)
{
	_cleanup_(arena_putp) struct arena *a = NULL, *seen = NULL;
	const size_t len = (size_t)9 << 20, step = (size_t)3 << 18;
	size_t nr = len / step;

	assert_int_equal(arena_new(len, &a), 0);
	assert_int_equal(arena_open(dup(arena_fd(a)), &seen), 0);
	for (size_t i = 0; i < nr; i++) {
		uint8_t *p = arena_take(a, step);

		assert_ptr_equal(p, arena_data(a) + i * step);
		memset(p, (int)i + 1, step);
		for (size_t at = 0; at < (i + 1) * step; at += 512)
			assert_int_equal(arena_data(seen)[at], at / step + 1);
	}
	assert_null(arena_take(a, 1));
}

static void the_other_end_sees_it_and_cannot_change_it(void **state _unused_)
{
	_cleanup_(arena_putp) struct arena *a = NULL, *seen = NULL;
	uint8_t *p;

	assert_int_equal(arena_new(LEN, &a), 0);
	assert_int_equal(arena_open(dup(arena_fd(a)), &seen), 0);
	assert_int_equal(arena_len(seen), LEN);
	p = arena_take(a, 100);
	strcpy((char *)p, "bytes");
	assert_string_equal((const char *)arena_data(seen) + (p - arena_data(a)), "bytes");
	assert_int_equal(ftruncate(arena_fd(a), 0), -1);
	assert_int_equal(ftruncate(arena_fd(a), LEN * 2), -1);
	assert_ptr_equal(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, arena_fd(a), 0), MAP_FAILED);
	assert_int_equal(pwrite(arena_fd(a), "x", 1, 0), -1);
	arena_put(TAKE(a)); /* it stays mapped until the last reference is dropped */
	assert_string_equal((const char *)arena_data(seen), "bytes");
}

/* What could become shorter while it is looked at, and what is no memory. */
static void what_cannot_be_looked_at_safely_is_refused(void **state _unused_)
{
	int fds[] = { memfd_create("test", MFD_ALLOW_SEALING), memfd_create("test", MFD_ALLOW_SEALING),
		      open("/dev/null", O_RDWR), open("/proc/self/exe", O_RDONLY), -1 };
	struct arena *a = NULL;

	assert_int_equal(ftruncate(fds[0], LEN), 0); /* not sealed */
	assert_int_equal(fcntl(fds[1], F_ADD_SEALS, F_SEAL_SHRINK), 0); /* empty */
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
		assert_int_equal(arena_open(fds[i], &a), -EBADMSG);
		if (fds[i] >= 0)
			assert_int_equal(fcntl(fds[i], F_GETFD), -1); /* it was taken */
	}
	assert_null(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(taken_memory_has_one_owner),
		cmocka_unit_test(what_is_given_back_comes_again),
		cmocka_unit_test(what_is_taken_later_changes_nothing_of_what_is_there),
		cmocka_unit_test(the_other_end_sees_it_and_cannot_change_it),
		cmocka_unit_test(what_cannot_be_looked_at_safely_is_refused),
	};

	return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
