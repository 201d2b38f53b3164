/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/json/json_write.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "base/util.h"

#define CHAR_MAX_LEN 13

/* How many bytes of s, at least one, become the text in `ret` in a JSON string. */
static size_t quote_char(const char *s, char ret[CHAR_MAX_LEN])
{
	size_t len = utf8_len(s);
	uint32_t c = utf8_code_point(s, len);

	if (*s == '"' || *s == '\\') {
		snprintf(ret, CHAR_MAX_LEN, "\\%c", *s);
	} else if (!text_is_control(s, len)) {
		memcpy(ret, s, len);
		ret[len] = '\0';
	} else if (c < 0x10000) {
		snprintf(ret, CHAR_MAX_LEN, "\\u%04x", c);
	} else { /* surrogates */
		snprintf(ret, CHAR_MAX_LEN, "\\u%04x\\u%04x", (0xd7c0 + (c >> 10)) & 0xffff, 0xdc00 + (c & 0x3ff));
	}
	return MAX(len, (size_t)1);
}

void json_print_cell(FILE *to, const char *s, int width)
{
	char c[CHAR_MAX_LEN];

	while (*s && width > 0) {
		s += quote_char(s, c);
		width -= fprintf(to, "%s", c);
	}
	fprintf(to, "%*s", MAX(width, 0), "");
}

static void add_text(struct json *j, const char *s)
{
	if (j->buf)
		buf_add(j->buf, s, strlen(s));
	else
		fputs(s, j->to);
}

static void add_quoted(struct json *j, const char *s)
{
	char c[CHAR_MAX_LEN];

	add_text(j, "\"");
	while (*s) {
		s += quote_char(s, c);
		add_text(j, c);
	}
	add_text(j, "\"");
}

static void add_comma(struct json *j)
{
	if (j->comma)
		add_text(j, ",");
	if (j->line)
		add_text(j, "\n");
	j->comma = true;
	j->line = false;
}

static void add_key(struct json *j, const char *key)
{
	add_comma(j);
	if (key) {
		add_quoted(j, key);
		add_text(j, ":");
	}
}

static void add_value(struct json *j, const char *key, const char *text)
{
	add_key(j, key);
	add_text(j, text);
}

static void open_with(struct json *j, const char *key, const char *bracket)
{
	add_value(j, key, bracket);
	j->comma = false;
}

static void close_with(struct json *j, const char *bracket)
{
	add_text(j, bracket);
	j->comma = true;
	j->line = false;
}

void json_open(struct json *j, const char *key)
{
	open_with(j, key, "{");
}

void json_close(struct json *j)
{
	close_with(j, "}");
}

void json_open_array(struct json *j, const char *key)
{
	open_with(j, key, "[");
}

void json_close_array(struct json *j)
{
	close_with(j, "]");
}

void json_u64(struct json *j, const char *key, uint64_t v)
{
	char s[24];

	snprintf(s, sizeof(s), "%" PRIu64, v);
	add_value(j, key, s);
}

void json_i64(struct json *j, const char *key, int64_t v)
{
	char s[24];

	snprintf(s, sizeof(s), "%" PRId64, v);
	add_value(j, key, s);
}

void json_real(struct json *j, const char *key, double v, int decimals)
{
	char s[352]; /* the largest number has 309 digits */

	snprintf(s, sizeof(s), "%.*f", MIN(decimals, 30), v);
	add_value(j, key, s);
}

void json_bool(struct json *j, const char *key, bool v)
{
	add_value(j, key, v ? "true" : "false");
}

void json_string(struct json *j, const char *key, const char *v)
{
	if (!v) {
		json_null(j, key);
		return;
	}
	add_key(j, key);
	add_quoted(j, v);
}

void json_null(struct json *j, const char *key)
{
	add_value(j, key, "null");
}

void json_members(struct json *j, const char *object)
{
	size_t len = strlen(object);

	if (len <= 2)
		return;
	add_comma(j);
	for (const char *s = object + 1, *end = object + len - 1; s < end;) {
		char c[CHAR_MAX_LEN] = { *s };

		s += (unsigned char)*s <= '~' ? 1 : quote_char(s, c);
		add_text(j, c);
	}
}

void json_line(struct json *j)
{
	j->line = true;
}

void json_end(struct json *j)
{
	json_close(j);
	add_text(j, "\n");
	j->comma = false;
}
