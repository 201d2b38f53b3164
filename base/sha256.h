/* SPDX-License-Identifier: GPL-3.0-or-later */
/* SHA-256, piece by piece, on the stack; it cannot fail. */
#pragma once

#include <openssl/sha.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_LEN 32

struct sha256 {
	SHA256_CTX ctx;
};

struct sha256_digest {
	uint8_t b[SHA256_LEN];
};

void sha256_init(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *p, size_t len);
void sha256_add_le32(struct sha256 *h, uint32_t v);
void sha256_add_le64(struct sha256 *h, uint64_t v);
struct sha256_digest sha256_finish(struct sha256 *h); /* must be initialised again before reuse */

struct sha256_hex {
	char s[2 * SHA256_LEN + 1];
};
struct sha256_hex sha256_hex(const uint8_t digest[SHA256_LEN]);
