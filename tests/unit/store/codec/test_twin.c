/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Rounding floats to those of 16 bits, for every one of those there is. */
#include "tests/unit/store/codec/code_rig.h"

#include "store/codec/twin.h"

static const struct code_type single = { CODE_FLOAT, 4, false }, bfloat = { CODE_BFLOAT, 2, false },
			      half = { CODE_FLOAT, 2, false };

static uint16_t rounded(struct code_type narrow, uint32_t x)
{
	uint16_t y;

	twin_round(narrow, single, &x, 1, &y);
	return y;
}

/* A number of 16 bits as one of 32, exactly. */
static uint32_t widened(struct code_type narrow, uint16_t y)
{
	uint32_t sign = (uint32_t)(y & 0x8000) << 16, exponent = y >> 10 & 31, mantissa = y & 0x3ff, x;
	float f;

	if (narrow.class == CODE_BFLOAT)
		return (uint32_t)y << 16;
	if (exponent == 31)
		return sign | 0x7f800000 | mantissa << 13;
	if (exponent > 0)
		return sign | (exponent + 112) << 23 | mantissa << 13;
	f = (float)mantissa / (1 << 24);
	memcpy(&x, &f, 4);
	return sign | x;
}

/* What lies between two neighbours becomes the nearer one, in the middle the even one. */
static void numbers_are_rounded_to_the_nearest(struct code_type narrow, uint16_t infinity)
{
	for (uint32_t sign = 0; sign < 2; sign++)
		for (uint32_t y = 0; y < infinity; y++) {
			uint16_t this = (uint16_t)(y | sign << 15), next = (uint16_t)(this + 1);
			/* As integers floats are in order, and of those with one exponent the middle is that of the
			 * integers. The last one's neighbour is what would come after it, where infinity stands. */
			uint32_t lo = widened(narrow, this),
				 hi = y + 1 < infinity ? widened(narrow, next) :
							 lo + (lo - widened(narrow, (uint16_t)(this - 1)));
			uint32_t middle = lo + (hi - lo) / 2;

			assert_int_equal(rounded(narrow, lo), this);
			if (narrow.class == CODE_FLOAT && y == 0)
				continue; /* between zero and the first are all those of 8 bits of exponent: below */
			assert_int_equal(rounded(narrow, middle), this & 1 ? next : this);
			assert_int_equal(rounded(narrow, middle - 1), this);
			assert_int_equal(rounded(narrow, middle + 1), next);
		}
}

static void bfloats_are_rounded(void **state)
{
	(void)state;
	numbers_are_rounded_to_the_nearest(bfloat, 0x7f80);
	assert_int_equal(rounded(bfloat, 0x7f800000), 0x7f80);
	assert_int_equal(rounded(bfloat, 0xff800000), 0xff80);
	assert_int_equal(rounded(bfloat, 0x7f7fffff), 0x7f80);
	assert_int_equal(rounded(bfloat, 0x7f800001), 0x7fc0); /* not infinity */
	assert_int_equal(rounded(bfloat, 0xffffffff), 0x7fc0); /* nor zero */
}

static void halves_are_rounded(void **state)
{
	(void)state;
	numbers_are_rounded_to_the_nearest(half, 0x7c00);
	assert_int_equal(rounded(half, 0x33000000), 0); /* 2^-25, half of the first: the even one */
	assert_int_equal(rounded(half, 0x33000001), 1);
	assert_int_equal(rounded(half, 0x32ffffff), 0);
	assert_int_equal(rounded(half, 0x80000001), 0x8000);
	assert_int_equal(rounded(half, 0x7f7fffff), 0x7c00);
	assert_int_equal(rounded(half, 0xff800000), 0xfc00);
	assert_int_equal(rounded(half, 0x7f800001), 0x7e00);
	assert_int_equal(rounded(half, 0xffc02000), 0xfe01);
}

static void orders_of_bytes_are_those_of_the_types(void **state)
{
	struct code_type big_single = { CODE_FLOAT, 4, true }, big_bfloat = { CODE_BFLOAT, 2, true };
	uint8_t wide[] = { 0, 0x00, 0x80, 0x80, 0x3f, 0x3f, 0x80, 0x80, 0x01 }, narrow[5] = { 0 };

	(void)state;
	twin_round(bfloat, single, wide + 1, 1, narrow + 1); /* at odd addresses */
	assert_memory_equal(narrow, ((uint8_t[]){ 0, 0x80, 0x3f, 0, 0 }), 5);
	twin_round(big_bfloat, single, wide + 1, 1, narrow + 1);
	assert_memory_equal(narrow, ((uint8_t[]){ 0, 0x3f, 0x80, 0, 0 }), 5);
	twin_round(big_bfloat, big_single, wide + 5, 1, narrow + 3);
	assert_memory_equal(narrow, ((uint8_t[]){ 0, 0x3f, 0x80, 0x3f, 0x81 }), 5);
}

/* What is widened and rounded again is what it was; NaNs are others, but NaNs. */
static void all_that_are_widened_come_back(void **state)
{
	(void)state;
	for (unsigned t = 0; t < 4; t++) {
		struct code_type narrow = t % 2 ? half : bfloat, wide = single;
		unsigned most = t % 2 ? 0x7c00 : 0x7f80;

		narrow.big_endian = wide.big_endian = t / 2;
		for (uint32_t x = 0; x <= 0xffff; x++) {
			uint8_t from[3] = { 0, (uint8_t)(t / 2 ? x >> 8 : x), (uint8_t)(t / 2 ? x : x >> 8) }, to[5], back[2];

			twin_widen(narrow, wide, from + 1, 1, to + 1);
			twin_round(narrow, wide, to + 1, 1, back);
			if ((x & 0x7fff) <= most)
				assert_memory_equal(back, from + 1, 2);
			else
				assert_int_equal((back[t / 2 ? 0 : 1] << 8 | back[t / 2 ? 1 : 0]) & most, most);
		}
	}
}

static void a_base_is_no_longer_than_its_block(void **state)
{
	uint16_t narrow[8] = { 0x3f80, 0x4000, 0x4040 };
	uint32_t wide[8] = { 0 };

	(void)state;
	memset(wide, 0xee, sizeof(wide));
	assert_int_equal(twin_base(CODE_PLACE_WIDENED_BFLOAT_LE, single, 0, narrow, 5, 32, wide), 8);
	assert_int_equal(twin_base(CODE_PLACE_WIDENED_BFLOAT_LE, single, 0, narrow, 16, 11, wide), 8);
	assert_int_equal(wide[0], 0x3f800000);
	assert_int_equal(wide[1], 0x40000000);
	assert_int_equal(wide[2], 0xeeeeeeee);
	assert_int_equal(twin_base(CODE_PLACE_WIDENED_BFLOAT_LE, single, 3, narrow, 16, 2, wide), 3);
	assert_int_equal(wide[0], 0x3f000000);
	assert_int_equal(twin_base(CODE_PLACE_ROUNDED_LE, bfloat, 1, wide + 1, 4, 32, narrow), 3);
	assert_int_equal(narrow[0], 0); /* the lead, and the lower byte of 2.0 */
	assert_int_equal(narrow[1] & 0xff, 0x40);
}

static void marks_report_twins(void **state)
{
	struct twin_mark a = { .narrow = bfloat, .nr = 100, .sample = { 1, 2 } }, b = a;

	(void)state;
	assert_int_equal(twin_mark_compare(&a, &b), 0);
	b.sample[2 * TWIN_SAMPLE - 1] = 1;
	assert_true(twin_mark_compare(&a, &b) < 0 && twin_mark_compare(&b, &a) > 0);
	b = a;
	b.nr++;
	assert_true(twin_mark_compare(&a, &b) < 0 && twin_mark_compare(&b, &a) > 0);
	b.nr--;
	b.narrow = half;
	assert_true(twin_mark_compare(&a, &b) != 0 && twin_mark_compare(&a, &b) == -twin_mark_compare(&b, &a));
	for (uint64_t nr = TWIN_SAMPLE; nr < 1000; nr++)
		assert_true(twin_sample_at(nr) + TWIN_SAMPLE <= nr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bfloats_are_rounded),
		cmocka_unit_test(halves_are_rounded),
		cmocka_unit_test(orders_of_bytes_are_those_of_the_types),
		cmocka_unit_test(all_that_are_widened_come_back),
		cmocka_unit_test(a_base_is_no_longer_than_its_block),
		cmocka_unit_test(marks_report_twins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
