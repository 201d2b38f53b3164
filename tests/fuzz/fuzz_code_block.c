/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as a coded block: decoded or refused, and nothing beside it is read or written. As checksums would end most
 * tries at once, they are made to hold. And any bytes come back from the way of coding that the first of them say.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/codec/code.h"
#include "store/codec/code_columns.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static struct code_work *work;

static void decode(const uint8_t *p, size_t len)
{
	const size_t head = offsetof(struct code_header_disk, crc);
	struct code_header_disk *d;
	uint8_t *block = malloc(len), *plain = malloc(4096);
	uint32_t crc;

	memcpy(block, p, len);
	d = (struct code_header_disk *)block;
	d->stored_len = le32_put((uint32_t)(len - sizeof(*d)));
	memcpy(d->magic, CODE_MAGIC, 4);
	if (d->flags & CODE_FLAG_PLACED && len >= sizeof(*d) + 4 && (p[len - 1] & 1)) /* one that can be */
		block[sizeof(*d) + 3] = (uint8_t)(CODE_PLACE_SAME + p[len - 1] / 2 % (NR_CODE_PLACES - 1)) << 4;
	d->base_crc = le32_put(d->base ? crc32c(p, MIN(len, (size_t)le32_get(d->plain_len))) : 0);
	crc = crc32c_add(crc32c(block, head), block + sizeof(*d), len - sizeof(*d));
	d->crc = le32_put(crc);
	(void)code_decode(work, block, len, p, len, plain, 4096);
	(void)code_decode_by_levels(work, block, len, block, len, plain, 4096);
	(void)code_decode_by_levels(work, block, len, p, len, plain, 4096);
	assert(code_levels_end(p, len) <= len);
	free(block);
	free(plain);
}

/* The first bytes against the levels of the others, of which no more is there. */
static void encode_by_levels(const struct coder_spec *alone, const uint8_t *p, size_t len)
{
	size_t half = len / 2, levels;
	uint8_t *base = malloc(CODE_BLOCK_MAX(half)), *block = malloc(CODE_BLOCK_MAX(half)), *got = malloc(half), *first;
	struct coder_spec spec = *alone;
	int n;

	spec.steps.base = CODE_BASE_NONE;
	spec.steps.base_place = 0;
	n = code_encode(work, &spec, p + len - half, half, NULL, 0, base);
	levels = code_levels_end(base, (size_t)n);
	if (levels > 0 && levels < 65281) {
		first = malloc(levels);
		memcpy(first, base, levels);
		spec.steps.base = CODE_BASE_SUB;
		spec.steps.base_place = code_place_levels(0, (uint32_t)levels);
		n = code_encode(work, &spec, p, half, p + len - half, half, block);
		if (((const struct code_header_disk *)block)->split == CODE_SPLIT_LEVELS)
			assert(code_decode_by_levels(work, block, (size_t)n, first, levels, got, half) == (int)half &&
			       memcmp(got, p, half) == 0);
		free(first);
	}
	free(base);
	free(block);
	free(got);
}

static void encode(const uint8_t *p, size_t len)
{
	struct coder_spec spec = { .level = 1 };
	uint8_t *block, *got;
	int n;

	spec.steps = (struct code_header){ .map = p[1] % NR_CODE_MAPS,
					   .base = p[2] % NR_CODE_BASES,
					   .predict = p[3] % NR_CODE_PREDICTS,
					   .zigzag = p[4] % 2,
					   .split = p[5] % NR_CODE_SPLITS,
					   .entropy = p[6] % NR_CODE_ENTROPIES,
					   .stride = { p[7], p[8], p[9] } };
	if (spec.steps.split == CODE_SPLIT_LEVELS) /* bits that can be */
		spec.steps.stride[0] = CODE_LEVEL_BITS_MIN + p[7] % 6;
	if (spec.steps.split == CODE_SPLIT_COLUMNS)
		spec.steps.stride[1] = spec.steps.stride[2] = 0;
	if (code_type_decode(p[0], &spec.steps.type) < 0)
		return;
	spec.steps.lead = (p[4] >> 1) % spec.steps.type.width;
	assert(code_columns_find_record(p, len) <= CODE_RECORD_MAX);
	spec.steps.base_place = p[4] & 64 ? code_place(CODE_PLACE_SAME, p[9]) : 0;
	if (!code_steps_valid(&spec.steps))
		return;
	if (spec.steps.split == CODE_SPLIT_LEVELS)
		encode_by_levels(&spec, p, len);
	block = malloc(CODE_BLOCK_MAX(len));
	got = malloc(len);
	n = code_encode(work, &spec, p, len, p + 10, len - 10, block);
	assert(n > 0 && (size_t)n <= CODE_BLOCK_MAX(len));
	assert(code_decode(work, block, (size_t)n, p + 10, len - 10, got, len) == (int)len && memcmp(got, p, len) == 0);
	free(block);
	free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	if (!work)
		work = code_work_new();
	if (len < sizeof(struct code_header_disk) || len > CODE_PLAIN_MAX)
		return 0;
	decode(p, len);
	encode(p, len);
	return 0;
}
