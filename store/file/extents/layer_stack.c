/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/extents/layer_stack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/util.h"
#include "index/db.h"
#include "store/file/extents/segment.h"

/* Decode one part, and the number of the layer that it names. */
static int add_part(struct stack *s, uint64_t layer, const void *value, size_t len, uint64_t *ret_below)
{
	struct stack_part *p = &s->v[s->nr];
	int r;

	if (s->nr == ARRAY_SIZE(s->v))
		return -EBADMSG;
	r = recipe_decode_over(value, len, ret_below, &p->x, &p->nr);
	if (r < 0)
		return r;
	p->layer = layer;
	s->nr++;
	return layer > 0 && *ret_below >= layer ? -EBADMSG : 0;
}

int stack_read(struct db *db, const struct db_snapshot *state, const void *recipe, size_t len, struct stack *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	uint64_t layer = 0;
	int r;

	ret->nr = 0;
	r = add_part(ret, 0, recipe, len, &layer);
	while (r == 0 && layer > 0) {
		struct ns_key k = layer_key(layer);

		buf_clear(&value);
		r = db_get_at(db, state, k.b, k.len, &value);
		if (r > 0)
			r = add_part(ret, layer, value.data, value.len, &layer);
		else if (r == 0)
			r = -EBADMSG;
	}
	if (r < 0)
		stack_release(ret);
	return r;
}

void stack_release(struct stack *s)
{
	while (s->nr > 0)
		free(s->v[--s->nr].x);
}

int stack_merge(const struct stack *s, struct extent **ret, size_t *ret_nr)
{
	struct extent_span spans[ARRAY_SIZE(s->v)];
	struct extent_list l = { 0 };
	int r;

	for (unsigned i = 0; i < s->nr; i++)
		spans[s->nr - 1 - i] = (struct extent_span){ s->v[i].x, s->v[i].nr };
	r = extent_list_merge(spans, s->nr, &l);
	if (r < 0) {
		extent_list_release(&l);
		return r;
	}
	*ret = l.x;
	*ret_nr = l.nr;
	return 0;
}

int recipe_read(struct db *db, const struct db_snapshot *state, const void *recipe, size_t len, struct extent **ret,
		size_t *ret_nr)
{
	struct stack s;
	int r = stack_read(db, state, recipe, len, &s);

	if (r < 0)
		return r;
	if (s.nr == 1) {
		*ret = TAKE(s.v[0].x);
		*ret_nr = s.v[0].nr;
	} else {
		r = stack_merge(&s, ret, ret_nr);
	}
	stack_release(&s);
	return r;
}

int stack_into_segment(struct stack *s, struct segment *to)
{
	struct layer *top = NULL;
	int r = 0;

	assert(segment_is_empty(to));
	if (s->nr == 1) {
		to->x = TAKE(s->v[0].x);
		to->nr = to->size = (uint32_t)s->v[0].nr;
		return 0;
	}
	for (unsigned i = s->nr; i-- > 0 && r == 0;) {
		struct stack_part *p = &s->v[i];
		struct extent_list l = { .x = p->x, .nr = p->nr, .size = p->nr };

		if (p->nr == 0 && i == 0)
			break; /* a recipe without extents of its own */
		if (p->nr == 0)
			r = -EBADMSG;
		else
			r = top ? layer_as_read(top, &l, to->memory, &top) : layer_new(&l, to->memory, &top);
		p->x = l.x;
		if (r == 0)
			top->number = p->layer;
	}
	if (r < 0) {
		layer_put(top);
		return r;
	}
	segment_put_layers(to, top);
	return 0;
}
