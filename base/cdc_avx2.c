/* SPDX-License-Identifier: GPL-3.0-or-later */
/* cdc_scan_scalar() for 32 positions at once: unaligned loads bring the bytes before them into the same lanes. */
#include "base/cdc_scan.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* Marks of CDC_BLOCK positions. */
struct block {
	__m256i m[2];
};

AVX2 static inline __m256i load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

/* Marks of the 32 positions from p on; `before` has those a stride earlier. */
AVX2 static inline __m256i marks(__m256i before, const uint8_t *p)
{
	return _mm256_add_epi8(_mm256_add_epi8(before, before), _mm256_xor_si256(load(p), load(p - CDC_LAG)));
}

AVX2 static inline struct block block_next(const struct block *before, const uint8_t *p)
{
	struct block b;

	b.m[0] = marks(before->m[1], p);
	b.m[1] = marks(b.m[0], p + 32);
	return b;
}

AVX2 static inline struct block block_at(const uint8_t *p)
{
	struct block b = { .m[1] = _mm256_setzero_si256() };

	for (const uint8_t *q = p - CDC_WARM_UP; q < p; q += CDC_STRIDE)
		b.m[1] = marks(b.m[1], q);
	return block_next(&b, p);
}

/* A bit for each position with a mark in range. */
AVX2 static inline uint64_t block_marked(const struct block *b, __m256i above)
{
	uint32_t lower = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(b->m[0], above));
	uint32_t upper = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(b->m[1], above));

	return (uint64_t)upper << 32 | lower;
}

AVX2 size_t cdc_scan_avx2(const struct cdc *c, const uint8_t *p, size_t end)
{
	const __m256i above = _mm256_set1_epi8(c->mark_above);
	size_t i = c->params.min - 1, cut;
	struct block b;

	if (end < i + CDC_BLOCK)
		return cdc_scan_scalar(c, p, end);
	b = block_at(p + i);
	for (;;) {
		cut = cdc_first_accepted(c, p, i, block_marked(&b, above));
		i += CDC_BLOCK;
		if (cut > 0 || i == end)
			return cut;
		if (i + CDC_BLOCK <= end) {
			b = block_next(&b, p + i);
		} else { /* the last positions are fewer: again some that were no place to cut */
			i = end - CDC_BLOCK;
			b = block_at(p + i);
		}
	}
}

#endif
