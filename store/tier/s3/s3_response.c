/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/s3/s3_response.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"

/* --- XML --- */

#define DEPTH_MAX 16u

struct span {
	const char *p;
	size_t len;
};

enum token { OPENED, CLOSED, TEXT, END };

struct xml {
	const char *p, *end;
	struct span open[DEPTH_MAX]; /* names of the open elements, outermost first */
	unsigned depth; /* of them */
	bool was_empty; /* the last element opened is empty: <Key/> */
	bool had_root;
	struct span text; /* TEXT: with its entities */
};

static bool span_is(struct span s, const char *expected)
{
	return s.len == strlen(expected) && memcmp(s.p, expected, s.len) == 0;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool starts_with(const struct xml *x, const char *with)
{
	return (size_t)(x->end - x->p) >= strlen(with) && memcmp(x->p, with, strlen(with)) == 0;
}

/* Continues after the next `s`. */
static int skip_to(struct xml *x, const char *s)
{
	const char *at = memmem(x->p, (size_t)(x->end - x->p), s, strlen(s));

	if (!at)
		return -EBADMSG;
	x->p = at + strlen(s);
	return 0;
}

/* Without the prefix of a namespace. */
static struct span parse_name(struct xml *x)
{
	struct span s = { x->p, 0 };

	for (; x->p < x->end && !is_space(*x->p) && *x->p != '>' && *x->p != '/'; x->p++)
		if (*x->p == ':')
			s.p = x->p + 1;
	s.len = (size_t)(x->p - s.p);
	return s;
}

/* Attributes, and the end of the tag. */
static int skip_attributes(struct xml *x, bool *ret_is_empty)
{
	char quote = '\0';

	for (; x->p < x->end; x->p++) {
		if (quote) {
			quote = *x->p == quote ? '\0' : quote;
		} else if (*x->p == '"' || *x->p == '\'') {
			quote = *x->p;
		} else if (*x->p == '<') {
			return -EBADMSG;
		} else if (*x->p == '>') {
			*ret_is_empty = x->p[-1] == '/'; /* a tag has at least its first character before */
			x->p++;
			return 0;
		}
	}
	return -EBADMSG;
}

static int parse_tag(struct xml *x)
{
	bool closes = starts_with(x, "</");
	struct span name;

	x->p += closes ? 2 : 1;
	name = parse_name(x);
	if (name.len == 0)
		return -EBADMSG;
	if (closes) {
		while (x->p < x->end && is_space(*x->p))
			x->p++;
		if (x->p == x->end || *x->p != '>' || x->depth == 0 || name.len != x->open[x->depth - 1].len ||
		    memcmp(name.p, x->open[x->depth - 1].p, name.len) != 0)
			return -EBADMSG;
		x->p++;
		x->depth--;
		return CLOSED;
	}
	if (x->depth == DEPTH_MAX || (x->depth == 0 && x->had_root))
		return -EBADMSG;
	x->had_root = true;
	x->open[x->depth++] = name;
	return skip_attributes(x, &x->was_empty) < 0 ? -EBADMSG : OPENED;
}

/* A token, or -EBADMSG. After CLOSED the element is no longer among the open ones. */
static int xml_next(struct xml *x)
{
	if (x->was_empty) {
		x->was_empty = false;
		x->depth--;
		return CLOSED;
	}
	while (x->p < x->end) {
		const char *from = x->p;

		if (*x->p == '<') {
			int r = starts_with(x, "<?")   ? skip_to(x, "?>") :
				starts_with(x, "<!--") ? skip_to(x, "-->") :
							 1;

			if (r == 1)
				return starts_with(x, "<!") ? -EBADMSG : parse_tag(x);
			if (r < 0)
				return r;
			continue;
		}
		x->p = memchr(from, '<', (size_t)(x->end - from));
		if (!x->p)
			x->p = x->end;
		x->text = (struct span){ from, (size_t)(x->p - from) };
		if (x->depth > 0)
			return TEXT;
		for (size_t i = 0; i < x->text.len; i++)
			if (!is_space(from[i]))
				return -EBADMSG;
	}
	return x->depth > 0 || !x->had_root ? -EBADMSG : END;
}

static void add_utf8(struct buf *to, uint32_t c)
{
	if (c < 0x80)
		buf_add(to, (uint8_t[]){ (uint8_t)c }, 1);
	else if (c < 0x800)
		buf_add(to, (uint8_t[]){ (uint8_t)(0xc0 | c >> 6), (uint8_t)(0x80 | (c & 63)) }, 2);
	else if (c < 0x10000)
		buf_add(to,
			(uint8_t[]){ (uint8_t)(0xe0 | c >> 12), (uint8_t)(0x80 | (c >> 6 & 63)),
				     (uint8_t)(0x80 | (c & 63)) },
			3);
	else
		buf_add(to,
			(uint8_t[]){ (uint8_t)(0xf0 | c >> 18), (uint8_t)(0x80 | (c >> 12 & 63)),
				     (uint8_t)(0x80 | (c >> 6 & 63)), (uint8_t)(0x80 | (c & 63)) },
			4);
}

static int digit_of(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
				      99;
}

/* "#10" or "#xa". */
static int add_character(struct buf *to, struct span s)
{
	bool is_hex = s.len > 1 && s.p[1] == 'x';
	uint32_t c = 0;

	for (size_t i = is_hex ? 2 : 1; i < s.len; i++) {
		int digit = digit_of(s.p[i]);

		if (digit >= (is_hex ? 16 : 10))
			return -EBADMSG;
		c = c * (is_hex ? 16 : 10) + (uint32_t)digit;
		if (c > 0x10ffff)
			return -EBADMSG;
	}
	if (c == 0 || (c >= 0xd800 && c < 0xe000))
		return -EBADMSG;
	add_utf8(to, c);
	return 0;
}

static int add_decoded(struct buf *to, struct span text)
{
	static const struct {
		const char *name, *value;
	} entities[] = { { "amp", "&" }, { "lt", "<" }, { "gt", ">" }, { "quot", "\"" }, { "apos", "'" } };

	for (size_t at = 0; at < text.len; at++) {
		struct span name = { text.p + at + 1, 0 };
		const char *end;
		size_t i = 0;

		if (text.p[at] == '\0')
			return -EBADMSG;
		if (text.p[at] != '&') {
			buf_add(to, text.p + at, 1);
			continue;
		}
		end = memchr(name.p, ';', text.len - at - 1);
		if (!end)
			return -EBADMSG;
		name.len = (size_t)(end - name.p);
		at += name.len + 1;
		if (name.len > 1 && name.p[0] == '#') {
			if (add_character(to, name) < 0)
				return -EBADMSG;
			continue;
		}
		while (i < ARRAY_SIZE(entities) && !span_is(name, entities[i].name))
			i++;
		if (i == ARRAY_SIZE(entities))
			return -EBADMSG;
		buf_add(to, entities[i].value, 1);
	}
	return buf_error(to);
}

/* --- lists --- */

struct list {
	struct buf keys; /* not decoded yet, each with a zero byte */
	struct buf text; /* of the current element */
	bool is_encoded, more, is_list;
};

static void list_release(struct list *l)
{
	buf_release(&l->keys);
	buf_release(&l->text);
}

static bool text_is(const struct buf *b, const char *expected)
{
	return b->len == strlen(expected) && (b->len == 0 || memcmp(b->data, expected, b->len) == 0);
}

/* The element `name` at `depth` has ended. */
static int list_end_element(struct list *l, const struct xml *x, struct span name)
{
	if (x->depth == 1 && span_is(name, "EncodingType"))
		l->is_encoded = text_is(&l->text, "url");
	else if (x->depth == 1 && span_is(name, "IsTruncated"))
		l->more = text_is(&l->text, "true");
	else if (x->depth == 2 && span_is(x->open[1], "Contents") && span_is(name, "Key")) {
		if (l->text.len == 0 || memchr(l->text.data, '\0', l->text.len))
			return -EBADMSG;
		buf_add(&l->keys, l->text.data, l->text.len);
		buf_add(&l->keys, "", 1);
	}
	return buf_error(&l->keys);
}

static int parse_list(struct xml *x, struct list *l)
{
	int token, r = 0;

	while (r == 0 && (token = xml_next(x)) != END) {
		switch (token) {
		case OPENED:
			if (x->depth == 1)
				l->is_list = span_is(x->open[0], "ListBucketResult");
			buf_clear(&l->text);
			break;
		case TEXT:
			r = add_decoded(&l->text, x->text);
			break;
		case CLOSED:
			r = list_end_element(l, x, x->open[x->depth]);
			buf_clear(&l->text);
			break;
		default:
			r = -EBADMSG;
		}
	}
	return r == 0 && !l->is_list ? -EBADMSG : r;
}

/* With a zero byte. */
static int add_decoded_key(struct buf *to, const char *key, bool is_encoded)
{
	size_t from = to->len;

	for (; *key; key++) {
		char c = is_encoded && *key == '+' ? ' ' : *key;

		if (is_encoded && c == '%') {
			int high = digit_of(key[1]), low = high < 16 ? digit_of(key[2]) : 99;

			if (low > 15 || (high == 0 && low == 0))
				return -EBADMSG;
			c = (char)(high << 4 | low);
			key += 2;
		}
		buf_add(to, &c, 1);
	}
	buf_add(to, "", 1);
	return buf_error(to) < 0 ? -ENOMEM : to->len - from > S3_KEY_MAX + 1 ? -EBADMSG : 0;
}

int s3_list_parse(const void *p, size_t len, struct buf *ret_keys, bool *ret_more)
{
	_cleanup_(list_release) struct list l = { 0 };
	struct xml x = { .p = p, .end = (const char *)p + len };
	size_t from = ret_keys->len, last = SIZE_MAX;
	int r = len > 0 ? parse_list(&x, &l) : -EBADMSG;

	for (size_t at = 0; at < l.keys.len && r == 0; at += strlen((char *)l.keys.data + at) + 1) {
		size_t this = ret_keys->len;

		r = add_decoded_key(ret_keys, (char *)l.keys.data + at, l.is_encoded);
		if (r == 0 && last != SIZE_MAX &&
		    strcmp((char *)ret_keys->data + last, (char *)ret_keys->data + this) >= 0)
			r = -EBADMSG;
		last = this;
	}
	if (r < 0)
		ret_keys->len = from;
	else
		*ret_more = l.more;
	return r;
}

/* --- errors --- */

/* Truncates; replaces bytes that are not printable by dots. */
static void copy_text(const struct buf *b, char *ret, size_t size)
{
	size_t len = MIN(b->len, size - 1);

	for (size_t i = 0; i < len; i++)
		ret[i] = b->data[i] >= ' ' && b->data[i] < 0x7f ? (char)b->data[i] : '.';
	ret[len] = '\0';
}

int s3_error_parse(const void *p, size_t len, struct s3_error *ret)
{
	_cleanup_(buf_release) struct buf text = BUF_EMPTY;
	struct xml x = { .p = p, .end = (const char *)p + len };
	struct s3_error e = { .code = "" };
	int token, r = len > 0 ? 0 : -EBADMSG;

	while (r == 0 && (token = xml_next(&x)) != END) {
		if (token == OPENED && x.depth == 1 && !span_is(x.open[0], "Error"))
			r = -EBADMSG;
		if (token == TEXT) {
			r = add_decoded(&text, x.text);
		} else if (token < 0) {
			r = token;
		} else {
			struct span name = token == CLOSED ? x.open[x.depth] : (struct span){ 0 };

			if (x.depth == 1 && span_is(name, "Code"))
				copy_text(&text, e.code, sizeof(e.code));
			else if (x.depth == 1 && span_is(name, "Message"))
				copy_text(&text, e.message, sizeof(e.message));
			else if (x.depth == 1 && span_is(name, "Region"))
				copy_text(&text, e.region, sizeof(e.region));
			buf_clear(&text);
		}
	}
	if (r == 0 && e.code[0] == '\0')
		r = -EBADMSG;
	if (r == 0)
		*ret = e;
	return r;
}

/* --- ranges --- */

static bool parse_number(struct span *s, uint64_t *ret)
{
	uint64_t n = 0;
	size_t nr = 0;

	for (; s->len > 0 && *s->p >= '0' && *s->p <= '9'; s->p++, s->len--, nr++)
		if (__builtin_mul_overflow(n, (uint64_t)10, &n) || __builtin_add_overflow(n, (uint64_t)(*s->p - '0'), &n))
			return false;
	*ret = n;
	return nr > 0;
}

static bool skip_text(struct span *s, const char *expected)
{
	size_t len = strlen(expected);

	if (s->len < len || strncasecmp(s->p, expected, len) != 0)
		return false;
	s->p += len;
	s->len -= len;
	return true;
}

int s3_range_parse(const char *p, size_t len, struct s3_range *ret)
{
	struct span s = { p, len };
	struct s3_range g = { .is_empty = false };

	while (s.len > 0 && is_space(s.p[s.len - 1]))
		s.len--;
	while (s.len > 0 && is_space(*s.p))
		skip_text(&s, (char[]){ *s.p, '\0' });
	if (!skip_text(&s, "bytes "))
		return -EBADMSG;
	g.is_empty = skip_text(&s, "*");
	if (!g.is_empty && (!parse_number(&s, &g.first) || !skip_text(&s, "-") || !parse_number(&s, &g.last)))
		return -EBADMSG;
	if (!skip_text(&s, "/") || !parse_number(&s, &g.size) || s.len > 0)
		return -EBADMSG;
	if (!g.is_empty && (g.first > g.last || g.last >= g.size))
		return -EBADMSG;
	*ret = g;
	return 0;
}
