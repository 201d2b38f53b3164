/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "base/util.h"

static void characters_have_one_form(void **state _unused_)
{
	static const struct {
		const char *s;
		size_t len;
	} t[] = {
		{ "a", 1 },	       { "\x7f", 1 },	      { "\xc3\xa4", 2 },	 { "\xe2\x82\xac", 3 },
		{ "\xed\x9f\xbf", 3 }, { "\xee\x80\x80", 3 }, { "\xf0\x9f\x98\x80", 4 }, { "\xf4\x8f\xbf\xbf", 4 },
		{ "\x80", 0 },	       { "\xff", 0 },	      { "\xc3", 0 },		 { "\xc3z", 0 },
		{ "\xc0\x80", 0 },     { "\xc1\xbf", 0 },     { "\xe0\x9f\xbf", 0 },	 { "\xed\xa0\x80", 0 },
		{ "\xf0\x8f\xbf\xbf", 0 }, { "\xf4\x90\x80\x80", 0 }, { "\xf5\x80\x80\x80", 0 }, { "\xe2\x82", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(utf8_len(t[i].s), t[i].len);
}

static void a_terminal_gets_no_commands(void **state _unused_)
{
	static const struct {
		const char *s, *text;
		size_t columns;
	} t[] = {
		{ "a\xe2\x80\xaetxt.c", "a\\342\\200\\256txt.c", 18 }, /* U+202E: what follows is shown from right to left */
		{ "\xe2\x81\xa6", "\\342\\201\\246", 12 }, { "\xd8\x9c", "\\330\\234", 8 }, { "\xc2\xad", "\\302\\255", 8 },
		{ "\xf3\xa0\x81\x81", "\\363\\240\\201\\201", 16 },
		{ "\xe2\x80\xa7\xe2\x80\xaf\xd7\x90", "\xe2\x80\xa7\xe2\x80\xaf\xd7\x90", 3 }, /* neighbours, and a letter */
		{ "run7/ckpt 1", "run7/ckpt 1", 11 },
		{ "a\nb\x1b[2Jc", "a\\012b\\033[2Jc", 14 },
		{ "a\\n", "a\\134n", 6 },
		{ "\x7f\xc2\x9b\xc2\xa0", "\\177\\302\\233\xc2\xa0", 13 },
		{ "\xc3\xa4\xff", "\xc3\xa4\\377", 5 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_(freep) char *got = NULL;
		size_t len;
		FILE *to = open_memstream(&got, &len);

		assert_int_equal(text_print(to, t[i].s), t[i].columns);
		fclose(to);
		assert_string_equal(got, t[i].text);
	}
}

static void a_message_keeps_its_own_newline_only(void **state)
{
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	(void)state;
	text_printf(to, "%s: %d\n", "a\nb\033\\\xff\xc2\x9b", 7);
	text_printf(to, "%s", "end\n");
	fclose(to);
	assert_string_equal(text, "a\\012b\\033\\134\\377\\302\\233: 7\nend\\012");
	free(text);
	assert_int_equal(text_columns("a\n\xc3\xbc"), 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters_have_one_form),
		cmocka_unit_test(a_terminal_gets_no_commands),
		cmocka_unit_test(a_message_keeps_its_own_newline_only),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
