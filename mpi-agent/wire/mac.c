/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/wire/mac.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <openssl/sha.h>

#include "base/fp.h"
#include "base/le.h"
#include "base/log.h"

static struct mac_key hmac(const struct mac_key *key, const void *p, size_t len)
{
	struct mac_key ret;

	/* Fails on lack of memory only. A key of zeros would be known: use a random one. */
	if (!HMAC(EVP_sha256(), key->b, MAC_KEY_LEN, p, len, ret.b, NULL)) {
		log_error("HMAC: out of memory");
		memset(ret.b, 0, sizeof(ret.b));
		mac_random(ret.b, sizeof(ret.b));
	}
	return ret;
}

#define MACS_KEPT 6u /* keys for messages, sets and STORED, each also for long messages */

/* HMAC initialised with a key: the initialisation takes five times as long as a MAC. */
struct mac_context {
	struct mac_key of;
	EVP_MAC_CTX *context; /* NULL: none */
};

static EVP_MAC_CTX *context_new(const struct mac_key *key)
{
	OSSL_PARAM digest[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){ "SHA256" }, 0),
				OSSL_PARAM_construct_end() };
	EVP_MAC *kind = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_HMAC, NULL);
	EVP_MAC_CTX *context = kind ? EVP_MAC_CTX_new(kind) : NULL;

	EVP_MAC_free(kind);
	if (context && EVP_MAC_init(context, key->b, sizeof(key->b), digest))
		return context;
	EVP_MAC_CTX_free(context);
	return NULL;
}

/* Caches the contexts of this thread's last keys. */
static EVP_MAC_CTX *context_of(const struct mac_key *key)
{
	static _Thread_local struct mac_context last[MACS_KEPT];
	static _Thread_local unsigned next;

	for (unsigned i = 0; i < MACS_KEPT; i++)
		if (last[i].context && CRYPTO_memcmp(&last[i].of, key, sizeof(*key)) == 0)
			return EVP_MAC_init(last[i].context, NULL, 0, NULL) ? last[i].context : NULL;
	next = (next + 1) % MACS_KEPT;
	EVP_MAC_CTX_free(last[next].context);
	last[next] = (struct mac_context){ .of = *key, .context = context_new(key) };
	return last[next].context;
}

/* hmac() with a cached context. */
static struct mac_key hmac_cached(const struct mac_key *key, const void *p, size_t len)
{
	EVP_MAC_CTX *context = context_of(key);
	struct mac_key ret;
	size_t ret_len;

	if (!context || !EVP_MAC_update(context, p, len) || !EVP_MAC_final(context, ret.b, &ret_len, sizeof(ret.b)))
		return hmac(key, p, len);
	return ret;
}

struct mac_key mac_key_derive(const struct mac_key *from, const char *purpose, const void *p, size_t len)
{
	struct mac_key for_purpose = hmac(from, purpose, strlen(purpose));

	return hmac(&for_purpose, len > 0 ? p : "", len);
}

#define KEYS_KEPT 3u

/* Keys for long messages, derived from `of`. Deriving them takes as long as hashing 200 KiB. */
struct long_keys {
	struct mac_key of, outer;
	struct fp_key hash;
	bool is_there;
};

static void make_long_keys(const struct mac_key *key, struct long_keys *ret)
{
	struct mac_key hash = mac_key_derive(key, "ckptfs hash", NULL, 0);

	static_assert(MAC_KEY_LEN == FP_KEY_LEN, "a fingerprint key is made from a MAC key");
	*ret = (struct long_keys){ .of = *key, .outer = mac_key_derive(key, "ckptfs long", NULL, 0), .is_there = true };
	fp_key_init(&ret->hash, FP_CLMUL, hash.b);
}

/* Cached per thread: an agent has separate keys for messages and sets. */
static const struct long_keys *long_keys(const struct mac_key *key)
{
	static _Thread_local struct long_keys last[KEYS_KEPT];
	static _Thread_local unsigned next;

	for (unsigned i = 0; i < KEYS_KEPT; i++)
		if (last[i].is_there && CRYPTO_memcmp(&last[i].of, key, sizeof(*key)) == 0)
			return &last[i];
	next = (next + 1) % KEYS_KEPT;
	make_long_keys(key, &last[next]);
	return &last[next];
}

/* Long bodies are represented by their hash and length. */
static struct mac_key mac_of(const struct mac_key *key, const void *head, size_t head_len, const void *p, size_t len)
{
	uint8_t bytes[MAC_HEAD_MAX + MAC_LONG];

	assert(head_len <= MAC_HEAD_MAX);
	if (head_len > 0)
		memcpy(bytes, head, head_len);
	if (len >= MAC_LONG) {
		const struct long_keys *keys = long_keys(key);
		struct le64 length = le64_put(len);

		fp_encode(fp_of(&keys->hash, p, len), bytes + head_len);
		memcpy(bytes + head_len + FP_LEN, &length, sizeof(length));
		return hmac_cached(&keys->outer, bytes, head_len + FP_LEN + sizeof(length));
	}
	if (head_len == 0)
		return hmac_cached(key, len > 0 ? p : "", len);
	if (len > 0)
		memcpy(bytes + head_len, p, len);
	return hmac_cached(key, bytes, head_len + len);
}

void mac_compute_of(const struct mac_key *key, const void *head, size_t head_len, const void *p, size_t len,
		  uint8_t ret[MAC_LEN])
{
	struct mac_key whole = mac_of(key, head, head_len, p, len);

	memcpy(ret, whole.b, MAC_LEN);
}

void mac_compute(const struct mac_key *key, const void *p, size_t len, uint8_t ret[MAC_LEN])
{
	mac_compute_of(key, NULL, 0, p, len, ret);
}

bool mac_is_valid_of(const struct mac_key *key, const void *head, size_t head_len, const void *p, size_t len,
		      const uint8_t mac[MAC_LEN])
{
	uint8_t expected[MAC_LEN];

	mac_compute_of(key, head, head_len, p, len, expected);
	return CRYPTO_memcmp(expected, mac, MAC_LEN) == 0;
}

bool mac_is_valid(const struct mac_key *key, const void *p, size_t len, const uint8_t mac[MAC_LEN])
{
	return mac_is_valid_of(key, NULL, 0, p, len, mac);
}

void mac_digest(const void *p, size_t len, uint8_t ret[MAC_DIGEST_LEN])
{
	SHA256(p, len, ret);
}

int mac_random(void *p, size_t len)
{
	uint8_t *at = p;

	while (len > 0) {
		ssize_t n = getrandom(at, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return log_errno(-EIO, "cannot get random numbers");
		at += n;
		len -= (size_t)n;
	}
	return 0;
}
