/*
 * Fingerprints: 120-bit keyed hashes that stand for a chunk's bytes.
 *
 * 120 bits and not 128 because 256 of them and a 256-byte header then fill one 4 KiB block: the
 * table of a full 1 MiB frame. By chance two of 2^40 chunks collide with probability 2^-41, but for those that
 * differ in one special way (docs/decisions/017-what-xxh3-does-not-promise.md); by intent a collision takes, without the
 * store's key, billions of attempts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP_LEN 15 /* bytes on disk */
#define FP_KEY_LEN 32

struct fp {
	uint64_t lo, hi; /* the top byte of hi is zero */
};

enum fp_kind { FP_XXH3 = 1, FP_SHA256 = 2 };

/* Derived once from the store's secret. Immutable afterwards, shared by all threads. */
struct fp_key {
	enum fp_kind kind;
	uint8_t secret[192];
};

void fp_key_init(struct fp_key *k, enum fp_kind kind, const uint8_t secret[FP_KEY_LEN]);

struct fp fp_of(const struct fp_key *k, const void *p, size_t len);
/* One fingerprint for each of `n` neighbouring pieces of `len` bytes. */
void fp_of_each(const struct fp_key *k, const void *p, size_t len, size_t n, struct fp *ret);
/* 64-bit keyed hash of a few bytes (directory cookies, header seals). */
uint64_t fp_hash64(const struct fp_key *k, const void *p, size_t len);

/* No chunk's: by chance as likely as a collision. */
#define FP_NONE ((struct fp){ 0 })

static inline bool fp_equal(struct fp a, struct fp b)
{
	return a.lo == b.lo && a.hi == b.hi;
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
