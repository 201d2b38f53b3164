#include "gpu/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "gpu/delta_format.h"

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

static uint64_t end_of_all(const struct layout *l)
{
	return l->nr > 0 ? end_of(&l->places[l->nr - 1]) : 0;
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

/* Puts a place before the one at `at`. There is room. */
static int add_place(struct layout *l, size_t at, struct layout_want *want, uint64_t off)
{
	char *name = strdup(want->name);

	if (!name)
		return -ENOMEM;
	memmove(l->places + at + 1, l->places + at, (l->nr - at) * sizeof(*l->places));
	l->places[at] = (struct layout_place){ .name = name, .off = off, .len = want->len };
	l->nr++;
	want->off = off;
	return 0;
}

/*
 * Those that stay: known, wanted, and the next one that is still wanted is not in the way, whether it stays itself or
 * not.
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
			r = add_place(l, l->nr, want, want->off);
	}
	return r;
}

/* Into the first gap that is long enough, or at the end. `gaps`: bytes of all of them. */
static int place_new(struct layout *l, struct layout_want *want, uint64_t *gaps)
{
	uint64_t len = round_up(want->len, DELTA_PAGE), end = 0;

	if (len > *gaps)
		return add_place(l, l->nr, want, end_of_all(l));
	for (size_t i = 0; i < l->nr; i++) {
		if (l->places[i].off - end >= len) {
			*gaps -= len;
			return add_place(l, i, want, end);
		}
		end = end_of(&l->places[i]);
	}
	return add_place(l, l->nr, want, end);
}

int layout_arrange(struct layout *l, struct layout_want *wants, size_t nr, uint64_t *ret_end)
{
	_cleanup_(freep) struct layout_want **sorted = NULL;
	_cleanup_(layout_release) struct layout next = LAYOUT_EMPTY;
	uint64_t gaps, kept = 0;
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
	for (size_t i = 0; i < next.nr; i++)
		kept += round_up(next.places[i].len, DELTA_PAGE);
	gaps = end_of_all(&next) - kept;
	for (size_t i = 0; r == 0 && i < nr; i++)
		if (wants[i].off == NOWHERE)
			r = place_new(&next, &wants[i], &gaps);
	if (r < 0)
		return r;
	if (end_of_all(&next) > LEN_MAX)
		return -EFBIG;
	*ret_end = end_of_all(&next);
	layout_release(l);
	*l = next;
	next = LAYOUT_EMPTY;
	return 0;
}
