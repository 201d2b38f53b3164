/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Bytes that have moved: found to the byte, wherever they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/dedup/shift.h"
#include "tests/unit/store/rig.h"

#define LEN ((uint32_t)MiB(1))

static struct cdc cdc;
static uint8_t old[2 * LEN], new[LEN];
static struct shift s;

static int setup(void **state)
{
	(void)state;
	cdc_init(&cdc, &CDC_PARAMS_DEFAULT);
	rig_pattern(old, sizeof(old), 1);
	rig_pattern(new, sizeof(new), 2);
	return 0;
}

static void want_all(void)
{
	shift_init(&s, &cdc, new);
	shift_want(&s, 0, LEN);
}

/* Every match is true, they do not overlap, and together with what is wanted or too short they are all. */
static uint32_t check_matches(const uint8_t *p, uint64_t base)
{
	static uint8_t seen[LEN];
	uint32_t sum = 0;

	memset(seen, 0, LEN);
	for (unsigned i = 0; i < s.nr_matches; i++) {
		const struct shift_match *m = &s.matches[i];

		assert_true(m->len >= SHIFT_MATCH_MIN && m->at + m->len <= LEN);
		assert_memory_equal(new + m->at, p + (m->from - base), m->len);
		for (uint32_t k = m->at; k < m->at + m->len; k++)
			assert_int_equal(seen[k]++, 0);
		sum += m->len;
	}
	for (unsigned i = 0; i < s.nr_want; i++)
		for (uint32_t k = s.want[i].start; k < s.want[i].end; k++)
			assert_int_equal(seen[k]++, 0);
	return sum;
}

static void nothing_is_found_in_other_bytes(void **state)
{
	setup(state);
	want_all();
	assert_int_equal(shift_look(&s, old, LEN, 0, 0), 0);
	assert_int_equal(s.nr_bytes, LEN);
}

static void all_is_found_wherever_it_is(void **state)
{
	static const uint32_t at[] = { 0, 1, 4095, 100003, LEN };

	setup(state);
	for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
		memcpy(new, old + at[i], LEN);
		want_all();
		assert_int_equal(shift_look(&s, old, sizeof(old), 5000, 5000), 1);
		assert_int_equal(s.matches[0].at, 0);
		assert_int_equal(s.matches[0].len, LEN);
		assert_int_equal(s.matches[0].from, 5000 + at[i]);
		assert_int_equal(s.nr_want + s.nr_bytes, 0);
	}
}

static void a_match_ends_at_the_very_byte_that_differs(void **state)
{
	setup(state);
	memcpy(new, old + 777, 500001);
	memcpy(new + 500001 + 10, old + 777 + 500001, LEN - 500011);
	new[500001] = old[777 + 500001] ^ 1;
	new[500010] = old[777 + 500000] ^ 1;
	want_all();
	assert_int_equal(shift_look(&s, old, sizeof(old), 0, 0), 2);
	assert_int_equal(check_matches(old, 0), LEN - 10);
	assert_int_equal(s.nr_want, 0); /* ten bytes are not worth looking for */
}

static void only_what_is_wanted_is_found(void **state)
{
	setup(state);
	memcpy(new, old + 777, LEN);
	shift_init(&s, &cdc, new);
	shift_want(&s, 4096, 4096 + 16384);
	shift_want(&s, 500000, 600000);
	assert_int_equal(shift_look(&s, old, sizeof(old), 0, 777), 2);
	assert_int_equal(check_matches(old, 0), 116384);
	assert_int_equal(s.nr_bytes, 0);
}

static void a_range_without_a_cut_is_found_where_it_is_supposed(void **state)
{
	setup(state);
	memset(old + 100000, 7, 20000); /* cut after 32768 bytes at the earliest */
	memcpy(new + 3000, old + 103000, 4096);
	shift_init(&s, &cdc, new);
	shift_want(&s, 3000, 7096);
	assert_int_equal(s.nr_ends, 0);
	assert_int_equal(shift_look(&s, old + 50000, 100000, 50000, 100000), 1);
	assert_int_equal(s.matches[0].from, 103000);
	assert_int_equal(s.nr_want, 0);
}

static void blocks_that_changed_places_are_found(void **state)
{
	setup(state);
	for (uint32_t i = 0; i < 8; i++)
		memcpy(new + i * 131072, old + (i * 5 + 3) % 8 * 131072 + 11, 131072);
	want_all();
	shift_look(&s, old, sizeof(old), 0, 0);
	assert_int_equal(check_matches(old, 0), LEN);
}

static void what_one_place_has_not_another_has(void **state)
{
	setup(state);
	memcpy(new + 1000, old + LEN + 500, 300000);
	memcpy(new + 400000, old + 77, 300000);
	want_all();
	assert_int_equal(shift_look(&s, old, LEN, 0, 0), 1);
	assert_int_equal(shift_look(&s, old + LEN, LEN, LEN, 0), 1);
	assert_int_equal(check_matches(old, 0), 600000);
	assert_int_equal(s.nr_bytes, LEN - 600000 - 1000); /* what is before the first match is too short */
}

static void bytes_that_repeat_are_no_trouble(void **state)
{
	setup(state);
	for (uint32_t period = 1; period < 5000; period = period * 3 + 1) {
		for (uint32_t i = 0; i < LEN; i++)
			new[i] = old[i % period];
		want_all();
		shift_look(&s, new, LEN / 2, 0, 12345);
		assert_true(check_matches(new, 0) > 0);
	}
}

static void a_map_reports_where_bytes_are(void **state)
{
	uint64_t nr = shift_map_slots(&cdc, sizeof(old), 1 << 17);
	struct shift_map *m = malloc(sizeof(*m) + nr * sizeof(m->slots[0]));
	struct shift_place places[8];

	setup(state);
	assert_int_equal(nr, 2048);
	assert_non_null(m);
	shift_map_init(m, nr, &cdc, sizeof(old));
	shift_map_add(m, &cdc, old, LEN, 1000000);
	shift_map_add(m, &cdc, old + LEN, LEN, 1000000 + LEN);
	assert_in_range(m->nr, 400, 550);
	want_all();
	assert_int_equal(shift_map_find(m, &s, 8, places), 0);
	memcpy(new + 5000, old + LEN / 2 + 123, 200000);
	memcpy(new + 500000, old + 99, 200000);
	want_all();
	assert_int_equal(shift_map_find(m, &s, 8, places), 2);
	assert_in_range(places[0].at, 5000, 205000);
	assert_int_equal(places[0].from - places[0].at, 1000000 + LEN / 2 + 123 - 5000);
	assert_in_range(places[1].at, 500000, 700000);
	assert_int_equal(places[1].from, 1000000 + 99 + (places[1].at - 500000));
	assert_int_equal(shift_map_find(m, &s, 1, places), 1);
	free(m);
}

static void a_map_of_much_leaves_some_out(void **state)
{
	uint64_t nr = shift_map_slots(&cdc, GiB(1), 64);
	struct shift_map *m = malloc(sizeof(*m) + nr * sizeof(m->slots[0]));

	setup(state);
	assert_int_equal(nr, 64);
	assert_non_null(m);
	shift_map_init(m, nr, &cdc, GiB(1));
	assert_int_equal(m->mask, 8191);
	shift_map_init(m, nr, &cdc, sizeof(old));
	assert_int_equal(m->mask, 15);
	shift_map_add(m, &cdc, old, sizeof(old), 0);
	assert_in_range(m->nr, 10, 48);
	m->mask = 0;
	shift_map_add(m, &cdc, old, sizeof(old), 0);
	assert_int_equal(m->nr, 48); /* never full */
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_found_in_other_bytes),
		cmocka_unit_test(all_is_found_wherever_it_is),
		cmocka_unit_test(a_match_ends_at_the_very_byte_that_differs),
		cmocka_unit_test(only_what_is_wanted_is_found),
		cmocka_unit_test(a_range_without_a_cut_is_found_where_it_is_supposed),
		cmocka_unit_test(blocks_that_changed_places_are_found),
		cmocka_unit_test(what_one_place_has_not_another_has),
		cmocka_unit_test(bytes_that_repeat_are_no_trouble),
		cmocka_unit_test(a_map_reports_where_bytes_are),
		cmocka_unit_test(a_map_of_much_leaves_some_out),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
