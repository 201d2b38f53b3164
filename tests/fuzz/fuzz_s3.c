/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as answers of an S3 store, as files of credentials, as addresses: refused, or what they say holds. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "store/tier/s3/s3_response.h"
#include "store/tier/s3/s3_conf.h"
#include "store/tier/s3/s3_sign.h"
#include "store/tier/tier.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void look_at_list(const char *p, size_t len)
{
	_cleanup_(buf_release) struct buf keys = BUF_EMPTY;
	const char *last = "";
	bool more;

	if (s3_list_parse(p, len, &keys, &more) < 0) {
		assert(keys.len == 0);
		return;
	}
	for (size_t at = 0; at < keys.len; at += strlen(last) + 1) {
		const char *key = (char *)keys.data + at;

		assert(memchr(key, '\0', keys.len - at) && strlen(key) <= S3_KEY_MAX && strcmp(last, key) < 0);
		last = key;
	}
}

static void look_at_error(const char *p, size_t len)
{
	struct s3_error e;

	if (s3_error_parse(p, len, &e) < 0)
		return;
	assert(e.code[0] && strlen(e.code) < sizeof(e.code));
	for (const char *c = e.message; *c; c++)
		assert(*c >= ' ' && *c <= '~');
}

static void look_at_range(const char *p, size_t len)
{
	struct s3_range g;

	if (s3_range_parse(p, len, &g) == 0)
		assert(g.is_empty || (g.first <= g.last && g.last < g.size));
}

static void look_at_conf(const char *p, size_t len, enum s3_conf_kind kind)
{
	struct s3_conf_error e;
	struct s3_endpoint endpoint;
	struct s3_conf c;
	int r = s3_conf_parse(p, len, kind, "default", &c, &e);

	if (r >= 0) {
		assert(!c.access_key == !c.secret_key);
		assert(!c.endpoint || s3_endpoint_parse(c.endpoint, &endpoint) == 0);
		assert(!c.secret_key || !strpbrk(c.secret_key, " \r\n"));
	} else {
		assert(e.what || r == -ENOMEM);
	}
	s3_conf_release(&c);
}

static void look_at_addresses(const char *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	char *s = strndup(p, len);
	struct s3_endpoint e;
	struct s3_place at;

	if (!s)
		return;
	if (s3_endpoint_parse(s, &e) == 0)
		assert(e.host[0] && strncmp(e.authority, e.host, strlen(e.host)) == 0);
	if (s3_place_parse(s, &at) == 0)
		assert(strlen(at.bucket) >= 3 && (!at.prefix[0] || tier_name_is_valid(at.prefix)));
	s3_encode(&b, s, false);
	assert(buf_error(&b) < 0 || b.len >= strlen(s));
	free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	const char *s = (const char *)p + 1;

	if (len-- < 1)
		return 0;
	switch (p[0] % 7) {
	case 0:
		look_at_list(s, len);
		break;
	case 1:
		look_at_error(s, len);
		break;
	case 2:
		look_at_range(s, len);
		break;
	case 3:
	case 4:
	case 5:
		look_at_conf(s, len, (enum s3_conf_kind)(p[0] % 7 - 3));
		break;
	case 6:
		look_at_addresses(s, len);
		break;
	}
	return 0;
}
