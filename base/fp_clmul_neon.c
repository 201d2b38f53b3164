/* SPDX-License-Identifier: GPL-3.0-or-later */
/* fp_clmul_plain() with an instruction per product. Compiled for processors that have it; fp_clmul_best() asks. */
#if defined(__aarch64__)

#include <arm_neon.h>

typedef uint64x2_t v128;

static inline v128 mul_lo(v128 a, v128 b)
{
	return vreinterpretq_u64_p128(vmull_p64((poly64_t)a[0], (poly64_t)b[0]));
}

static inline v128 mul_hi(v128 a, v128 b)
{
	return vreinterpretq_u64_p128(vmull_high_p64(vreinterpretq_p64_u64(a), vreinterpretq_p64_u64(b)));
}

#include "base/fp_clmul_twin.h"

struct fp fp_clmul_neon(const struct fp_clmul_key *k, const uint8_t *p, size_t len)
{
	return hash(k, p, len);
}

#endif
