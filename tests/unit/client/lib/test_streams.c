/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/util.h"
#include "client/lib/streams.h"

#define LOW 1000000u
#define NR 100000u

/* Memory of which pages are opened as they are touched. */
struct rig {
	struct streams streams;
	uint8_t open[NR];
	uint32_t nr_faults, nr_open;
};

static void rig_touch(struct rig *rig, uint32_t page)
{
	struct streams_range range;

	assert_true(page < NR);
	if (rig->open[page])
		return;
	range = streams_touch(&rig->streams, LOW + page, LOW, LOW + NR);
	assert_true(range.first >= LOW && range.nr > 0 && range.nr <= STREAMS_MAX && range.first + range.nr <= LOW + NR);
	assert_true(range.first <= LOW + page && LOW + page < range.first + range.nr);
	for (uint64_t p = range.first - LOW; p < range.first - LOW + range.nr; p++) {
		rig->nr_open += !rig->open[p];
		rig->open[p] = 1;
	}
	rig->nr_faults++;
}

static struct rig *rig_new(void)
{
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	return &rig;
}

static void a_row_is_opened_in_large_pieces(void **state _unused_)
{
	struct rig *rig = rig_new();

	for (uint32_t i = 0; i < NR; i++)
		rig_touch(rig, i);
	assert_int_equal(rig->nr_open, NR);
	assert_in_range(rig->nr_faults, NR / STREAMS_MAX, NR / STREAMS_MAX + 30);
}

static void also_one_that_goes_down(void **state _unused_)
{
	struct rig *rig = rig_new();

	for (uint32_t i = NR; i > 0; i--)
		rig_touch(rig, i - 1);
	assert_int_equal(rig->nr_open, NR);
	assert_in_range(rig->nr_faults, NR / STREAMS_MAX, NR / STREAMS_MAX + 30);
}

static void several_rows_are_distinguished(void **state _unused_)
{
	struct rig *rig = rig_new();
	uint32_t nr = 48, len = NR / nr;

	for (uint32_t i = 0; i < len; i++)
		for (uint32_t k = 0; k < nr; k++)
			rig_touch(rig, k * len + (k % 2 == 0 ? i : len - 1 - i));
	assert_true(rig->nr_faults < nr * (len / STREAMS_MAX + 30));
}

static uint32_t any(uint64_t *x)
{
	*x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*x >> 33);
}

/* Between two pieces of a row that has become long: 200 pages of no row. */
static void a_row_outlives_touches_elsewhere(void **state _unused_)
{
	struct rig *rig = rig_new();
	uint32_t half = NR / 2, random = 0;
	uint64_t x = 1;

	for (uint32_t i = 0; i < half; i++) {
		uint32_t before = rig->nr_faults;

		rig_touch(rig, i);
		for (int k = 0; i >= STREAMS_MIN && rig->nr_faults > before && k < 200; k++, random++)
			streams_touch(&rig->streams, LOW + half + any(&x) % half / 2 * 2, LOW, LOW + NR);
	}
	assert_in_range(rig->nr_faults, half / STREAMS_MAX, half / STREAMS_MAX + 30);
	assert_true(random > 0);
}

static void single_pages_open_nothing_else(void **state _unused_)
{
	struct rig *rig = rig_new();

	for (uint32_t i = 0; i < NR; i += 2)
		rig_touch(rig, i);
	assert_int_equal(rig->nr_open, NR / 2);
}

static void a_row_that_ends_has_opened_half_of_it_too_much(void **state _unused_)
{
	for (uint32_t len = 1; len < 3000; len += 7) {
		struct rig *rig = rig_new();

		for (uint32_t i = 0; i < len; i++)
			rig_touch(rig, 5 + i);
		assert_true(rig->nr_open - len <= len / 2 && rig->nr_open - len < STREAMS_MAX);
		if (len <= STREAMS_MIN)
			assert_int_equal(rig->nr_open, len);
	}
}

static void pieces_of_long_rows_are_huge_pages(void **state _unused_)
{
	for (int down = 0; down < 2; down++) {
		struct streams s = { 0 };
		uint64_t page = down ? 999999 : 3, low = 0, high = 1000000;
		uint32_t nr_whole = 0;

		while (page >= low && page < high) {
			struct streams_range range = streams_touch(&s, page, low, high);

			nr_whole += range.nr == STREAMS_MAX && range.first % STREAMS_MAX == 0;
			page = down ? range.first - 1 : range.first + range.nr;
		}
		assert_true(nr_whole > 1000000 / STREAMS_MAX - 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_row_is_opened_in_large_pieces),
		cmocka_unit_test(also_one_that_goes_down),
		cmocka_unit_test(several_rows_are_distinguished),
		cmocka_unit_test(a_row_outlives_touches_elsewhere),
		cmocka_unit_test(single_pages_open_nothing_else),
		cmocka_unit_test(a_row_that_ends_has_opened_half_of_it_too_much),
		cmocka_unit_test(pieces_of_long_rows_are_huge_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
