#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fp.h"
#include "base/util.h"
#include "tools/analyze_distinct.h"

static struct fp fp_number(uint64_t n)
{
	static struct fp_key key;
	static bool ready;

	if (!ready)
		fp_key_init(&key, FP_XXH3, (const uint8_t[FP_KEY_LEN]){ 7 });
	ready = true;
	return fp_of(&key, &n, sizeof(n));
}

static struct distinct distinct_of(size_t memory)
{
	struct distinct d;

	assert_int_equal(distinct_init(&d, memory), 0);
	return d;
}

static void what_fits_is_exact_and_knows_the_last_file(void **state _unused_)
{
	_cleanup_(distinct_release) struct distinct d = distinct_of(1000 * 12 * 8 / 7 + 100);
	uint32_t last = 0;
	uint64_t weight = 0;

	for (uint32_t round = 0; round < 3; round++)
		for (uint64_t i = 0; i < 1000; i++) {
			enum distinct_answer answer = distinct_add(&d, fp_number(i), 10 + round, &last, &weight);

			assert_int_equal(answer, round == 0 ? DISTINCT_NEW : DISTINCT_KNOWN);
			assert_int_equal(weight, 1);
			if (round > 0)
				assert_int_equal(last, 9 + round);
		}
	assert_int_equal(d.nr, 1000);
	assert_int_equal(d.bits, 0);
}

/* Also the one whose 64 bits look like an empty place. */
static void a_fingerprint_of_zeros_is_one_as_well(void **state _unused_)
{
	_cleanup_(distinct_release) struct distinct d = distinct_of(DISTINCT_MEMORY_MIN);
	uint32_t last;
	uint64_t weight;

	assert_int_equal(distinct_add(&d, (struct fp){ .hi = 5 }, 1, &last, &weight), DISTINCT_NEW);
	assert_int_equal(distinct_add(&d, (struct fp){ .hi = 5 }, 2, &last, &weight), DISTINCT_KNOWN);
	assert_int_equal(last, 1);
}

static void memory_stays_what_was_given_however_many_come(void **state _unused_)
{
	_cleanup_(distinct_release) struct distinct d = distinct_of(DISTINCT_MEMORY_MIN);
	uint32_t last;
	uint64_t weight;

	for (uint64_t i = 0; i < 200000; i++)
		distinct_add(&d, fp_number(i), 0, &last, &weight);
	assert_int_equal(d.nr_slots, DISTINCT_MEMORY_MIN / 12);
	assert_true(d.nr <= d.nr_max);
	assert_true(d.nr >= d.nr_max / 3);
	assert_int_equal(d.bits, 10); /* 200000 / 297 is between 2^9 and 2^10 */
}

/* A sample is made of fingerprints, so each of them is either always or never in it from some time on. */
static void what_is_in_the_sample_was_never_forgotten(void **state _unused_)
{
	_cleanup_(distinct_release) struct distinct d = distinct_of(16384);
	uint32_t last;
	uint64_t weight;
	size_t found = 0;

	for (uint64_t i = 0; i < 50000; i++)
		distinct_add(&d, fp_number(i), (uint32_t)i, &last, &weight);
	for (uint64_t i = 0; i < 50000; i++) {
		enum distinct_answer answer = distinct_add(&d, fp_number(i), (uint32_t)i, &last, &weight);

		assert_true(answer != DISTINCT_NEW);
		if (answer == DISTINCT_KNOWN) {
			assert_int_equal(last, i);
			found++;
		}
	}
	assert_int_equal(found, d.nr);
}

/* `distinct` fingerprints, each coming `times` times, mixed. */
static uint64_t estimate_of(uint64_t distinct, unsigned times, size_t memory)
{
	_cleanup_(distinct_release) struct distinct d = distinct_of(memory);
	uint64_t estimate = 0, weight;
	uint32_t last;

	for (uint64_t i = 0; i < distinct * times; i++)
		if (distinct_add(&d, fp_number(i * 7919 % distinct), 0, &last, &weight) == DISTINCT_NEW)
			estimate += weight;
	return estimate;
}

static void estimates_are_near_whatever_comes_how_often(void **state _unused_)
{
	static const struct {
		uint64_t distinct;
		unsigned times;
	} cases[] = { { 100000, 1 }, { 100000, 5 }, { 30000, 20 }, { 300001, 2 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		double ratio =
			(double)estimate_of(cases[i].distinct, cases[i].times, KiB(64)) / (double)cases[i].distinct;

		assert_true(ratio > 0.95 && ratio < 1.05);
	}
}

/* Over many samples the errors cancel out: 500 of 100 each, so that the mean is right to half a percent. */
static void estimates_have_no_bias(void **state _unused_)
{
	double sum = 0;

	for (uint64_t round = 0; round < 500; round++) {
		_cleanup_(distinct_release) struct distinct d = distinct_of(DISTINCT_MEMORY_MIN);
		uint64_t estimate = 0, weight;
		uint32_t last;

		for (uint64_t i = 0; i < 2000; i++)
			if (distinct_add(&d, fp_number(round << 32 | i), 0, &last, &weight) == DISTINCT_NEW)
				estimate += weight;
		sum += (double)estimate;
	}
	assert_true(sum / 500 > 2000 * 0.99 && sum / 500 < 2000 * 1.01);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_fits_is_exact_and_knows_the_last_file),
		cmocka_unit_test(a_fingerprint_of_zeros_is_one_as_well),
		cmocka_unit_test(memory_stays_what_was_given_however_many_come),
		cmocka_unit_test(what_is_in_the_sample_was_never_forgotten),
		cmocka_unit_test(estimates_are_near_whatever_comes_how_often),
		cmocka_unit_test(estimates_have_no_bias),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
