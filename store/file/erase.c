/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Erasing the bytes of a removed file in steps.
 *
 * A drop (engine_tx_drop_content()) deletes all recipes of a file in one transaction, so its duration grows with their
 * number. A caller that must not block others for that long erases the bytes first. Each step punches a hole:
 *
 *   log:    hole [0, a) ─▶ hole [a, b) ─▶ ... ─▶ drop
 *   view:   recipes of the hole and their back-references are deleted at once, instead of at the next write-back
 *   memory: segments of the hole are freed; dirty ones are never written
 *
 * Log and view change together, under view_lock, so that every state on disk has both changes or neither. A crash leaves
 * a file with fewer bytes, which its owner still has to remove. Replay punches the same holes; the next write-back then
 * deletes the recipes, but leaves their back-references, as it does for overwritten data.
 *
 * One back-reference stands for BACKREF_SEGMENTS segments, so a step covers whole groups of these. After the last step
 * the view has nothing of the file: the drop does not have to search for recipes among the deleted ones.
 */
#include <errno.h>

#include "base/util.h"
#include "index/db.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/file_table.h"
#include "store/file/pending_changes.h"
#include "store/journal/journal.h"
#include "store/log/txlog.h"
#include "store/log/view.h"

#define STEP_SEGMENTS 256u /* per hold of view_lock and of the file's lock: a millisecond or two */
#define NO_MORE UINT64_MAX

struct step {
	struct db_batch *batch;
	struct backrefs refs;
	uint64_t first, end; /* segments, whole groups; end NO_MORE: all that are left */
	uint64_t mapped; /* bytes of segments that are not in memory */
};

static void step_release(struct step *st)
{
	backrefs_release(&st->refs);
	db_batch_free(st->batch);
}

static uint64_t group_start(uint64_t segment)
{
	return round_down(segment, BACKREF_SEGMENTS);
}

/* The step ends with the group in which the segments in memory exceed its size. */
static void find_end(struct content *c, struct step *st) REQUIRES(c->lock)
{
	struct segment *s = segment_tree_from(&c->segments, st->first);

	for (unsigned nr = 0; s && nr < STEP_SEGMENTS; nr++)
		s = segment_tree_from(&c->segments, s->number + 1);
	st->end = s ? group_start(s->number) + BACKREF_SEGMENTS : NO_MORE;
}

static int add_mapped(struct step *st, struct db *db, const void *recipe, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	size_t nr;
	int r = recipe_read(db, NULL, recipe, len, &x, &nr);

	for (size_t i = 0; r == 0 && i < nr; i++)
		st->mapped += x[i].len;
	return r;
}

static int delete_recipe(struct content *c, struct step *st, uint64_t segment, const void *recipe, size_t len)
	REQUIRES(c->lock)
{
	struct ns_key key = recipe_key(c->ino, segment);
	int r = backrefs_add_recipe(&st->refs, c->e->db, segment, recipe, len);

	db_batch_del(st->batch, key.b, key.len);
	if (r == 0 && !segment_tree_find(&c->segments, segment))
		r = add_mapped(st, c->e->db, recipe, len);
	return r == -EBADMSG ? 0 : r; /* a damaged file can be deleted too */
}

/* Delete the recipes of the step from the view; it ends earlier if there are many. */
static int delete_recipes(struct content *c, struct step *st) REQUIRES(c->lock)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = recipe_prefix(c->ino), from = recipe_key(c->ino, st->first);
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t ino, segment;
	unsigned nr = 0;
	int r = db_iter_new(c->e->db, NULL, prefix.b, prefix.len, from.b, from.len, &it);

	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = recipe_key_decode(key, key_len, &ino, &segment);
		if (r < 0 || segment >= st->end)
			break;
		if (nr++ == STEP_SEGMENTS)
			st->end = MIN(st->end, group_start(segment) + BACKREF_SEGMENTS);
		r = delete_recipe(c, st, segment, value, value_len);
	}
	return MIN(r, 0);
}

/* Log the hole and change the view, or do neither. */
static int log_hole(struct content *c, struct step *st, const struct replace *rp) REQUIRES(c->lock)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY, records = BUF_EMPTY;
	int r;

	replace_encode(rp, &rec);
	journal_record_add(&records, RECORD_REPLACE, rec.data, rec.len);
	r = buf_error(&rec);
	return r < 0 ? r : log_append_with_batch(c->e, &records, st->batch, &c->log_end);
}

static int erase_step(struct content *c, struct step *st) REQUIRES(c->lock)
{
	struct replace rp = {
		.ino = c->ino,
		.size = c->logged.size,
		.mtime_ns = c->logged.mtime_ns,
		.ctime_ns = c->logged.ctime_ns,
		.off = MIN(st->first * SEGMENT_SIZE, c->logged.size),
	};
	int r;

	find_end(c, st);
	if (!c->in_view && c->nr_segments == 0)
		return 0; /* it has no bytes, and may not exist: nothing to log */
	r = c->in_view ? delete_recipes(c, st) : 0;
	if (r < 0)
		return r;
	backrefs_del(&st->refs, st->batch);
	if (st->end == NO_MORE) {
		struct ns_key key = ns_key_content(c->ino);

		db_batch_del(st->batch, key.b, key.len);
	}
	rp.len = st->end < c->logged.size / SEGMENT_SIZE ? st->end * SEGMENT_SIZE - rp.off : c->logged.size - rp.off;
	r = log_hole(c, st, &rp);
	if (r < 0)
		return r;
	content_free_segments(c, st->first, st->end);
	content_unmap(c, st->mapped);
	content_is_changed(c, &rp);
	c->live = c->logged;
	c->in_view &= st->end != NO_MORE;
	return 0;
}

#define AT_ONCE_SEGMENTS 16u

int content_takes_steps(struct engine *e, uint64_t ino)
{
	struct ns_content was = { 0 };
	struct content *c;
	bool many = false;
	int r;

	if (content_lookup(e, ino, &c) > 0) {
		mutex_lock(&c->lock);
		was = c->logged;
		/* after a truncation the view may have these still */
		many = c->nr_segments > AT_ONCE_SEGMENTS || c->pending;
		mutex_unlock(&c->lock);
		content_close(c);
		r = 1;
	} else {
		r = ns_get_content(e->db, ino, &was);
	}
	return r < 0 ? r : many || was.size > AT_ONCE_SEGMENTS * (uint64_t)SEGMENT_SIZE;
}

int content_erase_some(struct content *c, uint64_t *segment)
{
	struct step st = { .refs.ino = c->ino, .first = *segment, .end = NO_MORE };
	int r = view_bound_memory(c->e);

	if (r == 0)
		r = db_batch_new(c->e->db, &st.batch);
	if (r < 0)
		return r;
	content_lock_quiet(c);
	r = c->e->read_only ? -EROFS : content_catch_up(c, STEP_SEGMENTS);
	if (r == 0 && c->pending)
		st.end = st.first; /* more to apply first */
	else if (r == 0 && !c->dropped)
		r = erase_step(c, &st);
	content_unlock_quiet(c);
	step_release(&st);
	if (r < 0)
		return r;
	log_throttle(c->e);
	*segment = st.end;
	return st.end != NO_MORE;
}

/* --- drops --- */

/* Delete all recipes of an inode and their back-references. */
static int drop_recipes(struct engine *e, uint64_t ino, struct db_batch *batch)
{
	_cleanup_(backrefs_release) struct backrefs refs = { .ino = ino };
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = recipe_prefix(ino);
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t segment;
	int r;

	r = db_iter_new(e->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		db_batch_del(batch, key, key_len);
		r = recipe_key_decode(key, key_len, &ino, &segment);
		if (r == 0)
			r = backrefs_add_recipe(&refs, e->db, segment, value, value_len);
		if (r == -EBADMSG)
			r = 0; /* a damaged file can be deleted too; left-over entries are harmless */
	}
	backrefs_del(&refs, batch);
	return r;
}

static int drop_from_view(struct engine *e, uint64_t ino, struct db_batch *batch)
{
	struct ns_key content = ns_key_content(ino);

	db_batch_del(batch, content.b, content.len);
	return drop_recipes(e, ino, batch);
}

/* A failed drop must have no effect, because it is retried. Dropping the content and subtracting its bytes from the
 * total therefore come last, here and below. */
static int drop_open(struct content *c, struct db_batch *batch)
{
	int r = 0;

	mutex_lock(&c->lock);
	if (c->in_view) /* else it was created and dropped between two flushes */
		r = drop_from_view(c->e, c->ino, batch);
	if (r == 0)
		content_forget(c);
	mutex_unlock(&c->lock);
	return r;
}

int content_drop(struct engine *e, uint64_t ino, struct db_batch *batch)
{
	struct ns_content was;
	struct content *c;
	int r;

	if (content_lookup(e, ino, &c) > 0) {
		r = drop_open(c, batch);
		content_close(c);
		return r;
	}
	r = ns_get_content(e->db, ino, &was);
	if (r <= 0)
		return r;
	r = drop_from_view(e, ino, batch);
	if (r == 0)
		files_add_logical(e, -(int64_t)was.mapped);
	return r;
}
