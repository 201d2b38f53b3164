/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/extents/segment.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/file/extents/layer_stack.h"
#include "store/pack/pack.h"

bool extent_continues(const struct extent *x, uint32_t off, struct addr next)
{
	return x->off + x->len == off && x->addr.off + x->len == next.off && pack_same_frame(x->addr, next);
}

int extent_list_reserve(struct extent_list *l, size_t nr)
{
	size_t size = MAX(2 * l->size, l->nr + nr);
	struct extent *x;

	if (l->nr + nr <= l->size)
		return 0;
	x = realloc(l->x, size * sizeof(*x));
	if (!x)
		return -ENOMEM;
	l->x = x;
	l->size = size;
	return 0;
}

int extent_list_add(struct extent_list *l, uint32_t off, uint32_t len, struct addr a)
{
	int r;

	if (l->nr > 0 && extent_continues(&l->x[l->nr - 1], off, a)) {
		l->x[l->nr - 1].len += len;
		return 0;
	}
	r = extent_list_reserve(l, l->nr == 0 ? 4 : 1);
	if (r == 0)
		l->x[l->nr++] = (struct extent){ off, len, a };
	return r;
}

int extent_list_append(struct extent_list *l, const struct extent *x, size_t nr, int64_t shift)
{
	int r = nr > 0 ? extent_list_reserve(l, nr) : 0;

	if (r == 0 && nr > 0)
		r = extent_list_add(l, (uint32_t)(x->off + shift), x->len, x->addr);
	for (size_t i = 1; i < nr && r == 0; i++) {
		l->x[l->nr] = x[i];
		l->x[l->nr++].off = (uint32_t)(x[i].off + shift);
	}
	return r;
}

static struct addr addr_plus(struct addr a, uint32_t n)
{
	a.off += n;
	return a;
}

/* The part of x inside [from, to). */
static struct extent part_of(const struct extent *x, uint32_t from, uint32_t to)
{
	uint32_t start = MAX(x->off, from), end = MIN(x->off + x->len, to);

	return (struct extent){ start, start < end ? end - start : 0, addr_plus(x->addr, start - x->off) };
}

static int add_part(struct extent_list *l, const struct extent *x, uint32_t from, uint32_t to)
{
	struct extent part = part_of(x, from, to);

	return part.len > 0 ? extent_list_add(l, part.off, part.len, part.addr) : 0;
}

/* Append; the caller has reserved room. */
static inline void append_extent(struct extent_list *l, const struct extent *x)
{
	if (l->nr > 0 && extent_continues(&l->x[l->nr - 1], x->off, x->addr))
		l->x[l->nr - 1].len += x->len;
	else
		l->x[l->nr++] = *x;
}

/* Append the parts of the extents from *at on that lie in [begin, end). Most are taken whole, and there are millions
 * when a version is written to the view. */
static void put_between(struct extent_list *l, const struct extent *x, size_t nr, size_t *at, uint32_t begin, uint32_t end)
{
	for (; *at < nr && x[*at].off < end; (*at)++) {
		bool goes_on = x[*at].off + x[*at].len > end;
		struct extent part;

		if (x[*at].off >= begin && !goes_on) {
			append_extent(l, &x[*at]);
			continue;
		}
		part = part_of(&x[*at], begin, end);
		if (part.len > 0)
			append_extent(l, &part);
		if (goes_on)
			break; /* its remainder comes after the next upper extent, if any is visible */
	}
}

int extent_list_lay_over(const struct extent *lower, size_t nr_lower, const struct extent *upper, size_t nr_upper,
			 struct extent_list *ret)
{
	uint32_t end = 0;
	size_t at = 0;
	int r;

	r = extent_list_reserve(ret, nr_lower + 2 * nr_upper); /* each may split one in two */
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr_upper; i++) {
		put_between(ret, lower, nr_lower, &at, end, upper[i].off);
		append_extent(ret, &upper[i]);
		end = upper[i].off + upper[i].len;
	}
	put_between(ret, lower, nr_lower, &at, end, SEGMENT_SIZE);
	return 0;
}

/* Merge recursively in halves: each extent is visited as often as the number of lists can be halved. */
static int merge_halves(const struct extent_span *spans, size_t nr, struct extent_list *ret)
{
	struct extent_list lower = { 0 }, upper = { 0 };
	size_t half = nr / 2;
	int r;

	if (nr == 1)
		return extent_list_append(ret, spans[0].x, spans[0].nr, 0);
	if (nr == 2)
		return extent_list_lay_over(spans[0].x, spans[0].nr, spans[1].x, spans[1].nr, ret);
	r = merge_halves(spans, half, &lower);
	if (r == 0)
		r = merge_halves(spans + half, nr - half, &upper);
	if (r == 0)
		r = extent_list_lay_over(lower.x, lower.nr, upper.x, upper.nr, ret);
	extent_list_release(&lower);
	extent_list_release(&upper);
	return r;
}

/* The lowest list has most extents, so it is merged last. */
int extent_list_merge(const struct extent_span *spans, size_t nr, struct extent_list *ret)
{
	struct extent_list rest = { 0 };
	int r;

	if (nr <= 2)
		return merge_halves(spans, nr, ret);
	r = merge_halves(spans + 1, nr - 1, &rest);
	if (r == 0)
		r = extent_list_lay_over(spans[0].x, spans[0].nr, rest.x, rest.nr, ret);
	extent_list_release(&rest);
	return r;
}

void extent_list_release(struct extent_list *l)
{
	free(l->x);
	*l = (struct extent_list){ 0 };
}

size_t segment_find(const struct segment *s, uint32_t off)
{
	size_t lo = 0, hi = s->nr;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (s->x[mid].off + s->x[mid].len > off)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static uint64_t mapped(const struct extent *x, size_t nr)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < nr; i++)
		sum += x[i].len;
	return sum;
}

uint64_t segment_mapped(const struct segment *s)
{
	return mapped(s->x, s->nr);
}

/* With a single layer, x belongs to that layer. */
static void release_list(struct segment *s)
{
	if (s->size > 0 || !s->layers)
		free(s->x);
	s->x = NULL;
	s->nr = s->size = 0;
}

static void release_extents(struct segment *s)
{
	release_list(s);
	layer_put(s->layers);
	s->layers = NULL;
}

void segment_release(struct segment *s)
{
	release_extents(s);
	frames_set_release(&s->filed);
}

/* Takes the list. */
static void set_extents(struct segment *s, struct extent_list *l)
{
	release_extents(s);
	s->x = TAKE(l->x);
	s->nr = (uint32_t)l->nr;
	s->size = (uint32_t)l->size;
}

static void set_all(struct segment *s, struct extent_list *l)
{
	set_extents(s, l);
	s->dirty = true;
}

int segment_settle(struct segment *s)
{
	struct extent_list l = { 0 };
	int r;

	if (!s->layers || s->x)
		return 0;
	if (s->layers->depth == 1) {
		s->x = s->layers->x;
		s->nr = s->layers->nr;
		return 0;
	}
	r = layer_merge(s->layers, &l);
	if (r < 0)
		return r;
	s->x = l.x;
	s->nr = (uint32_t)l.nr;
	s->size = (uint32_t)l.size;
	return 0;
}

void segment_put_layers(struct segment *s, struct layer *l)
{
	assert(segment_is_empty(s));
	release_list(s);
	s->layers = l;
}

int segment_share(struct segment *from, struct segment *to)
{
	struct extent_list l = { .x = from->x, .nr = from->nr, .size = from->size };
	int r;

	assert(!segment_is_empty(from) && segment_is_empty(to));
	if (!from->layers) {
		r = layer_new(&l, from->memory, &from->layers);
		if (r < 0)
			return r;
		from->x = from->layers->x;
		from->size = 0;
	}
	segment_put_layers(to, layer_get(from->layers));
	to->dirty = true;
	return 0;
}

/* Replace extents [from, to) by the list. */
static int splice(struct segment *s, size_t from, size_t to, struct extent_list *l)
{
	size_t all = s->nr - (to - from) + l->nr;

	if (from == 0 && to == s->nr) {
		set_all(s, l);
		return 0;
	}
	if (s->layers && s->size > 0) {
		layer_put(TAKE(s->layers)); /* keep the merged extents */
	} else if (s->layers) {
		struct extent_list own = { 0 };
		int r = extent_list_append(&own, s->x, s->nr, 0);

		if (r < 0)
			return r;
		set_extents(s, &own);
	}
	if (all > s->size) {
		size_t size = MAX(all, 2 * (size_t)s->size);
		struct extent *x = realloc(s->x, size * sizeof(*x));

		if (!x)
			return -ENOMEM;
		s->x = x;
		s->size = (uint32_t)size;
	}
	if (to < s->nr)
		memmove(s->x + from + l->nr, s->x + to, (s->nr - to) * sizeof(*s->x));
	if (l->nr > 0)
		memcpy(s->x + from, l->x, l->nr * sizeof(*l->x));
	s->nr = (uint32_t)all;
	s->dirty = true;
	return 0;
}

int segment_replace(struct segment *s, uint32_t off, uint32_t len, const struct extent *x, size_t nr, int64_t *ret_mapped)
{
	struct extent_list l = { 0 };
	size_t from, to;
	int r;

	assert((uint64_t)off + len <= SEGMENT_SIZE && (s->x || !s->layers));
	/* The overlapping extents, and one on either side that new ones may merge with. */
	from = segment_find(s, off);
	from -= from > 0;
	to = segment_find(s, off + len);
	to += to < s->nr;
	r = extent_list_reserve(&l, nr + 2);
	for (size_t i = from; i < to && r == 0; i++)
		r = add_part(&l, &s->x[i], 0, off);
	for (size_t i = 0; i < nr && r == 0; i++)
		r = extent_list_add(&l, off + x[i].off, x[i].len, x[i].addr);
	for (size_t i = from; i < to && r == 0; i++)
		r = add_part(&l, &s->x[i], off + len, SEGMENT_SIZE);
	if (r == 0) {
		*ret_mapped = (int64_t)mapped(l.x, l.nr) - (from < to ? (int64_t)mapped(s->x + from, to - from) : 0);
		r = splice(s, from, to, &l);
	}
	extent_list_release(&l);
	return r;
}

/* Maximum depth, since all layers must be merged to get all extents; the view allows STACK_MAX. Usually layer_on()
 * keeps it below ten. */
#define LAYERS_MAX 48u
static_assert(LAYERS_MAX + 2 < STACK_MAX, "what is in memory can be written, and read again");

static int add_layer(struct segment *s, uint32_t off, const struct extent *x, size_t nr)
{
	int r = layer_on(s->layers, off, x, nr, &s->layers);

	if (r < 0)
		return r;
	release_list(s);
	s->dirty = true;
	return 0;
}

/* Extents relative to `off`, converted to offsets in the segment. */
static int moved_by(uint32_t off, const struct extent *x, size_t nr, struct extent_list *ret)
{
	int r = extent_list_reserve(ret, nr);

	for (size_t i = 0; i < nr && r == 0; i++)
		r = extent_list_add(ret, off + x[i].off, x[i].len, x[i].addr);
	return r;
}

static int lay_over(struct segment *s, uint32_t off, const struct extent *x, size_t nr, int64_t *ret_mapped)
{
	struct extent_list upper = { 0 }, l = { 0 };
	int r;

	r = segment_settle(s);
	if (r == 0)
		r = moved_by(off, x, nr, &upper);
	if (r == 0)
		r = extent_list_lay_over(s->x, s->nr, upper.x, upper.nr, &l);
	if (r == 0) {
		*ret_mapped = (int64_t)mapped(l.x, l.nr) - (int64_t)segment_mapped(s);
		set_all(s, &l);
	}
	extent_list_release(&upper);
	extent_list_release(&l);
	return r;
}

int segment_patch(struct segment *s, uint32_t off, const struct extent *x, size_t nr, int64_t *ret_mapped)
{
	uint32_t end;

	assert(nr > 0 && (uint64_t)off + x[nr - 1].off + x[nr - 1].len <= SEGMENT_SIZE);
	end = off + x[nr - 1].off + x[nr - 1].len;
	if (!s->layers || s->layers->depth >= LAYERS_MAX || !layer_covers(s->layers, end))
		return lay_over(s, off, x, nr, ret_mapped);
	*ret_mapped = 0;
	return add_layer(s, off, x, nr);
}

/* --- the tree --- */

/* Priority in the treap: the hashed address, so that no choice of offsets can produce a long branch. */
static uint64_t rank_of(const struct segment *s)
{
	uint64_t h = (uint64_t)(uintptr_t)s;

	h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
	return h ^ h >> 33;
}

struct segment *segment_tree_find(const struct segment_tree *t, uint64_t number)
{
	struct segment *s = t->top;

	while (s && s->number != number)
		s = number < s->number ? s->lower : s->higher;
	return s;
}

struct segment *segment_tree_from(const struct segment_tree *t, uint64_t number)
{
	struct segment *best = NULL;

	for (struct segment *s = t->top; s;) {
		if (s->number >= number)
			best = s;
		s = number <= s->number ? s->lower : s->higher;
	}
	return best;
}

void segment_tree_add(struct segment_tree *t, struct segment *s)
{
	struct segment **at = &t->top, **lower = &s->lower, **higher = &s->higher, *rest;

	while (*at && rank_of(*at) >= rank_of(s))
		at = s->number < (*at)->number ? &(*at)->lower : &(*at)->higher;
	rest = *at; /* the whole subtree goes below, split by number */
	*at = s;
	while (rest) {
		if (rest->number < s->number) {
			*lower = rest;
			lower = &rest->higher;
		} else {
			*higher = rest;
			higher = &rest->lower;
		}
		rest = rest->number < s->number ? rest->higher : rest->lower;
	}
	*lower = *higher = NULL;
}

void segment_tree_remove(struct segment_tree *t, struct segment *s)
{
	struct segment **at = &t->top, *lower = s->lower, *higher = s->higher;

	while (*at != s)
		at = s->number < (*at)->number ? &(*at)->lower : &(*at)->higher;
	while (lower && higher) {
		if (rank_of(lower) > rank_of(higher)) {
			*at = lower;
			at = &lower->higher;
			lower = *at;
		} else {
			*at = higher;
			at = &higher->lower;
			higher = *at;
		}
	}
	*at = lower ? lower : higher;
}
