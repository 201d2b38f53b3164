/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Checks recipes against the packs of a window: one pass over all recipes. */
#include <errno.h>
#include <stdlib.h>

#include "index/db.h"
#include "index/index_format.h"
#include "store/check/check_internal.h"
#include "store/file/extents/layer_stack.h"

#define RECIPES_PER_STEP 1024u

struct scan {
	struct check *k;
	struct check_window *w;
	struct hits hits;
	uint64_t nr; /* recipes so far */
};

static enum hit_why why_of(enum extent_state s)
{
	switch (s) {
	case EXTENT_UNMAPPED:
		return HIT_NEVER_WRITTEN;
	case EXTENT_NO_FRAME:
	case EXTENT_NO_CHUNK:
		return HIT_MISSING;
	case EXTENT_NO_TABLE:
		return HIT_TABLE;
	default:
		return HIT_NOWHERE;
	}
}

/* Is it to be reported in this window? */
static bool concerns(const struct scan *s, const struct extent *x, enum extent_state state)
{
	switch (state) {
	case EXTENT_UNMAPPED:
		return s->w->is_first && (x->addr.pack == 0 || x->addr.pack >= s->k->marks.next_pack);
	case EXTENT_NOWHERE:
	case EXTENT_CROSSES:
		return s->w->is_first;
	default:
		return true;
	}
}

/* The index may refer to chunks that were freed after the commit it represents. */
static bool was_freed_later(const struct check *k, struct addr a)
{
	uint32_t frame, in;

	return check_tail_of(k, a.pack, UINT32_MAX) ||
	       (check_place(a.off, &frame, &in) && check_tail_of(k, a.pack, frame));
}

/* Adds the part of an extent that overlaps [off, off+len) of its pack. */
static int add_overlap(struct scan *s, uint64_t ino, uint64_t base, const struct extent *x, uint32_t off, uint32_t len,
		       enum hit_why why)
{
	uint32_t start = MAX(x->addr.off, off), end = MIN(x->addr.off + x->len, off + len);
	struct hit hit = { .ino = ino,
			   .off = base + x->off + (start - x->addr.off),
			   .len = end - start,
			   .addr = { .pack = x->addr.pack, .off = start },
			   .why = why };

	return hits_add(s->k, &s->hits, &hit);
}

static size_t first_bad(const struct check_window *w, struct addr a)
{
	size_t lo = 0, hi = w->nr_bad;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct bad_chunk *b = &w->bad[mid];

		if (b->pack < a.pack || (b->pack == a.pack && b->off + b->len <= a.off))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static size_t first_gone(const struct check_window *w, struct addr a)
{
	size_t lo = 0, hi = w->nr_gone;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct gone_chunks *g = &w->gone[mid];

		if (g->pack < a.pack || (g->pack == a.pack && g->off + g->len <= a.off))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Are the chunks of an extent in an existing frame damaged or freed? */
static int check_chunks(struct scan *s, uint64_t ino, uint64_t base, const struct extent *x)
{
	struct check_window *w = s->w;
	uint32_t end = x->addr.off + x->len;
	int r = 0;

	for (size_t i = first_bad(w, x->addr); r == 0 && i < w->nr_bad; i++) {
		struct bad_chunk *b = &w->bad[i];

		if (b->pack != x->addr.pack || b->off >= end)
			break;
		b->used = true;
		if (!b->repaired)
			r = add_overlap(s, ino, base, x, b->off, b->len, HIT_CHUNK);
	}
	for (size_t i = first_gone(w, x->addr); r == 0 && i < w->nr_gone; i++) {
		const struct gone_chunks *g = &w->gone[i];

		if (g->pack != x->addr.pack || g->off >= end)
			break;
		if (!was_freed_later(s->k, x->addr))
			r = add_overlap(s, ino, base, x, g->off, g->len, HIT_COLLECTED);
	}
	return r;
}

static void frame_is_used(struct check_window *w, struct addr a)
{
	uint32_t frame, in;

	if (!check_place(a.off, &frame, &in))
		return;
	for (struct bad_frame *b = w->frames; b < w->frames + w->nr_frames; b++)
		if (b->pack == a.pack && b->frame == frame)
			b->used = true;
}

static int check_one(struct scan *s, uint64_t ino, uint64_t base, const struct extent *x)
{
	enum extent_state state = check_extent(&s->w->map, x->addr, x->len);
	struct hit hit = { ino, base + x->off, x->len, x->addr, why_of(state) };

	if (state == EXTENT_FINE)
		return check_chunks(s, ino, base, x);
	if (!concerns(s, x, state) || was_freed_later(s->k, x->addr))
		return 0;
	if (state == EXTENT_NO_TABLE)
		frame_is_used(s->w, x->addr);
	return hits_add(s->k, &s->hits, &hit);
}

static int check_recipe(struct scan *s, const void *key, size_t key_len, const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	uint64_t ino, segment;
	size_t nr;
	int r = 0;

	if (recipe_key_decode(key, key_len, &ino, &segment) < 0)
		return 0; /* reported by check_view() */
	r = recipe_read(s->k->db, NULL, value, len, &x, &nr);
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	for (size_t i = 0; r == 0 && i < nr; i++)
		r = check_one(s, ino, segment * SEGMENT_SIZE, &x[i]);
	return r;
}

int check_extents(struct check *k, struct check_window *w)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct scan s = { .k = k, .w = w };
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	r = hits_init(&s.hits);
	if (r == 0)
		r = db_iter_new(k->db, NULL, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = check_recipe(&s, key, key_len, value, value_len);
		if (r == 0 && ++s.nr % RECIPES_PER_STEP == 0)
			r = check_step(k, "recipes", s.nr, 0, false);
	}
	if (r == 0)
		r = hits_report(k, &s.hits);
	hits_release(&s.hits);
	return r;
}
