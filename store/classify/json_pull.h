/*
 * A JSON tokenizer without a tree. Trusts nothing. The caller checks which token may follow; malformed input is
 * JSON_BAD, from then on always.
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
	JSON_WORD /* true, false, null */
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
