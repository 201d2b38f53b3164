/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as a block with runs that other parts have: decoded or refused, and nothing beside what is there is read or
 * written. Checksums are made to hold, and one time the block of what is left is a good one, so that the runs are
 * reached. And any bytes, as a frame, come back.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/codec/match_runs.h"
#include "store/codec/matching.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static struct code_work *work;
static struct match_out *out;
static struct matching matching;

#define NR_BEFORE 3u

/* A block of its own size, so that a byte too far shows. The first part is there, the second not, the third again. */
static void decode(const uint8_t *block, size_t len, uint32_t room)
{
	uint8_t *part = malloc(2 * MATCH_PART), *plain = malloc(room),
		*before[NR_BEFORE] = { part, NULL, part + MATCH_PART };

	memset(part, 0x33, 2 * MATCH_PART);
	(void)match_decode(out, work, block, len, before, NR_BEFORE, plain, room);
	free(part);
	free(plain);
}

static void seal(uint8_t *block, size_t len)
{
	struct code_header_disk *d = (struct code_header_disk *)block;

	memcpy(d->magic, CODE_MAGIC, sizeof(d->magic));
	d->stored_len = le32_put((uint32_t)(len - sizeof(*d)));
	d->crc = le32_put(crc32c_add(crc32c(d, offsetof(struct code_header_disk, crc)), d + 1, len - sizeof(*d)));
}

static void decode_any(const uint8_t *p, size_t len)
{
	uint8_t *block = malloc(len);

	memcpy(block, p, len);
	((struct code_header_disk *)block)->version = CODE_VERSION;
	((struct code_header_disk *)block)->base = CODE_BASE_MATCHED;
	((struct code_header_disk *)block)->flags |= CODE_FLAG_PLACED;
	seal(block, len);
	decode(block, len, 4096);
	free(block);
}

/* The streams as they are, and behind them what is left as it is. */
static void decode_runs(const uint8_t *p, size_t len)
{
	uint32_t plain_len = 1 + (p[0] | (uint32_t)p[1] << 8) % 4096, lead = p[2] % 8, left = p[3] * 8u;
	struct code_header h = { .type = { CODE_FLOAT, 8, false },
				 .base = CODE_BASE_MATCHED,
				 .entropy = CODE_ENTROPY_ZSTD,
				 .plain_len = plain_len };
	struct code_header rest = { .type = { CODE_BYTES, 1, false } };
	struct code_header_disk *inner;
	uint8_t *block, *at;
	struct match_disk *d;
	unsigned nr;
	size_t all;

	h.lead = MIN(lead, plain_len);
	h.near = p[4] & 16;
	h.base_place = code_place(CODE_PLACE_MATCHED, p[4] % 8);
	nr = match_nr_streams(h.near);
	p += 5;
	len -= 5;
	left = (uint32_t)MIN((size_t)left, len);
	len -= left;
	rest.plain_len = rest.stored_len = left;
	all = sizeof(struct code_header_disk) + match_disk_len(h.near) + len + sizeof(*inner) + left;
	block = malloc(all);
	d = (struct match_disk *)(block + sizeof(struct code_header_disk));
	d->place = le32_put(h.base_place);
	at = (uint8_t *)d + match_disk_len(h.near);
	memcpy(at, p + left, len);
	for (unsigned i = 0; i < nr; i++) {
		uint32_t n = (uint32_t)(i + 1 < nr ? len / nr : len - (nr - 1) * (len / nr));

		d->stream[i].plain_len = le32_put(n);
		d->stream[i].word = le32_put(n);
	}
	inner = (struct code_header_disk *)(at + len);
	memcpy(inner + 1, p, left);
	code_header_encode(&rest, inner + 1, inner);
	h.stored_len = (uint32_t)(all - sizeof(struct code_header_disk));
	code_header_encode(&h, d, (struct code_header_disk *)block);
	decode(block, all, plain_len);
	free(block);
}

static void comes_back(const uint8_t *p, size_t len)
{
	uint32_t leads[MATCH_PARTS] = { len % 8, len / 8 % 8 }, end[MATCH_PARTS], base[MATCH_PARTS], n = (uint32_t)len;
	uint8_t *coded = malloc(MATCHING_ROOM), *got = malloc(len), *before[MATCH_PARTS];

	if (matching_frame(&matching, p, n, leads, coded, end, base) > 0)
		for (uint32_t i = 0; i * MATCH_PART < n; i++) {
			uint32_t start = i > 0 ? end[i - 1] : 0, plain = MIN(MATCH_PART, n - i * MATCH_PART);

			before[i] = got + i * MATCH_PART;
			if (end[i] - start == plain)
				memcpy(before[i], coded + start, plain);
			else if (base[i] > 0)
				assert(match_decode(out, work, coded + start, end[i] - start, before, i, before[i],
						    plain) == (int)plain);
			else
				assert(code_decode(work, coded + start, end[i] - start, NULL, 0, before[i], plain) ==
				       (int)plain);
			assert(memcmp(before[i], p + i * MATCH_PART, plain) == 0);
		}
	free(coded);
	free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	if (!work) {
		work = code_work_new();
		out = match_out_new();
		assert(matching_init(&matching, work, &(struct coding_shape){ .type = { CODE_FLOAT, 8, false } }, 0,
				     NULL) == 0);
	}
	if (len < sizeof(struct code_header_disk) || len > 4 * MATCH_PART)
		return 0;
	decode_any(p, len);
	decode_runs(p, MIN(len, (size_t)30000));
	comes_back(p, len);
	return 0;
}
