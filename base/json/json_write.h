/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writes JSON without needless spaces: keys in the order of the calls; the writer inserts commas. Names are bytes: a byte
 * that is not UTF-8 becomes U+0080 to U+00FF, and control and format characters are escaped (base/text.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

struct json {
	struct buf *buf; /* borrowed; check buf_error() at the end. NULL: */
	FILE *to; /* borrowed; check ferror() at the end */
	bool comma, line;
};

static inline struct json json_to(struct buf *out)
{
	return (struct json){ .buf = out };
}

static inline struct json json_to_file(FILE *to)
{
	return (struct json){ .to = to };
}

/* `key` is NULL in arrays and for the document itself. */
void json_open(struct json *j, const char *key); /* an object */
void json_close(struct json *j);
void json_open_array(struct json *j, const char *key);
void json_close_array(struct json *j);
void json_u64(struct json *j, const char *key, uint64_t v);
void json_i64(struct json *j, const char *key, int64_t v);
void json_real(struct json *j, const char *key, double v, int decimals);
void json_bool(struct json *j, const char *key, bool v);
void json_string(struct json *j, const char *key, const char *v); /* v NULL: null */
void json_null(struct json *j, const char *key);
/* The members of an object that is JSON already: `object` without its braces, escaped as here. */
void json_members(struct json *j, const char *object);
void json_line(struct json *j); /* the next value starts on a new line */
void json_end(struct json *j); /* closes the document, an object, and its line */

/* A cell of a table: as in a JSON string, cut where it has become `width` bytes, filled up to them. */
void json_print_cell(FILE *to, const char *s, int width);
