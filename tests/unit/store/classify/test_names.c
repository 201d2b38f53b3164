/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "base/util.h"
#include "store/classify/names.h"
#include "store/classify/typed.h"

static struct names *parse(const char *text)
{
	struct names *n = NULL;
	char why[200] = "";

	if (names_parse(text, &n, why, sizeof(why)) < 0)
		fail_msg("%s: %s", text, why);
	return n;
}

static void names_become_others(void **state)
{
	static const struct {
		const char *rules, *name, *mapped; /* NULL: none matches */
	} cases[] = {
		{ "rank_(\\d+)/density density", "rank_17/density", "density" },
		{ "rank_(\\d+)/density density", "rank_/density", NULL },
		{ "rank_(\\d+)/density density", "rank_1/density2", NULL }, /* whole names */
		{ "rank_(\\d+)/density density", "a/rank_1/density", NULL },
		{ "rank_\\d+/(.*) \\1", "rank_3/fields/u", "fields/u" },
		{ "(.)(.)(.*) \\3\\\\\\2\\1", "abcd", "cd\\ba" },
		{ "a|ab x", "ab", "x" }, /* the longest counts */
		{ "a(b)?c x\\1y", "ac", "xy" }, /* a group that is not there */
		{ "# first x\n\n  level_\\d+/t\tlevel\r\nlevel_.* any\n", "level_2/t", "level" },
		{ "# first x\n\n  level_\\d+/t\tlevel\r\nlevel_.* any\n", "level_2/u", "any" },
		{ "[]/\\d]+ x", "\\d]/", "x" }, /* in brackets nothing is special */
		{ "[[:alpha:]]{2,5}_[0-9]{4} x", "rank_0017", "x" },
		{ "", "a", NULL },
		{ "(a*)* x", "", "x" },
	};
	char got[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct names *n = parse(cases[i].rules);
		size_t len = 0;
		int r = names_map(n, cases[i].name, strlen(cases[i].name), got, sizeof(got), &len);

		if (r != (cases[i].mapped != NULL) ||
		    (r && (len != strlen(cases[i].mapped) || memcmp(got, cases[i].mapped, len) != 0)))
			fail_msg("%s: %s becomes %.*s", cases[i].rules, cases[i].name, (int)len, got);
		names_free(n);
	}
}

static void bad_rules_are_reported(void **state)
{
	static const struct {
		const char *rules, *why;
	} cases[] = {
		{ "a", "line 1: an expression, blanks and a new name" },
		{ "a b\n\nc d e", "line 3: there is more" },
		{ "a(b x", "line 1: a(b: " },
		{ "a)(b x\n", "line 1: a)(b: " },
		{ "[a x", "line 1: [ without ]" },
		{ "[[:alpha x", "line 1: [ without ]" },
		{ "[[:letter:]] x", "line 1: [[:letter:]]: " },
		{ "a\\ x", "line 1: a\\: " },
		{ "(a)\\1 x", "line 1: \\1 in an expression" },
		{ "(a) \\2", "line 1: the new name has \\2, and the expression 1 groups" },
		{ "(a) \\x", "line 1: in the new name \\ is followed by" },
		{ "(a) x\\", "line 1: in the new name \\ is followed by" },
		/* each is twice what is before it */
		{ "a+++++++++++++ x", "line 1: with all repetitions written out" },
		{ "a{4097} x", "line 1: with all repetitions written out" },
		{ "a{99999999999999999999} x", "line 1: with all repetitions written out" },
		{ "((a{1,20}){3,10}){,21} x", "line 1: with all repetitions written out" },
		{ "((ab)+){100}(cd){1000}{2} x", "line 1: with all repetitions written out" },
		{ "a{2000}b{2000}c{2000} x", "line 1: with all repetitions written out" },
	};
	struct names *n = NULL;
	char why[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(names_parse(cases[i].rules, &n, why, sizeof(why)), -EINVAL);
		if (strncmp(why, cases[i].why, strlen(cases[i].why)) != 0)
			fail_msg("%s: %s", cases[i].rules, why);
	}
	assert_null(n);
}

static void rules_have_limits(void **state)
{
	char *text = calloc(1, NAMES_TEXT_MAX + 2), why[200];
	struct names *n = NULL;

	(void)state;
	for (unsigned i = 0; i < NAMES_RULES_MAX; i++)
		strcat(text, "a b\n");
	n = parse(text);
	names_free(n);
	strcat(text, "a b\n");
	assert_int_equal(names_parse(text, &n, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "line 65: there are more than 64 rules");
	memset(text, 'a', NAMES_EXPRESSION_MAX);
	strcpy(text + NAMES_EXPRESSION_MAX, " b");
	names_free(parse(text));
	strcpy(text + NAMES_EXPRESSION_MAX, "a b");
	assert_int_equal(names_parse(text, &n, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "line 1: the expression is longer than 512 bytes");
	/* all of it digits, which get longer */
	for (unsigned i = 0; i < NAMES_EXPRESSION_MAX; i += 2)
		memcpy(text + i, "\\d", 2);
	strcpy(text + NAMES_EXPRESSION_MAX, " b");
	names_free(parse(text));
	names_free(parse("a{4095} x"));
	names_free(parse("[0-9]{4}_[0-9]{4}_[0-9]{4}_[0-9]{4}_[0-9]{4}_[0-9]{4} x"));
	memset(text, ' ', NAMES_TEXT_MAX + 1);
	assert_int_equal(names_parse(text, &n, why, sizeof(why)), -EINVAL);
	assert_string_equal(why, "there are more than 65536 bytes of rules");
	free(text);
}

static void what_becomes_too_long_is_no_variable(void **state)
{
	struct names *n = parse("(.*) \\1\\1");
	struct typed_array a = { .type = { CODE_FLOAT, 8, false }, .parts = 1 };
	struct typed t = TYPED_EMPTY(100);
	char name[600], got[8];
	size_t len;

	(void)state;
	assert_int_equal(names_map(n, "abcd", 4, got, 8, &len), 1);
	assert_int_equal(len, 8);
	assert_int_equal(names_map(n, "abcd", 4, got, 7, &len), -E2BIG);
	t.names = n;
	memset(name, 'x', sizeof(name));
	assert_int_equal(typed_add_variable(&t, "ab", 2, &a), 1);
	assert_string_equal(t.variable[0].key, "abab_F64LE_Scalar");
	assert_int_equal(typed_add_variable(&t, name, sizeof(name), &a), 0);
	assert_int_equal(t.nr_variables, 1);
	typed_release(&t);
	names_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_become_others),
		cmocka_unit_test(bad_rules_are_reported),
		cmocka_unit_test(rules_have_limits),
		cmocka_unit_test(what_becomes_too_long_is_no_variable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
