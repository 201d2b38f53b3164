/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/fp.h"

#include <assert.h>
#include <string.h>

/*
 * SHA256_Init() and its like, although OpenSSL 3 would rather see EVP: they work on the stack and
 * cannot fail, so a fingerprint needs neither an allocation nor an error path.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

/*
 * Compiled in rather than called: 4 KiB pages are hashed at 9.9 GB/s (Neoverse N1, gcc 12) where the
 * shared library does 7.6, and so does plain -O2; clang unrolls unasked. It also brings
 * XXH3_generateSecret() of the version that the tests have pinned.
 */
#if !defined(__clang__)
#pragma GCC optimize("unroll-loops")
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fp_clmul.h"
#include "base/le.h"
#include "base/util.h"

#define HI_MASK (UINT64_MAX >> 8)

static_assert(FP_STRETCHED_LEN >= XXH3_SECRET_SIZE_MIN, "XXH3 refuses short secrets");

bool fp_kind_valid(enum fp_kind kind)
{
	return kind >= FP_XXH3 && kind < NR_FP_KINDS;
}

const char *fp_kind_name(enum fp_kind kind)
{
	static const char *const names[NR_FP_KINDS] = { [FP_XXH3] = "xxh3", [FP_SHA256] = "sha256", [FP_CLMUL] = "clmul" };

	return fp_kind_valid(kind) ? names[kind] : "unknown";
}

static_assert(FP_KEY_LEN == SHA256_DIGEST_LENGTH, "a key can be a digest");

void fp_derive(const char *purpose, const uint8_t secret[FP_KEY_LEN], uint8_t ret[FP_KEY_LEN])
{
	SHA256_CTX ctx;

	SHA256_Init(&ctx);
	SHA256_Update(&ctx, purpose, strlen(purpose));
	SHA256_Update(&ctx, secret, FP_KEY_LEN);
	SHA256_Final(ret, &ctx);
}

static void stretch(const uint8_t seed[FP_KEY_LEN], uint8_t ret[FP_STRETCHED_LEN])
{
	XXH_errorcode e _unused_ = XXH3_generateSecret(ret, FP_STRETCHED_LEN, seed, FP_KEY_LEN);

	assert(e == XXH_OK); /* fails only for sizes it does not like */
}

void fp_key_init(struct fp_key *k, enum fp_kind kind, const uint8_t secret[FP_KEY_LEN])
{
	uint8_t seed[FP_KEY_LEN];

	assert(fp_kind_valid(kind));
	k->kind = kind;
	fp_derive("ckptfs veil", secret, k->veil);
	fp_derive("ckptfs domains", secret, seed);
	stretch(seed, k->tweaks);
	memcpy(seed, secret, sizeof(seed));
	if (kind == FP_CLMUL) {
		fp_clmul_key_init(&k->clmul, secret);
		k->clmul_hash = fp_clmul_best();
		/* readdir() exposes hashes of names, and XXH3 is not a one-way function */
		fp_derive("ckptfs xxh3", secret, seed);
	}
	stretch(seed, k->secret);
}

bool fp_key_is_slow(const struct fp_key *k)
{
	return k->kind == FP_CLMUL && k->clmul_hash == fp_clmul_plain;
}

static struct fp fp_xxh3(const struct fp_key *k, const void *p, size_t len)
{
	XXH128_hash_t h = XXH3_128bits_withSecret(p, len, k->secret, sizeof(k->secret));

	return (struct fp){ .lo = h.low64, .hi = h.high64 & HI_MASK };
}

static struct fp fp_sha256(const struct fp_key *k, const void *p, size_t len)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	SHA256_CTX ctx;

	SHA256_Init(&ctx);
	SHA256_Update(&ctx, k->secret, FP_KEY_LEN);
	SHA256_Update(&ctx, p, len);
	SHA256_Final(digest, &ctx);
	return fp_decode(digest);
}

struct fp fp_of(const struct fp_key *k, const void *p, size_t len)
{
	switch (k->kind) {
	case FP_XXH3:
		return fp_xxh3(k, p, len);
	case FP_SHA256:
		return fp_sha256(k, p, len);
	default:
		return k->clmul_hash(&k->clmul, p, len);
	}
}

void fp_of_each(const struct fp_key *k, const void *p, size_t len, size_t n, struct fp *ret)
{
	const uint8_t *piece = p;

	for (size_t i = 0; i < n; i++, piece += len)
		ret[i] = fp_of(k, piece, len);
}

/* Of a tweak, the number of the domain and its kind. */
#define TWEAK_ID_BITS 32
#define TWEAK_CLEAR ((UINT64_C(1) << (TWEAK_ID_BITS + 8)) - 1)
#define TWEAK_CLEAR_BYTES 5

/* A tweak from the bits that identify the domain. The rest is XXH3, which takes 3 ns where a chunk takes 400: tweaks
 * are never exposed, so it does not matter that they reveal parts of the XXH3 key. */
static struct fp tweak_of(const struct fp_key *k, uint64_t clear)
{
	struct le64 bytes = le64_put(clear);
	XXH128_hash_t h = XXH3_128bits_withSecret(bytes.b, TWEAK_CLEAR_BYTES, k->tweaks, sizeof(k->tweaks));

	return (struct fp){ .lo = clear | (h.low64 & ~TWEAK_CLEAR), .hi = h.high64 & HI_MASK };
}

static bool is_domain(uint64_t clear)
{
	return clear >> TWEAK_ID_BITS > FP_OF_ALL && clear >> TWEAK_ID_BITS < NR_FP_DOMAIN_KINDS;
}

struct fp fp_tweak(const struct fp_key *k, struct fp_domain d)
{
	return d.kind == FP_OF_ALL ? FP_NONE : tweak_of(k, (uint64_t)d.kind << TWEAK_ID_BITS | d.id);
}

bool fp_domain_of(const struct fp_key *k, struct fp f, struct fp bytes, struct fp_domain *ret)
{
	struct fp tweak = fp_xor(f, bytes);
	uint64_t clear = tweak.lo & TWEAK_CLEAR;

	if (fp_is_none(tweak)) {
		*ret = (struct fp_domain){ FP_OF_ALL, 0 };
		return true;
	}
	if (!is_domain(clear) || !fp_equal(tweak, tweak_of(k, clear)))
		return false;
	*ret = (struct fp_domain){ (enum fp_domain_kind)(clear >> TWEAK_ID_BITS), (uint32_t)clear };
	return true;
}

bool fp_is_of(const struct fp_key *k, struct fp f, const void *p, size_t len)
{
	struct fp_domain d;

	return fp_domain_of(k, f, fp_of(k, p, len), &d);
}

/* All bytes of a and b but one, or none, are the same. */
static bool differ_in_a_byte(struct fp a, struct fp b)
{
	uint8_t x[FP_LEN];
	unsigned n = 0;

	fp_encode(fp_xor(a, b), x);
	for (unsigned i = 0; i < FP_LEN; i++)
		n += x[i] != 0;
	return n <= 1;
}

static bool is_nearly(const struct fp_key *k, struct fp f, struct fp bytes, uint64_t clear, struct fp *ret)
{
	struct fp is = fp_xor(bytes, is_domain(clear) ? tweak_of(k, clear) : FP_NONE);

	if (!differ_in_a_byte(f, is))
		return false;
	*ret = is;
	return true;
}

bool fp_is_nearly_of(const struct fp_key *k, struct fp f, struct fp bytes, struct fp *ret)
{
	uint64_t clear = (f.lo ^ bytes.lo) & TWEAK_CLEAR, id = (uint32_t)clear;

	if (is_nearly(k, f, bytes, clear, ret))
		return true;
	for (unsigned bit = 0; bit < TWEAK_ID_BITS && is_domain(clear); bit += 8)
		for (uint64_t wrong = 1; wrong < 256; wrong++) /* the wrong byte may be one that identifies the domain */
			if (is_nearly(k, f, bytes, clear ^ wrong << bit, ret))
				return true;
	for (uint64_t kind = FP_OF_ALL + 1; kind < NR_FP_DOMAIN_KINDS; kind++)
		if (is_nearly(k, f, bytes, kind << TWEAK_ID_BITS | id, ret))
			return true;
	return false;
}

struct fp fp_veiled(const struct fp_key *k, struct fp f)
{
	uint8_t bytes[FP_LEN], digest[SHA256_DIGEST_LENGTH];
	SHA256_CTX ctx;

	fp_encode(f, bytes);
	SHA256_Init(&ctx);
	SHA256_Update(&ctx, k->veil, sizeof(k->veil));
	SHA256_Update(&ctx, bytes, sizeof(bytes));
	SHA256_Final(digest, &ctx);
	return fp_decode(digest);
}

uint64_t fp_hash64(const struct fp_key *k, const void *p, size_t len)
{
	return XXH3_64bits_withSecret(p, len, k->secret, sizeof(k->secret));
}

void fp_encode(struct fp f, uint8_t ret[FP_LEN])
{
	struct le64 lo = le64_put(f.lo), hi = le64_put(f.hi);

	memcpy(ret, lo.b, 8);
	memcpy(ret + 8, hi.b, FP_LEN - 8);
}

struct fp fp_decode(const uint8_t p[FP_LEN])
{
	struct le64 lo, hi = { 0 };

	memcpy(lo.b, p, 8);
	memcpy(hi.b, p + 8, FP_LEN - 8);
	return (struct fp){ .lo = le64_get(lo), .hi = le64_get(hi) };
}

struct fp_hex fp_hex(struct fp f)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t bytes[FP_LEN];
	struct fp_hex h = { 0 };

	fp_encode(f, bytes);
	for (size_t i = 0; i < FP_LEN; i++) {
		h.s[2 * i] = digits[bytes[i] >> 4];
		h.s[2 * i + 1] = digits[bytes[i] & 15];
	}
	return h;
}
