/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text.h"

#include <stdlib.h>
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

uint32_t utf8_code_point(const char *s, size_t len)
{
	const unsigned char *u = (const unsigned char *)s;
	uint32_t c = len > 1 ? u[0] & (0x7fu >> len) : u[0];

	for (size_t i = 1; i < len; i++)
		c = c << 6 | (u[i] & 0x3f);
	return c;
}

bool text_is_control(const char *s, size_t len)
{
	/* Cc, Cf, Zl and Zp of Unicode 16 */
	static const struct {
		uint32_t first, last;
	} controls[] = {
		{ 0x00, 0x1f },	      { 0x7f, 0x9f },	    { 0xad, 0xad },	  { 0x600, 0x605 },
		{ 0x61c, 0x61c },     { 0x6dd, 0x6dd },	    { 0x70f, 0x70f },	  { 0x890, 0x891 },
		{ 0x8e2, 0x8e2 },     { 0x180e, 0x180e },   { 0x200b, 0x200f },	  { 0x2028, 0x202e },
		{ 0x2060, 0x206f },   { 0xfeff, 0xfeff },   { 0xfff9, 0xfffb },	  { 0x110bd, 0x110bd },
		{ 0x110cd, 0x110cd }, { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
		{ 0xe0000, 0xe007f },
	};
	uint32_t c = utf8_code_point(s, len);

	for (size_t i = 0; i < ARRAY_SIZE(controls); i++)
		if (c >= controls[i].first && c <= controls[i].last)
			return true;
	return len == 0;
}

size_t text_char(const char *s, char ret[TEXT_CHAR_MAX])
{
	const unsigned char *u = (const unsigned char *)s;
	size_t len = utf8_len(s), used = MAX(len, (size_t)1);

	if (text_is_control(s, len) || *s == '\\') {
		for (size_t i = 0; i < used; i++)
			snprintf(ret + 4 * i, TEXT_CHAR_MAX - 4 * i, "\\%03o", u[i]);
	} else {
		memcpy(ret, s, len);
		ret[len] = '\0';
	}
	return used;
}

size_t text_print(FILE *to, const char *s)
{
	char c[TEXT_CHAR_MAX];
	size_t columns = 0;

	while (*s) {
		s += text_char(s, c);
		columns += c[0] == '\\' ? strlen(c) : 1;
		if (to)
			fputs(c, to);
	}
	return columns;
}

size_t text_columns(const char *s)
{
	return text_print(NULL, s);
}

void text_vprintf(FILE *to, const char *fmt, va_list args)
{
	_cleanup_(freep) char *line = NULL;
	size_t len = strlen(fmt);
	bool has_end = len > 0 && fmt[len - 1] == '\n';
	int n = vasprintf(&line, fmt, args);

	if (n < 0) {
		line = NULL;
		return;
	}
	if (has_end)
		line[n - 1] = '\0';
	text_print(to, line);
	if (has_end)
		fputc('\n', to);
}

void text_printf(FILE *to, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	text_vprintf(to, fmt, args);
	va_end(args);
}
