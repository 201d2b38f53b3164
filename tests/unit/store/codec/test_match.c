/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What repeats within a frame is taken out of it, and put back. */
#include "tests/unit/store/codec/code_rig.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>

#include "base/checksum.h"
#include "store/codec/match_runs.h"
#include "store/codec/matching.h"

#define FRAME (MATCH_PARTS * MATCH_PART)
#define GOLDEN_RUNS TESTS_DIR "/golden/code/runs.txt"
#define GOLDEN_NEAR TESTS_DIR "/golden/code/runs_near.txt"

static const struct code_type f64 = { CODE_FLOAT, 8, false };

struct bench {
	struct code_work *work;
	struct matching matching;
	struct match_out *out;
	uint8_t *frame, *coded, *got, *left;
	uint32_t end[MATCH_PARTS], base[MATCH_PARTS];
};

static void bench_init(struct bench *b, struct code_type type)
{
	*b = (struct bench){ .work = code_work_new(),
			     .out = match_out_new(),
			     .frame = calloc(1, FRAME),
			     .coded = malloc(MATCHING_ROOM),
			     .got = malloc(FRAME),
			     .left = malloc(FRAME) };
	assert_non_null(b->out);
	assert_int_equal(matching_init(&b->matching, b->work, &(struct coding_shape){ .type = type }, 0, NULL), 0);
}

static void bench_release(struct bench *b)
{
	matching_release(&b->matching);
	code_work_free(b->work);
	match_out_free(b->out);
	free(b->frame);
	free(b->coded);
	free(b->got);
	free(b->left);
}

static uint32_t start_of(const struct bench *b, uint32_t part)
{
	return part > 0 ? b->end[part - 1] : 0;
}

/* One part, with the others as they are there; NULL: only what is left of it. */
static int decode_to(struct bench *b, uint32_t part, uint32_t len, uint8_t *const before[], uint8_t *to)
{
	uint32_t n = b->end[part] - start_of(b, part), plain = MIN(MATCH_PART, len - part * MATCH_PART);
	const uint8_t *block = b->coded + start_of(b, part);

	if (n == plain) {
		memcpy(to, block, n);
		return (int)n;
	}
	if (b->base[part] == 0)
		return code_decode(b->work, block, n, NULL, 0, to, plain);
	return before ? match_decode(b->out, b->work, block, n, before, part, to, plain) :
			match_place_left(b->out, b->work, block, n, to, plain);
}

/* With those that `have` says: of these there is what is left, and nothing else. */
static int decode_part(struct bench *b, uint32_t part, uint32_t len, uint32_t have)
{
	uint8_t *before[MATCH_PARTS] = { NULL };

	for (uint32_t i = 0; i < part; i++)
		if (have >> i & 1) {
			before[i] = b->left + i * MATCH_PART;
			memset(before[i], 0x77, MATCH_PART);
			assert_int_equal(decode_to(b, i, len, NULL, before[i]), MATCH_PART);
		}
	return decode_to(b, part, len, before, b->got + part * MATCH_PART);
}

/* All comes back, of each part from those alone that it names. */
static void assert_comes_back(struct bench *b, uint32_t len)
{
	memset(b->got, 0x5a, len);
	for (uint32_t i = 0; i * MATCH_PART < len; i++) {
		uint32_t plain = MIN(MATCH_PART, len - i * MATCH_PART), names = code_place_parts(b->base[i]);

		assert_in_range(b->end[i] - start_of(b, i), 1, plain);
		assert_int_equal(decode_part(b, i, len, names), plain);
		assert_memory_equal(b->got + i * MATCH_PART, b->frame + i * MATCH_PART, plain);
		if (names > 0)
			assert_int_equal(decode_part(b, i, len, names & (names - 1)), -EBADMSG); /* one is not there */
	}
}

static int code(struct bench *b, uint32_t len, uint32_t lead)
{
	uint32_t leads[MATCH_PARTS];

	for (unsigned i = 0; i < MATCH_PARTS; i++)
		leads[i] = lead;
	return matching_frame(&b->matching, b->frame, len, leads, b->coded, b->end, b->base);
}

static uint64_t noise(uint64_t i)
{
	i = (i + 1) * 0x9e3779b97f4a7c15;
	return (i ^ i >> 31) * 0xbf58476d1ce4e5b9;
}

static void every_pattern_comes_back_at_any_place(void **state)
{
	static const uint32_t lens[] = { 8, 9, 4096, MATCH_PART, MATCH_PART + 3, 3 * MATCH_PART - 5, FRAME };
	static const struct code_type types[] = { { CODE_FLOAT, 8, false },
						  { CODE_UINT, 8, true },
						  { CODE_BYTES, 1, false } };
	struct bench b;

	(void)state;
	for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
		bench_init(&b, types[t]);
		for (enum pattern pattern = 0; pattern < NR_PATTERNS; pattern++)
			for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
				fill_pattern(pattern, f64, b.frame, lens[i]);
				/* and each row of 40 once more, behind another */
				for (uint32_t at = 800; at + 320 <= lens[i]; at += 1000)
					memcpy(b.frame + at, b.frame + at - 480, 320);
				for (uint32_t lead = 0; lead < 8; lead += lens[i] == FRAME ? 5 : 1)
					if (code(&b, lens[i], lead) > 0)
						assert_comes_back(&b, lens[i]);
			}
		bench_release(&b);
	}
}

/* Noise, of which rows of 30 elements are again 300 KiB further on, with others between them. */
static void fill_rows(uint8_t *p, uint32_t len, uint32_t lead, uint32_t back)
{
	for (uint32_t i = 0; lead + 8 * i + 8 <= len; i++) {
		uint64_t x = noise(i);

		if (i % 60 < 30 && 8 * i >= back)
			memcpy(&x, p + lead + 8 * i - back, 8);
		memcpy(p + lead + 8 * i, &x, 8);
	}
}

static void rows_far_apart_are_stored_once(void **state)
{
	struct bench b;
	int n;

	(void)state;
	bench_init(&b, f64);
	for (uint32_t lead = 0; lead < 8; lead += 4) {
		fill_rows(b.frame, FRAME, lead, 300 * 1024);
		n = code(&b, FRAME, lead);
		assert_in_range(n, FRAME / 2, FRAME * 67 / 100); /* 0.65 of it are new */
		assert_comes_back(&b, FRAME);
	}
	bench_release(&b);
}

static void put_element(uint8_t *p, uint64_t x, bool big_endian)
{
	x = big_endian ? htobe64(x) : htole64(x);
	memcpy(p, &x, sizeof(x));
}

/* Rows of 64 floats of noise, each in four ways: as it is, mirrored, with other signs, and mirrored with other signs; all
 * but the first with errors of rounding. */
static void fill_mirrored(uint8_t *p, uint32_t len, bool big_endian)
{
	for (uint32_t i = 0; 8 * i + 8 <= len; i++) {
		uint32_t row = i / 256, way = i / 64 % 4, in = way % 2 ? 63 - i % 64 : i % 64;
		uint64_t x = (noise(64 * row + in) & 0x001fffffffffffff) | 0x3fe0000000000000;

		x += way > 0 ? noise(i) % 5 : 0;
		put_element(p + 8 * i, x | (uint64_t)(way / 2) << 63, big_endian);
	}
}

static void mirrored_rows_are_stored_once(void **state)
{
	struct bench b;
	int n;

	(void)state;
	for (unsigned big_endian = 0; big_endian < 2; big_endian++) {
		bench_init(&b, (struct code_type){ CODE_FLOAT, 8, big_endian });
		fill_mirrored(b.frame, FRAME, big_endian);
		n = code(&b, FRAME, 0);
		assert_in_range(n, FRAME * 23 / 100, FRAME * 29 / 100); /* a quarter of it is new, and 3 bits of the rest */
		assert_comes_back(&b, FRAME);
		bench_release(&b);
	}
}

/* Nothing is known of the bytes, but that they are doubles shows. */
static void where_elements_begin_is_found(void **state)
{
	struct bench b;

	(void)state;
	bench_init(&b, (struct code_type){ CODE_BYTES, 1, false });
	for (uint32_t lead = 0; lead < 8; lead++) {
		fill_pattern(SMOOTH, f64, b.frame + lead, MATCH_PART);
		assert_int_equal(match_guess_lead(b.frame, MATCH_PART), lead);
	}
	bench_release(&b);
}

/* All parts have something in common: nevertheless none takes more than a few to be decoded. */
static void decoding_takes_few_parts(void **state)
{
	unsigned most = 0;
	struct bench b;
	int n;

	(void)state;
	bench_init(&b, f64);
	for (uint32_t i = 0; i < FRAME / 8; i++) {
		uint64_t x = noise(i % 7 == 0 ? i : noise(i) % (i % MATCH_ELEMENTS + 1));

		memcpy(b.frame + 8 * i, &x, 8);
	}
	n = code(&b, FRAME, 0);
	assert_true(n > 0);
	assert_comes_back(&b, FRAME);
	for (uint32_t i = 0; i < MATCH_PARTS; i++) {
		assert_true(b.base[i] == 0 || code_place_how(b.base[i]) == CODE_PLACE_MATCHED);
		most = MAX(most, 1 + (unsigned)__builtin_popcount(code_place_parts(b.base[i])));
	}
	assert_int_equal(most, MATCH_DECODED_MAX);
	assert_true(most * MATCH_PART <= 256 * 1024);
	bench_release(&b);
}

/* Made valid again but for what was changed. */
static void seal(uint8_t *block, size_t len)
{
	struct code_header_disk *d = (struct code_header_disk *)block;

	d->crc = le32_put(crc32c_add(crc32c(d, offsetof(struct code_header_disk, crc)), d + 1, len - sizeof(*d)));
}

/* Of a part that names others, with equal runs or with runs of all kinds. */
static void assert_damage_is_found(bool near)
{
	uint32_t part = 5, len = FRAME, refused = 0, n;
	uint8_t *good = malloc(MATCH_PART), *got, *before[MATCH_PARTS] = { NULL }, *block;
	struct bench b;

	bench_init(&b, f64);
	if (near)
		fill_mirrored(b.frame, 4 * MATCH_PART, false);
	else
		fill_rows(b.frame, len, 0, 300 * 1024);
	for (uint32_t i = 0; near && i < 4 * MATCH_PART; i += 8) /* all of it once more, a little different */
		put_element(b.frame + 4 * MATCH_PART + i, le64_get(*(const struct le64 *)(b.frame + i)) + noise(i) % 3,
			    false);
	assert_true(code(&b, len, 0) > 0);
	assert_true(code_place_parts(b.base[part]) > 0);
	block = b.coded + start_of(&b, part);
	n = b.end[part] - start_of(&b, part);
	assert_int_equal(((const struct code_header_disk *)block)->base, CODE_BASE_MATCHED);
	assert_int_equal(((const struct code_header_disk *)block)->flags & CODE_FLAG_NEAR, near ? CODE_FLAG_NEAR : 0);
	memcpy(good, block, n);
	got = b.got + part * MATCH_PART;
	for (uint32_t i = 0; i < part; i++) { /* intact: decoded once, not for each change */
		before[i] = b.left + i * MATCH_PART;
		assert_int_equal(decode_to(&b, i, len, NULL, before[i]), MATCH_PART);
	}
	for (uint32_t i = 4; i < n; i += i < 400 ? 1 : 997)
		for (unsigned bit = 0; bit < 8; bit++) {
			int r;

			block[i] ^= (uint8_t)(1u << bit);
			assert_int_equal(decode_to(&b, part, len, before, got), i == 4 ? -EOPNOTSUPP : -EBADMSG);
			seal(block, n);
			r = decode_to(&b, part, len, before, got);
			if (r == MATCH_PART) /* it said nothing */
				assert_memory_equal(got, b.frame + part * MATCH_PART, MATCH_PART);
			else
				refused++;
			memcpy(block, good, n);
		}
	assert_true(refused > 3000);
	/* it names parts before the first */
	assert_int_equal(match_decode(b.out, b.work, block, n, NULL, 0, b.got, MATCH_PART), -EBADMSG);
	assert_int_equal(code_decode(b.work, block, n, NULL, 0, b.got, MATCH_PART), -EBADMSG);
	assert_int_equal(match_decode(b.out, b.work, block, n, (uint8_t *[MATCH_PARTS]){ NULL }, part, b.got,
				      MATCH_PART - 1),
			 -ENOBUFS);
	free(good);
	bench_release(&b);
}

static void damage_never_comes_back_as_something_else(void **state)
{
	(void)state;
	assert_damage_is_found(false);
	assert_damage_is_found(true);
}

static void what_does_not_pay_is_tried_less_and_less(void **state)
{
	struct bench b;
	unsigned tries = 0;

	(void)state;
	bench_init(&b, f64);
	for (unsigned i = 0; i < 1000; i++)
		if (matching_next(&b.matching) == MATCHING_BOTH) {
			matching_record(&b.matching, FRAME, 900, 890, 1);
			tries++;
		}
	assert_in_range(tries, 8, 12);
	matching_release(&b.matching);
	assert_int_equal(matching_init(&b.matching, b.work, &(struct coding_shape){ .type = f64 }, 2, NULL), 0);
	assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
	matching_record(&b.matching, FRAME, 900, 700, 2 * FRAME - 1);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(matching_next(&b.matching), MATCHING_ONLY);
	assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
	b.matching.rest.choice.trial_ns += FRAME; /* part of the time, with a budget of its own */
	matching_record(&b.matching, FRAME, 900, 700, 3 * FRAME - 1);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(matching_next(&b.matching), MATCHING_ONLY);
	assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
	matching_record(&b.matching, FRAME, 900, 700, 2 * FRAME + 1); /* dearer than the budget */
	assert_int_equal(matching_next(&b.matching), MATCHING_NOT);
	matching_release(&b.matching);
	assert_int_equal(matching_init(&b.matching, b.work, &(struct coding_shape){ .type = { CODE_FLOAT, 4, false } },
				       0, NULL),
			 0);
	assert_int_equal(matching_next(&b.matching), MATCHING_NOT);
	bench_release(&b);
}

/* The end of a file that has no room in a frame with the rest of it. */
static void a_short_frame_decides_nothing(void **state)
{
	struct bench b;

	(void)state;
	bench_init(&b, f64);
	assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
	matching_record(&b.matching, 20000, 18000, 0, 1);
	assert_false(b.matching.pays);
	assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
	matching_record(&b.matching, FRAME, FRAME / 2, FRAME / 3, 1);
	assert_true(b.matching.pays);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(matching_next(&b.matching), MATCHING_ONLY);
	for (unsigned i = 0; i < 13; i++) { /* so many short ones do */
		assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
		matching_record(&b.matching, 20000, 18000, 0, 1);
	}
	assert_false(b.matching.pays);
	assert_int_equal(matching_next(&b.matching), MATCHING_BOTH);
	matching_record(&b.matching, 20000, 18000, 0, 1);
	assert_int_equal(matching_next(&b.matching), MATCHING_NOT);
	bench_release(&b);
}

/* A stored block is read: 1000 bytes behind a part of noise, with rows of that and of its own; `near`: these are mirrored
 * with other signs and the next greater number. WRITE_GOLDEN=1 writes the file. */
static void assert_read(const char *path, bool near)
{
	const uint32_t len = MATCH_PART + 1003;
	struct bench b;
	uint32_t n;
	FILE *f;

	bench_init(&b, f64);
	fill_rows(b.frame, len, 0, UINT32_MAX);
	memcpy(b.frame + MATCH_PART + 3 + 80, b.frame + 4096, 400);
	memcpy(b.frame + MATCH_PART + 3 + 600, b.frame + MATCH_PART + 3 + 40, 120);
	for (uint32_t i = 0; near && i < 50; i++)
		put_element(b.frame + MATCH_PART + 3 + 80 + 8 * i,
			    (le64_get(*(const struct le64 *)(b.frame + 4096 + 8 * (49 - i))) ^ UINT64_C(1) << 63) + i % 2,
			    false);
	if (getenv("WRITE_GOLDEN")) {
		uint32_t leads[] = { 0, 3 }, left, place;
		const uint8_t *rest;
		int r;

		assert_true(match_look(b.matching.match, b.frame, len, leads, false) > 0);
		match_take(b.matching.match, 0, &left);
		rest = match_take(b.matching.match, 1, &left);
		r = coding_block(&b.matching.rest, rest, left, NULL, 0, b.got);
		r = match_encode(b.matching.match, f64, b.got, (uint32_t)r, b.coded, &place);
		assert_true(r > 0 && place == code_place(CODE_PLACE_MATCHED, 1));
		f = fopen(path, "w");
		for (int i = 0; i < r; i++)
			fprintf(f, "%02x%s", b.coded[i], i % 60 == 59 || i + 1 == r ? "\n" : "");
		fclose(f);
	}
	f = fopen(path, "r");
	assert_non_null(f);
	for (n = 0; fscanf(f, "%2hhx", &b.coded[n]) == 1; n++)
		;
	fclose(f);
	assert_in_range(n, 400, 700);
	assert_int_equal(((const struct code_header_disk *)b.coded)->base, CODE_BASE_MATCHED);
	assert_int_equal(((const struct code_header_disk *)b.coded)->flags & CODE_FLAG_NEAR, near ? CODE_FLAG_NEAR : 0);
	assert_int_equal(match_decode(b.out, b.work, b.coded, n, (uint8_t *[]){ b.frame }, 1, b.got, 1003), 1003);
	assert_memory_equal(b.got, b.frame + MATCH_PART, 1003);
	bench_release(&b);
}

static void blocks_of_version_1_are_read(void **state)
{
	(void)state;
	assert_read(GOLDEN_RUNS, false);
	assert_read(GOLDEN_NEAR, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pattern_comes_back_at_any_place),
		cmocka_unit_test(rows_far_apart_are_stored_once),
		cmocka_unit_test(mirrored_rows_are_stored_once),
		cmocka_unit_test(where_elements_begin_is_found),
		cmocka_unit_test(decoding_takes_few_parts),
		cmocka_unit_test(damage_never_comes_back_as_something_else),
		cmocka_unit_test(what_does_not_pay_is_tried_less_and_less),
		cmocka_unit_test(a_short_frame_decides_nothing),
		cmocka_unit_test(blocks_of_version_1_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
