/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_open.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/s3/s3_conf.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir.h"
#include "store/tier/s3/tier_s3.h"

#define SCHEME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789"

/* A relative path would depend on the working directory, which daemons change. */
static const char *check_dir(const char *path)
{
	return path[0] == '/' ? NULL : "needs a path that begins with a slash, as in dir:/lustre/me/ckpt";
}

static int open_dir(const char *url, const char *path, const struct tier_conf *conf, struct tier **ret)
{
	(void)url;
	return tier_dir_open(path, &(struct tier_dir_conf){ .nr_threads = conf->nr_in_flight }, ret);
}

static int check_dir_conf(const char *url, const struct tier_conf *conf)
{
	return conf->config_file ? log_cause(-EINVAL, "tier %s: tier_config is only for object stores", url) : 0;
}

static int check_s3_conf(const char *url, const struct tier_conf *conf)
{
	struct s3_conf c;
	int r = s3_conf_load(conf->config_file, &c);

	if (r < 0)
		return log_cause(r, "tier %s: cannot load credentials", url);
	s3_conf_release(&c);
	return 0;
}

static const char *check_s3(const char *rest)
{
	return strncmp(rest, "//", 2) == 0 ? tier_s3_refusal(rest + 2) : "needs a bucket, as in s3://bucket/prefix";
}

static int open_s3(const char *url, const char *rest, const struct tier_conf *conf, struct tier **ret)
{
	(void)url;
	return tier_s3_open(
		rest + 2,
		&(struct tier_s3_conf){ .nr_connections = conf->nr_in_flight, .config_file = conf->config_file }, ret);
}

static const struct scheme {
	const char *name;
	/* `rest`: the URL after the colon. */
	int (*open)(const char *url, const char *rest, const struct tier_conf *conf, struct tier **ret);
	const char *(*check)(const char *rest); /* NULL: well-formed; else the reason why not */
	int (*check_conf)(const char *url, const struct tier_conf *conf);
} schemes[] = {
	{ "dir", open_dir, check_dir, check_dir_conf },
	{ "s3", open_s3, check_s3, check_s3_conf },
};

bool tier_url_is(const char *s)
{
	size_t len = strspn(s, SCHEME_CHARS);

	return len > 1 && s[len] == ':';
}

static const struct scheme *find_scheme(const char *url)
{
	size_t len = strspn(url, SCHEME_CHARS);

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (strlen(schemes[i].name) == len && memcmp(schemes[i].name, url, len) == 0)
			return &schemes[i];
	return NULL;
}

const char *tier_url_refusal(const char *url)
{
	const struct scheme *scheme = find_scheme(url);

	if (!tier_url_is(url))
		return "not the address of a tier: use dir:/path or s3://bucket/prefix";
	if (!scheme)
		return "unknown scheme: use dir:/path or s3://bucket/prefix";
	return scheme->check(strchr(url, ':') + 1);
}

static int check_url(const char *url)
{
	const char *why = tier_url_refusal(url);

	if (!why)
		return 0;
	return log_cause(tier_url_is(url) && !find_scheme(url) ? -EPROTONOSUPPORT : -EINVAL, "tier %s: %s", url, why);
}

int tier_conf_check(const char *url, const struct tier_conf *conf)
{
	int r = check_url(url);

	return r < 0 ? r : find_scheme(url)->check_conf(url, conf);
}

int tier_open(const char *url, const struct tier_conf *conf, struct tier **ret)
{
	int r = check_url(url);

	return r < 0 ? r : find_scheme(url)->open(url, strchr(url, ':') + 1, conf, ret);
}
