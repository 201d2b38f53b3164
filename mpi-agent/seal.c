#include "mpi-agent/seal.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/le.h"
#include "base/log.h"

#define GHASH_LEN 16

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

struct seal_key seal_derive(const struct seal_key *from, const char *purpose, const void *p, size_t len)
{
	struct seal_key for_purpose = hmac(from, purpose, strlen(purpose));

	return hmac(&for_purpose, len > 0 ? p : "", len);
}

/* GHASH of it, with one block of AES-256 added that is always the same: GMAC with a nonce of zeros. */
static bool ghash(const struct seal_key *key, const void *p, size_t len, uint8_t ret[GHASH_LEN])
{
	static const uint8_t zeros[12];
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	bool is_done = ctx && len <= INT_MAX && EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->b, zeros) == 1;
	int n;

	is_done = is_done && EVP_EncryptUpdate(ctx, NULL, &n, p, (int)len) == 1 && EVP_EncryptFinal_ex(ctx, NULL, &n) == 1 &&
		  EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, GHASH_LEN, ret) == 1;
	EVP_CIPHER_CTX_free(ctx);
	return is_done;
}

/* What seals long messages with a key: made of it, which takes as long as hashing 100 KiB. */
struct long_keys {
	struct seal_key of, hash, sealing;
	bool is_there;
};

/* Those of the last one: most messages of an agent have the same. */
static struct long_keys long_keys(const struct seal_key *key)
{
	static _Thread_local struct long_keys last;

	if (!last.is_there || CRYPTO_memcmp(&last.of, key, sizeof(*key)) != 0)
		last = (struct long_keys){ *key, seal_derive(key, "ckptfs hash", NULL, 0), seal_derive(key, "ckptfs long", NULL, 0), true };
	return last;
}

static struct seal_key seal_long(const struct seal_key *key, const void *p, size_t len)
{
	struct long_keys keys = long_keys(key);
	struct seal_key sealing_key = keys.sealing;
	struct {
		uint8_t hash[GHASH_LEN];
		struct le64 len;
	} of = { .len = le64_put(len) };

	if (!ghash(&keys.hash, p, len, of.hash)) { /* nobody can have guessed this */
		log_error("AES: out of memory");
		seal_random(sealing_key.b, sizeof(sealing_key.b));
	}
	return hmac(&sealing_key, &of, sizeof(of));
}

void seal_make(const struct seal_key *key, const void *p, size_t len, uint8_t ret[SEAL_LEN])
{
	struct seal_key whole = len >= SEAL_LONG ? seal_long(key, p, len) : hmac(key, len > 0 ? p : "", len);

	memcpy(ret, whole.b, SEAL_LEN);
}

bool seal_is_right(const struct seal_key *key, const void *p, size_t len, const uint8_t seal[SEAL_LEN])
{
	uint8_t expected[SEAL_LEN];

	seal_make(key, p, len, expected);
	return CRYPTO_memcmp(expected, seal, SEAL_LEN) == 0;
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
