/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json/json_flat.h"
#include "base/util.h"
#include "tools/stat/stat_watch.h"

#define SECOND UINT64_C(1000000000)

static char *rates(const struct stat_reading *before, const struct stat_reading *now)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	assert_non_null(to);
	stat_show_rates(to, before, now);
	fclose(to);
	return text;
}

static char *drawn(const char *text, unsigned rows, unsigned columns)
{
	char *out = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&out, &len);

	assert_non_null(to);
	stat_draw(to, text, strlen(text), rows, columns);
	fclose(to);
	return out;
}

static void a_reading_sums_what_was_cut(void **state)
{
	static const char json[] = "{\"pid\":7,\"uptime_ns\":5,\"written_bytes\":100,\"read_bytes\":9,"
				   "\"written_by_cause\":{\"zero_bytes\":1,\"previous_bytes\":2,\"successor_bytes\":4,"
				   "\"memory_bytes\":8,\"index_bytes\":16,\"shifted_bytes\":64,\"new_bytes\":32},"
				   "\"compression\":{\"plain_bytes\":20,\"stored_bytes\":15},\"durability\":{\"commits\":3}}";
	_cleanup_(json_flat_release) struct json_flat j = { 0 };
	struct stat_reading r;

	(void)state;
	assert_int_equal(json_flat_parse(json, strlen(json), &j), 0);
	r = stat_reading_of(&j);
	assert_true(r.taken);
	assert_int_equal(r.pid, 7);
	assert_int_equal(r.cut, 127);
	assert_int_equal(r.fresh, 32);
	assert_int_equal(r.shrunk, 5);
	assert_int_equal(r.commits, 3);
}

static void rates_are_of_the_time_between_two_readings(void **state)
{
	struct stat_reading before = { .taken = true, .pid = 1, .uptime_ns = 10 * SECOND, .written = 5, .cut = 5 };
	struct stat_reading now = before;
	_cleanup_(freep) char *text = NULL;

	(void)state;
	now.uptime_ns += 2 * SECOND;
	now.written += 200000000;
	now.cut += 200000000;
	now.fresh += 20000000;
	now.shrunk += 10000000;
	now.commits += 4;
	text = rates(&before, &now);
	assert_non_null(strstr(text, "Written:                   100.0 MB/s  in the last 2.0 s\n"));
	assert_non_null(strstr(text, "Stored:                      5.0 MB/s"));
	assert_non_null(strstr(text, "Commits:                        2.0 /s\n"));
	assert_non_null(strstr(text, "10.00 : 1  90.00 % of the written bytes were known\n"));
}

static void an_idle_interval_has_no_ratio(void **state)
{
	struct stat_reading before = { .taken = true, .pid = 1, .uptime_ns = SECOND };
	struct stat_reading now = { .taken = true, .pid = 1, .uptime_ns = 2 * SECOND };
	_cleanup_(freep) char *text = rates(&before, &now);

	(void)state;
	assert_non_null(strstr(text, "           -  nothing was written\n"));
}

static void another_daemon_starts_anew(void **state)
{
	struct stat_reading before = { .taken = true, .pid = 1, .uptime_ns = SECOND, .written = 1000 };
	struct stat_reading now = { .taken = true, .pid = 2, .uptime_ns = 2 * SECOND, .written = 10 };
	_cleanup_(freep) char *text = rates(&before, &now);

	(void)state;
	assert_string_equal(text, "Rates are shown from the second reading on.\n\n");
}

static void drawing_keeps_to_the_screen(void **state)
{
	_cleanup_(freep) char *all = drawn("one\ntwo\n", 0, 0);
	_cleanup_(freep) char *cropped = drawn("long\nl\xc3\xa4nger\nthird\n", 3, 2);

	(void)state;
	assert_string_equal(all, "\033[Hone\033[K\ntwo\033[K\n\033[J");
	assert_string_equal(cropped, "\033[Hlo\033[K\nl\xc3\xa4\033[K\n\033[J");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reading_sums_what_was_cut),
		cmocka_unit_test(rates_are_of_the_time_between_two_readings),
		cmocka_unit_test(an_idle_interval_has_no_ratio),
		cmocka_unit_test(another_daemon_starts_anew),
		cmocka_unit_test(drawing_keeps_to_the_screen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
