/* SPDX-License-Identifier: GPL-3.0-or-later */
/* safetensors: length of the header (8 bytes, little-endian), the header as JSON, the tensors. */
#include <errno.h>
#include <string.h>

#include "base/json/json_pull.h"
#include "base/le.h"
#include "base/util.h"
#include "store/classify/formats.h"

#define HEADER_MAX MiB(100) /* the limit of the reference implementation */

struct tensor {
	struct typed_array array;
	bool known; /* its type is supported */
	uint64_t offset[2];
	unsigned seen; /* bit mask of dtype, shape, data_offsets */
};

static void set_type(struct tensor *t, const struct json_pull *j)
{
	static const struct {
		const char *name;
		char kind;
		unsigned bytes;
	} types[] = { { "F64", 'f', 8 }, { "F32", 'f', 4 }, { "F16", 'f', 2 }, { "BF16", 'B', 2 }, { "I64", 'i', 8 },
		      { "I32", 'i', 4 }, { "I16", 'i', 2 }, { "I8", 'i', 1 },  { "U64", 'u', 8 },  { "U32", 'u', 4 },
		      { "U16", 'u', 2 }, { "U8", 'u', 1 },  { "BOOL", 'b', 1 } };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (j->len == strlen(types[i].name) && memcmp(j->text, types[i].name, j->len) == 0)
			t->known = typed_array_set_type(&t->array, types[i].kind, types[i].bytes, false) == 0;
}

/* [n, n, ...]: returns their number, at most `max`. */
static int numbers(struct json_pull *j, uint64_t *ret, unsigned max)
{
	enum json_token token = json_pull(j);
	unsigned nr = 0;

	if (token != JSON_ARRAY)
		return -EBADMSG;
	for (token = json_pull(j); token != JSON_ARRAY_END; token = json_pull(j)) {
		if (nr > 0) {
			if (token != JSON_COMMA)
				return -EBADMSG;
			token = json_pull(j);
		}
		if (token != JSON_NUMBER || nr == max || json_number(j, &ret[nr]) < 0)
			return -EBADMSG;
		nr++;
	}
	return (int)nr;
}

static bool is(const struct json_pull *j, const char *word)
{
	return j->len == strlen(word) && memcmp(j->text, word, j->len) == 0;
}

/* The name of a member has been read; its value is next. */
static int field(struct json_pull *j, struct tensor *t)
{
	bool dtype = is(j, "dtype"), shape = is(j, "shape"), offsets = is(j, "data_offsets");
	int r;

	if (json_pull(j) != JSON_COLON)
		return -EBADMSG;
	t->seen |= (unsigned)dtype | (unsigned)shape << 1 | (unsigned)offsets << 2;
	if (dtype) {
		if (json_pull(j) != JSON_STRING)
			return -EBADMSG;
		set_type(t, j);
		return 0;
	}
	if (shape) {
		r = numbers(j, t->array.dim, TYPED_DIMS_MAX);
		t->array.nr_dims = r > 0 ? (unsigned)r : 0;
		return r < 0 ? r : 0;
	}
	if (offsets)
		return numbers(j, t->offset, 2) == 2 ? 0 : -EBADMSG;
	return json_skip(j, json_pull(j));
}

/* After a member of an object: the name of the next one, or the end. */
static enum json_token next_member(struct json_pull *j)
{
	enum json_token token = json_pull(j);

	if (token == JSON_COMMA)
		return json_pull(j);
	return token == JSON_OBJECT_END ? token : JSON_BAD;
}

static int tensor(struct json_pull *j, struct tensor *t)
{
	enum json_token token = json_pull(j);
	int r;

	*t = (struct tensor){ 0 };
	if (token != JSON_OBJECT)
		return -EBADMSG;
	for (token = json_pull(j); token != JSON_OBJECT_END;) {
		if (token != JSON_STRING)
			return -EBADMSG;
		r = field(j, t);
		if (r < 0)
			return r;
		token = next_member(j);
	}
	return t->seen == 7 && t->offset[0] <= t->offset[1] ? 0 : -EBADMSG;
}

static int header(struct json_pull *j, uint64_t data, struct typed *ret)
{
	enum json_token token = json_pull(j);
	struct tensor t;
	uint64_t end;
	int r;

	if (token != JSON_OBJECT)
		return -EBADMSG;
	for (token = json_pull(j); token != JSON_OBJECT_END;) {
		struct json_pull name = *j;

		if (token != JSON_STRING || json_pull(j) != JSON_COLON)
			return -EBADMSG;
		if (is(&name, "__metadata__")) {
			r = json_skip(j, json_pull(j));
		} else {
			r = tensor(j, &t);
			if (r == 0 && (__builtin_add_overflow(data, t.offset[1], &end) || end > ret->size))
				r = -EBADMSG;
			if (r == 0 && t.known)
				r = typed_add_array(ret, name.text, name.len, &t.array, data + t.offset[0],
						    t.offset[1] - t.offset[0]);
		}
		if (r < 0)
			return r;
		token = next_member(j);
	}
	return json_pull(j) == JSON_END ? 1 : -EBADMSG;
}

int format_safetensors(const uint8_t *p, uint64_t len, struct typed *ret)
{
	struct json_pull j;
	uint64_t n;

	if (len < 10)
		return 0;
	n = le64_get(*(const struct le64 *)p);
	/* The format has no magic: a file that begins like this is assumed to be one. */
	if (n < 2 || n > HEADER_MAX || n > len - 8 || p[8] != '{' || memchr(p + 8, 0, n))
		return 0;
	j = (struct json_pull){ .p = (const char *)p + 8, .end = (const char *)p + 8 + n };
	return header(&j, 8 + n, ret);
}
