/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing the dirty segments of files to the view.
 *
 * A segment that shares its extents refers to shared layers, which are stored in the view under their own numbers
 * (index/recipes.h). A layer is stored for the first segment that needs it, after the layers below it, under the next
 * number; later segments name that number. The few extents above a stored layer, or above none, go into the recipe
 * itself: small files and small changes need no layers.
 *
 * The journal has no records for layers: like recipes, layers are derived from its records, and its snapshots contain
 * them as they are in the view. A layer enters the view in the same batch as the recipe that needs it, or in an earlier
 * one, and only complete states at a commit reach the disk (view.c). After a crash, therefore, all layers that recipes
 * name exist, and the next number ('M' layers) belongs to the same state. A batch that could not be applied has no
 * effect: its layers lose their numbers and get new ones on the next attempt.
 *
 * There is a single writer at a time: it holds view_lock exclusively, or view_lock shared together with flush_lock.
 *
 * Back-references (backrefs.h) may be too broad: they include every layer of a segment, whether visible or not. So
 * nothing has to be merged to compute them.
 */
#include "store/file/write_back.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/util.h"
#include "index/db.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/file_state.h"
#include "store/file/file_table.h"
#include "store/file/pending_changes.h"
#include "store/log/view.h"

#define SLICE_BYTES KiB(64) /* recipe bytes put into the view per hold of the file's lock: half a millisecond */
#define BATCH_CONTENTS 256 /* contents per batch: bounds its memory */
#define AHEAD_BYTES MiB(2) /* recipe bytes that may be written while changes are blocked: some milliseconds; and ... */
#define AHEAD_ROUNDS 4 /* ... attempts to get below that */
#define CHANGING_NS (50 * 1000 * 1000) /* a file changed more recently than this is likely to change again */
#define OWN_MAX 64u /* extents kept in a recipe instead of a layer: they are rewritten with each version */

/* --- batches --- */

int view_batch_init(struct engine *e, struct view_batch *b)
{
	*b = (struct view_batch){ 0 };
	return db_batch_new(e->db, &b->db);
}

static void layers_are_there(struct view_batch *b, bool there)
{
	while (b->nr > 0) {
		struct layer *l = b->layers[--b->nr];

		if (!there)
			l->number = 0;
		layer_put(l);
	}
}

int view_batch_apply(struct view_batch *b)
{
	int r = db_batch_apply_through(b->db);

	if (r == 0)
		layers_are_there(b, true);
	return r;
}

void view_batch_release(struct view_batch *b)
{
	layers_are_there(b, false);
	free(b->layers);
	db_batch_free(b->db);
	*b = (struct view_batch){ 0 };
}

/* Give it the next number; taken back if the batch fails. */
static int number_layer(struct engine *e, struct view_batch *b, struct layer *l)
{
	if (b->nr == b->size) {
		size_t size = MAX(2 * b->size, (size_t)256);
		struct layer **layers = reallocarray(b->layers, size, sizeof(struct layer *));

		if (!layers)
			return -ENOMEM;
		b->layers = layers;
		b->size = size;
	}
	b->layers[b->nr++] = layer_get(l);
	l->number = view_number_layer(e);
	return 0;
}

/* --- segments --- */

/* State of a write-back across segments. */
struct writer {
	struct engine *e;
	struct view_batch *batch;
	struct backrefs refs; /* back-references of the file */
	struct extent_list merged;
	struct buf value;
	size_t bytes; /* of recipes and layers so far */
};

static void writer_release(struct writer *w)
{
	backrefs_release(&w->refs);
	extent_list_release(&w->merged);
	buf_release(&w->value);
}

static void put_extents(struct writer *w, struct ns_key key, uint64_t layer, const struct extent *x, size_t nr)
{
	buf_clear(&w->value);
	if (nr > 0 || layer > 0) {
		recipe_encode_over(layer, x, nr, &w->value);
		db_batch_put(w->batch->db, key.b, key.len, w->value.data, w->value.len);
	} else {
		db_batch_del(w->batch->db, key.b, key.len);
	}
	w->bytes += key.len + w->value.len;
}

/* Store the `nr` layers from `top` down that are not in the view yet, at least one. */
static int put_layers(struct writer *w, struct layer *top, unsigned nr)
{
	_cleanup_(freep) struct layer **layers = reallocarray(NULL, nr, sizeof(struct layer *));
	int r = layers ? 0 : -ENOMEM;

	for (unsigned i = 0; i < nr && r == 0; i++, top = top->below)
		layers[i] = top;
	while (nr > 0 && r == 0) {
		struct layer *l = layers[--nr];

		r = number_layer(w->e, w->batch, l);
		if (r == 0)
			put_extents(w, layer_key(l->number), l->below ? l->below->number : 0, l->x, l->nr);
	}
	return r < 0 ? r : buf_error(&w->value);
}

static int put_shared(struct writer *w, const struct segment *s)
{
	struct ns_key key = recipe_key(w->refs.ino, s->number);
	struct layer *below = s->layers;
	uint64_t number;
	size_t nr_own = 0;
	unsigned nr = 0;
	int r = 0;

	for (; below && below->number == 0; below = below->below) {
		nr_own += below->nr;
		nr++;
	}
	number = below ? below->number : 0;
	w->merged.nr = 0;
	if (nr_own > OWN_MAX) {
		r = put_layers(w, s->layers, nr);
		number = s->layers->number;
	} else if (nr > 0) {
		r = layer_merge_some(s->layers, nr, &w->merged);
	}
	if (r == 0)
		put_extents(w, key, number, w->merged.x, w->merged.nr);
	return r;
}

static int refer_shared(struct writer *w, const struct segment *s)
{
	const struct frames_set *frames;
	int r = 0;

	for (struct layer *l = s->layers; l && r == 0; l = l->below) {
		r = layer_frames(l, &frames);
		if (r == 0)
			r = backrefs_add_frames(&w->refs, s->number, frames, &s->filed);
	}
	return r;
}

static int write_back_segment(struct writer *w, const struct segment *s)
{
	int r;

	if (s->layers) {
		r = refer_shared(w, s);
		if (r == 0)
			r = put_shared(w, s);
	} else {
		r = backrefs_add(&w->refs, s->number, s->x, s->nr, &s->filed);
		if (r == 0)
			put_extents(w, recipe_key(w->refs.ino, s->number), 0, s->x, s->nr);
	}
	return r < 0 ? r : buf_error(&w->value);
}

static void put_size(struct content *c, struct writer *w) REQUIRES(c->lock)
{
	struct ns_key key = ns_key_content(c->ino);

	buf_clear(&w->value);
	ns_content_encode(&c->logged, &w->value);
	db_batch_put(w->batch->db, key.b, key.len, w->value.data, w->value.len);
}

/* Write dirty segments from *at on until `enough` bytes; 1: more remain, from *at on. */
static int write_back_from(struct content *c, uint64_t *at, size_t enough, struct writer *w) REQUIRES(c->lock)
{
	int r = content_catch_up(c, SIZE_MAX);
	struct segment *s = c->dropped ? NULL : segment_tree_from(&c->segments, *at);

	for (; s && r == 0 && w->bytes < enough; s = segment_tree_from(&c->segments, s->number + 1))
		if (s->dirty)
			r = write_back_segment(w, s);
	if (r < 0)
		return r;
	backrefs_put(&w->refs, w->batch->db);
	*at = s ? s->number : UINT64_MAX;
	if (s)
		return 1;
	if (!c->dropped)
		put_size(c, w);
	return buf_error(&w->value);
}

int content_write_back(struct content *c, struct view_batch *batch)
{
	struct writer w = { .e = c->e, .batch = batch, .refs.ino = c->ino };
	uint64_t at = 0;
	int r;

	assert(mutex_held(&c->lock));
	r = write_back_from(c, &at, SIZE_MAX, &w);
	writer_release(&w);
	return r;
}

/* Segments [from, to) are in the view. */
static void written_back(struct content *c, uint64_t from, uint64_t to) REQUIRES(c->lock)
{
	struct segment *s = segment_tree_from(&c->segments, from);

	for (; s && s->number < to; s = segment_tree_from(&c->segments, s->number + 1))
		if (s->dirty) {
			s->dirty = false;
			c->nr_clean++;
			frames_set_release(&s->filed);
			segment_count(c->e, s);
		}
	c->in_view = !c->dropped;
}

static void all_written_back(struct content *c) REQUIRES(c->lock)
{
	assert(mutex_held(&c->lock));
	written_back(c, 0, UINT64_MAX);
	c->dirty = false;
}

/* content_write_back() for a part, from segment *at on. 1: more remains; 0: done. The lock may be dropped between
 * calls: the file may change or be dropped. Segments changed behind *at stay dirty, and so does the file. */
static int write_back_slice(struct content *c, struct view_batch *batch, uint64_t *at) REQUIRES(c->lock)
{
	struct writer w = { .e = c->e, .batch = batch, .refs.ino = c->ino };
	uint64_t from = *at;
	int r, q;

	assert(mutex_held(&c->lock));
	r = write_back_from(c, at, SLICE_BYTES, &w);
	writer_release(&w);
	q = r < 0 ? r : view_batch_apply(batch);
	if (q < 0)
		return q;
	written_back(c, from, *at);
	return r;
}

/* --- all files --- */

int files_write_back(struct engine *e)
{
	_cleanup_(view_batch_release) struct view_batch batch;
	struct content *some[BATCH_CONTENTS];
	unsigned n;
	int r;

	r = view_batch_init(e, &batch);
	while (r == 0 && (n = files_take_dirty(e, some, BATCH_CONTENTS)) > 0) {
		for (unsigned i = 0; i < n && r == 0; i++) {
			mutex_lock(&some[i]->lock);
			r = content_write_back(some[i], &batch);
			mutex_unlock(&some[i]->lock);
		}
		if (r == 0)
			r = view_batch_apply(&batch);
		for (unsigned i = 0; i < n; i++) {
			if (r < 0) {
				files_put_back_dirty(e, some[i]);
				continue;
			}
			mutex_lock(&some[i]->lock);
			all_written_back(some[i]);
			mutex_unlock(&some[i]->lock);
			content_close(some[i]); /* the list's reference */
		}
	}
	return r;
}

/* A thread waiting for a lock is woken on release, but does not get the lock if it is retaken at once. */
static void give_way(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000 }, NULL);
}

static void wait_for_changes(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = CHANGING_NS }, NULL);
}

/* Write back the whole file in slices, dropping its lock in between; view_lock is held shared. 1: some of it is dirty
 * again. */
static int write_back_in_slices(struct content *c, struct view_batch *batch)
{
	uint64_t at = 0;
	int r;

	do {
		mutex_lock(&c->lock);
		r = write_back_slice(c, batch, &at);
		if (r == 0 && c->nr_clean < c->nr_segments)
			r = 2;
		if (r == 0)
			c->dirty = false;
		mutex_unlock(&c->lock);
		if (r == 1)
			give_way();
	} while (r == 1);
	return MIN(r, 1);
}

/* A file still being created would be dirty again at once, and is slower to change once the view has it. */
static bool is_changing(struct content *c)
{
	int64_t since;

	mutex_lock(&c->lock);
	since = (int64_t)now_ns() - c->logged.ctime_ns;
	mutex_unlock(&c->lock);
	return since >= 0 && since < CHANGING_NS;
}

/* Write back the content that has been dirty longest. A thread that locks out changes finds it on the list or
 * written. */
static int write_back_one(struct engine *e, struct view_batch *batch) REQUIRES_SHARED(view_lock)
{
	struct content *c;
	int r;

	if (files_take_dirty(e, &c, 1) == 0)
		return 0;
	r = is_changing(c) ? 1 : write_back_in_slices(c, batch);
	if (r == 0)
		content_close(c);
	else
		files_put_back_dirty(e, c);
	return MIN(r, 0);
}

/*
 * Write back what is dirty now, one content after the other, while changes continue. Nothing of the view reaches the
 * disk before it is cut, so until then it may mix several moments. Contents changed meanwhile are dirty again and left
 * for the next time, or for the cut.
 */
static int write_back_round(struct engine *e)
{
	_cleanup_(view_batch_release) struct view_batch batch;
	size_t nr = files_nr_dirty(e);
	int r;

	r = view_batch_init(e, &batch);
	for (; nr > 0 && r == 0; nr--) {
		view_lock_shared(e);
		r = write_back_one(e, &batch);
		view_unlock_shared(e);
	}
	return r;
}

int files_write_back_ahead(struct engine *e)
{
	int r = write_back_round(e);

	for (int i = 1; i < AHEAD_ROUNDS && r == 0 && files_dirty_memory(e) > AHEAD_BYTES; i++) {
		wait_for_changes();
		r = write_back_round(e);
	}
	return r;
}
