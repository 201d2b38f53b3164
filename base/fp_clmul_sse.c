/* SPDX-License-Identifier: GPL-3.0-or-later */
/* fp_clmul_plain() with an instruction per product. Compiled for processors that have it; fp_clmul_best() asks. */
#if defined(__x86_64__)

#include <stdint.h>
#include <wmmintrin.h>

typedef uint64_t v128 __attribute__((vector_size(16)));

static inline v128 mul_lo(v128 a, v128 b)
{
	return (v128)_mm_clmulepi64_si128((__m128i)a, (__m128i)b, 0x00);
}

static inline v128 mul_hi(v128 a, v128 b)
{
	return (v128)_mm_clmulepi64_si128((__m128i)a, (__m128i)b, 0x11);
}

#include "base/fp_clmul_twin.h"

struct fp fp_clmul_sse(const struct fp_clmul_key *k, const uint8_t *p, size_t len)
{
	return hash(k, p, len);
}

#endif
