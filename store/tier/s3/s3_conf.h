/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Endpoint and credentials of an S3 object store. Environment variables, shared files and settings have the names that
 * the AWS tools use.
 *
 * Messages name files, lines and variables, and never a value that may be secret. Secrets are cleared in memory before it
 * is freed, and in the environment once they are read, since /proc shows it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL: not set. Strings are owned. */
struct s3_conf {
	char *access_key, *secret_key, *session_token;
	char *region, *endpoint, *ca_bundle;
	char *addressing_style; /* "auto", "path" or "virtual" */
};
void s3_conf_release(struct s3_conf *c);

/*
 * `file`: of the option tier_config, or NULL. It must belong to the user or root, without access for others. Settings that
 * it lacks are taken from the environment, then from the profile in the shared files. Access key, secret and token come
 * from the same source. Failures are logged. -EACCES: there are no credentials, or others can read the file; -EINVAL: a
 * value or line is malformed.
 */
int s3_conf_load(const char *file, struct s3_conf *ret);

/* --- pure functions --- */

enum s3_conf_kind {
	S3_CONF_OWN, /* of tier_config: no sections; unknown settings are errors */
	S3_CONF_CREDENTIALS, /* ~/.aws/credentials: [name] */
	S3_CONF_CONFIG, /* ~/.aws/config: [default], [profile name] */
};
/* `what` is a constant text about line `line`. */
struct s3_conf_error {
	unsigned line;
	const char *what;
};
/*
 * Parses the settings of one profile. Initialises *ret; the caller releases it, also after a failure. 1; 0: there is no
 * such profile; -EINVAL: *ret_error has the cause.
 */
int s3_conf_parse(const char *p, size_t len, enum s3_conf_kind kind, const char *profile, struct s3_conf *ret,
		  struct s3_conf_error *ret_error);

/* "https://host:port", without a path. */
struct s3_endpoint {
	bool is_tls;
	char host[256]; /* IPv6 addresses with brackets */
	char authority[264]; /* with the port unless it is the default one, as in the header Host */
};
int s3_endpoint_parse(const char *s, struct s3_endpoint *ret);

/* "bucket" or "bucket/prefix". The prefix is a name of tier.h. */
struct s3_place {
	char bucket[256];
	const char *prefix; /* within the argument; "" */
};
int s3_place_parse(const char *s, struct s3_place *ret);
