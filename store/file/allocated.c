/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/allocated.h"

#include <string.h>

#include "base/util.h"

uint64_t allocated_missing(const struct allocated *a, uint64_t from, uint64_t to)
{
	uint64_t missing = to - from;

	for (unsigned i = 0; a && i < a->nr; i++) {
		uint64_t begin = MAX(from, a->v[i].from), end = MIN(to, a->v[i].to);

		missing -= begin < end ? end - begin : 0;
	}
	return missing;
}

uint64_t allocated_part(const struct allocated *a, uint64_t from, uint64_t to)
{
	return a && a->dropped_some ? to - from : to - from - allocated_missing(a, from, to);
}

static void remove_ranges(struct allocated *a, unsigned first, unsigned nr)
{
	memmove(a->v + first, a->v + first + nr, (a->nr - first - nr) * sizeof(*a->v));
	a->nr -= nr;
}

static unsigned shortest(const struct allocated *a)
{
	unsigned found = 0;

	for (unsigned i = 1; i < a->nr; i++)
		if (a->v[i].to - a->v[i].from < a->v[found].to - a->v[found].from)
			found = i;
	return found;
}

void allocated_add(struct allocated *a, uint64_t from, uint64_t to)
{
	unsigned first = 0, nr = 0;

	while (first < a->nr && a->v[first].to < from)
		first++;
	for (; first + nr < a->nr && a->v[first + nr].from <= to; nr++) {
		from = MIN(from, a->v[first + nr].from);
		to = MAX(to, a->v[first + nr].to);
	}
	remove_ranges(a, first, nr);
	memmove(a->v + first + 1, a->v + first, (a->nr - first) * sizeof(*a->v));
	a->v[first] = (struct allocated_range){ from, to };
	if (++a->nr > ALLOCATED_MAX) {
		remove_ranges(a, shortest(a), 1);
		a->dropped_some = true;
	}
}

static unsigned closest_to_next(const struct allocated *a)
{
	unsigned found = 0;

	for (unsigned i = 1; i + 1 < a->nr; i++)
		if (a->v[i + 1].from - a->v[i].to < a->v[found + 1].from - a->v[found].to)
			found = i;
	return found;
}

static void split(struct allocated *a, unsigned i, uint64_t from, uint64_t to)
{
	memmove(a->v + i + 1, a->v + i, (a->nr - i) * sizeof(*a->v));
	a->v[i].to = from;
	a->v[i + 1].from = to;
	if (++a->nr > ALLOCATED_MAX) {
		i = closest_to_next(a);
		a->v[i + 1].from = a->v[i].from;
		remove_ranges(a, i, 1);
	}
}

void allocated_remove(struct allocated *a, uint64_t from, uint64_t to)
{
	unsigned first = 0, nr = 0;

	while (first < a->nr && a->v[first].to <= from)
		first++;
	if (first < a->nr && a->v[first].from < from && a->v[first].to > to) {
		split(a, first, from, to);
		return;
	}
	if (first < a->nr && a->v[first].from < from)
		a->v[first++].to = from;
	while (first + nr < a->nr && a->v[first + nr].to <= to)
		nr++;
	remove_ranges(a, first, nr);
	if (first < a->nr)
		a->v[first].from = MAX(a->v[first].from, to);
}
