/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/dispatch/subcommands.h"

/* The table names them; tools/dispatch/dispatch.c has them. */
int subcommand_help(int argc _unused_, char *argv[] _unused_)
{
	return 0;
}

int subcommand_version(int argc _unused_, char *argv[] _unused_)
{
	return 0;
}

static void a_mistyped_word_is_near_to_a_command(void **state _unused_)
{
	static const struct {
		const char *word, *nearest;
	} t[] = {
		{ "mout", "mount" },	 /* a letter is missing */
		{ "umounts", "umount" }, /* one too many */
		{ "gx", "gc" },		 /* another one */
		{ "sccrab", "scrub" },	 /* two */
		{ "statt", "stat" },
		{ "scurb", "scrub" }, /* swapped */
		{ "an", "analyze" },  /* begun */
		{ "unseal", "seal" }, /* an alias */
		{ "df", "stat" },
		{ "ls", "list" },
		{ "d", NULL },
		{ "xy", NULL }, /* two letters of two: as far as any other word */
		{ "", NULL },
		{ "everything", NULL },
		{ "abcdefghijklmnop", NULL },
		{ "abcdefghijklmnopq", NULL }, /* longer than any command can be */
		{ "du ls", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const struct subcommand *c = subcommand_nearest(t[i].word);

		if (!t[i].nearest)
			assert_null(c);
		else
			assert_string_equal(c ? c->name : "", t[i].nearest);
	}
}

static void commands_are_found_by_their_whole_name(void **state _unused_)
{
	for (const struct subcommand *c = subcommands; c->name; c++) {
		assert_ptr_equal(subcommand_find(c->name), c);
		assert_true(c->help && (c->program == NULL) != (c->run == NULL));
		assert_true(!c->program || c->section);
	}
	assert_null(subcommand_find("sta"));
	assert_null(subcommand_find(""));
}

/* An alias that is also a command would never be reached, and one of two commands would lead to the first. */
static void aliases_are_no_commands_and_of_one_command(void **state _unused_)
{
	char word[64];

	for (const struct subcommand *c = subcommands; c->name; c++)
		for (const char *a = c->aliases; a && *a; a += strcspn(a, " "), a += strspn(a, " ")) {
			size_t n = strcspn(a, " ");

			assert_true(n < sizeof(word));
			memcpy(word, a, n);
			word[n] = '\0';
			assert_null(subcommand_find(word));
			assert_ptr_equal(subcommand_nearest(word), c);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mistyped_word_is_near_to_a_command),
		cmocka_unit_test(commands_are_found_by_their_whole_name),
		cmocka_unit_test(aliases_are_no_commands_and_of_one_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
