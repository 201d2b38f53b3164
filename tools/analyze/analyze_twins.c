/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_twins.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

struct marked {
	struct twin_mark mark;
	uint32_t variable;
};

static int by_mark(const void *left, const void *right)
{
	const struct marked *a = left, *b = right;
	int r = twin_mark_compare(&a->mark, &b->mark);

	return r ? r : (a->variable > b->variable) - (a->variable < b->variable);
}

static int by_narrow(const void *left, const void *right)
{
	const struct twin *a = left, *b = right;

	return (a->narrow > b->narrow) - (a->narrow < b->narrow);
}

/* Reads the bytes that are compared. 1; 0: the variable is too short; < 0. */
static int sample(const struct set_member *m, uint32_t variable, unsigned width, uint8_t *ret, uint64_t *ret_nr)
{
	uint64_t len = variable_len(m, variable), nr = len / width;
	int r;

	if (nr < TWIN_SAMPLE || len % width != 0)
		return 0;
	r = variable_read(m, variable, twin_sample_at(nr) * width, ret, (size_t)TWIN_SAMPLE * width);
	if (r < 0)
		return r;
	*ret_nr = nr;
	return 1;
}

static int mark_narrow(const struct set_member *m, uint32_t variable, struct marked *ret)
{
	struct code_type type = m->typed.variable[variable].shape.type;

	*ret = (struct marked){ .variable = variable, .mark.narrow = type };
	return sample(m, variable, type.width, ret->mark.sample, &ret->mark.nr);
}

/* The mark of the variable as rounded to type `narrow`. */
static int mark_wide(const struct set_member *m, uint32_t variable, struct code_type narrow, struct marked *ret)
{
	struct code_type type = m->typed.variable[variable].shape.type;
	uint8_t bytes[TWIN_SAMPLE * 4];
	int r;

	*ret = (struct marked){ .variable = variable, .mark.narrow = narrow };
	r = sample(m, variable, type.width, bytes, &ret->mark.nr);
	if (r > 0)
		twin_round(narrow, type, bytes, TWIN_SAMPLE, ret->mark.sample);
	return r;
}

/* Narrow types of the file. Most files have none. */
static unsigned narrow_types(const struct typed *t, struct code_type ret[4])
{
	unsigned nr = 0;

	for (size_t i = 0; i < t->nr_variables; i++) {
		struct code_type type = t->variable[i].shape.type;
		unsigned k = 0;

		while (k < nr && code_type_encode(ret[k]) != code_type_encode(type))
			k++;
		if (twin_type_narrow(type) && k == nr)
			ret[nr++] = type;
	}
	return nr;
}

/* Marks of all wide variables, sorted: one per variable and narrow type. */
static int mark_all_wide(const struct set_member *m, struct marked **ret, size_t *ret_nr)
{
	_cleanup_(freep) struct marked *list = NULL;
	struct code_type types[4]; /* bfloat and half, of either byte order */
	unsigned nr_types = narrow_types(&m->typed, types);
	size_t nr = 0;
	int r;

	list = reallocarray(NULL, MAX(m->typed.nr_variables * nr_types, (size_t)1), sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->typed.nr_variables; i++)
		for (unsigned k = 0; k < nr_types && twin_type_wide(m->typed.variable[i].shape.type); k++) {
			r = mark_wide(m, i, types[k], &list[nr]);
			if (r < 0)
				return r;
			nr += r > 0;
		}
	if (nr > 0)
		qsort(list, nr, sizeof(*list), by_mark);
	*ret = TAKE(list);
	*ret_nr = nr;
	return 0;
}

/* Finds the first equal mark in a sorted list. */
static const struct marked *find_mark(const struct marked *list, size_t nr, const struct twin_mark *mark)
{
	size_t lo = 0, hi = nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (twin_mark_compare(&list[mid].mark, mark) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < nr && twin_mark_compare(&list[lo].mark, mark) == 0 ? &list[lo] : NULL;
}

int twins_find(struct twins *t, const struct set_member *m)
{
	_cleanup_(freep) struct marked *wide = NULL;
	_cleanup_(freep) struct twin *list = NULL;
	size_t nr_wide = 0, nr = 0;
	int r;

	r = mark_all_wide(m, &wide, &nr_wide);
	if (r < 0)
		return r;
	list = reallocarray(NULL, MAX(m->typed.nr_variables, (size_t)1), sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->typed.nr_variables && nr_wide > 0; i++) {
		const struct marked *found;
		struct marked narrow;

		if (!twin_type_narrow(m->typed.variable[i].shape.type))
			continue;
		r = mark_narrow(m, i, &narrow);
		if (r < 0)
			return r;
		found = r > 0 ? find_mark(wide, nr_wide, &narrow.mark) : NULL;
		if (found)
			list[nr++] = (struct twin){ i, found->variable };
	}
	*t = (struct twins){ TAKE(list), nr };
	return 0;
}

void twins_release(struct twins *t)
{
	free(t->twin);
	*t = (struct twins){ 0 };
}

int twins_of(const struct twins *t, uint32_t narrow, uint32_t *ret)
{
	const struct twin want = { .narrow = narrow },
			  *found = t->nr > 0 ? bsearch(&want, t->twin, t->nr, sizeof(*t->twin), by_narrow) : NULL;

	if (found)
		*ret = found->wide;
	return found != NULL;
}
