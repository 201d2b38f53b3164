/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where an S3 object store is and with which credentials it is used. What these have in common with the tools of AWS
 * has the same names: environment variables, and profiles of the shared files.
 *
 * Messages name files, lines and variables, and never a value that may be secret. Memory with secrets is cleared
 * before it is freed, and in the environment once it has been read: /proc shows that.
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
 * `file`: of the option tier_config, or NULL. It must be a file of the user or of root without access for others. What it
 * does not set is taken from the environment, then from the profile in the shared files. Access key, secret and
 * token come from the same place. Failures are logged. -EACCES: there are no credentials, or the file is readable by
 * others; -EINVAL: a value or line is malformed.
 */
int s3_conf_load(const char *file, struct s3_conf *ret);

/* --- pure functions --- */

enum s3_conf_kind {
	S3_CONF_OWN, /* of tier_config: no sections, and other keys are errors */
	S3_CONF_CREDENTIALS, /* ~/.aws/credentials: [name] */
	S3_CONF_CONFIG, /* ~/.aws/config: [default], [profile name] */
};
/* `what` is a constant text about line `line`. */
struct s3_conf_error {
	unsigned line;
	const char *what;
};
/*
 * The settings of one profile. Initialises *ret, which is released by the caller also after a failure. 1; 0: there is
 * no such profile; -EINVAL: *ret_error says why.
 */
int s3_conf_parse(const char *p, size_t len, enum s3_conf_kind kind, const char *profile, struct s3_conf *ret,
		  struct s3_conf_error *ret_error);

/* "https://host:port", with nothing behind it. */
struct s3_endpoint {
	bool is_tls;
	char host[256]; /* IPv6 addresses with brackets */
	char authority[264]; /* the same, with the port if it is not the usual one: as in the header Host */
};
int s3_endpoint_parse(const char *s, struct s3_endpoint *ret);

/* "bucket" or "bucket/prefix". The prefix is a name of tier.h. */
struct s3_place {
	char bucket[256];
	const char *prefix; /* within the argument; "" */
};
int s3_place_parse(const char *s, struct s3_place *ret);
