/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include <cmocka.h>

#include "base/mounts.h"
#include "base/util.h"

static int parse(const char *line, struct mounts *m)
{
	*m = (struct mounts){ .line = strdup(line) };
	assert_non_null(m->line);
	return mounts_parse(m);
}

static void a_mount_is_read_whatever_stands_before_the_dash(void **state _unused_)
{
	static const char *const lines[] = {
		"36 35 0:52 / /mnt/a\\040b rw,noatime - fuse.ckptfs /s\\134t\\011 rw,user_id=7,group_id=8,allow_other\n",
		"36 35 0:52 / /mnt/a\\040b rw,noatime shared:1 - fuse.ckptfs /s\\134t\\011 rw,group_id=8,user_id=7\n",
		"36 35 0:52 /sub /mnt/a\\040b rw shared:1 master:2 unbindable - fuse.ckptfs /s\\134t\\011 ro,user_id=7,group_id=8",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_(mounts_close) struct mounts m;

		assert_int_equal(parse(lines[i], &m), 1);
		assert_string_equal(m.point, "/mnt/a b");
		assert_string_equal(m.store, "/s\\t\t");
		assert_true(m.dev == makedev(0, 52));
		assert_int_equal(m.uid, 7);
		assert_int_equal(m.gid, 8);
	}
}

static void other_lines_are_no_mounts_of_ours(void **state _unused_)
{
	static const char *const lines[] = {
		"",
		"\n",
		"36\n",
		"36 35 0:52 / /mnt rw\n",
		"36 35 0:52 / /mnt rw - \n",
		"36 35 0:52 / /mnt rw - fuse.ckptfs\n",
		"36 35 0:52 / /mnt rw - fuse.ckptfs /store\n",
		"36 35 0:52 / /mnt rw shared:1 fuse.ckptfs /store rw\n",
		"36 35 0:52 / /mnt rw - fuse.sshfs host: rw,user_id=0\n",
		"36 35 x:52 / /mnt rw - fuse.ckptfs /store rw,user_id=0\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		_cleanup_(mounts_close) struct mounts m;

		assert_int_equal(parse(lines[i], &m), 0);
	}
}

static void half_an_escape_is_what_it_is(void **state _unused_)
{
	_cleanup_(mounts_close) struct mounts m;

	assert_int_equal(parse("36 35 0:52 / /a\\04 rw - fuse.ckptfs /b\\999\\ rw\n", &m), 1);
	assert_string_equal(m.point, "/a\\04");
	assert_string_equal(m.store, "/b\\999\\");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mount_is_read_whatever_stands_before_the_dash),
		cmocka_unit_test(other_lines_are_no_mounts_of_ours),
		cmocka_unit_test(half_an_escape_is_what_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
