#include "store/pack/pack_buffers.h"

#include <stdlib.h>

#include "base/util.h"

#define NR_FREE_MIN 8u

static_assert(offsetof(struct pack_buffer, data) == PACK_BLOCK, "table and data are one aligned piece");
static_assert(sizeof(struct pack_buffer) % PACK_BLOCK == 0, "a size that aligned_alloc() takes");

void pack_buffers_init(struct pack_buffers *bs, unsigned nr_spare)
{
	*bs = (struct pack_buffers){ .max_free = MAX(nr_spare, NR_FREE_MIN) };
	mutex_init(&bs->lock);
}

void pack_buffers_release(struct pack_buffers *bs)
{
	for (struct pack_buffer *b = bs->free, *next; b; b = next) {
		next = b->next_free;
		free(b);
	}
	mutex_release(&bs->lock);
}

struct pack_buffer *pack_buffer_get(struct pack_buffers *bs)
{
	struct pack_buffer *b;

	mutex_lock(&bs->lock);
	b = bs->free;
	if (b) {
		bs->free = b->next_free;
		bs->nr_free--;
	}
	mutex_unlock(&bs->lock);
	return b ? b : aligned_alloc(PACK_BLOCK, sizeof(*b));
}

void pack_buffer_put(struct pack_buffers *bs, struct pack_buffer *b)
{
	if (!b)
		return;
	mutex_lock(&bs->lock);
	if (bs->nr_free < bs->max_free) {
		b->next_free = bs->free;
		bs->free = b;
		bs->nr_free++;
		b = NULL;
	}
	mutex_unlock(&bs->lock);
	free(b);
}
