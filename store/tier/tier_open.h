/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Opens the back end that a URL names. */
#pragma once

#include <stdbool.h>

struct tier;

struct tier_conf {
	unsigned nr_in_flight; /* requests at the back end at once; 0: what suits it. Further ones queue */
	const char *config_file; /* of the option tier_config, for S3; NULL: none. Borrowed */
};

/* Is this the URL of a tier, of any scheme: letters and digits before a colon, and no slash before that? */
bool tier_url_is(const char *s);
/* NULL: tier_open() would try it; else why not. Asks no back end. */
const char *tier_url_refusal(const char *url);
/*
 * Does this machine have what tier_open() needs to ask the back end: credentials? For an error when a program starts; a
 * back end is not asked, since it may hang. Failures are logged.
 */
int tier_conf_check(const char *url, const struct tier_conf *conf);
/*
 * "dir:/path" opens a directory (tier_dir.h), "s3://bucket/prefix" an object store (tier_s3.h). -EINVAL: no URL, or
 * one without a path from the root or a bucket; -EPROTONOSUPPORT: of an unknown scheme. Failures are logged. Does not
 * probe (tier_probe.h).
 */
int tier_open(const char *url, const struct tier_conf *conf, struct tier **ret);
