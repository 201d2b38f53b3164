/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Gathers the results for the packs of a window. At its end damaged chunks are repaired from second copies, if there
 * are any, all recipes are compared with the window, and the rest is reported.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "store/check/check_internal.h"
#include "store/pack/pack.h"
#include "store/pack/repair/pack_repair.h"

struct closing {
	struct check *k;
	struct check_window *w;
	uint8_t *buf; /* holds a chunk */
	bool *uncounted;
};

int check_window_add_chunk(struct check_window *w, struct addr a, uint32_t len, struct fp fp)
{
	if (w->nr_bad == w->size_bad) {
		size_t size = MAX(2 * w->size_bad, (size_t)64);
		struct bad_chunk *more = reallocarray(w->bad, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->bad = more;
		w->size_bad = size;
	}
	w->bad[w->nr_bad++] = (struct bad_chunk){ .fp = fp, .pack = a.pack, .off = a.off, .len = len };
	return 0;
}

int check_window_add_frame(struct check_window *w, uint32_t pack, uint32_t frame)
{
	if (w->nr_frames == w->size_frames) {
		size_t size = MAX(2 * w->size_frames, (size_t)16);
		struct bad_frame *more = reallocarray(w->frames, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->frames = more;
		w->size_frames = size;
	}
	w->frames[w->nr_frames++] = (struct bad_frame){ pack, frame, false };
	return 0;
}

int check_window_add_gone(struct check_window *w, struct addr a, uint32_t len)
{
	struct gone_chunks *last = w->nr_gone > 0 ? &w->gone[w->nr_gone - 1] : NULL;

	if (last && last->pack == a.pack && last->off + last->len == a.off) {
		last->len += len;
		return 0;
	}
	if (w->nr_gone == w->size_gone) {
		size_t size = MAX(2 * w->size_gone, (size_t)64);
		struct gone_chunks *more = reallocarray(w->gone, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->gone = more;
		w->size_gone = size;
	}
	w->gone[w->nr_gone++] = (struct gone_chunks){ a.pack, a.off, len };
	return 0;
}

struct by_fp {
	struct fp fp;
	struct bad_chunk *b;
};

static int compare_fps(const void *a, const void *b)
{
	const struct fp *x = a, *y = b;

	if (x->hi != y->hi)
		return x->hi < y->hi ? -1 : 1;
	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Reads the same chunk from another place, which verifies it, and overwrites the damaged one. */
static void repair_from(struct closing *c, struct bad_chunk *b, struct addr a)
{
	struct addr to = { .pack = b->pack, .off = b->off };

	if (b->repaired || addr_equal(a, to) || packs_read(c->k->packs, a, b->len, c->buf) < 0)
		return;
	b->repaired = packs_repair_chunk(c->k->packs, to, c->buf, b->len) == 0;
	b->from = a;
}

/* Reads all tables once more to find second copies of damaged chunks. */
static int repair_chunks(struct closing *c)
{
	_cleanup_(freep) struct by_fp *sorted = calloc(MAX(c->w->nr_bad, (size_t)1), sizeof(*sorted));
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	struct pack_iter it = pack_iter(c->k->packs, 1, 0);
	int r;

	if (!sorted || !rec)
		return -ENOMEM;
	for (size_t i = 0; i < c->w->nr_bad; i++)
		sorted[i] = (struct by_fp){ c->w->bad[i].fp, &c->w->bad[i] };
	qsort(sorted, c->w->nr_bad, sizeof(*sorted), compare_fps);
	while ((r = pack_iter_next(&it, rec)) != 0) {
		if (r == -ENOMEM)
			return r;
		if (r < 0 || rec->damaged)
			continue;
		for (uint32_t i = 0; i < rec->nr_chunks; i++) {
			struct by_fp *s = bsearch(&rec->fps[i], sorted, c->w->nr_bad, sizeof(*sorted), compare_fps);

			while (s && s > sorted && fp_equal(s[-1].fp, rec->fps[i]))
				s--;
			for (; s && s < sorted + c->w->nr_bad && fp_equal(s->fp, rec->fps[i]); s++)
				if (s->b->len == pack_rec_len(rec, i))
					repair_from(c, s->b, pack_rec_addr(rec, i));
		}
		r = check_step(c->k, "second copies", it.pack, it.end_pack, false);
		if (r < 0)
			return r;
	}
	return 0;
}

static void report_bad(struct closing *c)
{
	for (const struct bad_chunk *b = c->w->bad; b < c->w->bad + c->w->nr_bad; b++)
		if (b->repaired)
			check_found(c->k, CHECK_DATA, true,
				    "pack %" PRIu32 " offset %" PRIu32 ": a chunk of %" PRIu32
				    " bytes is damaged; repaired from pack %" PRIu32 " offset %" PRIu32,
				    b->pack, b->off, b->len, b->from.pack, b->from.off);
		else
			check_found(c->k, CHECK_DATA, false,
				    "pack %" PRIu32 " offset %" PRIu32 ": a chunk of %" PRIu32 " bytes is damaged%s%s",
				    b->pack, b->off, b->len, c->k->conf->repair ? "; there is no second copy" : "",
				    !c->k->db ? "; which files use it is unknown without an index" :
				    b->used   ? "" :
						"; no file uses it");
}

/* Frames with tables that cannot be repaired. An unused frame is wiped, so that no new data is compared with it. */
static void report_bad_frames(struct closing *c)
{
	/* References are known only if the index is sound and up to date. */
	bool knows = c->k->db && !c->k->journal_bad && c->k->nr_view == 0 && c->k->res.unapplied == 0;

	for (const struct bad_frame *b = c->w->frames; b < c->w->frames + c->w->nr_frames; b++) {
		bool unused = knows && !b->used;
		bool wiped = unused && c->k->conf->repair && packs_wipe_table(c->k->packs, b->pack, b->frame) == 0;

		*c->uncounted |= !wiped;
		check_found(c->k, CHECK_PACKS, wiped,
			    "pack %" PRIu32 " frame %" PRIu32 ": the table of fingerprints is damaged; %s", b->pack,
			    b->frame,
			    wiped	     ? "no file uses the frame; dropped" :
			    unused	     ? "no file uses the frame" :
			    c->k->conf->repair ? "its chunks, up to 1 MiB, are lost" :
					       "its chunks, up to 1 MiB, cannot be read; -p may repair it");
	}
}

void check_window_release(struct check_window *w)
{
	frame_map_release(&w->map);
	free(w->bad);
	free(w->frames);
	free(w->gone);
	*w = (struct check_window){ 0 };
}

int check_window_close(struct check *k, struct check_window *w, uint8_t *buf, bool *uncounted)
{
	struct closing c = { k, w, buf, uncounted };
	int r = 0;

	if (w->nr_bad > 0 && k->conf->repair && !k->journal_bad)
		r = repair_chunks(&c);
	if (r == 0 && k->db)
		r = check_extents(k, w);
	if (r == 0) {
		report_bad(&c);
		report_bad_frames(&c);
	}
	check_window_release(w);
	return r;
}
