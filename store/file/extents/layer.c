/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/extents/layer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/file/extents/segment.h"

static uint64_t bytes_of(const struct layer *l)
{
	return sizeof(*l) + l->nr * sizeof(*l->x) + l->frames.size * sizeof(*l->frames.v);
}

static struct layer *layer_alloc(size_t nr_own, _Atomic uint64_t *memory)
{
	struct layer *l = malloc(sizeof(*l) + nr_own * sizeof(*l->own));

	if (l)
		*l = (struct layer){ .refs = 1, .memory = memory, .depth = 1 };
	return l;
}

/* Stack l on `below`. */
static void put_on(struct layer *l, struct layer *below)
{
	l->below = below;
	l->depth = 1 + below->depth;
}

static void count(struct layer *l)
{
	if (l->memory)
		atomic_fetch_add(l->memory, bytes_of(l));
}

/* Takes the extents, at least one. */
static int layer_of(struct extent_list *list, _Atomic uint64_t *memory, struct layer **ret)
{
	struct layer *l = layer_alloc(0, memory);
	struct extent *x = l ? realloc(list->x, list->nr * sizeof(*x)) : NULL;

	assert(list->nr > 0);
	if (!x) {
		free(l);
		return -ENOMEM;
	}
	l->x = x;
	l->nr = (uint32_t)list->nr;
	*list = (struct extent_list){ 0 };
	*ret = l;
	return 0;
}

int layer_new(struct extent_list *list, _Atomic uint64_t *memory, struct layer **ret)
{
	struct layer *l;
	int r = layer_of(list, memory, &l);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < l->nr; i++)
		l->mapped += l->x[i].len;
	l->is_dense = l->mapped == l->x[l->nr - 1].off + l->x[l->nr - 1].len;
	count(l);
	*ret = l;
	return 0;
}

int layer_as_read(struct layer *below, struct extent_list *list, _Atomic uint64_t *memory, struct layer **ret)
{
	struct layer *l;
	int r = layer_of(list, memory, &l);

	if (r < 0)
		return r;
	put_on(l, below);
	l->mapped = below->mapped;
	l->is_dense = below->is_dense;
	count(l);
	*ret = l;
	return 0;
}

/* Pseudo-random, but deterministic for the same extents. */
static unsigned dice(const struct extent *x, unsigned depth)
{
	uint64_t h = ((uint64_t)x->addr.off << 32 | x->off) + depth;

	h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
	h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
	return (unsigned)(h >> 60); /* 0 to 15 */
}

/* Fewer than 8/16 to 23/16 as many? Of layers of equal size every second one is absorbed, so that they cannot pile
 * up. */
static bool is_small(const struct layer *below, size_t nr, const struct extent *x)
{
	return 16 * (size_t)below->nr < nr * (8 + dice(x, below->depth));
}

/* Merge with the small layers below. */
static int layer_merged(struct layer *below, uint32_t off, const struct extent *x, size_t nr, struct layer **ret)
{
	struct extent_list all = { 0 }, more = { 0 };
	struct layer *rest = below, *l = NULL;
	int r = extent_list_reserve(&all, nr);

	for (size_t i = 0; i < nr && r == 0; i++)
		r = extent_list_add(&all, off + x[i].off, x[i].len, x[i].addr);
	while (r == 0 && rest && is_small(rest, all.nr, x)) {
		r = extent_list_lay_over(rest->x, rest->nr, all.x, all.nr, &more);
		free(all.x);
		all = more;
		more = (struct extent_list){ 0 };
		rest = rest->below;
	}
	if (r == 0)
		r = layer_of(&all, below->memory, &l);
	extent_list_release(&all);
	if (r < 0)
		return r;
	if (rest)
		put_on(l, layer_get(rest));
	l->mapped = below->mapped;
	l->is_dense = below->is_dense;
	count(l);
	layer_put(below);
	*ret = l;
	return 0;
}

int layer_on(struct layer *below, uint32_t off, const struct extent *x, size_t nr, struct layer **ret)
{
	struct layer *l;

	if (is_small(below, nr, x))
		return layer_merged(below, off, x, nr, ret);
	l = layer_alloc(nr, below->memory);
	if (!l)
		return -ENOMEM;
	put_on(l, below);
	l->mapped = below->mapped;
	l->is_dense = below->is_dense;
	l->x = l->own;
	l->nr = (uint32_t)nr;
	for (size_t i = 0; i < nr; i++)
		l->x[i] = (struct extent){ off + x[i].off, x[i].len, x[i].addr };
	count(l);
	*ret = l;
	return 0;
}

struct layer *layer_get(struct layer *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
	return l;
}

void layer_put(struct layer *l)
{
	while (l && atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
		struct layer *below = l->below;

		if (l->memory)
			atomic_fetch_sub(l->memory, bytes_of(l));
		if (l->x != l->own)
			free(l->x);
		frames_set_release(&l->frames);
		free(l);
		l = below;
	}
}

int layer_merge_some(const struct layer *top, unsigned nr, struct extent_list *ret)
{
	struct extent_span few[8] = { 0 }, *spans = nr <= ARRAY_SIZE(few) ? few : calloc(nr, sizeof(*spans));
	int r;

	assert(nr > 0 && nr <= top->depth);
	if (!spans)
		return -ENOMEM;
	for (unsigned i = nr; i-- > 0; top = top->below)
		spans[i] = (struct extent_span){ top->x, top->nr };
	r = extent_list_merge(spans, nr, ret);
	if (spans != few)
		free(spans);
	return r;
}

int layer_merge(const struct layer *top, struct extent_list *ret)
{
	return layer_merge_some(top, top->depth, ret);
}

int layer_frames(struct layer *l, const struct frames_set **ret)
{
	if (!l->frames.v) {
		int r = frames_set_of(l->x, l->nr, &l->frames);

		if (r < 0)
			return r;
		frames_set_trim(&l->frames);
		if (l->memory)
			atomic_fetch_add(l->memory, l->frames.size * sizeof(*l->frames.v));
	}
	*ret = &l->frames;
	return 0;
}
