/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * netCDF classic: CDF-1, CDF-2 (64-bit offsets) and CDF-5 (64-bit numbers). Everything is big-endian. Header: number of
 * records, dimensions, attributes, variables. The records of all variables with a record dimension are interleaved.
 */
#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/formats.h"

enum { TAG_DIMENSION = 10, TAG_VARIABLE = 11, TAG_ATTRIBUTE = 12 };
#define DIMENSIONS_MAX 4096u
#define VARIABLES_MAX 4096u /* with records: each has one extent per record */

struct reader {
	const uint8_t *p;
	uint64_t at, len;
	int version;
	bool bad;
};

struct variable {
	uint64_t name, name_len; /* offset and length in the file */
	struct typed_array array;
	bool record, known; /* known: the type is supported */
	uint64_t bytes, begin; /* bytes of one record, or of all */
};

static uint64_t take_number(struct reader *r, unsigned bytes)
{
	uint64_t n;

	if (r->bad || r->len - r->at < bytes) {
		r->bad = true;
		return 0;
	}
	n = bytes == 4 ? be32_get(r->p + r->at) : be64_get(r->p + r->at);
	r->at += bytes;
	return n;
}

/* Counts are 32 bits, in CDF-5 64. */
static uint64_t take_count(struct reader *r)
{
	return take_number(r, r->version == 5 ? 8 : 4);
}

static void skip(struct reader *r, uint64_t bytes)
{
	if (r->bad || bytes > UINT64_MAX - 3 || round_up(bytes, 4) > r->len - r->at)
		r->bad = true;
	else
		r->at += round_up(bytes, 4);
}

static unsigned type_bytes(uint64_t type)
{
	static const uint8_t bytes[] = { 0, 1, 1, 2, 4, 4, 8, 1, 2, 4, 8, 8 };

	return type < ARRAY_SIZE(bytes) ? bytes[type] : 0;
}

static int set_type(struct typed_array *a, uint64_t type)
{
	/* byte, text, short, int, float, double; from 7 on the types of CDF-5 */
	static const char kinds[] = "?i?iiffuuuiu";

	return type < sizeof(kinds) - 1 ? typed_array_set_type(a, kinds[type], type_bytes(type), true) : -EOPNOTSUPP;
}

/* Tag and number of elements of a list. An absent list is two zeros. */
static uint64_t take_list(struct reader *r, uint64_t tag)
{
	uint64_t is = take_number(r, 4), nr = take_count(r);

	if ((is != tag || nr == 0) && (is != 0 || nr != 0))
		r->bad = true;
	return r->bad ? 0 : nr;
}

static void skip_attributes(struct reader *r)
{
	uint64_t nr = take_list(r, TAG_ATTRIBUTE);

	for (uint64_t i = 0; i < nr && !r->bad; i++) {
		uint64_t bytes;

		skip(r, take_count(r));
		bytes = type_bytes(take_number(r, 4));
		if (bytes == 0 || __builtin_mul_overflow(bytes, take_count(r), &bytes))
			r->bad = true;
		skip(r, bytes);
	}
}

static void take_variable(struct reader *r, const uint64_t *dims, uint64_t nr_dims, struct variable *v)
{
	uint64_t nr, type, each;

	*v = (struct variable){ .name_len = take_count(r) };
	v->name = r->at;
	skip(r, v->name_len);
	nr = take_count(r);
	if (nr > TYPED_DIMS_MAX) {
		r->bad = true;
		return;
	}
	for (uint64_t i = 0; i < nr; i++) {
		uint64_t id = take_count(r);

		if (id >= nr_dims || (dims[id] == 0 && i > 0)) {
			r->bad = true;
			return;
		}
		v->record |= dims[id] == 0;
		if (dims[id] > 0)
			v->array.dim[v->array.nr_dims++] = dims[id];
	}
	skip_attributes(r);
	type = take_number(r, 4);
	(void)take_count(r); /* its size, which is redundant, and wrong for large variables */
	v->begin = take_number(r, r->version == 1 ? 4 : 8);
	each = type_bytes(type);
	v->known = set_type(&v->array, type) == 0;
	v->bytes = each;
	for (unsigned i = 0; i < v->array.nr_dims; i++)
		if (__builtin_mul_overflow(v->bytes, v->array.dim[i], &v->bytes))
			r->bad = true;
	if (each == 0 || v->bytes > UINT64_MAX - 3)
		r->bad = true;
}

static int add_variable(const struct reader *r, const struct variable *v, uint64_t nr_records, uint64_t record_bytes,
			struct typed *ret)
{
	struct typed_array a = v->array;
	uint64_t off;
	int e;

	if (v->record && a.nr_dims < TYPED_DIMS_MAX) { /* the first dimension matters for the class only */
		memmove(a.dim + 1, a.dim, a.nr_dims * sizeof(*a.dim));
		a.dim[0] = nr_records;
		a.nr_dims++;
	}
	e = typed_add_variable(ret, (const char *)r->p + v->name, v->name_len, &a);
	if (e <= 0)
		return e;
	if (!v->record)
		return typed_add_extent(ret, v->begin, v->bytes);
	for (uint64_t i = 0; i < nr_records; i++) {
		if (__builtin_mul_overflow(i, record_bytes, &off) || __builtin_add_overflow(off, v->begin, &off))
			return -EBADMSG;
		e = typed_add_extent(ret, off, v->bytes);
		if (e < 0)
			return e;
	}
	return 0;
}

static int parse(struct reader *r, struct typed *ret)
{
	_cleanup_(freep) struct variable *vars = NULL;
	uint64_t nr_records = take_count(r), nr, nr_vars, record_bytes = 0, nr_record_vars = 0;
	uint64_t dims[DIMENSIONS_MAX];
	int e = 0;

	nr = take_list(r, TAG_DIMENSION);
	if (nr > DIMENSIONS_MAX)
		return -E2BIG;
	for (uint64_t i = 0; i < nr; i++) {
		skip(r, take_count(r));
		dims[i] = take_count(r);
	}
	skip_attributes(r);
	nr_vars = take_list(r, TAG_VARIABLE);
	if (nr_vars > VARIABLES_MAX)
		return -E2BIG;
	vars = calloc(MAX(nr_vars, UINT64_C(1)), sizeof(*vars));
	if (!vars)
		return -ENOMEM;
	for (uint64_t i = 0; i < nr_vars && !r->bad; i++) {
		take_variable(r, dims, nr, &vars[i]);
		if (!r->bad && vars[i].record) {
			nr_record_vars++;
			if (__builtin_add_overflow(record_bytes, round_up(vars[i].bytes, 4), &record_bytes))
				r->bad = true;
		}
	}
	if (r->bad)
		return -EBADMSG;
	for (uint64_t i = 0; i < nr_vars && e == 0; i++) {
		if (nr_record_vars == 1 && vars[i].record)
			record_bytes = vars[i].bytes; /* a single record variable is not padded */
		if (vars[i].known)
			e = add_variable(r, &vars[i], nr_records, record_bytes, ret);
	}
	return e < 0 ? e : 1;
}

int format_netcdf(const uint8_t *p, uint64_t len, struct typed *ret)
{
	struct reader r = { .p = p, .at = 4, .len = len };

	if (len < 8 || memcmp(p, "CDF", 3) != 0 || (p[3] != 1 && p[3] != 2 && p[3] != 5))
		return 0;
	r.version = p[3];
	return parse(&r, ret);
}
