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

static_assert(sizeof(((struct fp_key *)NULL)->secret) >= XXH3_SECRET_SIZE_MIN, "XXH3 refuses short secrets");

bool fp_kind_valid(enum fp_kind kind)
{
	return kind >= FP_XXH3 && kind < NR_FP_KINDS;
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

void fp_key_init(struct fp_key *k, enum fp_kind kind, const uint8_t secret[FP_KEY_LEN])
{
	XXH_errorcode e _unused_;
	uint8_t seed[FP_KEY_LEN];

	assert(fp_kind_valid(kind));
	k->kind = kind;
	fp_derive("ckptfs veil", secret, k->veil);
	memcpy(seed, secret, sizeof(seed));
	if (kind == FP_CLMUL) {
		fp_clmul_key_init(&k->clmul, secret);
		k->clmul_hash = fp_clmul_best();
		fp_derive("ckptfs xxh3", secret, seed); /* readdir() shows hashes of names, and XXH3 is no one-way street */
	}
	e = XXH3_generateSecret(k->secret, sizeof(k->secret), seed, FP_KEY_LEN);
	assert(e == XXH_OK); /* fails only for sizes it does not like */
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
