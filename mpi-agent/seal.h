/*
 * How nodes of a cluster know each other's messages: HMAC-SHA256 with a key that both have, cut to 16 bytes. Keys are
 * made of other keys, each for one purpose, so that what is sealed for one is nothing for another. Pure, but for the
 * random numbers.
 *
 * Of what is long, HMAC-SHA256 of a universal hash of it (FP_CLMUL of base/fp.h), with a key for each, which takes a
 * tenth of the time. The hash alone says nothing to somebody who wants to make seals: two messages that he chooses
 * without its key have the same one with a probability of (length / 2048 + 1) / 2^120 (base/fp_clmul.h), and since HMAC
 * hides it he learns nothing from those that he sees. So unlike GMAC it needs no number that must never come twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEAL_LEN 16u
#define SEAL_KEY_LEN 32u
#define SEAL_DIGEST_LEN 32u
#define SEAL_LONG 4096u /* bytes from which on the hash and two more keys pay */

struct seal_key {
	uint8_t b[SEAL_KEY_LEN];
};

/* A key for `purpose`, and for these bytes. */
struct seal_key seal_derive(const struct seal_key *from, const char *purpose, const void *p, size_t len);
void seal_make(const struct seal_key *key, const void *p, size_t len, uint8_t ret[SEAL_LEN]);
/* Of a few bytes, SEAL_HEAD_MAX at most, and what is behind them, elsewhere. Whether that is long is for itself. */
#define SEAL_HEAD_MAX 64u
void seal_make_of(const struct seal_key *key, const void *head, size_t head_len, const void *p, size_t len,
		  uint8_t ret[SEAL_LEN]);
/* In a time that does not depend on the bytes. */
bool seal_is_right(const struct seal_key *key, const void *p, size_t len, const uint8_t seal[SEAL_LEN]);
bool seal_is_right_of(const struct seal_key *key, const void *head, size_t head_len, const void *p, size_t len,
		      const uint8_t seal[SEAL_LEN]);
void seal_digest(const void *p, size_t len, uint8_t ret[SEAL_DIGEST_LEN]); /* SHA-256: of no secret */
/* Bytes that nobody can guess. -EIO: there are none. */
int seal_random(void *p, size_t len);
