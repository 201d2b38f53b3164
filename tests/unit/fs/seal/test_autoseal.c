/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/seal/autoseal.h"

static void temporary_names_have_a_word_for_it(void **state _unused_)
{
	static const char *const yes[] = {
		"tmp",		"step.tmp",    "tmp-checkpoint-500", "100.orbax-checkpoint-tmp-17",
		".tmp7",	"x_TEMP",      "ckpt.partial",	     "a.incomplete.b",
		"7.inprogress", "step~.tmp123"
	};
	static const char *const no[] = { "",	  "step.100", "tempest",   "attempt", "template",
					  "0tmp", "complete", "partially", "..." };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		assert_true(autoseal_is_temporary(yes[i]));
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		assert_false(autoseal_is_temporary(no[i]));
}

static void a_list_is_of_names(void **state _unused_)
{
	static const char *const good[] = { "rename", ".complete", "rename:commit_success.txt:.complete", "a:b", "..." };
	static const char *const bad[] = { "", ":", "a:", ":a", "a::b", "a/b", "/", ".", "..", "a:..:b" };
	char long_one[257];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(autoseal_check(good[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(autoseal_check(bad[i]), -EINVAL);
	memset(long_one, 'x', 256);
	long_one[256] = '\0';
	assert_int_equal(autoseal_check(long_one), -EINVAL);
	assert_int_equal(autoseal_check(long_one + 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(temporary_names_have_a_word_for_it),
		cmocka_unit_test(a_list_is_of_names),
	};

	return cmocka_run_group_tests_name("autoseal", tests, NULL, NULL);
}
