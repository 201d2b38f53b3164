/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <assert.h>
#include <stdint.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define OPENSSL_SUPPRESS_DEPRECATED /* as in fp.c */
#include <openssl/sha.h>

typedef uint64_t v128 __attribute__((vector_size(16)));

/* Four bits of `b` at a time; the last three products of the table may have 67 bits. */
static v128 product(uint64_t a, uint64_t b)
{
	unsigned __int128 times[16] = { 0, a }, sum = 0;

	for (size_t i = 2; i < 16; i += 2) {
		times[i] = times[i / 2] << 1;
		times[i + 1] = times[i] ^ a;
	}
	for (int shift = 60; shift >= 0; shift -= 4)
		sum = sum << 4 ^ times[b >> shift & 15];
	return (v128){ (uint64_t)sum, (uint64_t)(sum >> 64) };
}

static inline v128 mul_lo(v128 a, v128 b)
{
	return product(a[0], b[0]);
}

static inline v128 mul_hi(v128 a, v128 b)
{
	return product(a[1], b[1]);
}

#include "base/fp_clmul_twin.h"
#include "base/le.h"

struct fp fp_clmul_plain(const struct fp_clmul_key *k, const uint8_t *p, size_t len)
{
	return hash(k, p, len);
}

fp_clmul_fn *fp_clmul_best(void)
{
#if defined(__aarch64__)
	if (getauxval(AT_HWCAP) & HWCAP_PMULL)
		return fp_clmul_neon;
#elif defined(__x86_64__)
	if (__builtin_cpu_supports("pclmul"))
		return fp_clmul_sse;
#endif
	return fp_clmul_plain;
}

void fp_clmul_key_init(struct fp_clmul_key *k, const uint8_t secret[FP_KEY_LEN])
{
	uint8_t *bytes = (uint8_t *)k;

	static_assert(_Alignof(struct fp_clmul_key) == 1 && sizeof(*k) % SHA256_DIGEST_LENGTH == 0, "a row of digests");
	for (uint32_t i = 0; i < sizeof(*k) / SHA256_DIGEST_LENGTH; i++) {
		struct le32 number = le32_put(i);
		SHA256_CTX ctx;

		SHA256_Init(&ctx);
		SHA256_Update(&ctx, "ckptfs clmul", 12);
		SHA256_Update(&ctx, secret, FP_KEY_LEN);
		SHA256_Update(&ctx, number.b, sizeof(number.b));
		SHA256_Final(bytes + i * SHA256_DIGEST_LENGTH, &ctx);
	}
}
