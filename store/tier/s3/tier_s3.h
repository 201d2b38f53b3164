/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A tier in an S3 object store: AWS, Ceph, any other that tier_probe.h accepts. The key of an object is the
 * prefix followed by its name. In a build without libcurl (meson option `s3`) tier_s3_open() fails.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct tier;

struct tier_s3_conf {
	const char *config_file; /* of the option tier_config; NULL: none. s3_conf.h */
	unsigned nr_connections; /* requests in flight at the store; 0: 16. Further ones queue */
	unsigned nr_tries; /* of a request; 0: 6 */
	uint64_t backoff_ns; /* before the second try, twice as long before each further one; 0: 100 ms */
	unsigned stall_s; /* a request without progress for this time is repeated; 0: 60 */
	size_t page; /* names per list response; 0: 1000 */
};

/* NULL: the place is well-formed; else the reason why not. Sends no request. */
const char *tier_s3_refusal(const char *place);
/*
 * `place`: "bucket" or "bucket/prefix". Reads the credentials and sends no request. The first request starts the thread,
 * so the process may fork before. Failures are logged, without secrets. -EOPNOTSUPP: this build has no S3.
 */
int tier_s3_open(const char *place, const struct tier_s3_conf *conf, struct tier **ret);
