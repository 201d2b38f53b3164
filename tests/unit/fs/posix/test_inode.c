/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/posix/inode.h"

static void freep_table(struct inodes **t)
{
	inodes_free(*t);
}

static struct inodes *table(void)
{
	struct inodes *t;

	assert_int_equal(inodes_new(NULL, &t), 0);
	return t;
}

static void an_entry_goes_with_its_last_look_up_and_pin(void **state)
{
	_cleanup_(freep_table) struct inodes *t = table();
	struct inode *a, *b;

	(void)state;
	assert_int_equal(inode_get_lookup(t, 7, &a), 0);
	assert_int_equal(inode_get_lookup(t, 7, &b), 0);
	assert_ptr_equal(a, b);
	assert_false(inode_put(t, a));
	assert_false(inode_put(t, a));
	assert_int_equal(inodes_count(t), 1);
	assert_false(inode_forget(t, 7, 1));
	assert_int_equal(inodes_count(t), 1);
	assert_false(inode_forget(t, 7, 1));
	assert_int_equal(inodes_count(t), 0);
	assert_null(inode_find(t, 7));
}

static void an_orphan_stays_until_it_is_taken(void **state)
{
	_cleanup_(freep_table) struct inodes *t = table();
	struct inode_rest rest;
	struct inode *i;

	(void)state;
	assert_false(inodes_set_orphan(t, 9, true)); /* no reference is left */
	assert_int_equal(inode_get_lookup(t, 9, &i), 0);
	assert_true(inodes_set_orphan(t, 9, true));
	assert_false(inode_forget(t, 9, 1)); /* still pinned */
	assert_false(inodes_take_idle(t, 9, &rest));
	assert_true(inode_put(t, i));
	assert_true(inodes_take_idle(t, 9, &rest));
	assert_int_equal(rest.ino, 9);
	assert_true(rest.orphan);
	assert_false(rest.atime_dirty);
	assert_int_equal(inodes_count(t), 0);
}

static void a_read_time_is_kept_until_it_is_written(void **state)
{
	_cleanup_(freep_table) struct inodes *t = table();
	struct inode *i;
	int64_t ns = 0;

	(void)state;
	assert_int_equal(inode_get_lookup(t, 5, &i), 0);
	assert_false(inodes_atime(t, 5, &ns));
	i->atime_ns = 1234;
	i->atime_dirty = true;
	assert_true(inodes_atime(t, 5, &ns));
	assert_int_equal(ns, 1234);
	inodes_written(t, 5);
	assert_false(inodes_atime(t, 5, &ns));
	assert_false(inode_put(t, i));
	assert_false(inode_forget(t, 5, 1));
	assert_int_equal(inodes_count(t), 0);
}

static void the_table_grows_and_can_be_emptied(void **state)
{
	_cleanup_(freep_table) struct inodes *t = table();
	struct inode_rest rest;
	uint64_t sum = 0;
	struct inode *i;

	(void)state;
	for (uint64_t ino = 1; ino <= 10000; ino++) {
		assert_int_equal(inode_get_lookup(t, ino, &i), 0);
		inode_put(t, i);
	}
	assert_int_equal(inodes_count(t), 10000);
	for (uint64_t ino = 1; ino <= 10000; ino++) {
		i = inode_find(t, ino);
		assert_non_null(i);
		assert_int_equal(i->ino, ino);
		inode_put(t, i);
	}
	while (inodes_take_any(t, &rest))
		sum += rest.ino;
	assert_int_equal(sum, 10000 * 10001 / 2);
	assert_int_equal(inodes_count(t), 0);
}

static void writers_are_counted_while_an_entry_lives(void **state)
{
	_cleanup_(freep_table) struct inodes *t = table();
	struct inode *i;

	(void)state;
	assert_false(inodes_has_writers(t, 5));
	assert_int_equal(inode_get(t, 5, &i), 0);
	assert_false(inodes_has_writers(t, 5));
	inode_count_writer(t, i, 1);
	inode_count_writer(t, i, 1);
	inode_count_writer(t, i, -1);
	assert_true(inodes_has_writers(t, 5));
	assert_false(inodes_has_writers(t, 6));
	inode_count_writer(t, i, -1);
	assert_false(inodes_has_writers(t, 5));
	inode_put(t, i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_goes_with_its_last_look_up_and_pin),
		cmocka_unit_test(an_orphan_stays_until_it_is_taken),
		cmocka_unit_test(a_read_time_is_kept_until_it_is_written),
		cmocka_unit_test(the_table_grows_and_can_be_emptied),
		cmocka_unit_test(writers_are_counted_while_an_entry_lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
