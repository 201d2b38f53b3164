/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which user IDs count as one user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/subuids.h"

static char subuid[64], passwd[64];

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static int setup(void **state _unused_)
{
	snprintf(subuid, sizeof(subuid), "/tmp/ckptfs-subuid.%d", (int)getpid());
	snprintf(passwd, sizeof(passwd), "/tmp/ckptfs-passwd.%d", (int)getpid());
	write_file(passwd, "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n");
	write_file(subuid, "alice:100000:65536\nunknown:200000:10\n1001:300000:65536\nalice:400000:1\nunknown:500000:2\n");
	subuids_read_from(subuid, passwd);
	return 0;
}

static int teardown(void **state _unused_)
{
	subuids_read_from(NULL, NULL);
	unlink(subuid);
	unlink(passwd);
	return 0;
}

static void ids_of_all_ranges_belong_to_their_owner(void **state _unused_)
{
	static const struct {
		uint32_t uid, user;
	} cases[] = {
		{ 0, 0 },	     { 1000, 1000 },	  { 1001, 1001 },     { 99999, 99999 },	  { 100000, 1000 },
		{ 165535, 1000 },    { 165536, 165536 },  { 400000, 1000 },   { 400001, 400001 }, { 300000, 1001 },
		{ 200000, 200000 },  { 200009, 200000 },  { 200010, 200010 }, { 500001, 200000 }, { 500002, 500002 },
		{ UINT32_MAX, UINT32_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(subuids_user(cases[i].uid), cases[i].user);
}

static void a_changed_file_is_read_again(void **state _unused_)
{
	assert_int_equal(subuids_user(100005), 1000);
	write_file(subuid, "bob:100000:65536\n");
	assert_int_equal(subuids_user(100005), 1001);
	assert_int_equal(subuids_user(400000), 400000);
	unlink(subuid);
	assert_int_equal(subuids_user(100005), 100005);
}

static void lines_that_are_wrong_are_ignored(void **state _unused_)
{
	write_file(subuid, "\n#\nalice\nalice:\nalice::\nalice:1:\n:700000:5\nalice:700000:0\nalice:700000:-1\n"
			   "alice:4294967290:100\nalice:x:5\nalice:700000:5x\nalice:700000:99999999999999999999\n"
			   "bob:800000:5");
	for (uint32_t uid = 700000; uid < 700010; uid++)
		assert_int_equal(subuids_user(uid), uid);
	assert_int_equal(subuids_user(1), 1);
	assert_int_equal(subuids_user(4294967291), 4294967291);
	assert_int_equal(subuids_user(800004), 1001); /* the last line has no end */
}

#define rig_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(ids_of_all_ranges_belong_to_their_owner),
		rig_test(a_changed_file_is_read_again),
		rig_test(lines_that_are_wrong_are_ignored),
	};

	return cmocka_run_group_tests_name("subuids", tests, NULL, NULL);
}
