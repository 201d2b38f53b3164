/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The hash of FP_CLMUL: carry-less products, with a provable collision bound.
 *
 * A chunk of `len` bytes, filled up with zeros to whole units of 32 bytes, is cut into blocks of 4 KiB. The 16 bytes
 * that come first in unit i of a block, xored with key bytes of their own, are x(i); the other 16, likewise, y(i);
 * x(0) and, behind the last unit n, y(n + 1) are key bytes alone. Vectors are multiplied half by half, as
 * polynomials over GF(2), and both products, of 128 bits, are added up. A block comes to two sums:
 *
 *	even = x(1) y(1) + x(2) y(2) + ... + x(n) y(n)
 *	odd = x(0) y(1) + x(1) y(2) + ... + x(n) y(n + 1)
 *
 * Those of all blocks, and the length, are the coefficients of a polynomial over GF(2^128), whose value at the
 * secret `point` is the hash: h = len + 1; then for each block h = h * point + even, h = h * point + odd; at last h
 * = h * point.
 *
 * Two chunks that were chosen without the key collide with at most 2^-128 + (2 * blocks + 1) * 2^-120, cut to 120
 * bits: 2^-118 for pages of 4 KiB. If they have the same length, take a half in which a block differs. If some x
 * does, let i be the last of these: y(i) times that difference is in the difference of the even sums, and y(i + 1)
 * times it in that of the odd ones but not in that of the even ones. If only ys differ, let i be the first: then it
 * is x(i) and, in the odd ones alone, x(i - 1). Both are uniform and independent of each other and of the rest, and
 * a product with what is not zero tells its other factor, so both differences are zero with 2^-64 * 2^-64.
 * Otherwise, and if the lengths differ, the polynomials do, and so do their values, in the 120 bits that are kept,
 * but for 2^8 * (their degree) points of 2^128 at most.
 *
 * Only fp.c, the twins, the tests and the benchmark include this.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

#define CLMUL_UNIT 32
#define CLMUL_BLOCK 4096

typedef struct fp fp_clmul_fn(const struct fp_clmul_key *k, const uint8_t *p, size_t len);

/* All give the same; the vectorised ones need a processor that has the instruction. */
fp_clmul_fn fp_clmul_plain;
#if defined(__aarch64__)
fp_clmul_fn fp_clmul_neon;
#elif defined(__x86_64__)
fp_clmul_fn fp_clmul_sse;
#endif

void fp_clmul_key_init(struct fp_clmul_key *k, const uint8_t secret[FP_KEY_LEN]);
/* The fastest that this processor can run. */
fp_clmul_fn *fp_clmul_best(void);
