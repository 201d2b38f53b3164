/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bytes of coded blocks. Each line of the file: the steps, and the block in hexadecimal. All are of the same 253
 * bytes, with the same 240 of a base. What zstd and lz4 write may differ from version to version of theirs, so only
 * blocks without them are compared when writing. WRITE_GOLDEN=1 writes the file.
 */
#include "tests/unit/store/codec/code_rig.h"

#include <stdio.h>

#define GOLDEN TESTS_DIR "/golden/code/v1.txt"
#define LEN 253
#define BASE_LEN 240

static const struct coder_spec specs[] = {
	{ .steps = { .type = { CODE_BYTES, 1, false } } },
	{ .steps = { .type = { CODE_UINT, 2, false }, .split = CODE_SPLIT_BYTES, .entropy = CODE_ENTROPY_LZ4 } },
	{ .steps = { .type = { CODE_INT, 4, true },
		     .predict = CODE_PREDICT_DELTA,
		     .stride = { 1 },
		     .zigzag = true,
		     .split = CODE_SPLIT_BYTES } },
	{ .steps = { .type = { CODE_BFLOAT, 2, false },
		     .map = CODE_MAP_ROTATED,
		     .split = CODE_SPLIT_BITS,
		     .entropy = CODE_ENTROPY_LZ4 } },
	{ .steps = { .type = { CODE_FLOAT, 4, false },
		     .map = CODE_MAP_ORDERED,
		     .predict = CODE_PREDICT_DELTA,
		     .stride = { 1, 4, 8 },
		     .zigzag = true,
		     .split = CODE_SPLIT_BYTES,
		     .entropy = CODE_ENTROPY_ZSTD },
	  .level = 1 },
	{ .steps = { .type = { CODE_FLOAT, 8, false }, .predict = CODE_PREDICT_FPC, .split = CODE_SPLIT_BYTES } },
	{ .steps = { .type = { CODE_FLOAT, 8, true },
		     .base = CODE_BASE_XOR,
		     .predict = CODE_PREDICT_XOR,
		     .stride = { 2 },
		     .split = CODE_SPLIT_BYTES } },
	{ .steps = { .type = { CODE_FLOAT, 4, false },
		     .map = CODE_MAP_ORDERED,
		     .base = CODE_BASE_SUB,
		     .zigzag = true,
		     .split = CODE_SPLIT_BITS,
		     .entropy = CODE_ENTROPY_LZ4 } },
	{ .steps = { .type = { CODE_INT, 4, false },
		     .predict = CODE_PREDICT_DELTA,
		     .stride = { 1 },
		     .zigzag = true,
		     .split = CODE_SPLIT_BYTES,
		     .lead = 3 } },
	{ .steps = { .type = { CODE_INT, 4, false },
		     .base = CODE_BASE_XOR,
		     .split = CODE_SPLIT_BYTES,
		     .lead = 1,
		     .base_place = CODE_PLACE_SAME << CODE_PLACE_SHIFT | 0x12345 } },
	{ .steps = { .type = { CODE_FLOAT, 4, false },
		     .map = CODE_MAP_ROTATED,
		     .split = CODE_SPLIT_LEVELS,
		     .stride = { 11 },
		     .lead = 1 } },
	{ .steps = { .type = { CODE_FLOAT, 4, false },
		     .map = CODE_MAP_ROTATED,
		     .base = CODE_BASE_SUB,
		     .split = CODE_SPLIT_LEVELS,
		     .stride = { 12 },
		     .base_place = 0x90100000 } },
	{ .steps = { .type = { CODE_BYTES, 1, false }, .split = CODE_SPLIT_COLUMNS, .stride = { 4 } } },
	{ .steps = { .type = { CODE_BYTES, 1, false },
		     .base = CODE_BASE_SUB,
		     .split = CODE_SPLIT_COLUMNS,
		     .stride = { 8 },
		     .base_place = CODE_PLACE_SAME << CODE_PLACE_SHIFT | 0x10000 } },
};

/* Slow enough to shrink in every way: elements of 4 bytes that change in the lowest one. */
static void make(uint8_t plain[LEN], uint8_t base[BASE_LEN])
{
	for (size_t i = 0; i < LEN; i++)
		plain[i] = (uint8_t)(i % 4 == 0 ? i / 8 : i % 4 == 3 ? 0x40 : 0);
	memcpy(base, plain, BASE_LEN);
	base[40] ^= 3;
}

static void blocks_of_version_1_are_written_and_read(void **state)
{
	struct code_work *work = code_work_new();
	uint8_t plain[LEN], base[BASE_LEN], block[CODE_BLOCK_MAX(LEN)], again[CODE_BLOCK_MAX(LEN)], got[LEN];
	bool write = getenv("WRITE_GOLDEN") != NULL;
	FILE *f = fopen(GOLDEN, write ? "w" : "r");

	(void)state;
	assert_non_null(f);
	make(plain, base);
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		int n = code_encode(work, &specs[i], plain, LEN, base, BASE_LEN, again);
		char name[100], hex[600];
		size_t len;

		assert_in_range(n, 1, sizeof(again));
		assert_true(i == 0 || n < (int)CODE_BLOCK_MAX(LEN)); /* or it were stored, and showed nothing */
		if (write) {
			fprintf(f, "%s %s", code_type_name(specs[i].steps.type).s, code_name(&specs[i]).s);
			for (int k = 0; k < n; k++)
				fprintf(f, "%s%02x", k ? "" : "\t", again[k]);
			fputc('\n', f);
			continue;
		}
		assert_int_equal(fscanf(f, "%99[^\t]\t%599s\n", name, hex), 2);
		len = strlen(hex) / 2;
		for (size_t k = 0; k < len; k++)
			assert_int_equal(sscanf(hex + 2 * k, "%2hhx", &block[k]), 1);
		assert_int_equal(code_decode(work, block, len, base, BASE_LEN, got, LEN), LEN);
		assert_memory_equal(got, plain, LEN);
		if (specs[i].steps.entropy == CODE_ENTROPY_NONE) {
			assert_int_equal(n, len);
			assert_memory_equal(again, block, len);
		}
	}
	fclose(f);
	code_work_free(work);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(blocks_of_version_1_are_written_and_read) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
