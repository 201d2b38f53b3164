/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Shared by the variants of the scan; cdc.c has the scalar one and explains the idea. Only they, the tests and the
 * benchmark include this.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "base/cdc.h"

/* mark(i) = 2 mark(i - CDC_STRIDE) + (p[i] ^ p[i - CDC_LAG]), modulo 256. */
#define CDC_STRIDE 32
#define CDC_LAG 3
/* Bytes further back have no influence on a mark: scanning starts this far before a position. */
#define CDC_WARM_UP (7 * CDC_STRIDE)
#define CDC_BLOCK 64 /* positions between two tests of the result */
#define CDC_HASHED 32 /* bytes before a cut that the second function hashes */

/* Length of the first chunk if it is at most `end`, else 0. min <= end <= max. */
size_t cdc_scan_scalar(const struct cdc *c, const uint8_t *p, size_t end);
#if defined(__aarch64__)
size_t cdc_scan_neon(const struct cdc *c, const uint8_t *p, size_t end);
#elif defined(__x86_64__)
size_t cdc_scan_avx2(const struct cdc *c, const uint8_t *p, size_t end);
#endif

/* Eight bytes, the first lowest. Not le64_get(): gcc 12 makes eight loads of it. */
static inline uint64_t cdc_word(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

/* The second function: whether to cut behind position i, which has a mark in range. Constants: digits of pi. */
static inline bool cdc_accepts(const struct cdc *c, const uint8_t *p, size_t i)
{
	const uint8_t *w = p + i + 1 - CDC_HASHED;
	uint64_t a = cdc_word(w) ^ cdc_word(w + 8) << 29 ^ cdc_word(w + 8) >> 35 ^ 0x243f6a8885a308d3;
	uint64_t b = cdc_word(w + 16) ^ cdc_word(w + 24) << 29 ^ cdc_word(w + 24) >> 35 ^ 0x13198a2e03707344;
	unsigned __int128 m = (unsigned __int128)a * b;
	uint32_t hash = (uint32_t)(((uint64_t)m ^ (uint64_t)(m >> 64)) >> 32);

	if (i + 1 < c->easy_from)
		return hash < c->hard_below;
	return hash < c->easy_below || i + 1 >= c->any_from;
}

/* Of the positions from i on those with a bit in `marked` have a mark in range. As cdc_scan_scalar(). */
static inline size_t cdc_first_accepted(const struct cdc *c, const uint8_t *p, size_t i, uint64_t marked)
{
	for (; marked; marked &= marked - 1) {
		size_t at = i + (size_t)__builtin_ctzll(marked);

		if (cdc_accepts(c, p, at))
			return at + 1;
	}
	return 0;
}
