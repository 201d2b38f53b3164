/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Answers of an S3 object store, which are XML: lists of keys, and errors. Pure functions of bytes, which trust nothing.
 * Of XML they accept what stores send: elements, attributes, text, the five entities and numeric ones, comments,
 * instructions; no document types, and no sections of raw text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

#define S3_KEY_MAX 1024u

/*
 * The answer of ListObjectsV2. Appends the keys, each with a zero byte, decoded if the answer is encoded; *ret_more:
 * there are more behind the last one. -EBADMSG: it is no such answer, or keys are not in ascending order.
 */
int s3_list_parse(const void *p, size_t len, struct buf *ret_keys, bool *ret_more);

/* An error. Texts are printable ASCII; "" where the answer has none. */
struct s3_error {
	char code[64], message[240], region[64];
};
/* -EBADMSG: it is none. */
int s3_error_parse(const void *p, size_t len, struct s3_error *ret);

/* The value of the header Content-Range, "bytes 5-9/100" or "bytes" with a star for the range. */
struct s3_range {
	bool is_empty; /* the object has no byte of the requested range */
	uint64_t first, last, size;
};
int s3_range_parse(const char *s, size_t len, struct s3_range *ret);
