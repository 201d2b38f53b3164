/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parses the XML responses of an S3 object store: lists of keys, and errors. Pure functions for untrusted bytes. They
 * accept the part of XML that stores send: elements, attributes, text, the five named entities and numeric ones,
 * comments and processing instructions. They refuse document types and CDATA sections.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

#define S3_KEY_MAX 1024u

/*
 * Parses the response to ListObjectsV2. Appends the keys, URL-decoded if the response is encoded, each with a zero byte.
 * *ret_more: more keys follow the last one. -EBADMSG: malformed, or the keys are not in ascending order.
 */
int s3_list_parse(const void *p, size_t len, struct buf *ret_keys, bool *ret_more);

/* Texts are printable ASCII; "": absent. */
struct s3_error {
	char code[64], message[240], region[64];
};
/* -EBADMSG: not an error response. */
int s3_error_parse(const void *p, size_t len, struct s3_error *ret);

/* The value of the header Content-Range, "bytes 5-9/100" or "bytes" with a star for the range. */
struct s3_range {
	bool is_empty; /* the object has no byte of the requested range */
	uint64_t first, last, size;
};
int s3_range_parse(const char *s, size_t len, struct s3_range *ret);
