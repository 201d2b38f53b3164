/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/posix/attr_cache.h"
#include "index/namespace_table.h"

static void freep_cache(struct attr_cache **c)
{
	attr_cache_free(*c);
}

static struct attr_cache *cache(void)
{
	struct attr_cache *c;

	assert_int_equal(attr_cache_new(&c), 0);
	return c;
}

static void a_change_is_seen_at_once(void **state)
{
	_cleanup_(freep_cache) struct attr_cache *c = cache();
	struct ns_inode in;
	uint64_t ticket;

	(void)state;
	assert_false(attr_cache_get(c, 5, &in, &ticket));
	attr_cache_change(c, &(struct ns_inode){ .ino = 5, .mode = 1 });
	attr_cache_change(c, &(struct ns_inode){ .ino = 5, .mode = 2 });
	assert_true(attr_cache_get(c, 5, &in, &ticket));
	assert_int_equal(in.mode, 2);
	attr_cache_drop(c, 5);
	assert_false(attr_cache_get(c, 5, &in, &ticket));
}

static void a_reader_does_not_bring_back_what_was_changed_meanwhile(void **state)
{
	_cleanup_(freep_cache) struct attr_cache *c = cache();
	struct ns_inode in, old = { .ino = 5, .mode = 1 };
	uint64_t ticket;

	(void)state;
	assert_false(attr_cache_get(c, 5, &in, &ticket)); /* and reads `old` from the view */
	attr_cache_change(c, &(struct ns_inode){ .ino = 5, .mode = 2 });
	attr_cache_fill(c, &old, ticket);
	assert_true(attr_cache_get(c, 5, &in, &ticket));
	assert_int_equal(in.mode, 2);

	attr_cache_drop(c, 5);
	attr_cache_fill(c, &old, ticket);
	assert_false(attr_cache_get(c, 5, &in, &ticket));
	attr_cache_fill(c, &old, ticket);
	assert_true(attr_cache_get(c, 5, &in, &ticket));
	assert_int_equal(in.mode, 1);
}

static void the_longest_unused_of_a_set_goes_first(void **state)
{
	_cleanup_(freep_cache) struct attr_cache *c = cache();
	struct ns_inode in;
	uint64_t ticket;

	(void)state;
	for (uint64_t i = 1; i <= 4; i++)
		attr_cache_change(c, &(struct ns_inode){ .ino = 7 + i * 2048 });
	assert_true(attr_cache_get(c, 7 + 1 * 2048, &in, &ticket)); /* now 2 is the oldest */
	attr_cache_change(c, &(struct ns_inode){ .ino = 7 + 5 * 2048 });
	assert_true(attr_cache_get(c, 7 + 1 * 2048, &in, &ticket));
	assert_false(attr_cache_get(c, 7 + 2 * 2048, &in, &ticket));
	assert_true(attr_cache_get(c, 7 + 5 * 2048, &in, &ticket));
	attr_cache_clear(c);
	assert_false(attr_cache_get(c, 7 + 5 * 2048, &in, &ticket));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_is_seen_at_once),
		cmocka_unit_test(a_reader_does_not_bring_back_what_was_changed_meanwhile),
		cmocka_unit_test(the_longest_unused_of_a_set_goes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
