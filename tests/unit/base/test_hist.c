/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hist.h"
#include "base/util.h"

static void an_empty_histogram_has_no_quantiles(void **state _unused_)
{
	struct hist h = { 0 };

	assert_int_equal(hist_quantile_ns(&h, 0.5), 0);
	assert_int_equal(hist_quantile_ns(&h, 1), 0);
}

/* Two equal values and a large one: the median is the upper bound of the bucket of the two. */
static uint64_t bound_of(uint64_t ns)
{
	struct hist h = { 0 };

	hist_add(&h, ns);
	hist_add(&h, ns);
	hist_add(&h, UINT64_MAX);
	return hist_quantile_ns(&h, 0.5);
}

static void buckets_are_quarters_of_powers_of_two(void **state _unused_)
{
	static const struct {
		uint64_t ns, bound;
	} t[] = {
		{ 0, 0 },
		{ 1, 1 },
		{ 2, 2 },
		{ 3, 3 },
		{ 4, 4 },
		{ 7, 7 },
		{ 8, 9 },
		{ 9, 9 },
		{ 10, 11 },
		{ 15, 15 },
		{ 16, 19 },
		{ 19, 19 },
		{ 20, 23 },
		{ 1000, 1023 },
		{ 1024, 1279 },
		{ 1279, 1279 },
		{ 1280, 1535 },
		{ 1792, 2047 },
		{ 2047, 2047 },
		{ 2048, 2559 },
		{ 1000000, 1048575 },
		{ (UINT64_C(7) << 38) - 1, (UINT64_C(7) << 38) - 1 }, /* the last bounded bucket: about 32 minutes */
		{ UINT64_C(7) << 38, UINT64_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_true(bound_of(t[i].ns) == t[i].bound);
}

static void a_bound_is_at_most_a_quarter_above_the_value(void **state _unused_)
{
	for (uint64_t ns = 1; ns < UINT64_C(7) << 38; ns += ns / 13 + 1) {
		assert_true(bound_of(ns) >= ns);
		assert_true(bound_of(ns) - ns <= ns / 4);
	}
}

static void quantiles_count_from_below(void **state _unused_)
{
	struct hist h = { 0 };

	for (int i = 0; i < 90; i++)
		hist_add(&h, 100);
	for (int i = 0; i < 9; i++)
		hist_add(&h, 5000);
	hist_add(&h, 70000);
	assert_int_equal(h.nr, 100);
	assert_int_equal(h.sum_ns, 90 * 100 + 9 * 5000 + 70000);
	assert_int_equal(h.max_ns, 70000);
	assert_int_equal(hist_quantile_ns(&h, 0), 111);
	assert_int_equal(hist_quantile_ns(&h, 0.5), 111);
	assert_int_equal(hist_quantile_ns(&h, 0.9), 111);
	assert_int_equal(hist_quantile_ns(&h, 0.91), 5119);
	assert_int_equal(hist_quantile_ns(&h, 0.99), 5119);
	assert_int_equal(hist_quantile_ns(&h, 0.999), 70000); /* not 73727: nothing was slower than the maximum */
	assert_int_equal(hist_quantile_ns(&h, 1), 70000);
}

#define NR_THREADS 4
#define NR_ADDS 20000

static void *add_many(void *arg)
{
	for (uint64_t i = 1; i <= NR_ADDS; i++)
		hist_add(arg, i);
	return NULL;
}

static void threads_lose_no_count(void **state _unused_)
{
	static struct hist h;
	pthread_t threads[NR_THREADS];

	for (size_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, &h), 0);
	hist_quantile_ns(&h, 0.5); /* reading meanwhile is no race */
	for (size_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(h.nr, NR_THREADS * NR_ADDS);
	assert_int_equal(h.sum_ns, NR_THREADS * (UINT64_C(1) * NR_ADDS * (NR_ADDS + 1) / 2));
	assert_int_equal(h.max_ns, NR_ADDS);
	assert_int_equal(hist_quantile_ns(&h, 0.5), 10239);
}

static void counts_below_a_power_of_two(void **state _unused_)
{
	struct hist h = { 0 };

	hist_add(&h, 0);
	hist_add(&h, 1023);
	hist_add(&h, 1024);
	hist_add(&h, UINT64_MAX);
	assert_int_equal(hist_nr_below(&h, 4), 1);
	assert_int_equal(hist_nr_below(&h, 1024), 2);
	assert_int_equal(hist_nr_below(&h, 2048), 3);
	assert_int_equal(hist_nr_below(&h, UINT64_C(1) << 35), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_histogram_has_no_quantiles),
		cmocka_unit_test(buckets_are_quarters_of_powers_of_two),
		cmocka_unit_test(a_bound_is_at_most_a_quarter_above_the_value),
		cmocka_unit_test(quantiles_count_from_below),
		cmocka_unit_test(threads_lose_no_count),
		cmocka_unit_test(counts_below_a_power_of_two),
	};

	return cmocka_run_group_tests_name("hist", tests, NULL, NULL);
}
