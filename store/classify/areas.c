/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/areas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void areas_release(struct areas *as)
{
	free(as->area);
	*as = AREAS_EMPTY;
}

int areas_add(struct areas *as, struct area a)
{
	if (a.end < a.start)
		return -EBADMSG;
	if (as->nr == TYPED_EXTENTS_MAX)
		return -E2BIG;
	if (as->nr == as->room) {
		size_t room = MAX(2 * as->room, (size_t)64);
		struct area *more = reallocarray(as->area, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		as->area = more;
		as->room = room;
	}
	as->area[as->nr++] = a;
	return 0;
}

static int by_address(const void *left, const void *right)
{
	const struct area *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

void areas_sort(struct areas *as)
{
	if (as->nr > 0)
		qsort(as->area, as->nr, sizeof(*as->area), by_address);
}

struct area *areas_find(const struct areas *as, uint64_t address)
{
	size_t lo = 0, hi = as->nr;

	while (lo < hi) { /* find the last one that starts at or before the address */
		size_t mid = lo + (hi - lo) / 2;

		if (as->area[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > 0 && address < as->area[lo - 1].end ? &as->area[lo - 1] : NULL;
}

static int compare_names(const struct area *a, const struct area *b)
{
	int r = memcmp(a->name ? a->name : "", b->name ? b->name : "", MIN(a->name_len, b->name_len));

	return r ? r : a->name_len < b->name_len ? -1 : a->name_len > b->name_len;
}

bool area_same_file(const struct area *a, const struct area *b)
{
	return compare_names(a, b) == 0;
}

/* libx.so, libx.so.6, ld-linux-x86-64.so.2, libx-1.2.so.0 (deleted) */
static bool is_library(const struct area *a)
{
	const char *base = memrchr(a->name, '/', a->name_len);
	size_t len;

	base = base ? base : a->name;
	len = a->name_len - (size_t)(base - a->name);
	for (const char *at = base; (at = memmem(at, len - (size_t)(at - base), ".so", 3)); at += 3) {
		size_t left = len - (size_t)(at - base) - 3;

		if (left == 0 || at[3] == '.' || at[3] == ' ')
			return true;
	}
	return false;
}

static bool has_bss(const struct area *a)
{
	return a->kind == SEGMENT_CODE || a->kind == SEGMENT_LIBRARY;
}

void areas_name_kinds(struct areas *as, const char *program, size_t program_len)
{
	const struct area own = { .name = program, .name_len = program_len };

	for (size_t i = 0; i < as->nr; i++) {
		struct area *a = &as->area[i], *before = i > 0 ? a - 1 : NULL;

		if (a->kind != SEGMENT_NONE)
			continue;
		if (a->name_len > 0)
			a->kind = program_len > 0 && area_same_file(a, &own) ? SEGMENT_CODE :
				  is_library(a)				     ? SEGMENT_LIBRARY :
									       SEGMENT_FILE;
		else if (before && before->end == a->start && before->name_len > 0 && has_bss(before)) {
			a->kind = before->kind;
			a->name = before->name;
			a->name_len = before->name_len;
		} else {
			a->kind = SEGMENT_ANONYMOUS;
		}
	}
}

static int by_kind(const void *left, const void *right)
{
	const struct area *a = left, *b = right;
	int r = a->kind < b->kind ? -1 : a->kind > b->kind;

	if (r == 0)
		r = compare_names(a, b);
	return r ? r : a->start < b->start ? -1 : a->start > b->start ? 1 : a->off < b->off ? -1 : a->off > b->off;
}

int areas_list(struct areas *as, struct typed *ret)
{
	const struct area *last = NULL;
	int r;

	if (as->nr > 0)
		qsort(as->area, as->nr, sizeof(*as->area), by_kind);
	for (size_t i = 0; i < as->nr; i++) {
		const struct area *a = &as->area[i];

		if (a->len == 0)
			continue;
		if (!last || last->kind != a->kind || !area_same_file(last, a)) {
			r = typed_add_segments(ret, a->kind, a->name ? a->name : "", a->name_len);
			if (r < 0)
				return r;
			last = a;
		}
		r = typed_add_extent(ret, a->off, a->len);
		if (r < 0)
			return r;
	}
	return 0;
}
