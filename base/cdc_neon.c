/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * cdc_scan_scalar() for 16 positions at once: unaligned loads bring the bytes before them into the same lanes.
 *
 * One block in five has a mark in range, at random, so that branch is mispredicted as often. The next block's marks are
 * computed before it: then its outcome is known by the time it is fetched, and less work is thrown away.
 */
#include "base/cdc_scan.h"

#if defined(__aarch64__)

#include <arm_neon.h>

/* Marks of CDC_BLOCK positions. */
struct block {
	uint8x16_t m[4];
};

/* Marks of the 16 positions from p on; `before` has those a stride earlier. */
static inline uint8x16_t marks(uint8x16_t before, const uint8_t *p)
{
	return vaddq_u8(vaddq_u8(before, before), veorq_u8(vld1q_u8(p), vld1q_u8(p - CDC_LAG)));
}

static inline struct block block_next(const struct block *before, const uint8_t *p)
{
	struct block b;

	b.m[0] = marks(before->m[2], p);
	b.m[1] = marks(before->m[3], p + 16);
	b.m[2] = marks(b.m[0], p + 32);
	b.m[3] = marks(b.m[1], p + 48);
	return b;
}

static inline struct block block_at(const uint8_t *p)
{
	struct block b = { 0 };

	for (const uint8_t *q = p - CDC_WARM_UP; q < p; q += CDC_STRIDE) {
		b.m[2] = marks(b.m[2], q);
		b.m[3] = marks(b.m[3], q + 16);
	}
	return block_next(&b, p);
}

static inline uint8x16_t in_range(uint8x16_t m, int8x16_t above)
{
	return vcgtq_s8(vreinterpretq_s8_u8(m), above);
}

static inline uint8x16_t greater(uint8x16_t a, uint8x16_t b)
{
	return vreinterpretq_u8_s8(vmaxq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
}

static inline bool block_has_mark(const struct block *b, int8x16_t above)
{
	uint8x16_t any = in_range(greater(greater(b->m[0], b->m[1]), greater(b->m[2], b->m[3])), above);

	return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(any), 4)), 0) != 0;
}

/* A bit for each position with a mark in range. */
static inline uint64_t block_marked(const struct block *b, int8x16_t above)
{
	const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
	uint8x16_t lower = vpaddq_u8(vandq_u8(in_range(b->m[0], above), bit), vandq_u8(in_range(b->m[1], above), bit));
	uint8x16_t upper = vpaddq_u8(vandq_u8(in_range(b->m[2], above), bit), vandq_u8(in_range(b->m[3], above), bit));
	uint8x16_t all = vpaddq_u8(lower, upper);

	return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

size_t cdc_scan_neon(const struct cdc *c, const uint8_t *p, size_t end)
{
	const int8x16_t above = vdupq_n_s8(c->mark_above);
	size_t i = c->params.min - 1, cut;
	struct block a, b;
	bool marked;

	if (end < i + CDC_BLOCK)
		return cdc_scan_scalar(c, p, end);
	a = block_at(p + i);
	for (; i + 3 * CDC_BLOCK <= end; i += 2 * CDC_BLOCK) {
		marked = block_has_mark(&a, above);
		b = block_next(&a, p + i + CDC_BLOCK);
		if (marked && (cut = cdc_first_accepted(c, p, i, block_marked(&a, above))) > 0)
			return cut;
		marked = block_has_mark(&b, above);
		a = block_next(&b, p + i + 2 * CDC_BLOCK);
		if (marked && (cut = cdc_first_accepted(c, p, i + CDC_BLOCK, block_marked(&b, above))) > 0)
			return cut;
	}
	for (;;) {
		cut = cdc_first_accepted(c, p, i, block_marked(&a, above));
		i += CDC_BLOCK;
		if (cut > 0 || i == end)
			return cut;
		if (i + CDC_BLOCK <= end) {
			a = block_next(&a, p + i);
		} else { /* the last positions are fewer: again some that were no place to cut */
			i = end - CDC_BLOCK;
			a = block_at(p + i);
		}
	}
}

#endif
