/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Opens the back end that a URL names. */
#pragma once

#include <stdbool.h>

#define TIER_PARALLEL_MAX 64u

struct tier;

struct tier_conf {
	unsigned nr_in_flight; /* concurrent requests at the back end; 0: its default. Further ones queue */
	const char *config_file; /* of the option tier_config, for S3; NULL: none. Borrowed */
};

/* Is this the URL of a tier, of any scheme: letters and digits before a colon, and no slash before that? */
bool tier_url_is(const char *s);
/* NULL: the URL is well-formed; else the reason why not. Sends no request. */
const char *tier_url_refusal(const char *url);
/*
 * Checks the URL and loads the credentials, to report errors when a program starts. Sends no request, since the back end
 * may hang. Failures are logged.
 */
int tier_conf_check(const char *url, const struct tier_conf *conf);
/*
 * "dir:/path" opens a directory (tier_dir.h), "s3://bucket/prefix" an object store (tier_s3.h). -EINVAL: not a
 * URL, a relative path or no bucket; -EPROTONOSUPPORT: unknown scheme. Failures are logged. Does not
 * probe (tier_probe.h).
 */
int tier_open(const char *url, const struct tier_conf *conf, struct tier **ret);
