/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/codec/code_rig.h"

#include <errno.h>

#include "base/checksum.h"

#define LEN_MAX 2500 /* of what all ways are tried with; the longest block has a test of its own */

struct rig {
	struct code_work *work;
	uint8_t plain[LEN_MAX + 8], base[LEN_MAX + 8], block[CODE_BLOCK_MAX(LEN_MAX)], got[LEN_MAX + 1];
};

static int rig_new(void **state)
{
	return work_rig_new(state, sizeof(struct rig));
}

static void round_trip(struct rig *rig, const struct coder_spec *spec, const uint8_t *p, size_t len, size_t base_len)
{
	int n = code_encode(rig->work, spec, p, len, rig->base + 1, base_len, rig->block);

	assert_in_range(n, sizeof(struct code_header_disk), CODE_BLOCK_MAX(len));
	memset(rig->got, 0xee, sizeof(rig->got));
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, rig->base + 1, base_len, rig->got, len), (int)len);
	if (memcmp(rig->got, p, len) != 0)
		fail_msg("%s %s: %zu bytes come back as others", code_type_name(spec->steps.type).s, code_name(spec).s,
			 len);
	assert_int_equal(rig->got[len], 0xee);
}

/* Every type, every way, every kind of bits; at an odd address, with any lead, with a base that is shorter, as long, or
 * longer. */
static void all_bits_come_back_from_every_way(void **state)
{
	enum { BYTES_MAX = 600 }; /* of a block, and of its base */
	struct rig *rig = *state;
	unsigned nr_ways = 0;

	for (size_t t = 0; t < ARRAY_SIZE(all_types); t++) {
		uint8_t filled[NR_PATTERNS][BYTES_MAX];
		struct coder_spec spec;

		for (enum pattern pattern = 0; pattern < NR_PATTERNS; pattern++)
			fill_pattern(pattern, all_types[t], filled[pattern], sizeof(filled[pattern]));
		for (unsigned at = 0; next_spec(all_types[t], &at, &spec); nr_ways++) {
			spec.steps.lead = nr_ways % all_types[t].width;
			for (enum pattern pattern = 0; pattern < NR_PATTERNS; pattern++) {
				size_t len = 200 + (nr_ways * 7 + pattern) % (BYTES_MAX - 200);
				size_t base_len = (nr_ways + pattern) % 3 * (BYTES_MAX / 2);

				memcpy(rig->plain + 1, filled[pattern], len);
				memcpy(rig->base + 1, filled[(pattern + nr_ways) % NR_PATTERNS], base_len);
				round_trip(rig, &spec, rig->plain + 1, len, base_len);
			}
		}
	}
	assert_in_range(nr_ways, 3000, 20000);
}

/* Normally distributed numbers, as weights are: exponents have matches by chance alone. */
static void exponents_are_smaller_without_matches(void **state)
{
	struct coder_spec spec = { .steps = { .type = { CODE_FLOAT, 4, false },
					      .map = CODE_MAP_ROTATED,
					      .split = CODE_SPLIT_BYTES,
					      .entropy = CODE_ENTROPY_ZSTD },
				   .level = 1 };
	static uint8_t block[CODE_BLOCK_MAX(65536)], got[65536];
	static float weights[16384];
	struct rig *rig = *state;
	int matches, symbols;

	srand(1);
	for (size_t i = 0; i < ARRAY_SIZE(weights); i++) {
		double sum = 0;

		for (unsigned k = 0; k < 12; k++)
			sum += (double)rand() / RAND_MAX;
		weights[i] = (float)((sum - 6) / 30);
	}
	matches = code_encode(rig->work, &spec, weights, sizeof(weights), NULL, 0, block);
	spec.level = CODE_LEVEL_SYMBOLS;
	assert_string_equal(code_name(&spec).s, "rotated bytes huffman");
	symbols = code_encode(rig->work, &spec, weights, sizeof(weights), NULL, 0, block);
	assert_in_range(symbols, 1, matches - 800); /* 0.4 bits of each exponent */
	assert_int_equal(code_decode(rig->work, block, (size_t)symbols, NULL, 0, got, sizeof(got)), sizeof(got));
	assert_memory_equal(got, weights, sizeof(got));
}

static void every_length_comes_back(void **state)
{
	struct rig *rig = *state;

	for (size_t t = 0; t < ARRAY_SIZE(all_types); t++) {
		struct coder_spec spec;
		unsigned nr = 0;

		fill_pattern(SMOOTH, all_types[t], rig->plain, LEN_MAX);
		fill_pattern(COUNTING, all_types[t], rig->base + 1, LEN_MAX);
		for (unsigned at = 0; next_spec(all_types[t], &at, &spec); nr++)
			if (nr % 29 == 0)
				for (size_t len = 0; len <= 140; len++) {
					spec.steps.lead = len % all_types[t].width;
					round_trip(rig, &spec, rig->plain, len, len);
				}
	}
}

/* To an even and an odd address, with a base that ends somewhere in it. */
static void the_longest_block_comes_back(void **state)
{
	const size_t base_at = 12345, base_len = CODE_PLAIN_MAX - base_at;
	struct rig *rig = *state;
	uint8_t *plain = malloc(CODE_PLAIN_MAX), *got = malloc(CODE_PLAIN_MAX + 1),
		*block = malloc(CODE_BLOCK_MAX(CODE_PLAIN_MAX));

	for (size_t t = 0; t < ARRAY_SIZE(all_types); t++) {
		struct coder_spec spec;
		unsigned nr = 0;

		for (unsigned at = 0; next_spec(all_types[t], &at, &spec); nr++) {
			uint8_t *to = got + nr % 2;
			int n;

			if (nr % 37 != 0)
				continue;
			fill_pattern(nr % NR_PATTERNS, all_types[t], plain, CODE_PLAIN_MAX);
			n = code_encode(rig->work, &spec, plain, CODE_PLAIN_MAX, plain + base_at, base_len, block);
			assert_in_range(n, 1, CODE_BLOCK_MAX(CODE_PLAIN_MAX));
			assert_int_equal(code_decode(rig->work, block, (size_t)n, plain + base_at, base_len, to,
						     CODE_PLAIN_MAX),
					 CODE_PLAIN_MAX);
			assert_memory_equal(to, plain, CODE_PLAIN_MAX);
		}
	}
	free(plain);
	free(got);
	free(block);
}

static struct coder_spec delta_zstd(struct code_type type)
{
	struct coder_spec s = { .level = 1 };

	s.steps = (struct code_header){ .type = type,
					.map = CODE_MAP_ORDERED,
					.predict = CODE_PREDICT_DELTA,
					.zigzag = true,
					.split = CODE_SPLIT_BYTES,
					.entropy = CODE_ENTROPY_ZSTD,
					.stride = { 1 } };
	return s;
}

static void what_does_not_shrink_is_stored_as_it_is(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = delta_zstd((struct code_type){ CODE_FLOAT, 8, false });

	fill_pattern(NOISE, spec.steps.type, rig->plain, 2000);
	assert_int_equal(code_encode(rig->work, &spec, rig->plain, 2000, NULL, 0, rig->block), CODE_BLOCK_MAX(2000));
	assert_memory_equal(rig->block + sizeof(struct code_header_disk), rig->plain, 2000);
}

/* The place of the base takes bytes, too: a block that is smaller by fewer than those is stored as it is, within its
 * room. */
static void a_place_is_within_the_room(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = { .steps = { .type = { CODE_INT, 4, false },
					      .base = CODE_BASE_XOR,
					      .split = CODE_SPLIT_BYTES,
					      .base_place = code_place(CODE_PLACE_SAME, 0) } };
	bool seen[2] = { false, false };

	fill_pattern(NOISE, spec.steps.type, rig->base + 1, LEN_MAX);
	/* words of 4 sections take 16 bytes, and one plane is a single byte */
	for (size_t len = 0; len <= 200; len++) {
		bool is_placed;

		for (size_t i = 0; i < len; i++)
			rig->plain[i] = rig->base[1 + i] ^ (i % 4 == 3 ? 0 : (uint8_t)(i * 37 + i / 5 + 1));
		memset(rig->block, 0xee, sizeof(rig->block));
		round_trip(rig, &spec, rig->plain, len, len);
		is_placed = ((const struct code_header_disk *)rig->block)->flags & CODE_FLAG_PLACED;
		seen[is_placed] = true;
		for (size_t i = CODE_BLOCK_MAX(len); i < CODE_BLOCK_MAX(len) + 8; i++)
			assert_int_equal(rig->block[i], 0xee);
	}
	assert_true(seen[false] && seen[true]);
}

/* What the steps are for: what each makes of data it is made for, against zstd alone. */
static void knowledge_pays(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = delta_zstd((struct code_type){ CODE_FLOAT, 8, true }), alone = { .level = 3 };
	int n, plain;

	alone.steps = (struct code_header){ .type = { CODE_BYTES, 1, false }, .entropy = CODE_ENTROPY_ZSTD };
	fill_pattern(SMOOTH, spec.steps.type, rig->plain, 2400);
	n = code_encode(rig->work, &spec, rig->plain, 2400, NULL, 0, rig->block);
	plain = code_encode(rig->work, &alone, rig->plain, 2400, NULL, 0, rig->block);
	assert_true(n < plain);
	memcpy(rig->base, rig->plain, 2400);
	rig->plain[2000]++;
	spec.steps.base = CODE_BASE_SUB;
	assert_true(code_encode(rig->work, &spec, rig->plain, 2400, rig->base, 2400, rig->block) < n / 4);
}

/* Elements that begin at another byte: with its lead it costs those bytes, without it everything. */
static void a_lead_finds_the_elements(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = delta_zstd((struct code_type){ CODE_FLOAT, 8, false });
	int right, off;

	fill_pattern(SMOOTH, spec.steps.type, rig->plain + 3, 2400);
	memset(rig->plain, 0xaa, 3);
	off = code_encode(rig->work, &spec, rig->plain, 2403, NULL, 0, rig->block);
	spec.steps.lead = 3;
	right = code_encode(rig->work, &spec, rig->plain, 2403, NULL, 0, rig->block);
	assert_int_equal(((const struct code_header_disk *)rig->block)->flags >> CODE_LEAD_SHIFT, 3);
	assert_true(right < off * 9 / 10);
}

static void another_base_is_an_error(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = delta_zstd((struct code_type){ CODE_FLOAT, 4, false });
	int n;

	spec.steps.base = CODE_BASE_XOR;
	fill_pattern(SMOOTH, spec.steps.type, rig->plain, 1000);
	fill_pattern(SMOOTH, spec.steps.type, rig->base, 1100);
	n = code_encode(rig->work, &spec, rig->plain, 1000, rig->base, 1000, rig->block);
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, rig->base, 1100, rig->got, 1000), 1000);
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, rig->base, 999, rig->got, 1000), -EBADMSG);
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, NULL, 0, rig->got, 1000), -EBADMSG);
	rig->base[500] ^= 1;
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, rig->base, 1100, rig->got, 1000), -EBADMSG);
}

static void every_damaged_byte_is_an_error(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = delta_zstd((struct code_type){ CODE_FLOAT, 4, false });
	int n, r;

	fill_pattern(SMOOTH, spec.steps.type, rig->plain, 999);
	n = code_encode(rig->work, &spec, rig->plain, 999, NULL, 0, rig->block);
	for (int i = 0; i < n; i++) {
		rig->block[i] ^= 0x11;
		r = code_decode(rig->work, rig->block, (size_t)n, NULL, 0, rig->got, 999);
		assert_int_equal(r, i == 4 ? -EOPNOTSUPP : -EBADMSG);
		rig->block[i] ^= 0x11;
		assert_int_equal(code_decode(rig->work, rig->block, (size_t)i, NULL, 0, rig->got, 999), -EBADMSG);
	}
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, NULL, 0, rig->got, 998), -ENOBUFS);
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, NULL, 0, rig->got, 999), 999);
}

/* With a checksum that holds: so the decoder itself has to find what is wrong, and writes nowhere else. */
static void lies_with_a_checksum_are_found_or_harmless(void **state)
{
	struct rig *rig = *state;
	const size_t head = offsetof(struct code_header_disk, crc);
	unsigned nr_errors = 0, nr = 0;
	struct coder_spec spec;

	for (size_t t = 0; t < ARRAY_SIZE(all_types); t++)
		for (unsigned at = 0; next_spec(all_types[t], &at, &spec); nr++) {
			size_t lie = 5 + nr % 70;
			uint32_t crc;
			int n, r;

			if (nr % 11 != 0)
				continue;
			fill_pattern(nr % NR_PATTERNS, all_types[t], rig->plain, 700);
			n = code_encode(rig->work, &spec, rig->plain, 700, rig->plain, 700, rig->block);
			if (lie >= (size_t)n || (lie >= head && lie < head + 4))
				continue;
			rig->block[lie] ^= (uint8_t)(1u << nr % 8);
			crc = crc32c_add(crc32c(rig->block, head), rig->block + head + 4, (size_t)n - head - 4);
			memcpy(rig->block + head, &crc, 4);
			memset(rig->got, 0xee, sizeof(rig->got));
			r = code_decode(rig->work, rig->block, (size_t)n, rig->plain, 700, rig->got, 800);
			assert_true(r == -EBADMSG || r == -ENOBUFS || (r >= 0 && r <= 800));
			assert_int_equal(rig->got[800], 0xee);
			nr_errors += r < 0;
		}
	assert_in_range(nr_errors, 50, nr);
}

static void steps_that_do_not_go_together_are_refused(void **state)
{
	static const struct code_header bad[] = {
		{ .type = { CODE_BYTES, 2, false } },
		{ .type = { CODE_BYTES, 1, true } },
		{ .type = { CODE_BFLOAT, 4, false } },
		{ .type = { CODE_INT, 3, false } },
		{ .type = { CODE_INT, 16, false } },
		{ .type = { NR_CODE_CLASSES, 1, false } },
		{ .type = { CODE_INT, 4, false }, .map = CODE_MAP_ORDERED },
		{ .type = { CODE_FLOAT, 4, false }, .predict = CODE_PREDICT_FPC },
		{ .type = { CODE_FLOAT, 8, false }, .predict = CODE_PREDICT_DELTA },
		{ .type = { CODE_FLOAT, 8, false }, .predict = CODE_PREDICT_DELTA, .stride = { 1, CODE_PLAIN_MAX + 1 } },
		{ .type = { CODE_FLOAT, 8, false }, .predict = CODE_PREDICT_XOR, .stride = { 1, 1 } },
		{ .type = { CODE_FLOAT, 8, false }, .predict = CODE_PREDICT_NONE, .stride = { 1 } },
		{ .type = { CODE_FLOAT, 8, false }, .split = NR_CODE_SPLITS },
		{ .type = { CODE_FLOAT, 8, false }, .lead = 8 },
		{ .type = { CODE_BYTES, 1, false }, .lead = 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(code_steps_valid(&bad[i]));
}

static void names_report_the_steps(void **state)
{
	struct coder_spec s = delta_zstd((struct code_type){ CODE_FLOAT, 4, true });

	(void)state;
	s.steps.base = CODE_BASE_SUB;
	s.steps.stride[1] = 64;
	assert_string_equal(code_name(&s).s, "ordered sub-base delta(1,64) zigzag bytes zstd:1");
	assert_string_equal(code_type_name(s.steps.type).s, "F32BE");
	s.steps = (struct code_header){ .type = { CODE_BYTES, 1, false } };
	assert_string_equal(code_name(&s).s, "stored");
	assert_string_equal(code_type_name(s.steps.type).s, "B8");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_bits_come_back_from_every_way, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(exponents_are_smaller_without_matches, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(every_length_comes_back, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(the_longest_block_comes_back, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(a_place_is_within_the_room, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(what_does_not_shrink_is_stored_as_it_is, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(knowledge_pays, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(a_lead_finds_the_elements, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(another_base_is_an_error, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(every_damaged_byte_is_an_error, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(lies_with_a_checksum_are_found_or_harmless, rig_new, work_rig_free),
		cmocka_unit_test(steps_that_do_not_go_together_are_refused),
		cmocka_unit_test(names_report_the_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
