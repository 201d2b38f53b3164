/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Fingerprints: 120-bit keyed hashes that stand for a chunk's bytes.
 *
 * 120 bits and not 128, because 256 of them and a 256-byte header then fill one 4 KiB block: the table of a full 1
 * MiB frame. By chance two of 2^40 chunks collide with probability 2^-41. For chunks chosen without the store's key,
 * FP_CLMUL has a proven bound of 2^-118 per pair of pages (fp_clmul.h), FP_SHA256 a conjectured one; FP_XXH3, of older
 * stores, is weak for pages that differ in one special way (docs/decisions/fingerprints.md, "Hash with a proven
 * collision bound").
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP_LEN 15 /* bytes on disk */
#define FP_KEY_LEN 32
#define FP_STRETCHED_LEN 192

struct fp {
	uint64_t lo, hi; /* the top byte of hi is zero */
};

enum fp_kind { FP_XXH3 = 1, FP_SHA256, FP_CLMUL, NR_FP_KINDS };

/* The key bytes of fp_clmul.h, as they come from the store's secret one after another. */
struct fp_clmul_key {
	uint8_t before[16]; /* x(0) */
	/* x(i), y(i) of each unit; then, after 16 unused, y behind the last of a full block */
	uint8_t units[4096 + 32];
	uint8_t point[16];
};

/* Derived once from the store's secret. Immutable afterwards, shared by all threads. */
struct fp_key {
	enum fp_kind kind;
	uint8_t secret[FP_STRETCHED_LEN];
	uint8_t veil[FP_KEY_LEN]; /* of fp_veiled() */
	uint8_t tweaks[FP_STRETCHED_LEN]; /* of fp_tweak() */
	struct fp_clmul_key clmul; /* FP_CLMUL only */
	struct fp (*clmul_hash)(const struct fp_clmul_key *k, const uint8_t *p, size_t len);
};

bool fp_kind_valid(enum fp_kind kind);
const char *fp_kind_name(enum fp_kind kind); /* as hash= has it */
/* Derives a key for one purpose. It reveals neither the secret nor other keys. */
void fp_derive(const char *purpose, const uint8_t secret[FP_KEY_LEN], uint8_t ret[FP_KEY_LEN]);
void fp_key_init(struct fp_key *k, enum fp_kind kind, const uint8_t secret[FP_KEY_LEN]);

/* The processor lacks an instruction that this hash needs to be fast. */
bool fp_key_is_slow(const struct fp_key *k);

struct fp fp_of(const struct fp_key *k, const void *p, size_t len);
/* One fingerprint for each of `n` neighbouring pieces of `len` bytes. */
void fp_of_each(const struct fp_key *k, const void *p, size_t len, size_t n, struct fp *ret);
/*
 * Domains: chunks are shared within a domain and never across. In a domain the fingerprint of a chunk is that of its
 * bytes, xored with the domain's tweak: 40 bits that identify the domain, and 80 that depend on the key. So equal bytes
 * never have equal fingerprints in two domains. A fingerprint can be verified against bytes without knowing its domain:
 * xored with the fingerprint of the bytes it is a valid tweak, by chance with 2^-87, which identifies the domain.
 */
enum fp_domain_kind { FP_OF_ALL, FP_OF_GROUP, FP_OF_USER, NR_FP_DOMAIN_KINDS }; /* on disk */
struct fp_domain {
	enum fp_domain_kind kind;
	uint32_t id; /* of the group or user; 0 of FP_OF_ALL */
};
/* zeros for FP_OF_ALL: such fingerprints are unchanged */
struct fp fp_tweak(const struct fp_key *k, struct fp_domain d);
/* `bytes`: the fingerprint of some bytes for FP_OF_ALL. Is f their fingerprint, and in which domain? */
bool fp_domain_of(const struct fp_key *k, struct fp f, struct fp bytes, struct fp_domain *ret);
bool fp_is_of(const struct fp_key *k, struct fp f, const void *p, size_t len);
/* The same if one byte of f may be wrong: *ret is the corrected one. Wrong by chance once in 2^68. */
bool fp_is_nearly_of(const struct fp_key *k, struct fp f, struct fp bytes, struct fp *ret);
/*
 * The form in which users may see a fingerprint: it shows whether two are equal, and no more. The bound of FP_CLMUL
 * holds for chunks chosen without the key, and a few of its values would reveal enough to construct collisions.
 */
struct fp fp_veiled(const struct fp_key *k, struct fp f);
/* 64-bit keyed hash of a few bytes (directory cookies, MACs of pack tables). */
uint64_t fp_hash64(const struct fp_key *k, const void *p, size_t len);

/* Not the fingerprint of any chunk, except with the probability of a collision. */
#define FP_NONE ((struct fp){ 0 })

static inline bool fp_equal(struct fp a, struct fp b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

static inline struct fp fp_xor(struct fp a, struct fp b)
{
	return (struct fp){ .lo = a.lo ^ b.lo, .hi = a.hi ^ b.hi };
}

/* Some order. */
static inline int fp_compare(struct fp a, struct fp b)
{
	if (a.hi != b.hi)
		return a.hi < b.hi ? -1 : 1;
	return a.lo < b.lo ? -1 : a.lo > b.lo;
}

static inline bool fp_is_none(struct fp a)
{
	return a.lo == 0 && a.hi == 0;
}

void fp_encode(struct fp f, uint8_t ret[FP_LEN]);
struct fp fp_decode(const uint8_t p[FP_LEN]);

struct fp_hex {
	char s[2 * FP_LEN + 1];
};
struct fp_hex fp_hex(struct fp f);
