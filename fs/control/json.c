#include "fs/control/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void add_text(struct json *j, const char *s)
{
	buf_add(j->out, s, strlen(s));
}

static void add_quoted(struct json *j, const char *s)
{
	char c[JSON_CHAR_MAX];

	buf_add_u8(j->out, '"');
	while (*s) {
		s += json_char(s, c);
		add_text(j, c);
	}
	buf_add_u8(j->out, '"');
}

static void add_key(struct json *j, const char *key)
{
	if (j->comma)
		buf_add_u8(j->out, ',');
	j->comma = true;
	if (key) {
		add_quoted(j, key);
		buf_add_u8(j->out, ':');
	}
}

void json_open(struct json *j, const char *key)
{
	add_key(j, key);
	buf_add_u8(j->out, '{');
	j->comma = false;
}

void json_close(struct json *j)
{
	buf_add_u8(j->out, '}');
	j->comma = true;
}

void json_u64(struct json *j, const char *key, uint64_t v)
{
	char s[24];

	add_key(j, key);
	snprintf(s, sizeof(s), "%" PRIu64, v);
	add_text(j, s);
}

void json_ratio(struct json *j, const char *key, double v)
{
	char s[32];

	add_key(j, key);
	snprintf(s, sizeof(s), "%.3f", v);
	add_text(j, s);
}

void json_bool(struct json *j, const char *key, bool v)
{
	add_key(j, key);
	add_text(j, v ? "true" : "false");
}

void json_string(struct json *j, const char *key, const char *v)
{
	add_key(j, key);
	add_quoted(j, v);
}
