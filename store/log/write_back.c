/*
 * Writing a file's dirty segments to the view.
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
#include "store/log/write_back.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "index/db.h"
#include "store/engine_state.h"
#include "store/file/content.h"
#include "store/file/pending_changes.h"
#include "store/log/log_state.h"

#define SLICE_BYTES KiB(64) /* recipe bytes put into the view per hold of the file's lock: half a millisecond */
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
	l->number = e->view->next_layer++;
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

void content_written_back(struct content *c)
{
	assert(mutex_held(&c->lock));
	written_back(c, 0, UINT64_MAX);
	c->dirty = false;
}

/* Between two slices the file may change or be dropped. Segments changed behind *at stay dirty, and so does the
 * file. */
int content_write_back_slice(struct content *c, struct view_batch *batch, uint64_t *at)
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
