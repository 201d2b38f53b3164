/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The signature covers a canonical form of the request. Its key is derived from the secret by four MACs, over day, region,
 * service and a constant, so it is valid for one day and one region. It is derived again for each request, which takes
 * microseconds.
 */
#include "store/tier/s3/s3_sign.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "base/util.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define DAY_LEN 8u
#define TIME_LEN 16u

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

static void release_secret(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->size);
	buf_release(b);
}

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
	       c == '.' || c == '~';
}

void s3_encode(struct buf *to, const char *s, bool keep_slashes)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (is_unreserved(*s) || (*s == '/' && keep_slashes))
			buf_add(to, s, 1);
		else
			buf_add(to, (char[]){ '%', digits[c >> 4], digits[c & 15] }, 3);
	}
}

static void add_signed_headers(struct buf *b, const struct s3_to_sign *s)
{
	for (size_t i = 0; i < s->nr_headers; i++) {
		add_text(b, i > 0 ? ";" : "");
		add_text(b, s->headers[i].name);
	}
}

static void add_canonical_request(struct buf *b, const struct s3_to_sign *s)
{
	add_text(b, s->method);
	add_text(b, "\n");
	add_text(b, s->path);
	add_text(b, "\n");
	add_text(b, s->query);
	add_text(b, "\n");
	for (size_t i = 0; i < s->nr_headers; i++) {
		add_text(b, s->headers[i].name);
		add_text(b, ":");
		add_text(b, s->headers[i].value);
		add_text(b, "\n");
	}
	add_text(b, "\n");
	add_signed_headers(b, s);
	add_text(b, "\n");
	add_text(b, s->payload);
}

static void add_scope(struct buf *b, const struct s3_to_sign *s)
{
	buf_add(b, s->time, DAY_LEN);
	add_text(b, "/");
	add_text(b, s->region);
	add_text(b, "/s3/aws4_request");
}

static int compute_mac(const void *key, size_t key_len, const void *p, size_t len, struct sha256_digest *ret)
{
	return HMAC(EVP_sha256(), key, (int)key_len, p, len, ret->b, NULL) ? 0 : -ENOMEM;
}

static int derive_key(const struct s3_to_sign *s, struct sha256_digest *ret)
{
	const char *const parts[] = { s->region, "s3", "aws4_request" };
	_cleanup_(release_secret) struct buf first = BUF_EMPTY;
	struct sha256_digest next;
	int r;

	buf_reserve(&first,
		    4 + strlen(s->secret_key)); /* in one step: a reallocation would leave a copy of the secret behind */
	add_text(&first, "AWS4");
	add_text(&first, s->secret_key);
	r = buf_error(&first);
	if (r == 0)
		r = compute_mac(first.data, first.len, s->time, DAY_LEN, ret);
	for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++) {
		r = compute_mac(ret->b, SHA256_LEN, parts[i], strlen(parts[i]), &next);
		*ret = next;
	}
	explicit_bzero(&next, sizeof(next));
	return r;
}

int s3_sign(const struct s3_to_sign *s, struct buf *ret)
{
	_cleanup_(buf_release) struct buf request = BUF_EMPTY, text = BUF_EMPTY;
	struct sha256_digest key = { 0 }, digest;
	struct sha256 h;
	int r;

	if (strlen(s->time) != TIME_LEN)
		return -EINVAL;
	add_canonical_request(&request, s);
	if (buf_error(&request) < 0)
		return -ENOMEM;
	sha256_init(&h);
	sha256_add(&h, request.data, request.len);
	digest = sha256_finish(&h);
	add_text(&text, ALGORITHM "\n");
	add_text(&text, s->time);
	add_text(&text, "\n");
	add_scope(&text, s);
	add_text(&text, "\n");
	add_text(&text, sha256_hex(digest.b).s);
	r = buf_error(&text);
	if (r == 0)
		r = derive_key(s, &key);
	if (r == 0)
		r = compute_mac(key.b, SHA256_LEN, text.data, text.len, &digest);
	explicit_bzero(&key, sizeof(key));
	if (r < 0)
		return r;
	add_text(ret, ALGORITHM " Credential=");
	add_text(ret, s->access_key);
	add_text(ret, "/");
	add_scope(ret, s);
	add_text(ret, ",SignedHeaders=");
	add_signed_headers(ret, s);
	add_text(ret, ",Signature=");
	add_text(ret, sha256_hex(digest.b).s);
	buf_add(ret, "", 1);
	return buf_error(ret);
}
