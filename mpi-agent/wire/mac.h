/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Message authentication codes between nodes: HMAC-SHA256 with a shared key, truncated to 16 bytes. Keys are derived
 * from other keys, each for one purpose, so that a MAC for one purpose is not valid for another. Pure functions, except
 * for random numbers.
 *
 * For long messages it is HMAC-SHA256 of a universal hash (FP_CLMUL of base/fp.h), each with its own key, which takes a
 * tenth of the time. Two messages that an attacker chooses without the key of the hash collide with a probability of
 * (length / 2048 + 1) / 2^120 (base/fp_clmul.h), and since HMAC hides the hash, observed MACs reveal nothing about it.
 * Unlike GMAC this needs no nonce.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAC_LEN 16u
#define MAC_KEY_LEN 32u
#define MAC_DIGEST_LEN 32u
#define MAC_LONG 4096u /* shortest body for which the hash and its two keys pay */

struct mac_key {
	uint8_t b[MAC_KEY_LEN];
};

/* Derives a key for `purpose` and the bytes at p. */
struct mac_key mac_key_derive(const struct mac_key *from, const char *purpose, const void *p, size_t len);
void mac_compute(const struct mac_key *key, const void *p, size_t len, uint8_t ret[MAC_LEN]);
/* The same for a head of at most MAC_HEAD_MAX bytes and a body elsewhere. Only the body counts for MAC_LONG. */
#define MAC_HEAD_MAX 64u
void mac_compute_of(const struct mac_key *key, const void *head, size_t head_len, const void *p, size_t len,
		  uint8_t ret[MAC_LEN]);
/* In constant time. */
bool mac_is_valid(const struct mac_key *key, const void *p, size_t len, const uint8_t mac[MAC_LEN]);
bool mac_is_valid_of(const struct mac_key *key, const void *head, size_t head_len, const void *p, size_t len,
		      const uint8_t mac[MAC_LEN]);
void mac_digest(const void *p, size_t len, uint8_t ret[MAC_DIGEST_LEN]); /* SHA-256, not keyed */
/* Cryptographically secure random bytes. -EIO: not available. */
int mac_random(void *p, size_t len);
