/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How fast the steps of coding are and what they bring, in memory, on one core: MB/s of plain bytes to blocks and back,
 * and the ratio, for each way on data of each type.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "median.h"
#include "store/codec/code.h"

#define ROUNDS 7
#define NX 256
#define NY 128 /* of doubles: one block */

struct way {
	const char *data;
	struct coder_spec spec;
};

#define STEPS(...)                                   \
	{                                            \
		.steps = { __VA_ARGS__ }, .level = 1 \
	}
#define F64 .type = { CODE_FLOAT, 8, false }
#define F32 .type = { CODE_FLOAT, 4, false }
#define BF16 .type = { CODE_BFLOAT, 2, false }
#define I64 .type = { CODE_INT, 8, false }
#define BYTES_ZSTD .split = CODE_SPLIT_BYTES, .entropy = CODE_ENTROPY_ZSTD

static const struct way ways[] = {
	{ "f64", STEPS(.type = { CODE_BYTES, 1, false }, .entropy = CODE_ENTROPY_ZSTD) },
	{ "f64", STEPS(F64, .split = CODE_SPLIT_BYTES) },
	{ "f64", STEPS(F64, .split = CODE_SPLIT_BITS) },
	{ "f64", STEPS(F64, BYTES_ZSTD) },
	{ "f64", STEPS(F64, .split = CODE_SPLIT_BYTES, .entropy = CODE_ENTROPY_LZ4) },
	{ "f64", STEPS(F64, .split = CODE_SPLIT_BITS, .entropy = CODE_ENTROPY_ZSTD) },
	{ "f64", STEPS(F64, .map = CODE_MAP_ROTATED, BYTES_ZSTD) },
	{ "f64", STEPS(F64, .predict = CODE_PREDICT_XOR, .stride = { 1 }, BYTES_ZSTD) },
	{ "f64", STEPS(F64, .map = CODE_MAP_ORDERED, .predict = CODE_PREDICT_DELTA, .stride = { 1 }, .zigzag = true,
		       BYTES_ZSTD) },
	{ "f64", STEPS(F64, .map = CODE_MAP_ORDERED, .predict = CODE_PREDICT_DELTA, .stride = { 1, NX }, .zigzag = true,
		       BYTES_ZSTD) },
	{ "f64", STEPS(F64, .predict = CODE_PREDICT_FPC, BYTES_ZSTD) },
	{ "f64", STEPS(F64, .base = CODE_BASE_XOR, BYTES_ZSTD) },
	{ "f64", STEPS(F64, .map = CODE_MAP_ORDERED, .base = CODE_BASE_SUB, .zigzag = true, BYTES_ZSTD) },
	{ "f64", STEPS(F64, .map = CODE_MAP_ORDERED, .base = CODE_BASE_SUB, .predict = CODE_PREDICT_DELTA,
		       .stride = { 1 }, .zigzag = true, BYTES_ZSTD) },
	{ "f32", STEPS(.type = { CODE_BYTES, 1, false }, .entropy = CODE_ENTROPY_ZSTD) },
	{ "f32", STEPS(F32, BYTES_ZSTD) },
	{ "f32", STEPS(F32, .map = CODE_MAP_ORDERED, .predict = CODE_PREDICT_DELTA, .stride = { 1, NX }, .zigzag = true,
		       BYTES_ZSTD) },
	{ "bf16", STEPS(.type = { CODE_BYTES, 1, false }, .entropy = CODE_ENTROPY_ZSTD) },
	{ "bf16", STEPS(BF16, BYTES_ZSTD) },
	{ "bf16", STEPS(BF16, .map = CODE_MAP_ROTATED, BYTES_ZSTD) },
	{ "i64", STEPS(.type = { CODE_BYTES, 1, false }, .entropy = CODE_ENTROPY_ZSTD) },
	{ "i64", STEPS(I64, .predict = CODE_PREDICT_DELTA, .stride = { 1 }, .zigzag = true, BYTES_ZSTD) },
};

static double gauss(void)
{
	double x = 0;

	for (int i = 0; i < 12; i++)
		x += (double)rand() / RAND_MAX;
	return x - 6;
}

/* A field that moves a little from step to step, with some noise; weights; indices. */
static void fill(const char *data, double step, uint8_t *p)
{
	for (size_t i = 0; i < (size_t)NX * NY; i++) {
		double x = (double)(i % NX) / 40, y = (double)(i / NX) / 30;
		double field = 300 + 20 * sin(x + step) * cos(y - step) + 1e-7 * gauss();
		float narrow = (float)field, weight = (float)(0.02 * gauss());
		uint64_t index = i * 8 + (uint64_t)rand() % 8;

		if (strcmp(data, "f64") == 0)
			memcpy(p + 8 * i, &field, 8);
		else if (strcmp(data, "f32") == 0)
			memcpy(p + 4 * i, &narrow, 4);
		else if (strcmp(data, "bf16") == 0)
			memcpy(p + 2 * i, (uint8_t *)&weight + 2, 2);
		else
			memcpy(p + 8 * i, &index, 8);
	}
}

static double rate(size_t len, double *ns)
{
	return (double)len * 1e3 / median(ns, ROUNDS);
}

int main(void)
{
	struct code_work *work = code_work_new();
	uint8_t *plain = malloc(CODE_PLAIN_MAX), *base = malloc(CODE_PLAIN_MAX), *got = malloc(CODE_PLAIN_MAX);
	uint8_t *block = malloc(CODE_BLOCK_MAX(CODE_PLAIN_MAX));

	if (!work || !plain || !base || !got || !block)
		return 1;
	printf("%-5s %-44s %7s %9s %9s\n", "data", "steps", "ratio", "in MB/s", "out MB/s");
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		size_t len = (size_t)NX * NY * (ways[i].data[0] == 'b' ? 2 : ways[i].data[1] == '3' ? 4 : 8);
		double in[ROUNDS], out[ROUNDS];
		int n = 0;

		fill(ways[i].data, 0, base);
		fill(ways[i].data, 0.001, plain);
		for (int round = 0; round < ROUNDS; round++) {
			uint64_t from = monotonic_ns(), middle;

			for (int k = 0; k < 8; k++)
				n = code_encode(work, &ways[i].spec, plain, len, base, len, block);
			middle = monotonic_ns();
			for (int k = 0; k < 8; k++)
				if (n < 0 || code_decode(work, block, (size_t)n, base, len, got, len) != (int)len)
					return 1;
			in[round] = (double)(middle - from) / 8;
			out[round] = (double)(monotonic_ns() - middle) / 8;
		}
		if (memcmp(got, plain, len) != 0)
			return 1;
		printf("%-5s %-44s %7.3f %9.0f %9.0f\n", ways[i].data, code_name(&ways[i].spec).s, (double)len / n,
		       rate(len, in), rate(len, out));
	}
	code_work_free(work);
	free(plain);
	free(base);
	free(got);
	free(block);
	return 0;
}
