/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/stat/report_record.h"

#define BEGIN "<script type=\"text/plain\" id=\"ckptfs-record-1\">\n"

static char *printed(const struct record *r)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	assert_non_null(to);
	fputs("<p>a page</p>\n", to);
	record_print(to, r);
	fputs("</html>\n", to);
	fclose(to);
	return text;
}

static void a_page_gives_back_what_it_carries(void **state)
{
	_cleanup_(record_release) struct record r = { .store_id = "00ff" }, again = { 0 };
	struct record_reading one = { 10, 1, 2, 3, 4, 5, 6, 7, UINT64_MAX }, two = { 20, 0, 0, 0, 0, 0, 0, 0, 0 };
	_cleanup_(freep) char *page = NULL;

	(void)state;
	assert_int_equal(record_add(&r, &one), 0);
	assert_int_equal(record_add(&r, &two), 0);
	page = printed(&r);
	assert_int_equal(record_parse(page, strlen(page), &again), 0);
	assert_string_equal(again.store_id, "00ff");
	assert_int_equal(again.nr, 2);
	assert_memory_equal(&again.reading[0], &one, sizeof(one));
	assert_memory_equal(&again.reading[1], &two, sizeof(two));
}

static void what_is_no_such_page_is_refused(void **state)
{
	static const char *const wrong[] = {
		"",
		"<html>another page</html>",
		BEGIN,
		BEGIN "00ff",
		BEGIN "00ff\n",
		BEGIN "00ff\n1 2 3 4 5 6 7 8 9\n",
		BEGIN "\n</script>\n",
		BEGIN "00fg\n</script>\n",
		BEGIN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n</script>\n",
		BEGIN "00ff\n1 2 3 4 5 6 7 8\n</script>\n",
		BEGIN "00ff\n1 2 3 4 5 6 7 8 9 10\n</script>\n",
		BEGIN "00ff\n1 2 3 4 5 6 7 8 -9\n</script>\n",
		BEGIN "00ff\n1 2 3 4 5 6 7 8 \n</script>\n",
		BEGIN "00ff\n1 2 3 4 5 6 7 8 99999999999999999999\n</script>\n",
		BEGIN "00ff\n2 2 3 4 5 6 7 8 9\n1 2 3 4 5 6 7 8 9\n</script>\n",
	};
	struct record r = { .store_id = "before" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		if (record_parse(wrong[i], strlen(wrong[i]), &r) != -EBADMSG)
			fail_msg("taken: %s", wrong[i]);
	}
	assert_string_equal(r.store_id, "before");
}

static void many_readings_are_thinned_out_and_the_newest_stay(void **state)
{
	_cleanup_(record_release) struct record r = { .store_id = "00" }, again = { 0 };
	_cleanup_(freep) char *page = NULL;

	(void)state;
	for (uint64_t i = 0; i < 10000; i++)
		assert_int_equal(record_add(&r, &(struct record_reading){ .time_s = i }), 0);
	assert_in_range(r.nr, RECORD_MAX / 2, RECORD_MAX);
	assert_int_equal(r.reading[0].time_s, 0);
	for (size_t i = 0; i < RECORD_MAX / 2; i++)
		assert_int_equal(r.reading[r.nr - 1 - i].time_s, 9999 - i);
	page = printed(&r);
	assert_int_equal(record_parse(page, strlen(page), &again), 0);
	assert_int_equal(again.nr, r.nr);
}

static void a_clock_that_was_set_back_drops_the_future(void **state)
{
	_cleanup_(record_release) struct record r = { .store_id = "00" };

	(void)state;
	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(record_add(&r, &(struct record_reading){ .time_s = 10 * i }), 0);
	assert_int_equal(record_add(&r, &(struct record_reading){ .time_s = 25 }), 0);
	assert_int_equal(r.nr, 3);
	assert_int_equal(r.reading[2].time_s, 25);
}

static struct record_reading on_disk(uint64_t time_s, uint64_t disk)
{
	return (struct record_reading){ .time_s = time_s, .disk = disk };
}

static void growth_is_the_mean_of_the_last_readings(void **state)
{
	const struct record_reading readings[] = { on_disk(0, 5), on_disk(1000, 900), on_disk(1500, 100),
						   on_disk(2000, 1900) };
	_cleanup_(record_release) struct record r = { .store_id = "00" };
	uint64_t span;
	double rate;

	(void)state;
	assert_false(record_growth(&r, 1000, 0, &rate, &span));
	assert_int_equal(record_add(&r, &readings[0]), 0);
	assert_false(record_growth(&r, 1000, 0, &rate, &span));
	for (size_t i = 1; i < ARRAY_SIZE(readings); i++)
		assert_int_equal(record_add(&r, &readings[i]), 0);
	assert_true(record_growth(&r, 1000, 1000, &rate, &span));
	assert_true(rate == 1 && span == 1000);
	assert_false(record_growth(&r, 1000, 1001, &rate, &span));
	assert_true(record_growth(&r, 2000, 0, &rate, &span));
	assert_true(rate == 1895.0 / 2000 && span == 2000);
	r.nr = 3;
	assert_true(record_growth(&r, 500, 0, &rate, &span));
	assert_true(rate == -800.0 / 500); /* shrinks */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_gives_back_what_it_carries),
		cmocka_unit_test(what_is_no_such_page_is_refused),
		cmocka_unit_test(many_readings_are_thinned_out_and_the_newest_stay),
		cmocka_unit_test(growth_is_the_mean_of_the_last_readings),
		cmocka_unit_test(a_clock_that_was_set_back_drops_the_future),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
