#include "base/text.h"

#include <stdbool.h>
#include <string.h>

#include "base/util.h"

size_t utf8_len(const char *s)
{
	/* By its first byte, and what the second may be: no character has two forms. */
	static const struct {
		unsigned char first, last, low, high;
		size_t len;
	} forms[] = {
		{ 0x01, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	const unsigned char *u = (const unsigned char *)s;

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (u[0] < forms[i].first || u[0] > forms[i].last)
			continue;
		for (size_t k = 1; k < forms[i].len; k++)
			if (u[k] < (k == 1 ? forms[i].low : 0x80) || u[k] > (k == 1 ? forms[i].high : 0xbf))
				return 0;
		return forms[i].len;
	}
	return 0;
}

size_t json_char(const char *s, char ret[JSON_CHAR_MAX])
{
	size_t len = utf8_len(s);
	unsigned char c = (unsigned char)*s;

	if (c == '"' || c == '\\') {
		snprintf(ret, JSON_CHAR_MAX, "\\%c", c);
	} else if (len == 0 || c < ' ' || c == 0x7f) {
		snprintf(ret, JSON_CHAR_MAX, "\\u%04x", c);
	} else {
		memcpy(ret, s, len);
		ret[len] = '\0';
	}
	return MAX(len, (size_t)1);
}

void json_print_string(FILE *to, const char *s)
{
	char c[JSON_CHAR_MAX];

	fputc('"', to);
	while (*s) {
		s += json_char(s, c);
		fputs(c, to);
	}
	fputc('"', to);
}

void json_print_cell(FILE *to, const char *s, int width)
{
	char c[JSON_CHAR_MAX];

	while (*s && width > 0) {
		s += json_char(s, c);
		width -= fprintf(to, "%s", c);
	}
	fprintf(to, "%*s", MAX(width, 0), "");
}

/* What a terminal may take for a command: C0, DEL and, in two bytes, C1. */
static bool is_control(const unsigned char *u, size_t len)
{
	return len == 0 || u[0] < ' ' || u[0] == 0x7f || (len == 2 && u[0] == 0xc2 && u[1] < 0xa0);
}

size_t text_print(FILE *to, const char *s)
{
	size_t columns = 0;

	while (*s) {
		const unsigned char *u = (const unsigned char *)s;
		size_t len = utf8_len(s);

		if (is_control(u, len) || *s == '\\') {
			for (size_t i = 0; i < MAX(len, (size_t)1); i++)
				columns += (size_t)fprintf(to, "\\%03o", u[i]);
		} else {
			columns += fwrite(s, len, 1, to);
		}
		s += MAX(len, (size_t)1);
	}
	return columns;
}
