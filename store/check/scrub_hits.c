/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Finds the files affected by the findings of a scrub: one pass over all recipes of a snapshot of the view, and one
 * over all names. Memory is bounded: up to HITS_MAX ranges are kept to be named, more are only counted.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/search.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/gc/name_walk.h"
#include "store/check/scrub_job.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/write_back.h"
#include "store/log/view.h"

#define HITS_MAX 4096u
#define ENTRIES_PER_STEP 1024u

struct hit {
	uint64_t ino; /* first: search_u64() */
	uint64_t off, len;
};

struct hits {
	struct scrub *s;
	struct hit *v; /* sorted by inode and offset */
	bool *reported;
	size_t nr;
	uint64_t last_ino, nr_seen;
};

static void add_hit(struct hits *h, uint64_t ino, uint64_t off, uint64_t len)
{
	struct hit *last = h->nr > 0 ? &h->v[h->nr - 1] : NULL;

	h->s->report->nr_files += ino != h->last_ino;
	h->s->report->lost_bytes += len;
	h->last_ino = ino;
	if (last && last->ino == ino && last->off + last->len == off)
		last->len += len;
	else if (h->nr < HITS_MAX)
		h->v[h->nr++] = (struct hit){ ino, off, len };
}

static uint64_t bad_end(const struct bad *b)
{
	return (uint64_t)b->off + b->len;
}

/* The first damaged place that ends after `a`. */
static size_t first_bad(const struct scrub *s, struct addr a)
{
	size_t lo = 0, hi = s->nr_bad;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct bad *b = &s->bad[mid];

		if (b->pack < a.pack || (b->pack == a.pack && bad_end(b) <= a.off))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void look_at_extent(struct hits *h, uint64_t ino, uint64_t base, const struct extent *x)
{
	uint64_t from = x->addr.off, to = from + x->len;

	for (size_t i = first_bad(h->s, x->addr); i < h->s->nr_bad && x->addr.node == 0; i++) {
		struct bad *b = &h->s->bad[i];

		if (b->pack != x->addr.pack || b->off >= to)
			break;
		b->used = true;
		if (!b->repaired)
			add_hit(h, ino, base + x->off + (MAX(from, (uint64_t)b->off) - from),
				MIN(to, bad_end(b)) - MAX(from, (uint64_t)b->off));
	}
}

static int look_at_recipe(struct hits *h, const struct db_snapshot *state, const void *key, size_t key_len,
			  const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	uint64_t ino, segment;
	size_t nr;
	int r = recipe_key_decode(key, key_len, &ino, &segment);

	if (r == 0)
		r = recipe_read(h->s->e->db, state, value, len, &x, &nr);
	for (size_t i = 0; r == 0 && i < nr; i++)
		look_at_extent(h, ino, segment * SEGMENT_SIZE, &x[i]);
	return r;
}

/* Reads the recipes of all files, as of one moment. */
static int look_at_recipes(struct hits *h)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct engine *e = h->s->e;
	struct db_snapshot *state;
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	view_lock_exclusive(e);
	r = files_write_back(e);
	if (r == 0)
		r = db_snapshot_new(e->db, &state);
	view_unlock_exclusive(e);
	if (r < 0)
		return r;
	r = db_iter_new(e->db, state, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = look_at_recipe(h, state, key, key_len, value, value_len);
		if (++h->nr_seen % ENTRIES_PER_STEP == 0 && !scrub_goes_on(h->s))
			break;
	}
	db_iter_freep(&it);
	it = NULL;
	db_snapshot_free(state);
	return MIN(r, 0);
}

static void report_hit(struct hits *h, size_t i, const char *path)
{
	const struct scrub_conf *conf = h->s->conf;

	h->reported[i] = true;
	if (conf->hit)
		conf->hit(conf->userdata, path, h->v[i].ino, h->v[i].off, h->v[i].len);
}

/* A file with several names is reported under each. */
static int report_names(struct hits *h)
{
	_cleanup_(name_walk_release) struct name_walk w;
	int r = name_walk_open(h->s->e->db, &h->s->e->key, &w);

	while (r >= 0 && (r = name_walk_next(&w)) > 0) {
		size_t i = search_u64(h->v, h->nr, sizeof(*h->v), w.ino);

		if (++h->nr_seen % ENTRIES_PER_STEP == 0 && !scrub_goes_on(h->s))
			break;
		if (i == h->nr || h->v[i].ino != w.ino)
			continue;
		r = name_walk_path(&w);
		for (; r == 0 && i < h->nr && h->v[i].ino == w.ino; i++)
			report_hit(h, i, (const char *)w.path.data);
	}
	for (size_t i = 0; r >= 0 && !h->s->stopped && i < h->nr; i++)
		if (!h->reported[i])
			report_hit(h, i, NULL);
	return MIN(r, 0);
}

static bool any_left(const struct scrub *s)
{
	for (size_t i = 0; i < s->nr_bad; i++)
		if (!s->bad[i].repaired)
			return true;
	return false;
}

int scrub_report_files(struct scrub *s)
{
	_cleanup_(freep) struct hit *v = calloc(HITS_MAX, sizeof(*v));
	_cleanup_(freep) bool *reported = calloc(HITS_MAX, sizeof(*reported));
	struct hits h = { .s = s, .v = v, .reported = reported };
	int r;

	if (!any_left(s))
		return 0;
	if (!v || !reported)
		return -ENOMEM;
	s->report->doing = "looking for files";
	r = look_at_recipes(&h);
	if (r == 0 && h.nr > 0 && !s->stopped)
		r = report_names(&h);
	return r;
}
