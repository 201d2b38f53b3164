/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/gc/backrefs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/file/extents/layer_stack.h"
#include "store/log/view.h"

#define ENTRIES_AT_ONCE 4096u /* while changes are locked out: a few milliseconds */

/* --- frames --- */

bool frame_of_extent(const struct extent *x, frame_id *ret, uint32_t *ret_off)
{
	uint32_t block = x->addr.off / PACK_BLOCK, in;

	if (x->addr.node != 0 || block == 0)
		return false;
	in = (block - 1) % PACK_FRAME_STRIDE;
	if (in == 0)
		return false; /* a table */
	*ret = frame_id_of(x->addr.pack, (block - 1) / PACK_FRAME_STRIDE);
	*ret_off = (in - 1) * PACK_BLOCK + x->addr.off % PACK_BLOCK;
	return true;
}

static int compare_ids(const void *a, const void *b)
{
	frames_id x = *(const frames_id *)a, y = *(const frames_id *)b;

	return (x > y) - (x < y);
}

#define FRAMES_SEEN 32u
static_assert(FRAMES_SEEN == 1 << 5, "frames_set_of() takes 5 bits");

int frames_set_of(const struct extent *x, size_t nr, struct frames_set *ret)
{
	frames_id seen[FRAMES_SEEN] = { 0 }, id_of_group; /* where versions alternate, few groups recur */
	bool sorted = true;
	size_t n = 0, last = 0;
	uint32_t off;
	frame_id id;

	if (nr > ret->size) {
		frames_id *v = reallocarray(ret->v, nr, sizeof(*v));

		if (!v)
			return -ENOMEM;
		ret->v = v;
		ret->size = nr;
	}
	for (size_t i = 0; i < nr; i++) {
		size_t slot;

		if (!frame_of_extent(&x[i], &id, &off))
			continue;
		id_of_group = frames_id_of(id); /* never 0: packs start at 1 */
		slot = id_of_group * 0x9e3779b97f4a7c15u >> 59; /* 5 bits: FRAMES_SEEN */
		if (seen[slot] == id_of_group)
			continue;
		seen[slot] = id_of_group;
		sorted &= n == 0 || ret->v[n - 1] < id_of_group;
		ret->v[n++] = id_of_group;
	}
	if (!sorted) {
		qsort(ret->v, n, sizeof(*ret->v), compare_ids);
		for (size_t i = 1; i < n; i++)
			if (ret->v[i] != ret->v[last])
				ret->v[++last] = ret->v[i];
		n = last + 1;
	}
	ret->nr = n;
	return 0;
}

void frames_set_trim(struct frames_set *s)
{
	size_t size = MAX(s->nr, (size_t)1);
	frames_id *v = s->size > size ? reallocarray(s->v, size, sizeof(*v)) : NULL;

	if (v) {
		s->v = v;
		s->size = size;
	}
}

void frames_set_release(struct frames_set *s)
{
	free(s->v);
	*s = (struct frames_set){ 0 };
}

/* --- references of one recipe --- */

static int compare_pairs(const void *a, const void *b)
{
	const struct backref_pair *x = a, *y = b;

	if (x->frames != y->frames)
		return x->frames < y->frames ? -1 : 1;
	return (x->segments > y->segments) - (x->segments < y->segments);
}

/* Sorts and removes duplicates. */
static void condense(struct backrefs *r)
{
	size_t n = 0;

	if (r->nr > 0)
		qsort(r->v, r->nr, sizeof(*r->v), compare_pairs);
	for (size_t i = 0; i < r->nr; i++)
		if (n == 0 || compare_pairs(&r->v[i], &r->v[n - 1]) != 0)
			r->v[n++] = r->v[i];
	r->nr = n;
}

static int make_room(struct backrefs *r)
{
	condense(r); /* neighbouring segments mostly have the same references */
	if (2 * r->nr >= r->size) {
		size_t size = MAX(2 * r->size, (size_t)64);
		struct backref_pair *v = reallocarray(r->v, size, sizeof(*v));

		if (!v)
			return -ENOMEM;
		r->v = v;
		r->size = size;
	}
	return 0;
}

static bool frames_set_has(const struct frames_set *s, frames_id id)
{
	return s->nr > 0 && bsearch(&id, s->v, s->nr, sizeof(id), compare_ids);
}

/* Extents of a file lie in few groups, in any order: most were seen recently. */
static bool seen_lately(struct backrefs *r, struct backref_pair p)
{
	struct backref_pair *seen = &r->seen[(p.frames * 0x9e3779b97f4a7c15u) >> 58]; /* 6 bits: BACKREFS_SEEN */

	if (seen->frames == p.frames && seen->segments == p.segments)
		return true;
	*seen = p;
	return false;
}

static_assert(BACKREFS_SEEN == 1 << 6, "seen_lately() takes 6 bits");

static int add_pair(struct backrefs *r, frames_id id, uint64_t segment, const struct frames_set *known)
{
	struct backref_pair p = { id, segment / BACKREF_SEGMENTS };

	if (seen_lately(r, p) || (known && frames_set_has(known, p.frames)))
		return 0;
	if (r->nr == r->size && make_room(r) < 0)
		return -ENOMEM;
	r->v[r->nr++] = p;
	return 0;
}

int backrefs_add(struct backrefs *r, uint64_t segment, const struct extent *x, size_t nr,
		 const struct frames_set *known)
{
	uint32_t off;
	frame_id id;
	int ret = 0;

	for (size_t i = 0; i < nr && ret == 0; i++)
		if (frame_of_extent(&x[i], &id, &off))
			ret = add_pair(r, frames_id_of(id), segment, known);
	return ret;
}

int backrefs_add_frames(struct backrefs *r, uint64_t segment, const struct frames_set *frames,
			 const struct frames_set *known)
{
	int ret = 0;

	for (size_t i = 0; i < frames->nr && ret == 0; i++)
		ret = add_pair(r, frames->v[i], segment, known);
	return ret;
}

int backrefs_add_recipe(struct backrefs *r, struct db *db, uint64_t segment, const void *recipe, size_t len)
{
	struct stack s;
	int ret = stack_read(db, NULL, recipe, len, &s);

	if (ret < 0)
		return ret;
	for (unsigned i = 0; i < s.nr && ret == 0; i++)
		ret = backrefs_add(r, segment, s.v[i].x, s.v[i].nr, NULL);
	stack_release(&s);
	return ret;
}

static struct ns_key key_of(const struct backrefs *r, struct backref_pair p)
{
	struct backref ref = {
		.pack = frame_id_pack(p.frames),
		.frames = frame_id_frame(p.frames),
		.ino = r->ino,
		.segments = p.segments,
	};

	return backref_key(&ref);
}

static void clear_backrefs(struct backrefs *r)
{
	r->nr = 0;
	memset(r->seen, 0, sizeof(r->seen));
}

void backrefs_put(struct backrefs *r, struct db_batch *batch)
{
	condense(r);
	for (size_t i = 0; i < r->nr; i++) {
		struct ns_key key = key_of(r, r->v[i]);

		db_batch_put(batch, key.b, key.len, "", 0);
	}
	clear_backrefs(r);
}

void backrefs_del(struct backrefs *r, struct db_batch *batch)
{
	condense(r);
	for (size_t i = 0; i < r->nr; i++) {
		struct ns_key key = key_of(r, r->v[i]);

		db_batch_del(batch, key.b, key.len);
	}
	clear_backrefs(r);
}

void backrefs_release(struct backrefs *r)
{
	free(r->v);
	*r = (struct backrefs){ 0 };
}

bool backrefs_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t value_len)
{
	struct engine *e = engine;
	struct backref ref;

	(void)value;
	(void)value_len;
	return backref_key_decode(key, key_len, &ref) == 0 && packs_is_removed(e->packs, ref.pack);
}

/* --- the state of the table --- */

struct backref_state {
	/* Held while the table is built; before the locks of the view, which are dropped between steps of some
	 * milliseconds. */
	struct mutex lock;
	_Atomic bool complete; /* the table covers all recipes of the view; set with view_lock held exclusively */
};

struct backref_state *backref_state_new(void)
{
	struct backref_state *b = calloc(1, sizeof(*b));

	if (b)
		mutex_init(&b->lock);
	return b;
}

void backref_state_free(struct backref_state *b)
{
	if (!b)
		return;
	mutex_release(&b->lock);
	free(b);
}

bool backrefs_are_complete(struct engine *e)
{
	return atomic_load(&e->backrefs->complete);
}

void backrefs_set_complete(struct engine *e, bool complete)
{
	atomic_store(&e->backrefs->complete, complete);
}

/* --- building the table --- */

struct build {
	struct engine *e;
	struct db_batch *batch;
	struct backrefs refs;
	uint64_t ino, segment; /* the next recipe */
	uint64_t nr_recipes;
};

/* 1: there may be more. The caller holds view_lock. */
static int delete_some(struct build *b)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = backref_prefix();
	const void *key, *value;
	size_t key_len, value_len, n = 0;
	int r;

	r = db_iter_new(b->e->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && n < ENTRIES_AT_ONCE && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		db_batch_del(b->batch, key, key_len);
		n++;
	}
	if (r >= 0)
		r = db_batch_apply(b->batch);
	return r < 0 ? r : n == ENTRIES_AT_ONCE;
}

/* 1: there may be more. The caller holds view_lock. */
static int add_some(struct build *b)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key from = recipe_key(b->ino, b->segment);
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len, n = 0;
	uint64_t ino, segment;
	int r, q;

	r = db_iter_new(b->e->db, NULL, &prefix, 1, from.b, from.len, &it);
	while (r >= 0 && n < ENTRIES_AT_ONCE && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = recipe_key_decode(key, key_len, &ino, &segment);
		if (r == 0 && ino != b->refs.ino) {
			backrefs_put(&b->refs, b->batch);
			b->refs.ino = ino;
		}
		if (r == 0)
			r = backrefs_add_recipe(&b->refs, b->e->db, segment, value, value_len);
		if (r < 0)
			return log_errno(r, "index: a recipe is damaged: run fsck.ckptfs");
		n += 1 + value_len / 16; /* estimated number of entries */
		b->nr_recipes++;
		b->ino = segment == UINT64_MAX ? ino + 1 : ino;
		b->segment = segment + 1;
		r = 1;
	}
	backrefs_put(&b->refs, b->batch);
	q = r < 0 ? r : db_batch_apply(b->batch);
	return q < 0 ? q : r;
}

int backrefs_build(struct engine *e, bool (*step)(void *userdata, uint64_t nr_recipes), void *userdata)
{
	struct build b = { .e = e };
	int r = 0;

	mutex_lock(&e->backrefs->lock);
	if (backrefs_are_complete(e))
		goto out;
	r = db_batch_new(e->db, &b.batch);
	if (r < 0)
		goto out;
	do { /* entries of an earlier attempt may be stale */
		view_lock_exclusive(e);
		r = delete_some(&b);
		view_unlock_exclusive(e);
	} while (r > 0);
	for (bool more = r == 0; more; more = r > 0) {
		r = view_wants_flush(e) ? view_flush(e, false) : 0;
		if (r < 0)
			break;
		view_lock_exclusive(e);
		r = add_some(&b);
		if (r == 0) /* before a recipe can be added that was not read */
			backrefs_set_complete(e, true);
		view_unlock_exclusive(e);
		if (r >= 0 && step && !step(userdata, b.nr_recipes))
			r = -ECANCELED;
	}
	if (r == 0)
		log_notice("store %s: back-reference table built from %s", e->path, human_nr(b.nr_recipes, "recipe").s);
out:
	db_batch_free(b.batch);
	backrefs_release(&b.refs);
	mutex_unlock(&e->backrefs->lock);
	return r;
}
