/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Where bytes are cut: runs of zeros are pieces of their own, all else is cut as base/cdc.h says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/dedup/chunker.h"
#include "tests/unit/store/rig.h"

#define LEN ((uint32_t)MiB(1))

static struct cdc cdc;
static uint8_t bytes[LEN];
static uint32_t ends[CHUNKER_ENDS_MAX];

static int setup(void **state)
{
	(void)state;
	cdc_init(&cdc, &CDC_PARAMS_DEFAULT);
	rig_pattern(bytes, LEN, 1);
	return 0;
}

static bool has_end(size_t nr, uint32_t end)
{
	for (size_t i = 0; i < nr; i++)
		if (ends[i] == end)
			return true;
	return false;
}

static void noise_is_cut_as_cdc_says(void **state)
{
	size_t expected[1000], nr = 0, off = 0, cut;

	(void)state;
	while ((cut = cdc_cut(&cdc, bytes + off, LEN - off)) > 0) {
		assert_true(nr < ARRAY_SIZE(expected));
		expected[nr++] = off += cut;
	}
	assert_int_equal(chunker_cut(&cdc, bytes, LEN, false, ends), nr);
	for (size_t i = 0; i < nr; i++)
		assert_int_equal(ends[i], expected[i]);
	assert_in_range(LEN - ends[nr - 1], 1, 32767);
	assert_int_equal(chunker_cut(&cdc, bytes, LEN, true, ends), nr + 1);
	assert_int_equal(ends[nr], LEN);
}

static void a_run_of_4096_zeros_is_a_piece_and_one_of_4095_is_not(void **state)
{
	(void)state;
	for (uint32_t at = 100000; at < 110000; at += 997) {
		setup(NULL);
		memset(bytes + at, 0, 4096);
		bytes[at - 1] = bytes[at + 4096] = 1;
		size_t nr = chunker_cut(&cdc, bytes, LEN, true, ends);

		assert_true(has_end(nr, at) && has_end(nr, at + 4096));
		bytes[at] = 1;
		nr = chunker_cut(&cdc, bytes, LEN, true, ends);
		assert_false(has_end(nr, at + 1) && has_end(nr, at + 4096));
	}
}

static void zeros_at_both_ends_are_pieces_whatever_their_length(void **state)
{
	size_t nr;

	(void)state;
	setup(NULL);
	memset(bytes, 0, 300000);
	memset(bytes + LEN - 5000, 0, 5000);
	bytes[300000] = bytes[LEN - 5001] = 1;
	nr = chunker_cut(&cdc, bytes, LEN, false, ends);
	assert_int_equal(ends[0], 300000);
	assert_int_equal(ends[nr - 2], LEN - 5000);
	assert_int_equal(ends[nr - 1], LEN - 4096); /* they may go on */
	nr = chunker_cut(&cdc, bytes, LEN, true, ends);
	assert_int_equal(ends[nr - 2], LEN - 5000);
	assert_int_equal(ends[nr - 1], LEN);
	memset(bytes, 0, LEN);
	assert_int_equal(chunker_cut(&cdc, bytes, LEN, false, ends), 1);
	assert_int_equal(ends[0], LEN - 4096);
	assert_int_equal(chunker_cut(&cdc, bytes, LEN, true, ends), 1);
	assert_int_equal(ends[0], LEN);
	assert_int_equal(chunker_cut(&cdc, bytes, 4096, false, ends), 0);
	assert_int_equal(chunker_cut(&cdc, bytes, 4095, false, ends), 0);
	assert_int_equal(chunker_cut(&cdc, bytes, 4095, true, ends), 1);
	assert_int_equal(chunker_cut(&cdc, bytes, 1, true, ends), 1);
	assert_int_equal(chunker_cut(&cdc, bytes, 0, true, ends), 0);
}

/* Whatever the bytes: pieces in order, none longer than max unless it is zeros, all covered. */
static void pieces_cover_everything(void **state)
{
	static const struct cdc_params params[] = { { 256, 512, 1024 }, { 512, 4096, 32768 }, { 8192, 16384, 65536 } };

	(void)state;
	for (unsigned round = 0; round < 60; round++) {
		const struct cdc_params *p = &params[round % ARRAY_SIZE(params)];
		unsigned seed = round;
		struct cdc c;
		size_t nr;

		cdc_init(&c, p);
		setup(NULL);
		for (unsigned i = 0; i < 400; i++) {
			uint32_t at = (uint32_t)rand_r(&seed) % LEN,
				 len = (uint32_t)rand_r(&seed) % (round % 2 ? 9000 : 5000);

			memset(bytes + at, rand_r(&seed) % 4 ? 0 : 7, MIN(len, LEN - at));
		}
		nr = chunker_cut(&c, bytes, LEN, true, ends);
		for (size_t i = 0; i < nr; i++) {
			uint32_t start = i == 0 ? 0 : ends[i - 1];

			assert_true(ends[i] > start);
			if (ends[i] - start > p->max)
				assert_memory_equal(bytes + start, bytes + start + 1, ends[i] - start - 1);
		}
		assert_int_equal(ends[nr - 1], LEN);
	}
}

/* Cut as a whole and in two goes, wherever they meet: the chunks are the same. */
static void where_the_bytes_are_divided_does_not_matter(void **state)
{
	static uint32_t whole[CHUNKER_ENDS_MAX];
	size_t nr;

	(void)state;
	setup(NULL);
	for (uint32_t at = 20000; at < LEN; at += 30011)
		memset(bytes + at, 0, at % 13001);
	nr = chunker_cut(&cdc, bytes, LEN, true, whole);
	for (uint32_t first = 60000; first < LEN; first += 9973) {
		size_t n = chunker_cut(&cdc, bytes, first, false, ends), k = 0;
		uint32_t done = n > 0 ? ends[n - 1] : 0;

		for (size_t i = 0; i < n; i++) {
			while (whole[k] < ends[i])
				k++;
			/* A run of zeros may be two holes instead of one. */
			if (whole[k] != ends[i])
				assert_true(bytes[ends[i] - 1] == 0 && bytes[ends[i]] == 0 && i == n - 1);
		}
		n = chunker_cut(&cdc, bytes + done, LEN - done, true, ends);
		for (size_t i = 0; i < n; i++) {
			while (whole[k] < done + ends[i])
				k++;
			assert_int_equal(whole[k], done + ends[i]);
		}
		assert_int_equal(k, nr - 1);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(noise_is_cut_as_cdc_says),
		cmocka_unit_test(a_run_of_4096_zeros_is_a_piece_and_one_of_4095_is_not),
		cmocka_unit_test(zeros_at_both_ends_are_pieces_whatever_their_length),
		cmocka_unit_test(pieces_cover_everything),
		cmocka_unit_test(where_the_bytes_are_divided_does_not_matter),
	};

	return cmocka_run_group_tests_name("chunker", tests, setup, NULL);
}
