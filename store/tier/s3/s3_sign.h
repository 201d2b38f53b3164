/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Signatures of requests to an S3 object store: AWS signature version 4. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf;

struct s3_header {
	const char *name, *value; /* the name in lower case; the value without spaces around it */
};

/* A request. Everything is borrowed. */
struct s3_to_sign {
	const char *method;
	const char *path, *query; /* encoded as sent; parameters sorted by name */
	const struct s3_header *headers; /* to be signed, sorted by name, with `host` */
	size_t nr_headers;
	const char *payload; /* SHA-256 of the body in hexadecimal digits */
	const char *time; /* "20130524T000000Z" */
	const char *region, *access_key, *secret_key;
};

/* Appends the value of the header `Authorization`, with a zero byte. -EINVAL: `time` is malformed; -ENOMEM. */
int s3_sign(const struct s3_to_sign *s, struct buf *ret);

/* Appends s with all bytes but unreserved characters as %XX, without a zero byte. Paths keep their slashes. */
void s3_encode(struct buf *to, const char *s, bool keep_slashes);
