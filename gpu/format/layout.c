/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/format/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "gpu/format/delta_format.h"

#define LEN_MAX (UINT64_C(1) << 62)
#define NOWHERE UINT64_MAX

void layout_release(struct layout *l)
{
	for (size_t i = 0; i < l->nr; i++)
		free(l->places[i].name);
	free(l->places);
	*l = LAYOUT_EMPTY;
}

static uint64_t end_of(const struct layout_place *p)
{
	return p->off + round_up(p->len, DELTA_PAGE);
}

static int by_name(const void *a, const void *b)
{
	const struct layout_want *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* The wants, by name. */
static int sort_wants(struct layout_want *wants, size_t nr, struct layout_want ***ret)
{
	_cleanup_(freep) struct layout_want **sorted = malloc(MAX(nr, (size_t)1) * sizeof(*sorted));
	uint64_t sum = 0;

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		if (wants[i].len > LEN_MAX || (sum += round_up(wants[i].len, DELTA_PAGE)) > LEN_MAX)
			return -EFBIG;
		sorted[i] = &wants[i];
	}
	qsort(sorted, nr, sizeof(*sorted), by_name);
	for (size_t i = 1; i < nr; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			return -EINVAL;
	*ret = TAKE(sorted);
	return 0;
}

static struct layout_want *find_want(struct layout_want **sorted, size_t nr, char *name)
{
	struct layout_want key = { .name = name }, *p = &key, **found;

	found = bsearch(&p, sorted, nr, sizeof(*sorted), by_name);
	return found ? *found : NULL;
}

/* There is room. */
static int add_place(struct layout *l, struct layout_want *want, uint64_t off)
{
	char *name = strdup(want->name);

	if (!name)
		return -ENOMEM;
	l->places[l->nr++] = (struct layout_place){ .name = name, .off = off, .len = want->len };
	want->off = off;
	return 0;
}

/*
 * Keeps the places of buffers that existed before and do not reach the next buffer that exists still, whether that one
 * keeps its place or not.
 */
static int keep_places(const struct layout *old, struct layout_want **sorted, size_t nr, struct layout *l)
{
	uint64_t next = UINT64_MAX;
	int r = 0;

	for (size_t i = old->nr; i-- > 0;) {
		struct layout_want *want = find_want(sorted, nr, old->places[i].name);

		if (!want || want->len == 0)
			continue;
		if (old->places[i].off + round_up(want->len, DELTA_PAGE) <= next)
			want->off = old->places[i].off;
		next = old->places[i].off;
	}
	for (size_t i = 0; r == 0 && i < old->nr; i++) {
		struct layout_want *want = find_want(sorted, nr, old->places[i].name);

		if (want && want->off == old->places[i].off && want->len > 0)
			r = add_place(l, want, want->off);
	}
	return r;
}

/* What is free between places, by offset. */
struct gap {
	uint64_t off, len;
};

struct gaps {
	struct gap *p;
	size_t nr, first; /* those before `first` are full */
	uint64_t none; /* none is as long as this */
	uint64_t end; /* of all places */
};

static void gaps_release(struct gaps *g)
{
	free(g->p);
}

static int gaps_init(struct gaps *g, const struct layout *l)
{
	*g = (struct gaps){ .p = malloc(MAX(l->nr, (size_t)1) * sizeof(*g->p)), .none = UINT64_MAX };
	if (!g->p)
		return -ENOMEM;
	for (size_t i = 0; i < l->nr; i++) {
		if (l->places[i].off > g->end)
			g->p[g->nr++] = (struct gap){ g->end, l->places[i].off - g->end };
		g->end = end_of(&l->places[i]);
	}
	return 0;
}

/* From the first gap that is long enough, or at the end. */
static uint64_t gaps_take(struct gaps *g, uint64_t len)
{
	uint64_t off;

	while (g->first < g->nr && g->p[g->first].len == 0)
		g->first++;
	for (size_t i = g->first; len < g->none && i < g->nr; i++)
		if (g->p[i].len >= len) {
			off = g->p[i].off;
			g->p[i].off += len;
			g->p[i].len -= len;
			return off;
		}
	g->none = MIN(g->none, len);
	off = g->end;
	g->end += len;
	return off;
}

static int by_off(const void *a, const void *b)
{
	const struct layout_place *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

int layout_arrange(struct layout *l, struct layout_want *wants, size_t nr, uint64_t *ret_end)
{
	_cleanup_(freep) struct layout_want **sorted = NULL;
	_cleanup_(layout_release) struct layout next = LAYOUT_EMPTY;
	_cleanup_(gaps_release) struct gaps gaps = { 0 };
	int r;

	r = sort_wants(wants, nr, &sorted);
	if (r < 0)
		return r;
	next.places = malloc(MAX(nr, (size_t)1) * sizeof(*next.places));
	if (!next.places)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		wants[i].off = wants[i].len > 0 ? NOWHERE : 0;
	r = keep_places(l, sorted, nr, &next);
	if (r == 0)
		r = gaps_init(&gaps, &next);
	for (size_t i = 0; r == 0 && i < nr; i++)
		if (wants[i].off == NOWHERE)
			r = add_place(&next, &wants[i], gaps_take(&gaps, round_up(wants[i].len, DELTA_PAGE)));
	if (r < 0)
		return r;
	if (gaps.end > LEN_MAX)
		return -EFBIG;
	qsort(next.places, next.nr, sizeof(*next.places), by_off);
	*ret_end = gaps.end;
	layout_release(l);
	*l = next;
	next = LAYOUT_EMPTY;
	return 0;
}
