#include "mpi-agent/seal.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

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

struct seal_key seal_derive(const struct seal_key *from, const char *purpose, const void *p, size_t len)
{
	struct seal_key for_purpose = hmac(from, purpose, strlen(purpose));

	return hmac(&for_purpose, len > 0 ? p : "", len);
}

void seal_make(const struct seal_key *key, const void *p, size_t len, uint8_t ret[SEAL_LEN])
{
	struct seal_key whole = hmac(key, len > 0 ? p : "", len);

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
