/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_open.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir.h"

#define SCHEME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789"

static int open_dir(const char *url, const char *path, const struct tier_conf *conf, struct tier **ret)
{
	/* daemons change their working directory, and other machines have others */
	if (path[0] != '/')
		return log_errno(-EINVAL, "tier %s: needs a path that begins with a slash, as in dir:/lustre/me/ckpt", url);
	return tier_dir_open(path, &(struct tier_dir_conf){ .nr_threads = conf->nr_in_flight }, ret);
}

static const struct scheme {
	const char *name;
	/* `rest` is the URL behind the colon. */
	int (*open)(const char *url, const char *rest, const struct tier_conf *conf, struct tier **ret);
} schemes[] = {
	{ "dir", open_dir },
};

bool tier_url_is(const char *s)
{
	size_t len = strspn(s, SCHEME_CHARS);

	return len > 1 && s[len] == ':';
}

int tier_open(const char *url, const struct tier_conf *conf, struct tier **ret)
{
	size_t len = strspn(url, SCHEME_CHARS);

	if (!tier_url_is(url))
		return log_errno(-EINVAL, "tier %s: not the address of a tier: use dir:/path", url);
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (strlen(schemes[i].name) == len && memcmp(schemes[i].name, url, len) == 0)
			return schemes[i].open(url, url + len + 1, conf, ret);
	return log_errno(-EPROTONOSUPPORT, "tier %s: unknown scheme '%.*s': use dir:/path", url, (int)len, url);
}
