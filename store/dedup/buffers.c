/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bounded pool of data buffers (`dirty`). A caller that finds all buffers in use first flushes the oldest staged
 * data, which frees its buffer. If nothing is staged, it does the work of a job that waits for a worker; if none waits,
 * other threads work on all of them and return the buffers when done. Called with no lock held.
 */
#include "store/dedup/buffers.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/util.h"
#include "store/dedup/write_jobs.h"
#include "store/engine_state.h"
#include "store/file/stage.h"

#define BUFFERS_MIN 24 /* the request loop and the workers always hold some */
#define BUFFER_BYTES (ENGINE_BUFFER_FRONT + ENGINE_BUFFER_SIZE + 4096)
/* Allocated many at a time, from huge pages if the system has them: the kernel copies every request into them page by
 * page. */
#define HUGE_PAGE MiB(2)
#define SLAB_BYTES MiB(16)
#define SLAB_BUFFERS 15u
static_assert(SLAB_BUFFERS * BUFFER_BYTES <= SLAB_BYTES, "all of them fit");

struct buffer_slab {
	struct buffer_slab *next;
	uint8_t *mem;
	struct engine_buffer buffers[SLAB_BUFFERS];
};

struct buffers {
	struct mutex lock; /* leaf */
	struct cond free_cond;
	struct engine_buffer *free GUARDED_BY(lock);
	struct buffer_slab *slabs GUARDED_BY(lock);
	uint64_t nr, nr_free GUARDED_BY(lock);
	uint64_t max; /* constant */
};

struct buffers *buffers_new(uint64_t bytes)
{
	struct buffers *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	mutex_init(&b->lock);
	cond_init(&b->free_cond);
	b->max = MAX(bytes / ENGINE_BUFFER_SIZE, (uint64_t)BUFFERS_MIN);
	return b;
}

void buffers_free(struct buffers *b)
{
	struct buffer_slab *s;

	if (!b)
		return;
	while ((s = b->slabs)) {
		b->slabs = s->next;
		munmap(s->mem, SLAB_BYTES);
		free(s);
	}
	cond_release(&b->free_cond);
	mutex_release(&b->lock);
	free(b);
}

bool buffers_are_short(struct buffers *b)
{
	bool is_short;

	mutex_lock(&b->lock);
	is_short = b->nr - b->nr_free > b->max / 2;
	mutex_unlock(&b->lock);
	return is_short;
}

uint64_t buffers_memory(struct buffers *b)
{
	uint64_t nr;

	mutex_lock(&b->lock);
	nr = b->nr;
	mutex_unlock(&b->lock);
	return nr * ENGINE_BUFFER_SIZE;
}

static struct buffer_slab *slab_new(void)
{
	struct buffer_slab *s = calloc(1, sizeof(*s));
	uint8_t *mem = mmap(NULL, SLAB_BYTES + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (!s || mem == MAP_FAILED) {
		free(s);
		if (mem != MAP_FAILED)
			munmap(mem, SLAB_BYTES + HUGE_PAGE);
		return NULL;
	}
	before = round_up((uintptr_t)mem, HUGE_PAGE) - (uintptr_t)mem;
	if (before > 0)
		munmap(mem, before);
	s->mem = mem + before;
	munmap(s->mem + SLAB_BYTES, HUGE_PAGE - before);
	madvise(s->mem, SLAB_BYTES, MADV_HUGEPAGE); /* without huge pages it is only slower */
	for (unsigned i = 0; i < SLAB_BUFFERS; i++)
		s->buffers[i].data = s->mem + i * BUFFER_BYTES + ENGINE_BUFFER_FRONT;
	return s;
}

static void put_locked(struct engine *e, struct engine_buffer *b) REQUIRES(e->buffers->lock)
{
	b->next = e->buffers->free;
	e->buffers->nr_free++;
	e->buffers->free = b; /* reuse the most recently used one: it is in the CPU caches */
	cond_signal(&e->buffers->free_cond);
}

static int add_slab(struct engine *e, uint64_t nr)
{
	struct buffer_slab *s = slab_new();

	mutex_lock(&e->buffers->lock);
	if (s) {
		s->next = e->buffers->slabs;
		e->buffers->slabs = s;
		for (unsigned i = 0; i < nr; i++)
			put_locked(e, &s->buffers[i]);
	} else {
		e->buffers->nr -= nr;
	}
	mutex_unlock(&e->buffers->lock);
	return s ? 0 : -ENOMEM;
}

int buffer_try(struct engine *e, struct engine_buffer **ret)
{
	struct engine_buffer *b;
	uint64_t nr_new = 0;
	int r;

	mutex_lock(&e->buffers->lock);
	b = e->buffers->free;
	if (b) {
		e->buffers->free = b->next;
		e->buffers->nr_free--;
	} else {
		nr_new = MIN(e->buffers->max - e->buffers->nr, (uint64_t)SLAB_BUFFERS);
	}
	e->buffers->nr += nr_new;
	mutex_unlock(&e->buffers->lock);
	if (nr_new > 0) {
		r = add_slab(e, nr_new);
		return r < 0 ? r : buffer_try(e, ret); /* other threads may have taken them all */
	}
	if (!b)
		return 0;
	b->next = NULL;
	*ret = b;
	return 1;
}

unsigned engine_nr_buffers(const struct engine *e)
{
	return (unsigned)MIN(e->buffers->max, (uint64_t)UINT_MAX);
}

int engine_buffer_get(struct engine *e, struct engine_buffer **ret)
{
	int r;

	while ((r = buffer_try(e, ret)) == 0) {
		if (stages_flush_oldest(e) || jobs_help(e))
			continue;
		mutex_lock(&e->buffers->lock);
		if (!e->buffers->free) /* new stages can appear while we sleep: check again now and then */
			cond_wait_for(&e->buffers->free_cond, &e->buffers->lock, 10 * 1000 * 1000);
		mutex_unlock(&e->buffers->lock);
	}
	return r < 0 ? r : 0;
}

void engine_buffer_put(struct engine *e, struct engine_buffer *b)
{
	if (!b)
		return;
	mutex_lock(&e->buffers->lock);
	put_locked(e, b);
	mutex_unlock(&e->buffers->lock);
}
