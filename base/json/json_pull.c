/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/json/json_pull.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"

static enum json_token bad(struct json_pull *j)
{
	j->p = j->end = NULL; /* makes json_pull() return JSON_BAD again */
	j->text = NULL;
	j->len = 0;
	return JSON_BAD;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static enum json_token take_string(struct json_pull *j)
{
	for (j->text = j->p; j->p < j->end && *j->p != '"'; j->p++) {
		if ((unsigned char)*j->p < ' ')
			return bad(j);
		if (*j->p == '\\' && ++j->p == j->end)
			break;
	}
	if (j->p >= j->end)
		return bad(j);
	j->len = (size_t)(j->p - j->text);
	j->p++;
	return JSON_STRING;
}

static enum json_token take_word(struct json_pull *j)
{
	static const char *const words[] = { "true", "false", "null" };

	j->text = j->p;
	while (j->p < j->end && *j->p >= 'a' && *j->p <= 'z')
		j->p++;
	j->len = (size_t)(j->p - j->text);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (j->len == strlen(words[i]) && memcmp(j->text, words[i], j->len) == 0)
			return JSON_WORD;
	return bad(j);
}

static size_t take_digits(struct json_pull *j)
{
	const char *from = j->p;

	while (j->p < j->end && is_digit(*j->p))
		j->p++;
	return (size_t)(j->p - from);
}

static bool take_one_of(struct json_pull *j, const char *chars)
{
	if (j->p == j->end || *j->p == '\0' || !strchr(chars, *j->p))
		return false;
	j->p++;
	return true;
}

static enum json_token take_number(struct json_pull *j)
{
	size_t digits;

	j->text = j->p;
	take_one_of(j, "-");
	digits = take_digits(j);
	if (digits == 0 || (digits > 1 && j->p[-(ptrdiff_t)digits] == '0'))
		return bad(j);
	if (take_one_of(j, ".") && take_digits(j) == 0)
		return bad(j);
	if (take_one_of(j, "eE")) {
		take_one_of(j, "+-");
		if (take_digits(j) == 0)
			return bad(j);
	}
	j->len = (size_t)(j->p - j->text);
	return JSON_NUMBER;
}

enum json_token json_pull(struct json_pull *j)
{
	static const char marks[] = "{}[]:,";
	const char *mark;

	if (!j->p)
		return JSON_BAD;
	while (take_one_of(j, " \t\r\n"))
		;
	if (j->p == j->end)
		return JSON_END;
	mark = *j->p != '\0' ? strchr(marks, *j->p) : NULL;
	if (mark) {
		j->p++;
		return JSON_OBJECT + (enum json_token)(mark - marks);
	}
	if (*j->p == '"') {
		j->p++;
		return take_string(j);
	}
	return *j->p >= 'a' && *j->p <= 'z' ? take_word(j) : take_number(j);
}

/* Commas and colons are not checked: the value is not used. */
int json_skip(struct json_pull *j, enum json_token first)
{
	size_t depth = 0;

	for (;; first = json_pull(j)) {
		if (first == JSON_OBJECT || first == JSON_ARRAY)
			depth++;
		else if (first == JSON_OBJECT_END || first == JSON_ARRAY_END) {
			if (depth == 0)
				return -EBADMSG;
			depth--;
		} else if (first == JSON_BAD || first == JSON_END)
			return -EBADMSG;
		if (depth == 0)
			return 0;
	}
}

int json_number(const struct json_pull *j, uint64_t *ret)
{
	uint64_t n = 0;

	for (size_t i = 0; i < j->len; i++) {
		if (!is_digit(j->text[i]) || __builtin_mul_overflow(n, UINT64_C(10), &n) ||
		    __builtin_add_overflow(n, (uint64_t)(j->text[i] - '0'), &n))
			return -EBADMSG;
	}
	*ret = n;
	return 0;
}

/* Four hexadecimal digits at `s`: their value; -1: they are none. */
static int32_t hex4(const char *s, const char *end)
{
	int32_t v = 0;

	if (end - s < 4)
		return -1;
	for (const char *last = s + 4; s < last; s++) {
		char c = *s >= 'A' && *s <= 'F' ? (char)(*s - 'A' + 'a') : *s;

		if (!is_digit(c) && !(c >= 'a' && c <= 'f'))
			return -1;
		v = v * 16 + (is_digit(c) ? c - '0' : c - 'a' + 10);
	}
	return v;
}

/* After "\u". Returns how many bytes were used; 0: malformed. */
static size_t decode_code_point(const char *s, const char *end, uint32_t *ret)
{
	int32_t high = hex4(s, end), low;

	if (high <= 0 || (high >= 0xdc00 && high <= 0xdfff))
		return 0;
	*ret = (uint32_t)high;
	if (high < 0xd800 || high > 0xdbff)
		return 4;
	if (end - s < 6 || s[4] != '\\' || s[5] != 'u')
		return 0;
	low = hex4(s + 6, end);
	if (low < 0xdc00 || low > 0xdfff)
		return 0;
	*ret = 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
	return 10;
}

/* Above U+007F, in UTF-8; U+0080 to U+00FF as one byte. Returns its length. */
static size_t encode(uint32_t c, char ret[4])
{
	size_t len = c < 0x100 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (len == 1) {
		ret[0] = (char)c;
		return 1;
	}
	for (size_t i = len - 1; i > 0; i--, c >>= 6)
		ret[i] = (char)(0x80 | (c & 0x3f));
	ret[0] = (char)((0xf00u >> len) | c);
	return len;
}

int json_decode(const struct json_pull *j, char *ret, size_t size)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *s = j->text, *end = s + j->len, *found;
	size_t n = 0, used, len;
	char bytes[4];
	uint32_t c;

	while (s < end) {
		len = 1;
		bytes[0] = *s++;
		if (bytes[0] == '\\') {
			if (s == end)
				return -EBADMSG;
			if (*s == 'u') {
				used = decode_code_point(++s, end, &c);
				if (used == 0)
					return -EBADMSG;
				s += used;
				len = encode(c, bytes);
			} else {
				found = *s != '\0' ? strchr(from, *s) : NULL;
				if (!found)
					return -EBADMSG;
				bytes[0] = to[found - from];
				s++;
			}
		}
		if (len >= size - n)
			return -EBADMSG;
		memcpy(ret + n, bytes, len);
		n += len;
	}
	ret[n] = '\0';
	return 0;
}
