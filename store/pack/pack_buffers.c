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

/* The one that holds parts of this frame; NULL: there is none. */
static struct pack_buffer *pop_held(struct pack_buffers *bs, uint32_t pack, uint32_t frame) REQUIRES(bs->lock)
{
	struct pack_buffer **at = &bs->held;

	while (*at && ((*at)->held.pack != pack || (*at)->held.frame != frame))
		at = &(*at)->next_free;
	return pop(at, &bs->nr_held);
}

static struct pack_buffer *pop_oldest(struct pack_buffers *bs) REQUIRES(bs->lock)
{
	struct pack_buffer **at = &bs->held;

	while (*at && (*at)->next_free)
		at = &(*at)->next_free;
	return pop(at, &bs->nr_held);
}

struct pack_buffer *pack_buffer_get(struct pack_buffers *bs)
{
	struct pack_buffer *b;

	mutex_lock(&bs->lock);
	b = pop(&bs->free, &bs->nr_free);
	if (!b && bs->nr_held == bs->max_held)
		b = pop_oldest(bs);
	mutex_unlock(&bs->lock);
	return b ? b : aligned_alloc(PACK_BLOCK, sizeof(*b));
}

void pack_buffer_put(struct pack_buffers *bs, struct pack_buffer *b)
{
	if (!b)
		return;
	mutex_lock(&bs->lock);
	if (bs->nr_free < bs->max_free) {
		push(&bs->free, &bs->nr_free, b);
		b = NULL;
	}
	mutex_unlock(&bs->lock);
	free(b);
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
	was = pop_held(bs, held->pack, held->frame); /* of another reader: this one is as good */
	if (!was && bs->nr_held == bs->max_held)
		was = pop_oldest(bs);
	b->held = *held;
	push(&bs->held, &bs->nr_held, b);
	mutex_unlock(&bs->lock);
	pack_buffer_put(bs, was);
}
