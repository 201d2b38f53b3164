/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads JSON: a tokenizer without a tree. Trusts nothing. Tokens are checked strictly; the caller checks which one may
 * follow. Malformed input is JSON_BAD, from then on always. base/json/json_flat.h makes a list of an object.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum json_token {
	JSON_BAD,
	JSON_END,
	JSON_OBJECT, /* { */
	JSON_OBJECT_END, /* } */
	JSON_ARRAY, /* [ */
	JSON_ARRAY_END, /* ] */
	JSON_COLON,
	JSON_COMMA,
	JSON_STRING, /* text, len: without quotes, escapes not decoded */
	JSON_NUMBER, /* text, len */
	JSON_WORD /* text, len: true, false, null */
};

struct json_pull {
	const char *p, *end;
	const char *text;
	size_t len;
};

enum json_token json_pull(struct json_pull *j);
/* Skip the rest of the value that begins with this token: 0, -EBADMSG. */
int json_skip(struct json_pull *j, enum json_token first);
/* A JSON_NUMBER that is an integer without a sign: 0, -EBADMSG. */
int json_number(const struct json_pull *j, uint64_t *ret);
/*
 * A JSON_STRING with its escapes decoded and a final NUL: 0; -EBADMSG: malformed, contains a NUL, or longer than `size`.
 * U+0080 to U+00FF, if escaped, become one byte, which is not UTF-8: the reverse of base/json/json_write.h.
 */
int json_decode(const struct json_pull *j, char *ret, size_t size);
