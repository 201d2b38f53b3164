/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Computes the space that deleting some files would free: the chunks that only their recipes refer to.
 *
 *   1. lock changes out for a moment, write the dirty recipes to the view, and take a snapshot: the answer is for this
 *      moment
 *   2. list the files (exclusive_set.c)
 *   3. list the frames that their recipes refer to: as many as a window takes, sorted
 *   4. mark the chunks that the files refer to
 *   5. look up the back-references of these frames (index/backref_table.h), read those recipes and mark their chunks
 *   6. chunks marked by the files alone are exclusive; continue with the next window at 3
 *
 * Step 5 reads a few back-references of each group of frames at a time, and stops once all chunks of the files in the
 * group are known to be shared: for a frame that a thousand checkpoints share, it reads a few recipes, not a thousand.
 *
 * Only step 1 changes anything, so a crash leaves nothing behind. The packs are not part of the snapshot: a collection
 * may meanwhile free chunks that were deleted after step 1. This is detected, and the computation is repeated for a
 * later moment.
 */
#include "store/gc/exclusive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/file/stage.h"
#include "store/gc/gc_window.h"
#include "store/gc/exclusive_marks.h"
#include "store/gc/owners.h"
#include "store/gc/backrefs.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/write_back.h"
#include "store/log/view.h"

#define WINDOW_BYTES MiB(16)
#define IDS_MAX (256u * 1024) /* 2 MiB */
#define PLACES_MAX (16u * 1024) /* sorted and read in one pass */
#define BACKREFS_FIRST 4u /* per group of frames, then four times as many, ... */
#define RECIPES_PER_STEP 256u
#define TRIES 5u

/* BACKREF_SEGMENTS consecutive segments of a file. */
struct place {
	uint64_t ino, segments;
};

struct question {
	struct engine *e;
	const struct exclusive_conf *conf;
	struct exclusive_report report;
	struct db_snapshot *state;
	struct db_iter *it; /* over the whole snapshot */
	struct exclusive_set set;
	frame_id from, end; /* of the window: frames before `from` are counted, frames from `end` on not examined yet */
	struct {
		frame_id *v;
		size_t nr;
	} ids;
	struct marked *frames;
	size_t nr_frames;
	struct place *places;
	size_t nr_places;
	struct pack_frame_rec *rec;
	bool collected; /* something in the snapshot has been freed since */
};

static int check_continue(struct question *q)
{
	return q->conf->step && !q->conf->step(q->conf->userdata, &q->report) ? -ECANCELED : 0;
}

/* --- recipes --- */

typedef int extent_fn(struct question *q, frame_id id, uint32_t off, uint32_t len);

static int each_extent(struct question *q, const void *recipe, size_t len, extent_fn *fn)
{
	_cleanup_(freep) struct extent *x = NULL;
	size_t nr;
	uint32_t off;
	frame_id id;
	int r = recipe_read(q->e->db, q->state, recipe, len, &x, &nr);

	if (r < 0)
		return log_errno(r, "index: a recipe is damaged: run fsck.ckptfs");
	for (size_t i = 0; i < nr && r == 0; i++)
		if (frame_of_extent(&x[i], &id, &off) && id >= q->from && id < q->end)
			r = fn(q, id, off, x[i].len);
	return r < 0 ? r : ++q->report.nr_recipes % RECIPES_PER_STEP == 0 ? check_continue(q) : 0;
}

static int each_extent_of_file(struct question *q, uint64_t ino, extent_fn *fn)
{
	struct ns_key prefix = recipe_prefix(ino);
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	db_iter_seek(q->it, prefix.b, prefix.len);
	while ((r = db_iter_next(q->it, &key, &key_len, &value, &value_len)) > 0) {
		if (key_len < prefix.len || memcmp(key, prefix.b, prefix.len) != 0)
			return 0;
		r = each_extent(q, value, value_len, fn);
		if (r < 0)
			return r;
	}
	return r;
}

static int each_extent_of_files(struct question *q, extent_fn *fn)
{
	int r = 0;

	for (size_t i = 0; i < q->set.nr && r == 0; i++)
		r = each_extent_of_file(q, q->set.inos[i], fn);
	return r;
}

/* --- step 3: the window --- */

static int compare_ids(const void *a, const void *b)
{
	frame_id x = *(const frame_id *)a, y = *(const frame_id *)b;

	return (x > y) - (x < y);
}

/* Sorts and removes duplicates. If too many are left, the later ones are for another window. */
static void condense_ids(struct question *q)
{
	size_t n = 0;

	qsort(q->ids.v, q->ids.nr, sizeof(*q->ids.v), compare_ids);
	for (size_t i = 0; i < q->ids.nr; i++)
		if (n == 0 || q->ids.v[i] != q->ids.v[n - 1])
			q->ids.v[n++] = q->ids.v[i];
	if (n > IDS_MAX / 2) {
		n = IDS_MAX / 2;
		q->end = q->ids.v[n - 1] + 1;
	}
	q->ids.nr = n;
}

static int add_id(struct question *q, frame_id id, uint32_t off, uint32_t len)
{
	(void)off;
	(void)len;
	if (q->ids.nr > 0 && q->ids.v[q->ids.nr - 1] == id)
		return 0;
	if (q->ids.nr == IDS_MAX)
		condense_ids(q);
	if (id < q->end)
		q->ids.v[q->ids.nr++] = id;
	return 0;
}

static void window_clear(struct question *q)
{
	for (size_t i = 0; i < q->nr_frames; i++)
		marked_release(&q->frames[i]);
	free(TAKE(q->frames));
	q->nr_frames = 0;
}

static int load_frame(struct question *q, frame_id id, struct marked *ret)
{
	int r = packs_frame_rec(q->e->packs, frame_id_pack(id), frame_id_frame(id), q->rec);

	if (r < 0)
		return r;
	q->collected |= r == 0;
	q->report.nr_damaged += r > 0 && q->rec->damaged;
	return marked_init(ret, id, r > 0 && !q->rec->damaged ? q->rec : NULL);
}

static int window_open(struct question *q)
{
	uint64_t bytes = 0;
	int r;

	q->end = UINT64_MAX;
	q->ids.nr = 0;
	r = each_extent_of_files(q, add_id);
	if (r < 0)
		return r;
	condense_ids(q);
	q->frames = calloc(q->ids.nr + 1, sizeof(*q->frames));
	if (!q->frames)
		return -ENOMEM;
	q->report.nr_frames += q->ids.nr;
	for (; q->nr_frames < q->ids.nr && bytes < WINDOW_BYTES; q->nr_frames++) {
		struct marked *m = &q->frames[q->nr_frames];

		r = load_frame(q, q->ids.v[q->nr_frames], m);
		if (r == 0 && q->nr_frames % RECIPES_PER_STEP == 0)
			r = check_continue(q);
		if (r < 0) {
			marked_release(m);
			return r;
		}
		bytes += sizeof(*m) + (m->ends ? m->nr_chunks * sizeof(*m->ends) : 0);
	}
	if (q->nr_frames < q->ids.nr) {
		q->end = q->ids.v[q->nr_frames];
		q->report.nr_frames -= q->ids.nr - q->nr_frames;
	}
	return 0;
}

static struct marked *window_find(struct question *q, frame_id id)
{
	size_t low = 0, high = q->nr_frames;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (q->frames[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < q->nr_frames && q->frames[low].id == id ? &q->frames[low] : NULL;
}

/* --- steps 4 and 5: marks --- */

static int mark_own_chunks(struct question *q, frame_id id, uint32_t off, uint32_t len)
{
	struct marked *m = window_find(q, id);

	if (m)
		marked_set(m, &m->own, off, len);
	return 0;
}

static int mark_chunks_of_others(struct question *q, frame_id id, uint32_t off, uint32_t len)
{
	struct marked *m = window_find(q, id);

	if (m && !m->decided)
		marked_set(m, &m->others, off, len);
	return 0;
}

/* Freed chunks are neither exclusive nor shared. */
static void leave_out_gone(struct question *q)
{
	for (struct marked *m = q->frames; m < q->frames + q->nr_frames; m++) {
		struct gc_bits there = marked_alone(m);

		q->collected |= gc_count(&there) < gc_count(&m->own);
		m->own = there;
		m->others = (struct gc_bits){ 0 };
		m->decided = gc_count(&there) == 0;
		q->report.nr_frames_done += m->decided;
	}
}

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return (x->segments > y->segments) - (x->segments < y->segments);
}

static int read_place(struct question *q, const struct place *p)
{
	struct ns_key from = recipe_key(p->ino, p->segments * BACKREF_SEGMENTS);
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t ino, segment;
	int r;

	db_iter_seek(q->it, from.b, from.len);
	while ((r = db_iter_next(q->it, &key, &key_len, &value, &value_len)) > 0) {
		if (recipe_key_decode(key, key_len, &ino, &segment) < 0 || ino != p->ino ||
		    segment / BACKREF_SEGMENTS != p->segments)
			return 0;
		r = each_extent(q, value, value_len, mark_chunks_of_others);
		if (r < 0)
			return r;
	}
	return r;
}

static int read_places(struct question *q)
{
	int r = 0;

	qsort(q->places, q->nr_places, sizeof(*q->places), compare_places);
	for (size_t i = 0; i < q->nr_places && r == 0; i++)
		if (i == 0 || compare_places(&q->places[i - 1], &q->places[i]) != 0)
			r = read_place(q, &q->places[i]);
	q->nr_places = 0;
	return r;
}

/* Adds up to `max` more places of other files that may refer to the group of a frame. */
static int find_backrefs(struct question *q, struct marked *m, unsigned max)
{
	frames_id id = frames_id_of(m->id);
	struct backref ref = { frame_id_pack(id), frame_id_frame(id), m->next_ino, m->next_segments };
	struct ns_key from = backref_key(&ref);
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	db_iter_seek(q->it, from.b, from.len);
	while ((r = db_iter_next(q->it, &key, &key_len, &value, &value_len)) > 0) {
		if (*(const uint8_t *)key != VIEW_BACKREF)
			break;
		r = backref_key_decode(key, key_len, &ref);
		if (r < 0)
			return log_errno(r, "index: the back-reference table is damaged: run fsck.ckptfs");
		if (frame_id_of(ref.pack, ref.frames) != id)
			break;
		if (!exclusive_set_has(&q->set, ref.ino)) {
			if (max-- == 0)
				return 0;
			q->places[q->nr_places++] = (struct place){ ref.ino, ref.segments };
		}
		m->next_ino = ref.ino;
		m->next_segments = ref.segments + 1;
	}
	m->found_all = true;
	return MIN(r, 0);
}

static struct marked *group_end(const struct question *q, struct marked *m)
{
	frames_id id = frames_id_of(m->id);

	while (m < q->frames + q->nr_frames && frames_id_of(m->id) == id)
		m++;
	return m;
}

/* Is the result of any frame of the group still open? */
static bool is_open(const struct marked *group, const struct marked *end)
{
	for (const struct marked *m = group; m < end; m++)
		if (!m->decided && !marked_is_shared(m))
			return true;
	return false;
}

/* Called when the places found have been read. true: the result of the group is still open. */
static bool decide_group(struct question *q, struct marked *group, const struct marked *end)
{
	bool more = false;

	for (struct marked *m = group; m < end; m++) {
		if (m->decided)
			continue;
		m->decided = group->found_all || marked_is_shared(m);
		q->report.nr_frames_done += m->decided;
		more |= !m->decided;
	}
	return more;
}

/* One pass over all groups of frames. 1: some are still open. */
static int mark_some_shared_chunks(struct question *q, unsigned max)
{
	struct marked *all = q->frames + q->nr_frames, *end;
	bool more = false;
	int r = 0;

	for (struct marked *m = q->frames; m < all && r == 0; m = end) {
		end = group_end(q, m);
		if (!is_open(m, end))
			continue;
		if (q->nr_places + max > PLACES_MAX)
			r = read_places(q);
		if (r == 0)
			r = find_backrefs(q, m, max);
	}
	if (r == 0)
		r = read_places(q);
	for (struct marked *m = q->frames; m < all && r == 0; m = end) {
		end = group_end(q, m);
		more |= decide_group(q, m, end);
	}
	return r < 0 ? r : more;
}

static int mark_shared_chunks(struct question *q)
{
	unsigned max = BACKREFS_FIRST;
	int r;

	while ((r = mark_some_shared_chunks(q, max)) > 0)
		max = MIN(4 * max, PLACES_MAX);
	return r;
}

/* --- step 6 --- */

/* Counts adjacent chunks together, so that a compressed part that is freed as a whole counts with its full size. */
static uint64_t stored_of(const struct pack_frame_rec *rec, const struct gc_bits *chunks)
{
	uint64_t stored = 0;
	uint32_t n;

	for (uint32_t i = 0; i < rec->nr_chunks; i += MAX(n, 1u)) {
		for (n = 0; i + n < rec->nr_chunks && gc_bit(chunks, i + n); n++)
			;
		if (n > 0)
			stored += pack_rec_stored(rec, pack_rec_start(rec, i), pack_rec_start(rec, i + n));
	}
	return stored;
}

/* Blocks and compressed parts that are freed with these chunks: they hold no other chunk that is in use. */
static uint64_t disk_of(const struct pack_frame_rec *rec, const struct marked *m, const struct gc_bits *chunks)
{
	struct gc_bits before, after;

	for (size_t i = 0; i < ARRAY_SIZE(before.w); i++) {
		before.w[i] = ~(m->own.w[i] | m->others.w[i]); /* garbage: a collection frees it anyway */
		after.w[i] = before.w[i] | chunks->w[i];
	}
	return pack_rec_disk(rec, before.w) - pack_rec_disk(rec, after.w);
}

static int count_stored(struct question *q, const struct marked *m, const struct gc_bits *chunks)
{
	int r = packs_frame_rec(q->e->packs, frame_id_pack(m->id), frame_id_frame(m->id), q->rec);

	if (r <= 0 || q->rec->damaged || q->rec->nr_chunks != m->nr_chunks) {
		q->collected |= r == 0;
		return MIN(r, 0);
	}
	q->report.exclusive_stored += stored_of(q->rec, chunks);
	q->report.exclusive_disk += disk_of(q->rec, m, chunks);
	return 0;
}

static int count_frame(struct question *q, const struct marked *m)
{
	struct gc_bits free_ones = marked_alone(m);

	for (uint32_t i = 0; i < m->nr_chunks; i++) {
		if (!gc_bit(&m->own, i))
			continue;
		q->report.nr_chunks++;
		q->report.bytes += marked_chunk_len(m, i);
		if (gc_bit(&free_ones, i)) {
			q->report.exclusive_chunks++;
			q->report.exclusive_bytes += marked_chunk_len(m, i);
		}
	}
	return gc_count(&free_ones) > 0 ? count_stored(q, m, &free_ones) : 0;
}

/* --- entry point --- */

static int answer_window(struct question *q)
{
	int r;

	r = window_open(q);
	if (r == 0)
		r = each_extent_of_files(q, mark_own_chunks);
	if (r == 0) {
		leave_out_gone(q);
		r = mark_shared_chunks(q);
	}
	for (size_t i = 0; i < q->nr_frames && r == 0; i++)
		r = count_frame(q, &q->frames[i]);
	window_clear(q);
	q->from = q->end;
	return r;
}

/* Step 1. On return all frames that the snapshot refers to are written. */
static int pin(struct question *q)
{
	struct engine *e = q->e;
	int r;

	view_lock_exclusive(e);
	r = files_write_back(e);
	if (r == 0)
		r = db_snapshot_new(e->db, &q->state);
	view_unlock_exclusive(e);
	if (r == 0 && !e->read_only)
		r = engine_sync(e);
	return r < 0 ? r : db_iter_new(e->db, q->state, NULL, 0, NULL, 0, &q->it);
}

static void unpin(struct question *q)
{
	db_iter_free(TAKE(q->it));
	db_snapshot_free(TAKE(q->state));
	exclusive_set_release(&q->set);
}

static int measure(struct question *q)
{
	struct db_iter *inodes = NULL;
	int r;

	r = pin(q);
	if (r == 0)
		r = owners_iter_new(q->e->db, q->state, &inodes);
	if (r == 0)
		r = exclusive_set_find(q->it, inodes, q->conf, &q->set, &q->report);
	db_iter_free(inodes);
	q->from = 0;
	while (r == 0 && q->from != UINT64_MAX)
		r = answer_window(q);
	unpin(q);
	return r;
}

static bool built(void *userdata, uint64_t nr_recipes)
{
	struct question *q = userdata;

	q->report.nr_built = nr_recipes;
	return check_continue(q) == 0;
}

int engine_exclusive(struct engine *e, const struct exclusive_conf *conf, struct exclusive_report *ret)
{
	struct question q = { .e = e, .conf = conf };
	int r;

	q.ids.v = malloc(IDS_MAX * sizeof(*q.ids.v));
	q.places = malloc(PLACES_MAX * sizeof(*q.places));
	q.rec = malloc(sizeof(*q.rec));
	r = q.ids.v && q.places && q.rec ? stages_flush_all(e) : -ENOMEM;
	if (r == 0)
		r = backrefs_build(e, built, &q);
	for (unsigned i = 0; r == 0 && i < TRIES && (i == 0 || q.collected); i++) {
		q.report = (struct exclusive_report){ .nr_built = q.report.nr_built };
		q.collected = false;
		r = measure(&q);
	}
	free(q.ids.v);
	free(q.places);
	free(q.rec);
	if (r == 0)
		*ret = q.report;
	return r;
}
