/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32C of bytes that many threads write, each some words anywhere: what a word adds depends on itself and on how
 * many bytes come behind it, and what they all add is combined by exclusive or. For the host and for devices.
 *
 * Bits are the coefficients of a polynomial, the highest bit that of x^0; bytes behind multiply by x^8 each. struct
 * crc_powers has x^(8 n) for all n below 256, and times 256, times 256^2 and so on.
 */
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define CRC_FN static __host__ __device__ __forceinline__
#else
#define CRC_FN static inline
#endif

#define CRC_POLYNOMIAL UINT32_C(0x82f63b78)
#define CRC_ONE (UINT32_C(1) << 31)
#define CRC_LEVELS 5 /* bytes of a length */

struct crc_powers {
	uint32_t of[CRC_LEVELS][256];
};

/* Times x^n, for n up to 4: the polynomial's last bits are 0, so what falls out does not depend on what fell out
 * before. */
#define CRC_STEP 4
CRC_FN uint32_t crc_shift(uint32_t a, int n)
{
	uint32_t ret = a >> n;

#if defined(__CUDACC__)
#pragma unroll
#endif
	for (int i = 0; i < n; i++)
		ret ^= CRC_POLYNOMIAL >> (n - 1 - i) & -(a >> i & 1);
	return ret;
}

CRC_FN uint32_t crc_times(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

#if defined(__CUDACC__)
#pragma unroll
#endif
	for (int i = 0; i < 32; i += CRC_STEP) {
		for (int k = 0; k < CRC_STEP; k++)
			product ^= crc_shift(b, k) & -(a >> (31 - k) & 1);
		a <<= CRC_STEP;
		b = crc_shift(b, CRC_STEP);
	}
	return product;
}

CRC_FN void crc_powers_init(struct crc_powers *p)
{
	uint32_t base = CRC_ONE >> 8; /* x^8 */

	for (int level = 0; level < CRC_LEVELS; level++) {
		p->of[level][0] = CRC_ONE;
		for (int i = 1; i < 256; i++)
			p->of[level][i] = crc_times(p->of[level][i - 1], base);
		base = crc_times(p->of[level][255], base);
	}
}

/* With so many bytes behind. */
CRC_FN uint32_t crc_behind(const struct crc_powers *p, uint32_t crc, uint64_t behind)
{
	for (int level = 0; level < CRC_LEVELS && behind > 0; level++, behind >>= 8)
		if (behind & 0xff)
			crc = crc_times(crc, p->of[level][behind & 0xff]);
	return crc;
}

/* What a word, or the first bytes of the last one, adds at `off` of `len` bytes. */
CRC_FN uint32_t crc_word(const struct crc_powers *p, uint32_t word, uint64_t off, uint64_t len)
{
	uint64_t bytes = len - off < 4 ? len - off : 4;

	for (uint64_t i = 0; i < 8 * bytes; i += CRC_STEP)
		word = crc_shift(word, CRC_STEP);
	return crc_behind(p, word, len - off - bytes);
}

/* The CRC of `len` bytes, of what their words add. */
CRC_FN uint32_t crc_finish(const struct crc_powers *p, uint32_t added, uint64_t len)
{
	return ~(added ^ crc_behind(p, UINT32_MAX, len));
}
