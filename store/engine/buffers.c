/*
 * The bounded memory that carries data (`dirty`). Whoever wants a buffer while all are in use first helps: it pushes
 * the oldest staged bytes on, which frees their buffer; when nothing is staged the rest is with workers and comes
 * back by itself. Called with no lock held.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"

#define BUFFERS_MIN 24 /* the request loop and the workers hold some at any time */
#define BUFFER_BYTES (ENGINE_BUFFER_FRONT + ENGINE_BUFFER_SIZE + 4096)

int buffers_init(struct engine *e)
{
	mutex_init(&e->buffers.lock);
	cond_init(&e->buffers.free_cond);
	e->buffers.max = MAX(e->conf.dirty / ENGINE_BUFFER_SIZE, (uint64_t)BUFFERS_MIN);
	return 0;
}

static void buffer_free(struct engine_buffer *b)
{
	free(b->data - ENGINE_BUFFER_FRONT);
	free(b);
}

void buffers_release(struct engine *e)
{
	struct engine_buffer *b;

	while ((b = e->buffers.free)) {
		e->buffers.free = b->next;
		buffer_free(b);
	}
	cond_release(&e->buffers.free_cond);
	mutex_release(&e->buffers.lock);
}

static struct engine_buffer *buffer_alloc(void)
{
	struct engine_buffer *b = malloc(sizeof(*b));
	uint8_t *mem = aligned_alloc(4096, BUFFER_BYTES);

	if (!b || !mem) {
		free(b);
		free(mem);
		return NULL;
	}
	*b = (struct engine_buffer){ .data = mem + ENGINE_BUFFER_FRONT };
	return b;
}

/* 1: got one, 0: all in use, -ENOMEM. */
static int buffer_try(struct engine *e, struct engine_buffer **ret)
{
	struct engine_buffer *b;
	bool may_alloc = false;

	mutex_lock(&e->buffers.lock);
	b = e->buffers.free;
	if (b) {
		e->buffers.free = b->next;
	} else if (e->buffers.nr < e->buffers.max) {
		e->buffers.nr++;
		may_alloc = true;
	}
	mutex_unlock(&e->buffers.lock);
	if (may_alloc) {
		b = buffer_alloc();
		if (!b) {
			mutex_lock(&e->buffers.lock);
			e->buffers.nr--;
			mutex_unlock(&e->buffers.lock);
			return -ENOMEM;
		}
	}
	if (!b)
		return 0;
	b->next = NULL;
	*ret = b;
	return 1;
}

int engine_buffer_get(struct engine *e, struct engine_buffer **ret)
{
	int r;

	while ((r = buffer_try(e, ret)) == 0) {
		if (stages_flush_oldest(e))
			continue;
		mutex_lock(&e->buffers.lock);
		if (!e->buffers.free) /* new stages can appear while we sleep: look again now and then */
			cond_wait_for(&e->buffers.free_cond, &e->buffers.lock, 10 * 1000 * 1000);
		mutex_unlock(&e->buffers.lock);
	}
	return r < 0 ? r : 0;
}

void engine_buffer_put(struct engine *e, struct engine_buffer *b)
{
	if (!b)
		return;
	mutex_lock(&e->buffers.lock);
	b->next = e->buffers.free;
	e->buffers.free = b;
	cond_signal(&e->buffers.free_cond);
	mutex_unlock(&e->buffers.lock);
}
