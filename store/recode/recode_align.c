/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/recode/recode_align.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "index/recipes.h"

#define RUN 4u /* consecutive shared chunks that must agree to count: single ones are shared by chance */

/* A chunk of the newer step. */
struct known {
	uint64_t place;
	int64_t at;
};

struct known_list {
	struct known *k;
	size_t nr, room;
};

static uint64_t key_of_place(struct addr a)
{
	return (uint64_t)a.pack << 32 | a.off;
}

static int by_place(const void *left, const void *right)
{
	const struct known *a = left, *b = right;

	return a->place < b->place ? -1 : a->place > b->place;
}

static int list_chunks(struct known_list *list, struct engine *e, const struct compact_variable *v, const uint64_t *inos,
		       uint64_t block)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct compact_chunk chunk;
	int r = compact_walk_init(&w, e, v, inos, block);

	while (r >= 0 && (r = compact_walk_next(&w, &chunk)) > 0) {
		r = list_grow(&list->k, list->nr, &list->room, sizeof(*list->k));
		if (r == 0)
			list->k[list->nr++] = (struct known){ key_of_place(chunk.info.start), chunk.at };
	}
	if (list->nr > 0)
		qsort(list->k, list->nr, sizeof(*list->k), by_place);
	return r;
}

/* Finds the chunk in the newer step: 1; 0: not there, or more than once, which is ambiguous. */
static int find_in_newer(const struct known_list *list, struct addr a, int64_t *ret)
{
	size_t low = 0, high = list->nr;
	uint64_t place = key_of_place(a);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->k[middle].place < place)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == list->nr || list->k[low].place != place ||
	    (low + 1 < list->nr && list->k[low + 1].place == place))
		return 0;
	*ret = list->k[low].at;
	return 1;
}

/* Shared chunks from `begin` to `end` of the older step have this shift. */
struct run {
	int64_t begin, end, by;
	unsigned nr;
};

/* The shift applies from halfway after the previous run. Runs must be in the same order in both steps. */
static int add_shift(struct compact_align *a, const struct run *last, const struct run *run)
{
	int r;

	if (run->by == last->by || run->begin + run->by < last->end + last->by)
		return 0;
	r = list_grow(&a->shift, a->nr, &a->room, sizeof(*a->shift));
	if (r == 0)
		a->shift[a->nr++] = (struct compact_shift){ last->end + (run->begin - last->end) / 2, run->by };
	return r < 0 ? r : 1;
}

int compact_align_init(struct compact_align *a, struct engine *e, const struct compact_variable *older,
		       const struct compact_variable *newer, const uint64_t *inos, uint64_t block)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct known_list list = { 0 };
	struct run last = { 0 }, run = { 0 };
	struct compact_chunk chunk;
	int r;

	*a = (struct compact_align){ 0 };
	r = list_chunks(&list, e, newer, inos, block);
	if (r == 0)
		r = compact_walk_init(&w, e, older, inos, block);
	while (r >= 0 && (r = compact_walk_next(&w, &chunk)) > 0) {
		int64_t at;

		if (find_in_newer(&list, chunk.info.start, &at) == 0)
			continue;
		if (run.nr == 0 || run.by != at - chunk.at)
			run = (struct run){ .begin = chunk.at, .by = at - chunk.at };
		run.end = chunk.at + (int64_t)chunk.info.len;
		if (++run.nr < RUN)
			continue;
		r = add_shift(a, &last, &run);
		if (r > 0 || run.by == last.by)
			last = run;
	}
	free(list.k);
	return MIN(r, 0);
}

void compact_align_release(struct compact_align *a)
{
	free(a->shift);
	*a = (struct compact_align){ 0 };
}

int64_t compact_align_place(const struct compact_align *a, int64_t at)
{
	size_t low = 0, high = a->nr;

	while (low < high) { /* first entry after `at` */
		size_t middle = low + (high - low) / 2;

		if (a->shift[middle].from <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return at + (low > 0 ? a->shift[low - 1].by : 0);
}
