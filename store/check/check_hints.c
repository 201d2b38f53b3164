/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks hints: can every chunk that should be in RocksDB be found by its fingerprint?
 *
 * Looking each chunk up would cost a random access in the index for every page of the store. Instead all hints are read
 * once, in key order, for each window of packs. For each frame, the chunks in its table and the hints that lead to it
 * are summed up, each as a hash of key and place, and the sums are compared. Equal sums mean equal sets, except with a
 * probability of 2^-64. Only frames that differ, because of chunks stored twice or hints left over from a collection,
 * are checked chunk by chunk.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/conf.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/check/check_internal.h"
#include "store/pack/pack.h"

#define SCAN_HINTS 65536u
#define MISSING_MAX (1u << 20) /* hints put back, at most; beyond this a rebuild is simpler */

static uint64_t hash(uint64_t key, struct addr a)
{
	uint64_t h = key ^ ((uint64_t)a.pack << 32 | a.off) * 0x9e3779b97f4a7c15;

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
	h = (h ^ h >> 27) * 0x94d049bb133111eb;
	return h ^ h >> 31;
}

/* The hint that RocksDB should have for a chunk. */
static struct addr hint_to(const struct pack_frame_rec *rec, uint32_t i)
{
	return (struct addr){ .pack = rec->pack, .off = pack_hint(rec->first, pack_rec_number(rec, i)) * PACK_BLOCK };
}

void check_hints_expect(struct check *k, struct check_window *w, const struct pack_frame_rec *rec)
{
	uint64_t *sum = frame_map_sum(&w->map, rec->pack, rec->frame);

	if (!k->db || !pack_marks_cover(&k->meta.absorbed, rec->pack, rec->frame))
		return;
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (!fp_is_none(rec->fps[i]))
			*sum += hash(fingerprint_key(rec->fps[i]), hint_to(rec, i));
}

/* Subtracts every hint from the sum of the frame that it leads to. */
static int scan(struct check *k, struct check_window *w)
{
	_cleanup_(freep) struct fingerprint_hint *v = malloc(SCAN_HINTS * sizeof(*v));
	uint64_t from = 0, done = 0;
	size_t n = SCAN_HINTS;
	int r = v ? 0 : -ENOMEM;

	while (r == 0 && n == SCAN_HINTS) {
		r = fingerprints_scan_hints(k->db, from, v, SCAN_HINTS, &n);
		for (size_t i = 0; r == 0 && i < n; i++) {
			uint32_t frame, in;
			uint64_t *sum = check_place(v[i].addr.off, &frame, &in) ?
						frame_map_sum(&w->map, v[i].addr.pack, frame) :
						NULL;

			if (sum)
				*sum -= hash(v[i].key, v[i].addr);
		}
		if (r < 0 || n == 0 || v[n - 1].key == UINT64_MAX)
			break;
		from = v[n - 1].key + 1;
		done += n;
		r = check_step(k, "fingerprints", done, 0, false);
	}
	return r;
}

/* Does the hint lead to the chunk, to an equal one, or to one that shares its key? No hint can do better. */
static int hint_is_good(struct check *k, struct addr hint, struct addr own, struct fp fp)
{
	struct addr start;
	uint32_t len;
	struct fp there;
	int r;

	if (addr_is_none(hint))
		return 0;
	if (addr_equal(hint, own))
		return 1;
	r = packs_find(k->packs, hint, &start, &len, &there);
	if (r <= 0)
		return r == -ENOMEM ? r : 0;
	return fingerprint_key(there) == fingerprint_key(fp);
}

static int add_missing(struct check_hints *h, struct fp fp, struct addr a)
{
	h->nr_missing++;
	if (h->nr == MISSING_MAX)
		return 0;
	if (h->nr == h->size) {
		size_t size = MAX(2 * h->size, (size_t)256);
		struct fingerprint_entry *more = reallocarray(h->missing, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		h->missing = more;
		h->size = size;
	}
	h->missing[h->nr++] = (struct fingerprint_entry){ fp, a.pack, a.off / PACK_BLOCK };
	return 0;
}

static int check_frame(struct check *k, const struct pack_frame_rec *rec, struct check_hints *h)
{
	struct addr hints[PACK_FRAME_BLOCKS];
	int r;

	r = fingerprints_find(k->db, rec->fps, rec->nr_chunks, hints);
	for (uint32_t i = 0; r >= 0 && i < rec->nr_chunks; i++) {
		if (fp_is_none(rec->fps[i]) || pack_rec_remote(rec, i))
			continue; /* remote chunks may have a hint or not */
		r = hint_is_good(k, hints[i], hint_to(rec, i), rec->fps[i]);
		if (r == 0)
			r = add_missing(h, rec->fps[i], hint_to(rec, i));
	}
	return MIN(r, 0);
}

static int check_frames_of(struct check *k, struct check_window *w, uint32_t pack, struct pack_frame_rec *rec,
			   struct check_hints *h)
{
	const struct frame_map_pack *p = &w->map.packs[pack - w->map.first];
	int r = 0;

	for (uint32_t frame = 0; frame < p->nr && r == 0; frame++) {
		struct pack_iter it;

		if (p->sums[frame] == 0 || p->lens[frame] == 0 || p->lens[frame] == FRAME_DAMAGED ||
		    !pack_marks_cover(&k->meta.absorbed, pack, frame))
			continue;
		it = pack_iter(k->packs, pack, frame);
		r = pack_iter_next(&it, rec);
		if (r > 0 && !rec->damaged && rec->pack == pack && rec->frame == frame)
			r = check_frame(k, rec, h);
		else
			r = r == -ENOMEM ? r : 0;
	}
	return r;
}

int check_hints_compare(struct check *k, struct check_window *w, struct check_hints *h)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	int r;

	if (!rec)
		return -ENOMEM;
	r = k->db ? scan(k, w) : 0;
	for (uint32_t pack = w->map.first; k->db && pack < w->map.end && r == 0; pack++)
		r = check_frames_of(k, w, pack, rec, h);
	return r;
}

/* Missing hints cost space, not data: their chunks would be stored again. */
int check_hints_repair(struct check *k, struct check_hints *h)
{
	struct db_conf conf = { .cache = k->conf->cache / 4 };
	_cleanup_(freep) char *dir = NULL;
	bool repaired = false;
	int r;

	if (h->nr_missing == 0)
		return 0;
	if (k->conf->repair && h->nr_missing == h->nr) {
		if (asprintf(&dir, "%s/index", k->path) < 0)
			return -ENOMEM;
		db_close(TAKE(k->db));
		r = db_open(dir, &conf, &k->db);
		if (r == 0)
			r = fingerprints_ingest(k->db, h->missing, h->nr);
		if (r == -ENOMEM)
			return r;
		repaired = r == 0;
	}
	check_found(k, CHECK_FINGERPRINTS, repaired, "index: %s cannot be found by %s and would be stored again%s",
		    human_nr(h->nr_missing, "chunk").s, h->nr_missing == 1 ? "its fingerprint" : "their fingerprints",
		    repaired	    ? "; put back" :
		    k->conf->repair ? "; --rebuild puts them back" :
				      "");
	return 0;
}
