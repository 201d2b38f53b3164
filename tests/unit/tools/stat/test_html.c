/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/stat/html.h"

static char *text;
static size_t text_len;

static FILE *open_text(void)
{
	FILE *to = open_memstream(&text, &text_len);

	assert_non_null(to);
	return to;
}

static void becomes(const char *s, const char *expected)
{
	FILE *to = open_text();

	html_text(to, s);
	fclose(to);
	assert_string_equal(text, expected);
	free(TAKE(text));
}

static void names_cannot_become_markup(void **state)
{
	(void)state;
	becomes("a<script>alert('x')</script>", "a&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
	becomes("\"onload=x & y", "&quot;onload=x &amp; y");
	becomes("<!--", "&lt;!--");
}

static void utf8_stays_and_anything_else_is_replaced(void **state)
{
	(void)state;
	becomes("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
	becomes("a\xff\x80z", "a\xef\xbf\xbd\xef\xbf\xbdz");
	becomes("\xc3", "\xef\xbf\xbd"); /* cut short: nothing beyond the end is read */
	becomes("\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd");
	becomes("\xc0\xbc", "\xef\xbf\xbd\xef\xbf\xbd"); /* an overlong '<' */
	becomes("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
	becomes("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	becomes("a\nb\x1b\x7f\xc2\x85", "a\xef\xbf\xbd"
					"b\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

static void charts_have_no_numbers_that_are_none(void **state)
{
	static const time_t x[] = { 1000, 1000, 1060 };
	static const double zero[] = { 0, 0, 0 }, some[] = { 5e12, -1, 1 };
	struct chart_series series[] = { { "zero", zero }, { "some", some } };
	struct chart c = { "title <&>", x, 0, series, 2, true };
	FILE *to = open_text();

	(void)state;
	for (c.nr = 0; c.nr <= 3; c.nr++) {
		chart_lines(to, &c);
		chart_bars(to, &c, 1);
		c.bytes = !c.bytes;
	}
	c.nr = 3;
	c.nr_series = 1;
	chart_lines(to, &c);
	chart_share(to, "t", (struct chart_part[]){ { "a", 0 } }, 1);
	chart_share(to, "t", (struct chart_part[]){ { "a", UINT64_MAX }, { "b", 1 } }, 2);
	chart_cell(to, 5, 0);
	chart_cell(to, 5, 3);
	fclose(to);
	assert_null(strstr(text, "nan"));
	assert_null(strstr(text, "inf"));
	assert_null(strstr(text, "<&>"));
	free(TAKE(text));
}

static void a_line_has_gaps_where_nothing_is_known(void **state)
{
	static const time_t x[] = { 0, 50, 75, 100 };
	static const double y[] = { 100, -1, 50, 100 };
	struct chart_series series[] = { { "s", y } };
	FILE *to = open_text();

	(void)state;
	chart_lines(to, &(struct chart){ "t", x, ARRAY_SIZE(x), series, 1, false });
	fclose(to);
	assert_non_null(strstr(text, "<path class=\"line s0\" d=\"M70.0 12.0M577.0 111.0L746.0 12.0\"/>"));
	free(TAKE(text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_cannot_become_markup),
		cmocka_unit_test(utf8_stays_and_anything_else_is_replaced),
		cmocka_unit_test(charts_have_no_numbers_that_are_none),
		cmocka_unit_test(a_line_has_gaps_where_nothing_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
