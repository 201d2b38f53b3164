/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/typed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/classify/names.h"

#define NAME_MAX_BYTES (TYPED_KEY_MAX - 32) /* type and class follow it */

void typed_release(struct typed *t)
{
	for (size_t i = 0; i < t->nr_variables; i++)
		free(t->variable[i].key);
	free(t->variable);
	free(t->extent);
	*t = (struct typed){ 0 };
}

int typed_array_bytes(const struct typed_array *a, uint64_t *ret)
{
	uint64_t n = (uint64_t)a->type.width * MAX(a->parts, 1u);

	for (unsigned i = 0; i < a->nr_dims; i++)
		if (__builtin_mul_overflow(n, a->dim[i], &n))
			return -EOVERFLOW;
	*ret = n;
	return 0;
}

int typed_array_set_type(struct typed_array *a, char kind, uint64_t bytes, bool big_endian)
{
	static const struct {
		char kind;
		enum code_class class;
		unsigned parts;
	} kinds[] = { { 'i', CODE_INT, 1 },   { 'u', CODE_UINT, 1 }, { 'f', CODE_FLOAT, 1 },
		      { 'c', CODE_FLOAT, 2 }, { 'b', CODE_UINT, 1 }, { 'B', CODE_BFLOAT, 1 } };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct code_type t = { .class = kinds[i].class, .width = 1 };
		uint64_t width = bytes / kinds[i].parts;

		if (kinds[i].kind != kind || bytes % kinds[i].parts != 0 || width == 0 || width > 8 ||
		    (width & (width - 1)) != 0)
			continue;
		t.width = (unsigned)width;
		t.big_endian = big_endian && width > 1;
		if (code_type_decode(code_type_encode(t), &t) < 0)
			return -EOPNOTSUPP;
		a->type = t;
		a->parts = kinds[i].parts;
		return 0;
	}
	return -EOPNOTSUPP;
}

const char *segment_kind_name(enum segment_kind kind)
{
	static const char *const names[NR_SEGMENT_KINDS] = { "",	"heap",	     "stack", "code",
							     "library", "anonymous", "file",  "other" };

	return names[kind];
}

static uint32_t stride(uint64_t n)
{
	return n <= UINT32_MAX ? (uint32_t)n : 0;
}

static struct coding_shape shape_of(const struct typed_array *a)
{
	struct coding_shape s = { .type = a->type, .parts = MAX(a->parts, 1u) };
	uint64_t row = s.parts, plane;

	if (a->nr_dims < 2 || __builtin_mul_overflow(row, a->dim[a->nr_dims - 1], &row))
		return s;
	s.row = stride(row);
	if (a->nr_dims > 2 && !__builtin_mul_overflow(row, a->dim[a->nr_dims - 2], &plane))
		s.plane = stride(plane);
	return s;
}

/* Takes ownership of the key: 1, or -E2BIG, -ENOMEM after freeing it. */
static int add_keyed(struct typed *t, char *key, enum segment_kind kind, struct coding_shape shape)
{
	int r = t->nr_variables == TYPED_VARIABLES_MAX ? -E2BIG : 0;

	if (r == 0)
		r = list_grow(&t->variable, t->nr_variables, &t->room_variables, sizeof(*t->variable));
	if (r < 0) {
		free(key);
		return r;
	}
	t->variable[t->nr_variables++] = (struct typed_variable){ .key = key, .kind = kind, .shape = shape };
	return 1;
}

int typed_add_variable(struct typed *t, const char *name, size_t name_len, const struct typed_array *a)
{
	char class[20] = "Scalar", mapped[NAME_MAX_BYTES], *key;
	int r;

	while (name_len > 0 && *name == '/') {
		name++;
		name_len--;
	}
	if (name_len > NAME_MAX_BYTES || memchr(name, 0, name_len))
		return 0;
	if (t->names) {
		r = names_map(t->names, name, name_len, mapped, sizeof(mapped), &name_len);
		if (r < 0)
			return r == -E2BIG ? 0 : r;
		name = r > 0 ? mapped : name;
	}
	if (a->nr_dims > 0)
		snprintf(class, sizeof(class), "Array%uD", a->nr_dims);
	if (asprintf(&key, "%.*s_%s%s_%s", (int)name_len, name, a->parts > 1 ? "C" : "", code_type_name(a->type).s,
		     class) < 0)
		return -ENOMEM;
	return add_keyed(t, key, SEGMENT_NONE, shape_of(a));
}

int typed_add_segments(struct typed *t, enum segment_kind kind, const char *name, size_t name_len)
{
	const char *word = segment_kind_name(kind);
	char *key;

	if (name_len > TYPED_KEY_MAX - 32 || memchr(name, 0, name_len))
		name_len = 0;
	if (asprintf(&key, "%s%s%.*s", word, name_len > 0 ? " " : "", (int)name_len, name) < 0)
		return -ENOMEM;
	return add_keyed(t, key, kind, (struct coding_shape){ .type = { .class = CODE_UINT, .width = 1 }, .parts = 1 });
}

int typed_add_extent(struct typed *t, uint64_t off, uint64_t len)
{
	if (off > t->size || len > t->size - off)
		return -EBADMSG;
	if (len == 0)
		return 0;
	if (t->nr_extents == TYPED_EXTENTS_MAX)
		return -E2BIG;
	if (list_grow(&t->extent, t->nr_extents, &t->room_extents, sizeof(*t->extent)) < 0)
		return -ENOMEM;
	t->extent[t->nr_extents++] = (struct typed_extent){ (uint32_t)(t->nr_variables - 1), off, len };
	return 0;
}

int typed_add_array(struct typed *t, const char *name, size_t name_len, const struct typed_array *a, uint64_t off,
		    uint64_t len)
{
	uint64_t bytes;
	int r;

	if (typed_array_bytes(a, &bytes) < 0 || bytes != len)
		return -EBADMSG;
	r = typed_add_variable(t, name, name_len, a);
	return r > 0 ? typed_add_extent(t, off, len) : r;
}

static int by_offset(const void *left, const void *right)
{
	const struct typed_extent *a = left, *b = right;

	return a->off < b->off ? -1 : a->off > b->off;
}

int typed_check(const struct typed *t)
{
	_cleanup_(freep) struct typed_extent *sorted = NULL;

	if (t->nr_extents == 0)
		return 0;
	sorted = reallocarray(NULL, t->nr_extents, sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, t->extent, t->nr_extents * sizeof(*sorted));
	qsort(sorted, t->nr_extents, sizeof(*sorted), by_offset);
	for (size_t i = 1; i < t->nr_extents; i++)
		if (sorted[i].off - sorted[i - 1].off < sorted[i - 1].len)
			return -EBADMSG;
	return 0;
}

/* Extents are grouped by variable, so both lists are traversed once and compacted in place. */
void typed_drop_small(struct typed *t, uint64_t least)
{
	size_t from = 0, nr_variables = 0, nr_extents = 0;

	for (size_t i = 0; i < t->nr_variables; i++) {
		uint64_t bytes = 0;
		size_t end = from;

		for (; end < t->nr_extents && t->extent[end].variable == i; end++)
			bytes += t->extent[end].len;
		if (bytes < least) {
			free(t->variable[i].key);
		} else {
			for (size_t k = from; k < end; k++) {
				t->extent[nr_extents] = t->extent[k];
				t->extent[nr_extents++].variable = (uint32_t)nr_variables;
			}
			t->variable[nr_variables++] = t->variable[i];
		}
		from = end;
	}
	t->nr_variables = nr_variables;
	t->nr_extents = nr_extents;
}
