/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/pack_buffers.h"

#include <limits.h>
#include <stdlib.h>

#include "base/util.h"

#define NR_FREE_MIN 8u

static_assert(offsetof(struct pack_buffer, data) == PACK_BLOCK, "table and data are one aligned piece");
static_assert(sizeof(struct pack_buffer) % PACK_BLOCK == 0, "a size that aligned_alloc() takes");

void pack_buffers_init(struct pack_buffers *bs, unsigned nr_spare, uint64_t held_memory)
{
	uint64_t nr_held = MIN(held_memory / sizeof(struct pack_buffer), (uint64_t)UINT_MAX);

	*bs = (struct pack_buffers){ .max_free = MAX(nr_spare, NR_FREE_MIN),
				     .max_held = MAX((unsigned)nr_held, PACK_HELD_MIN) };
	mutex_init(&bs->lock);
}

static void free_all(struct pack_buffer *b)
{
	for (struct pack_buffer *next; b; b = next) {
		next = b->next_free;
		free(b);
	}
}

void pack_buffers_release(struct pack_buffers *bs)
{
	free_all(bs->free);
	free_all(bs->held);
	mutex_release(&bs->lock);
}

static void push(struct pack_buffer **list, unsigned *nr, struct pack_buffer *b)
{
	b->next_free = *list;
	*list = b;
	(*nr)++;
}

static struct pack_buffer *pop(struct pack_buffer **list, unsigned *nr)
{
	struct pack_buffer *b = *list;

	if (b) {
		*list = b->next_free;
		(*nr)--;
	}
	return b;
}

static bool is_read(const struct pack_held *h)
{
	return h->given >= h->plain_len;
}

static struct pack_buffer *pop_at(struct pack_buffers *bs, struct pack_buffer **at) REQUIRES(bs->lock)
{
	struct pack_buffer *b = pop(at, &bs->nr_held);

	bs->nr_read -= b && is_read(&b->held);
	return b;
}

/* The buffer that caches parts of this frame, or NULL. */
static struct pack_buffer *pop_held(struct pack_buffers *bs, uint32_t pack, uint32_t frame) REQUIRES(bs->lock)
{
	struct pack_buffer **at = &bs->held;

	while (*at && ((*at)->held.pack != pack || (*at)->held.frame != frame))
		at = &(*at)->next_free;
	return pop_at(bs, at);
}

static struct pack_buffer **last_of(struct pack_buffer **at)
{
	while (*at && (*at)->next_free)
		at = &(*at)->next_free;
	return at;
}

static struct pack_buffer *pop_oldest(struct pack_buffers *bs) REQUIRES(bs->lock)
{
	return pop_at(bs, last_of(&bs->held));
}

static void push_held(struct pack_buffers *bs, struct pack_buffer *b) REQUIRES(bs->lock)
{
	struct pack_buffer **at = &bs->held;

	if (is_read(&b->held)) {
		bs->nr_read++;
		at = last_of(at);
		at = *at ? &(*at)->next_free : at;
	}
	push(at, &bs->nr_held, b);
}

struct pack_buffer *pack_buffer_get(struct pack_buffers *bs)
{
	struct pack_buffer *b;

	mutex_lock(&bs->lock);
	b = pop(&bs->free, &bs->nr_free);
	if (!b && (bs->nr_read > 0 || bs->nr_held == bs->max_held))
		b = pop_oldest(bs);
	mutex_unlock(&bs->lock);
	return b ? b : aligned_alloc(PACK_BLOCK, sizeof(*b));
}

/* `held_too`: keep it among the caching buffers if there are enough free ones. */
static void put_buffer(struct pack_buffers *bs, struct pack_buffer *b, bool held_too)
{
	if (!b)
		return;
	mutex_lock(&bs->lock);
	if (bs->nr_free < bs->max_free) {
		push(&bs->free, &bs->nr_free, b);
		b = NULL;
	} else if (held_too && bs->nr_held < bs->max_held) {
		b->held = (struct pack_held){ .pack = 0 }; /* no pack has this number */
		push_held(bs, b);
		b = NULL;
	}
	mutex_unlock(&bs->lock);
	free(b);
}

void pack_buffer_put(struct pack_buffers *bs, struct pack_buffer *b)
{
	put_buffer(bs, b, false);
}

void pack_buffer_put_read(struct pack_buffers *bs, struct pack_buffer *b)
{
	put_buffer(bs, b, true);
}

struct pack_buffer *pack_buffer_get_held(struct pack_buffers *bs, uint32_t pack, uint32_t frame, struct pack_held *ret)
{
	struct pack_buffer *b;

	mutex_lock(&bs->lock);
	b = pop_held(bs, pack, frame);
	mutex_unlock(&bs->lock);
	*ret = b ? b->held : (struct pack_held){ .pack = pack, .frame = frame };
	return b ? b : pack_buffer_get(bs);
}

void pack_buffer_put_held(struct pack_buffers *bs, struct pack_buffer *b, const struct pack_held *held)
{
	struct pack_buffer *was;

	mutex_lock(&bs->lock);
	was = pop_held(bs, held->pack, held->frame); /* put by another reader: `b` is as good */
	b->held = *held;
	if (was)
		b->held.given = MIN(held->given + was->held.given, held->plain_len);
	else if (bs->nr_held == bs->max_held)
		was = pop_oldest(bs);
	push_held(bs, b);
	mutex_unlock(&bs->lock);
	pack_buffer_put_read(bs, was);
}
