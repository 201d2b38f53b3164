/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * XXH3-128 for the few lengths that deltas hash on a device, in plain C that compiles for the host, too: multiples of 16
 * from 32 to 128 bytes (one pair of products per 32 bytes); and the parts of it for 256 and 512 bytes, which lanes of a
 * warp compute together (device.cuh). On the host libxxhash computes the same with vector instructions (leaf_hash.c);
 * tests compare the two.
 *
 * Input and key are 64-bit words of this machine, as a little-endian one reads them from bytes: on a device they are in
 * registers or in constant memory when they come here. A few parts of the secret are read at odd places, which struct
 * xxh3_key has ready as words.
 */
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define XXH3_FN static __host__ __device__ __forceinline__
#else
#define XXH3_FN static inline
#endif

#define XXH3_SECRET_LEN 192 /* XXH3 takes others; with this one a block is 16 stripes */
#define XXH3_STRIPE 8 /* words: one for each accumulator */

#define XXH3_P32_1 UINT64_C(0x9e3779b1)
#define XXH3_P32_2 UINT64_C(0x85ebca77)
#define XXH3_P32_3 UINT64_C(0xc2b2ae3d)
#define XXH3_P64_1 UINT64_C(0x9e3779b185ebca87)
#define XXH3_P64_2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define XXH3_P64_3 UINT64_C(0x165667b19e3779f9)
#define XXH3_P64_4 UINT64_C(0x85ebca77c2b2ae63)
#define XXH3_P64_5 UINT64_C(0x27d4eb2f165667c5)
#define XXH3_MIX UINT64_C(0x165667919e3779f9)

struct digest {
	uint64_t lo, hi;
};

struct xxh3_key {
	uint64_t word[XXH3_SECRET_LEN / 8]; /* stripe s of a block is keyed with the 8 words from s on */
	uint64_t last[XXH3_STRIPE]; /* the last stripe: from byte 121 */
	uint64_t lo[XXH3_STRIPE], hi[XXH3_STRIPE]; /* the two halves of the digest: from bytes 11 and 117 */
};

XXH3_FN uint64_t xxh3_read64(const uint8_t *p)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0; i--)
		n = n << 8 | p[i];
	return n;
}

XXH3_FN void xxh3_key_init(struct xxh3_key *k, const uint8_t secret[XXH3_SECRET_LEN])
{
	for (int i = 0; i < XXH3_SECRET_LEN / 8; i++)
		k->word[i] = xxh3_read64(secret + 8 * i);
	for (int i = 0; i < XXH3_STRIPE; i++) {
		k->last[i] = xxh3_read64(secret + XXH3_SECRET_LEN - 64 - 7 + 8 * i);
		k->lo[i] = xxh3_read64(secret + 11 + 8 * i);
		k->hi[i] = xxh3_read64(secret + XXH3_SECRET_LEN - 64 - 11 + 8 * i);
	}
}

/* Both halves of the product of 128 bits, one over the other. */
XXH3_FN uint64_t xxh3_fold(uint64_t a, uint64_t b)
{
#if defined(__CUDA_ARCH__)
	return (a * b) ^ __umul64hi(a, b);
#else
	__extension__ unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
#endif
}

XXH3_FN uint64_t xxh3_avalanche(uint64_t n)
{
	n ^= n >> 37;
	n *= XXH3_MIX;
	return n ^ n >> 32;
}

/* 32 to 128 bytes: pairs of 16, one from the front and one from the back, meet from the middle outwards. */
XXH3_FN struct digest xxh3_short(const struct xxh3_key *k, const uint64_t *in, uint32_t len)
{
	uint64_t lo = len * XXH3_P64_1, hi = 0;
	struct digest d;

	for (uint32_t i = (len + 31) / 32; i-- > 0;) {
		const uint64_t *front = in + 2 * i, *back = in + len / 8 - 2 * i - 2, *key = k->word + 4 * i;

		lo += xxh3_fold(front[0] ^ key[0], front[1] ^ key[1]);
		lo ^= back[0] + back[1];
		hi += xxh3_fold(back[0] ^ key[2], back[1] ^ key[3]);
		hi ^= front[0] + front[1];
	}
	d.lo = xxh3_avalanche(lo + hi);
	d.hi = 0 - xxh3_avalanche(lo * XXH3_P64_1 + hi * XXH3_P64_4 + len * XXH3_P64_2);
	return d;
}

XXH3_FN void xxh3_start(uint64_t acc[XXH3_STRIPE])
{
	acc[0] = XXH3_P32_3;
	acc[1] = XXH3_P64_1;
	acc[2] = XXH3_P64_2;
	acc[3] = XXH3_P64_3;
	acc[4] = XXH3_P64_4;
	acc[5] = XXH3_P32_2;
	acc[6] = XXH3_P64_5;
	acc[7] = XXH3_P32_1;
}
