/* SPDX-License-Identifier: GPL-3.0-or-later */
#define OPENSSL_SUPPRESS_DEPRECATED /* as in base/fp.c */
#include "base/sha256.h"

#include <string.h>

#include "base/le.h"

void sha256_init(struct sha256 *h)
{
	SHA256_Init(&h->ctx);
}

void sha256_add(struct sha256 *h, const void *p, size_t len)
{
	SHA256_Update(&h->ctx, p, len);
}

void sha256_add_le32(struct sha256 *h, uint32_t v)
{
	struct le32 le = le32_put(v);

	sha256_add(h, le.b, sizeof(le.b));
}

void sha256_add_le64(struct sha256 *h, uint64_t v)
{
	struct le64 le = le64_put(v);

	sha256_add(h, le.b, sizeof(le.b));
}

struct sha256_digest sha256_finish(struct sha256 *h)
{
	struct sha256_digest d;

	SHA256_Final(d.b, &h->ctx);
	return d;
}

struct sha256_hex sha256_hex(const uint8_t digest[SHA256_LEN])
{
	static const char digits[] = "0123456789abcdef";
	struct sha256_hex h = { 0 };

	for (size_t i = 0; i < SHA256_LEN; i++) {
		h.s[2 * i] = digits[digest[i] >> 4];
		h.s[2 * i + 1] = digits[digest[i] & 15];
	}
	return h;
}
