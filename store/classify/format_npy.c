/* SPDX-License-Identifier: GPL-3.0-or-later */
/* numpy's .npy: magic, version, length of the header, the header as a Python dictionary with three keys, the array. */
#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "store/classify/formats.h"

#define MAGIC "\x93NUMPY"
#define HEADER_MAX (64u * 1024)

struct text {
	const char *p, *end;
};

static void skip_blanks(struct text *t)
{
	while (t->p < t->end && (*t->p == ' ' || *t->p == '\n'))
		t->p++;
}

static bool take_word(struct text *t, const char *word)
{
	size_t n = strlen(word);

	skip_blanks(t);
	if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
		return false;
	t->p += n;
	return true;
}

static int take_number(struct text *t, uint64_t *ret)
{
	uint64_t n = 0;
	const char *from;

	skip_blanks(t);
	for (from = t->p; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++)
		if (__builtin_mul_overflow(n, UINT64_C(10), &n) || __builtin_add_overflow(n, (uint64_t)(*t->p - '0'), &n))
			return -EBADMSG;
	*ret = n;
	return t->p > from ? 0 : -EBADMSG;
}

/* '<f8'. A structured type is a list, and not supported. */
static int take_type(struct text *t, struct typed_array *a)
{
	char order, kind;
	uint64_t bytes;

	if (!take_word(t, "'"))
		return -EOPNOTSUPP;
	if (t->end - t->p < 3)
		return -EBADMSG;
	order = *t->p++;
	kind = *t->p++;
	if (!strchr("<>|=", order) || take_number(t, &bytes) < 0 || !take_word(t, "'"))
		return -EOPNOTSUPP;
	return typed_array_set_type(a, kind, bytes, order == '>');
}

static int take_shape(struct text *t, struct typed_array *a)
{
	if (!take_word(t, "("))
		return -EBADMSG;
	while (!take_word(t, ")")) {
		if (a->nr_dims == TYPED_DIMS_MAX || take_number(t, &a->dim[a->nr_dims]) < 0)
			return -EBADMSG;
		a->nr_dims++;
		if (!take_word(t, ",")) {
			if (!take_word(t, ")"))
				return -EBADMSG;
			break;
		}
	}
	return 0;
}

static int parse_header(struct text t, struct typed_array *a, bool *ret_fortran)
{
	unsigned seen = 0;
	int r = 0;

	if (!take_word(&t, "{"))
		return -EBADMSG;
	while (!take_word(&t, "}")) {
		if (take_word(&t, "'descr':")) {
			r = take_type(&t, a);
			seen |= 1;
		} else if (take_word(&t, "'fortran_order':")) {
			*ret_fortran = take_word(&t, "True");
			r = *ret_fortran || take_word(&t, "False") ? 0 : -EBADMSG;
			seen |= 2;
		} else if (take_word(&t, "'shape':")) {
			r = a->nr_dims > 0 ? -EBADMSG : take_shape(&t, a);
			seen |= 4;
		} else {
			return -EBADMSG;
		}
		if (r < 0)
			return r;
		(void)take_word(&t, ",");
	}
	return seen == 7 ? 0 : -EBADMSG;
}

static void reverse(struct typed_array *a)
{
	for (unsigned i = 0; i < a->nr_dims / 2; i++) {
		uint64_t d = a->dim[i];

		a->dim[i] = a->dim[a->nr_dims - 1 - i];
		a->dim[a->nr_dims - 1 - i] = d;
	}
}

int npy_add(const uint8_t *p, uint64_t off, uint64_t len, const char *name, size_t name_len, struct typed *ret)
{
	struct typed_array a = { 0 };
	uint64_t at, header, bytes;
	bool fortran = false;
	int r;

	p += off;
	if (len < 12 || memcmp(p, MAGIC, 6) != 0)
		return 0;
	at = p[6] == 1 ? 10 : 12;
	if (p[6] < 1 || p[6] > 3)
		return -EBADMSG;
	header = p[6] == 1 ? le16_get(*(const struct le16 *)(p + 8)) : le32_get(*(const struct le32 *)(p + 8));
	if (header > HEADER_MAX || header > len - at)
		return -EBADMSG;
	r = parse_header((struct text){ (const char *)p + at, (const char *)p + at + header }, &a, &fortran);
	if (r == -EOPNOTSUPP)
		return 1; /* objects, texts and the like are untyped */
	if (r < 0)
		return r;
	if (fortran)
		reverse(&a);
	at += header;
	if (typed_array_bytes(&a, &bytes) < 0 || bytes > len - at)
		return -EBADMSG;
	r = typed_add_array(ret, name, name_len, &a, off + at, bytes);
	return r < 0 ? r : 1;
}

int format_npy(const uint8_t *p, uint64_t len, struct typed *ret)
{
	return npy_add(p, 0, len, "array", 5, ret);
}
