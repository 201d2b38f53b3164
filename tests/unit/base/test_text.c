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

static void strings_are_always_json(void **state _unused_)
{
	static const struct {
		const char *s, *json;
	} t[] = {
		{ "", "\"\"" },
		{ "run7/ckpt", "\"run7/ckpt\"" },
		{ "a\"b\\c", "\"a\\\"b\\\\c\"" },
		{ "new\nline\x1b", "\"new\\u000aline\\u001b\"" },
		{ "\x7f", "\"\\u007f\"" },
		{ "\xc3\xa4\xf0\x9f\x98\x80", "\"\xc3\xa4\xf0\x9f\x98\x80\"" },
		{ "\xff\xc3", "\"\\u00ff\\u00c3\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		_cleanup_(freep) char *got = NULL;
		size_t len;
		FILE *to = open_memstream(&got, &len);

		json_print_string(to, t[i].s);
		fclose(to);
		assert_string_equal(got, t[i].json);
	}
}

static void a_terminal_gets_no_commands(void **state _unused_)
{
	static const struct {
		const char *s, *text;
		size_t columns;
	} t[] = {
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

static void a_cell_has_its_width_and_no_commands(void **state _unused_)
{
	static const struct {
		const char *s, *cell;
	} t[] = {
		{ "", "        |" },
		{ "ab", "ab      |" },
		{ "density_F64", "density_|" },
		{ "a\nb", "a\\u000ab|" }, /* 8 bytes by chance */
		{ "abcdefg\n", "abcdefg\\u000a|" }, /* characters stay whole */
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char text[64] = { 0 };
		FILE *to = fmemopen(text, sizeof(text) - 1, "w");

		assert_non_null(to);
		json_print_cell(to, t[i].s, 8);
		fputc('|', to);
		fclose(to);
		assert_string_equal(text, t[i].cell);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters_have_one_form),
		cmocka_unit_test(strings_are_always_json),
		cmocka_unit_test(a_terminal_gets_no_commands),
		cmocka_unit_test(a_cell_has_its_width_and_no_commands),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
