#include "mpi-agent/seal.h"

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

static struct seal_key hmac(const struct seal_key *key, const void *p, size_t len)
{
	struct seal_key ret;

	/* It fails for want of memory alone; zeros would be a key that everybody knows. */
	if (!HMAC(EVP_sha256(), key->b, SEAL_KEY_LEN, p, len, ret.b, NULL)) {
		log_error("HMAC: out of memory");
		memset(ret.b, 0, sizeof(ret.b));
		seal_random(ret.b, sizeof(ret.b));
	}
	return ret;
}

#define MACS_KEPT 6u /* an agent has keys for messages, sets and words of who has stored; and others for those that are long */

/* HMAC with one key, ready to be used: to make it takes five times as long as a seal. */
struct mac {
	struct seal_key of;
	EVP_MAC_CTX *context; /* NULL: none */
};

static EVP_MAC_CTX *context_new(const struct seal_key *key)
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

/* Those of the last keys of this thread. */
static EVP_MAC_CTX *context_of(const struct seal_key *key)
{
	static _Thread_local struct mac last[MACS_KEPT];
	static _Thread_local unsigned next;

	for (unsigned i = 0; i < MACS_KEPT; i++)
		if (last[i].context && CRYPTO_memcmp(&last[i].of, key, sizeof(*key)) == 0)
			return EVP_MAC_init(last[i].context, NULL, 0, NULL) ? last[i].context : NULL;
	next = (next + 1) % MACS_KEPT;
	EVP_MAC_CTX_free(last[next].context);
	last[next] = (struct mac){ .of = *key, .context = context_new(key) };
	return last[next].context;
}

/* As hmac(), with a key that comes again and again. */
static struct seal_key hmac_again(const struct seal_key *key, const void *p, size_t len)
{
	EVP_MAC_CTX *context = context_of(key);
	struct seal_key ret;
	size_t ret_len;

	if (!context || !EVP_MAC_update(context, p, len) || !EVP_MAC_final(context, ret.b, &ret_len, sizeof(ret.b)))
		return hmac(key, p, len);
	return ret;
}

struct seal_key seal_derive(const struct seal_key *from, const char *purpose, const void *p, size_t len)
{
	struct seal_key for_purpose = hmac(from, purpose, strlen(purpose));

	return hmac(&for_purpose, len > 0 ? p : "", len);
}

#define KEYS_KEPT 3u

/* What seals long messages with a key: made of it, which takes as long as hashing 200 KiB. */
struct long_keys {
	struct seal_key of, sealing;
	struct fp_key hash;
	bool is_there;
};

static void make_long_keys(const struct seal_key *key, struct long_keys *ret)
{
	struct seal_key hash = seal_derive(key, "ckptfs hash", NULL, 0);

	static_assert(SEAL_KEY_LEN == FP_KEY_LEN, "one is made of the other");
	*ret = (struct long_keys){ .of = *key, .sealing = seal_derive(key, "ckptfs long", NULL, 0), .is_there = true };
	fp_key_init(&ret->hash, FP_CLMUL, hash.b);
}

/* Those of the last ones: an agent has messages and sets, each with a key of its own. */
static const struct long_keys *long_keys(const struct seal_key *key)
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

/* What is long is there as its hash and length. */
static struct seal_key seal_of(const struct seal_key *key, const void *head, size_t head_len, const void *p, size_t len)
{
	uint8_t bytes[SEAL_HEAD_MAX + SEAL_LONG];

	assert(head_len <= SEAL_HEAD_MAX);
	if (head_len > 0)
		memcpy(bytes, head, head_len);
	if (len >= SEAL_LONG) {
		const struct long_keys *keys = long_keys(key);
		struct le64 length = le64_put(len);

		fp_encode(fp_of(&keys->hash, p, len), bytes + head_len);
		memcpy(bytes + head_len + FP_LEN, &length, sizeof(length));
		return hmac_again(&keys->sealing, bytes, head_len + FP_LEN + sizeof(length));
	}
	if (head_len == 0)
		return hmac_again(key, len > 0 ? p : "", len);
	if (len > 0)
		memcpy(bytes + head_len, p, len);
	return hmac_again(key, bytes, head_len + len);
}

void seal_make_of(const struct seal_key *key, const void *head, size_t head_len, const void *p, size_t len,
		  uint8_t ret[SEAL_LEN])
{
	struct seal_key whole = seal_of(key, head, head_len, p, len);

	memcpy(ret, whole.b, SEAL_LEN);
}

void seal_make(const struct seal_key *key, const void *p, size_t len, uint8_t ret[SEAL_LEN])
{
	seal_make_of(key, NULL, 0, p, len, ret);
}

bool seal_is_right_of(const struct seal_key *key, const void *head, size_t head_len, const void *p, size_t len,
		      const uint8_t seal[SEAL_LEN])
{
	uint8_t expected[SEAL_LEN];

	seal_make_of(key, head, head_len, p, len, expected);
	return CRYPTO_memcmp(expected, seal, SEAL_LEN) == 0;
}

bool seal_is_right(const struct seal_key *key, const void *p, size_t len, const uint8_t seal[SEAL_LEN])
{
	return seal_is_right_of(key, NULL, 0, p, len, seal);
}

void seal_digest(const void *p, size_t len, uint8_t ret[SEAL_DIGEST_LEN])
{
	SHA256(p, len, ret);
}

int seal_random(void *p, size_t len)
{
	uint8_t *at = p;

	while (len > 0) {
		ssize_t n = getrandom(at, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return log_errno(-EIO, "no random numbers");
		at += n;
		len -= (size_t)n;
	}
	return 0;
}
