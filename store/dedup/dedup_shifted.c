/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Pages of which some bytes occur in a champion at another offset (shifted.c).
 *
 *   pages    | known |  unknown  |  unknown  |  unknown  |  unknown  |
 *   found            |    |~~~~~~~~~~~|  |~~~~~|         |           |
 *   becomes  | known |rest|  found    |re|found|  rest   |  a page   |
 *
 * Found bytes become extents as they are. The rest of their pages is chunked by content and deduplicated like any other
 * chunk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/dedup/chunker.h"
#include "store/dedup/dedup.h"
#include "store/dedup/shifted.h"
#include "store/dedup/write_jobs.h"

#define SHIFTED_MIN KiB(16) /* minimum run of unknown pages in bytes: moved data comes in long runs */

/* The chunk has to be stored. One with a damaged copy is stored even if found at another offset, which repairs the
 * copy. */
static bool is_unknown(const struct batch *b, unsigned i)
{
	return b->cause[i] == UNKNOWN && !(b->any_damaged && !addr_is_none(b->damaged[i]));
}

/* Runs of unknown pages, up to the last byte of the job. */
static unsigned unknown_runs(const struct batch *b, uint32_t len, struct shift_range *ret)
{
	unsigned nr = 0;

	for (unsigned i = 0, start; i < b->n; i++) {
		for (start = i; i < b->n && is_unknown(b, i); i++)
			;
		if (i > start && MIN(b->at[i], len) - b->at[start] >= SHIFTED_MIN)
			ret[nr++] = (struct shift_range){ b->at[start], MIN(b->at[i], len) };
	}
	return nr;
}

/* 1: some pages are SHIFTED instead of UNKNOWN, and *ret has the extents of the bytes found. */
static int take_shifted(struct batch *b, const struct job *j, struct shifted **ret)
{
	struct shift_range runs[PAGES_MAX];
	uint64_t bytes = 0;
	int r = shifted_find(b->c, j, runs, unknown_runs(b, j->len, runs), ret);

	for (unsigned i = 0; r > 0 && i < (*ret)->nr_found; i++) {
		struct shift_range f = (*ret)->found[i];

		bytes += f.end - f.start;
		memset(b->cause + f.start / b->page, SHIFTED, (f.end - 1) / b->page - f.start / b->page + 1);
	}
	atomic_fetch_add_explicit(&b->e->count.shifted, bytes, memory_order_relaxed);
	return r;
}

/* Do the cheaper step first: fingerprints and lookups or, if the previous job had moved bytes, comparing with those. */
static int look_up_and_search(struct batch *b, const struct job *j, struct shifted **ret)
{
	struct shift_range runs[PAGES_MAX];
	bool first = shifted_is_likely(b->c);
	int r = first ? take_shifted(b, j, ret) : 0;

	if (r < 0)
		return r;
	batch_begin(b);
	if (first || unknown_runs(b, j->len, runs) == 0)
		return r;
	r = batch_look(b);
	return r < 0 ? r : take_shifted(b, j, ret);
}

/* Store bytes of the job as separate chunks. */
static int store_piece(struct batch *b, const struct job *j, uint32_t start, uint32_t end, struct extent_list *ret)
{
	uint32_t cuts[CHUNKER_ENDS_MAX];
	struct job piece = { .data = j->data + start, .off = j->off + start, .cuts = cuts };
	struct extent_list l = { 0 };
	int r;

	piece.nr_cuts = chunker_cut(&b->e->cdc, piece.data, end - start, true, cuts);
	r = batch_store_cuts(b, &piece, &l);
	for (size_t i = 0; i < l.nr && r == 0; i++)
		r = extent_list_add(ret, start + l.x[i].off, l.x[i].len, l.x[i].addr);
	extent_list_release(&l);
	return r;
}

/* Store the parts of SHIFTED pages that were not found. */
static int store_rests(const struct batch *b, const struct job *j, const struct shifted *s, struct extent_list *ret)
{
	_cleanup_(freep) struct batch *rest = malloc(sizeof(*rest));
	uint32_t at = 0;
	int r = rest ? 0 : -ENOMEM;

	if (rest)
		*rest = (struct batch){ .e = b->e, .c = b->c, .page = PACK_VARIED, .compression = b->compression, .tweak = b->tweak };
	for (unsigned i = 0, f = 0; i < b->n && r == 0; i++) {
		uint32_t end = MIN(b->at[i + 1], j->len);

		if (b->cause[i] != SHIFTED)
			continue;
		if (i == 0 || b->cause[i - 1] != SHIFTED)
			at = b->at[i];
		while (f < s->nr_found && s->found[f].start < end && r == 0) {
			if (s->found[f].start > at)
				r = store_piece(rest, j, at, s->found[f].start, ret);
			at = s->found[f++].end;
		}
		if (r == 0 && at < end && (i + 1 == b->n || b->cause[i + 1] != SHIFTED)) {
			r = store_piece(rest, j, at, end, ret);
			at = end;
		}
	}
	return r;
}

/* Merge all lists in file order. */
static int merge_extents(const struct extent_list *from, unsigned nr, struct extent_list *ret)
{
	size_t at[3] = { 0 };
	int r = 0;

	assert(nr <= ARRAY_SIZE(at));
	while (r == 0) {
		const struct extent *x = NULL;
		unsigned of = 0;

		for (unsigned i = 0; i < nr; i++)
			if (at[i] < from[i].nr && (!x || from[i].x[at[i]].off < x->off)) {
				x = &from[i].x[at[i]];
				of = i;
			}
		if (!x)
			break;
		r = extent_list_add(ret, x->off, x->len, x->addr);
		at[of]++;
	}
	return r;
}

static int finish_shifted(struct batch *b, const struct job *j, struct shifted *s, struct extent_list *ret)
{
	struct extent_list l[3] = { 0 };
	int r;

	r = batch_finish(b, 0, j->len, &l[0]);
	if (r == 0)
		r = store_rests(b, j, s, &l[1]);
	if (r == 0) {
		l[2] = s->extents;
		r = merge_extents(l, ARRAY_SIZE(l), ret);
	}
	extent_list_release(&l[0]);
	extent_list_release(&l[1]);
	return r;
}

int batch_store_shifted(struct batch *b, const struct job *j, struct extent_list *ret)
{
	struct shifted *s = NULL;
	int r = look_up_and_search(b, j, &s);

	if (r == 0)
		return batch_finish(b, 0, j->len, ret);
	if (r > 0)
		r = finish_shifted(b, j, s, ret);
	shifted_free(s);
	return r;
}
