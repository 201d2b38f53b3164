/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Blocks by levels, and those that take no more of their base than its levels. */
#include "tests/unit/store/codec/code_rig.h"

#include <errno.h>

#include "store/codec/coding.h"

#define LEN 4001

struct rig {
	struct code_work *work;
	uint8_t plain[LEN], base[LEN + 200], block[CODE_BLOCK_MAX(LEN)], base_block[CODE_BLOCK_MAX(LEN + 200)], got[LEN + 1];
};

static int rig_new(void **state)
{
	return work_rig_new(state, sizeof(struct rig));
}

static bool is_float(struct code_type t)
{
	return t.class == CODE_FLOAT || t.class == CODE_BFLOAT;
}

/* Of both: 0 if the base did not become smaller by levels. */
static size_t code_both(struct rig *rig, struct coder_spec spec, size_t len, size_t base_len, int *ret)
{
	int n = code_encode(rig->work, &spec, rig->base, base_len, NULL, 0, rig->base_block);
	size_t levels = code_levels_end(rig->base_block, (size_t)n);

	if (levels == 0)
		return 0;
	spec.steps.base = CODE_BASE_SUB;
	spec.steps.base_place = code_place_levels(0, (uint32_t)levels);
	*ret = code_encode(rig->work, &spec, rig->plain, len, rig->base, MIN(len, base_len), rig->block);
	return ((const struct code_header_disk *)rig->block)->split == CODE_SPLIT_LEVELS ? levels : 0;
}

/* Every type and every kind of bits, with any lead: from the plain base and from the first bytes of its block alone. */
static void a_base_is_as_good_as_its_levels(void **state)
{
	struct rig *rig = *state;
	unsigned nr = 0;

	for (size_t t = 0; t < ARRAY_SIZE(all_types); t++)
		for (unsigned n = 0; is_float(all_types[t]) && n < NR_PATTERNS * NR_PATTERNS; n++) {
			struct coder_spec spec = coding_by_levels(all_types[t]);
			size_t len = LEN - n * 7, levels, was_from;
			int stored;

			spec.steps.lead = n % all_types[t].width;
			fill_pattern(n % NR_PATTERNS, all_types[t], rig->plain, len);
			fill_pattern(n / NR_PATTERNS, all_types[t], rig->base, sizeof(rig->base));
			levels = code_both(rig, spec, len, LEN, &stored);
			if (levels == 0)
				continue;
			nr++;
			was_from = LEN + sizeof(struct code_header_disk);
			assert_in_range(levels, sizeof(struct code_header_disk), was_from);
			memset(rig->base_block + levels, 0x5a, sizeof(rig->base_block) - levels); /* not read */
			memset(rig->got, 0xee, sizeof(rig->got));
			assert_int_equal(code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->base_block, levels,
							       rig->got, len),
					 (int)len);
			assert_memory_equal(rig->got, rig->plain, len);
			assert_int_equal(rig->got[len], 0xee);
			assert_int_equal(code_decode(rig->work, rig->block, (size_t)stored, rig->base, len, rig->got, len),
					 (int)len);
			assert_memory_equal(rig->got, rig->plain, len);
			assert_int_equal(code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->base_block,
							       levels - 1, rig->got, len),
					 -EBADMSG);
		}
	assert_in_range(nr, 100, 600);
}

/* A whole exponent and mantissa of noise, and a step that is near it. */
static void fill_near(struct rig *rig)
{
	srand(3);
	for (size_t i = 0; i < sizeof(rig->base) / 4; i++) {
		uint32_t x = (uint32_t)(100 + rand() % 16) << 23 | (uint32_t)(rand() & 0x7fffff), y = x ^ (rand() & 0xfffff);

		memcpy(rig->base + 4 * i, &x, 4);
		if (4 * i + 4 <= LEN)
			memcpy(rig->plain + 4 * i, &y, 4);
	}
}

static const struct code_type f32 = { CODE_FLOAT, 4, false };

static void levels_of_a_base_save_what_they_report(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = coding_by_levels(f32);
	int alone, against = 0;

	fill_near(rig);
	assert_string_equal(code_name(&spec).s, "levels huffman");
	alone = code_encode(rig->work, &spec, rig->plain, 4000, NULL, 0, rig->block);
	assert_in_range(alone, 1, 4000 * 29 / 32); /* signs, and the upper half of exponents */
	assert_in_range(code_both(rig, spec, 4000, 4000, &against), 1, 1200);
	assert_in_range(against, 1, alone - 4000 * 6 / 32); /* 4 bits of the exponent, 3 of the mantissa */
}

static void another_base_or_a_damaged_one_is_an_error(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = coding_by_levels(f32), other = spec;
	size_t levels, n;
	int stored = 0;

	fill_near(rig);
	levels = code_both(rig, spec, 4000, 4000, &stored);
	for (size_t i = 0; i < levels; i++) {
		int r;

		rig->base_block[i] ^= 0x11;
		r = code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->base_block, levels, rig->got, 4000);
		/* lengths behind the levels and sums are not looked at: then it is right */
		assert_true(r == -EBADMSG || (r == 4000 && memcmp(rig->got, rig->plain, 4000) == 0));
		rig->base_block[i] ^= 0x11;
	}
	/* one that has another type, fewer elements, another lead, or a base itself */
	other.steps.type.big_endian = true;
	n = (size_t)code_encode(rig->work, &other, rig->base, 4000, NULL, 0, rig->base_block);
	assert_int_equal(code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->base_block, n, rig->got, 4000),
			 -EBADMSG);
	n = (size_t)code_encode(rig->work, &spec, rig->base, 3996, NULL, 0, rig->base_block);
	assert_int_equal(code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->base_block, n, rig->got, 4000),
			 -EBADMSG);
	other = spec;
	other.steps.lead = 1;
	n = (size_t)code_encode(rig->work, &other, rig->base, 4001, NULL, 0, rig->base_block);
	assert_int_equal(code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->base_block, n, rig->got, 4000),
			 -EBADMSG);
	assert_int_equal(code_decode_by_levels(rig->work, rig->block, (size_t)stored, rig->block, (size_t)stored, rig->got,
					       4000),
			 -EBADMSG);
	assert_int_equal(code_levels_end(rig->block, (size_t)stored), 0);
}

static void steps_that_are_not_by_levels_are_refused(void **state)
{
	struct code_header good = coding_by_levels(f32).steps, h;

	(void)state;
	assert_true(code_steps_valid(&good));
	for (unsigned i = 0; i < 8; i++) {
		h = good;
		switch (i) {
		case 0: h.type = (struct code_type){ CODE_INT, 4, false }; break;
		case 1: h.map = CODE_MAP_ORDERED; break;
		case 2: h.base = CODE_BASE_XOR; break;
		case 3: h.predict = CODE_PREDICT_DELTA; break;
		case 4: h.zigzag = true; break;
		case 5: h.stride[0] = CODE_LEVEL_BITS_MIN - 1; break;
		case 6: h.stride[0] = CODE_LEVEL_BITS_MAX + 1; break;
		default: h.stride[1] = 1;
		}
		assert_false(code_steps_valid(&h));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_base_is_as_good_as_its_levels, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(levels_of_a_base_save_what_they_report, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(another_base_or_a_damaged_one_is_an_error, rig_new, work_rig_free),
		cmocka_unit_test(steps_that_are_not_by_levels_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
