/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/file_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/file_state.h"

struct file_table *file_table_new(void)
{
	struct file_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	mutex_init(&t->lock);
	t->dirty_end = &t->dirty;
	return t;
}

void file_table_free(struct file_table *t)
{
	if (!t)
		return;
	mutex_release(&t->lock);
	free(t);
}

/* --- dirty contents --- */

void dirty_append(struct file_table *t, struct content *c)
{
	assert(mutex_held(&t->lock));
	c->next_dirty = NULL;
	c->dirty_at = t->dirty_end;
	*t->dirty_end = c;
	t->dirty_end = &c->next_dirty;
}

void dirty_remove(struct file_table *t, struct content *c)
{
	assert(mutex_held(&t->lock));
	*c->dirty_at = c->next_dirty;
	if (c->next_dirty)
		c->next_dirty->dirty_at = c->dirty_at;
	else
		t->dirty_end = c->dirty_at;
	c->dirty_at = NULL;
}

unsigned files_take_dirty(struct engine *e, struct content **ret, unsigned max)
{
	struct file_table *t = e->files;
	unsigned n = 0;

	mutex_lock(&t->lock);
	while (n < max && t->dirty) {
		ret[n++] = t->dirty;
		dirty_remove(t, t->dirty);
	}
	mutex_unlock(&t->lock);
	return n;
}

void files_put_back_dirty(struct engine *e, struct content *c)
{
	mutex_lock(&e->files->lock);
	dirty_append(e->files, c);
	mutex_unlock(&e->files->lock);
}

size_t files_nr_dirty(struct engine *e)
{
	size_t nr = 0;

	mutex_lock(&e->files->lock);
	for (struct content *c = e->files->dirty; c; c = c->next_dirty)
		nr++;
	mutex_unlock(&e->files->lock);
	return nr;
}

/* --- memory --- */

static bool is_warm(const struct engine *e, const struct content *c) REQUIRES(e->files->lock)
{
	for (unsigned i = 0; i < NR_WARM; i++)
		if (e->files->warm[i] == c)
			return true;
	return false;
}

/* Replaces the version that it was made from: the next version will be made from this one. */
void content_keep_warm(struct content *c)
{
	struct engine *e = c->e;
	struct content *old = NULL;
	uint64_t parent;
	unsigned at;

	mutex_lock(&c->lock);
	parent = c->made_from;
	mutex_unlock(&c->lock);
	mutex_lock(&e->files->lock);
	if (!is_warm(e, c)) {
		for (at = 0; at < NR_WARM; at++)
			if (e->files->warm[at] && e->files->warm[at]->ino == parent)
				break;
		if (at == NR_WARM) {
			at = e->files->next_warm;
			e->files->next_warm = (at + 1) % NR_WARM;
		}
		old = e->files->warm[at];
		e->files->warm[at] = c;
		c->refs++;
	}
	mutex_unlock(&e->files->lock);
	content_close(old);
}

void contents_cool(struct engine *e)
{
	struct content *warm[NR_WARM];

	mutex_lock(&e->files->lock);
	memcpy(warm, e->files->warm, sizeof(warm));
	memset(e->files->warm, 0, sizeof(e->files->warm));
	mutex_unlock(&e->files->lock);
	for (unsigned i = 0; i < NR_WARM; i++)
		content_close(warm[i]);
}

void contents_release(struct engine *e)
{
	struct content *c;

	if (!e->files)
		return;
	contents_cool(e);
	while (files_take_dirty(e, &c, 1) > 0)
		content_close(c);
}

static void free_clean_segments(struct engine *e, bool of_warm_ones)
{
	for (size_t i = 0; i < CONTENT_BUCKETS; i++) {
		mutex_lock(&e->files->lock);
		for (struct content *c = e->files->buckets[i]; c; c = c->next)
			if ((of_warm_ones || !is_warm(e, c)) &&
			    mutex_trylock(&c->lock)) { /* reverse lock order: only if it is free */
				content_free_clean_segments(c);
				mutex_unlock(&c->lock);
			}
		mutex_unlock(&e->files->lock);
	}
}

/* Warm contents come last: the next version would read them again. */
void contents_trim(struct engine *e, uint64_t limit)
{
	if (atomic_load(&e->files->segment_memory) <= limit)
		return;
	free_clean_segments(e, false);
	if (atomic_load(&e->files->segment_memory) <= limit)
		return;
	contents_cool(e);
	free_clean_segments(e, true);
}

/* --- sums --- */

uint64_t files_memory(struct engine *e)
{
	return atomic_load(&e->files->segment_memory);
}

uint64_t files_dirty_memory(struct engine *e)
{
	return atomic_load(&e->files->dirty_segment_memory);
}

uint64_t files_limit(struct engine *e)
{
	return atomic_load(&e->files->segment_limit);
}

void files_set_limit(struct engine *e, uint64_t bytes)
{
	atomic_store(&e->files->segment_limit, bytes);
}

uint64_t files_logical(struct engine *e)
{
	return (uint64_t)atomic_load(&e->files->logical);
}

void files_add_logical(struct engine *e, int64_t bytes)
{
	atomic_fetch_add(&e->files->logical, bytes);
}
