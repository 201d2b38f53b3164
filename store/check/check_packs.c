/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks the packs: headers, then frame by frame tables, chunks, hints, and recipes that refer to missing data.
 *
 * Frames are read in order. The results are gathered for a window of packs, as large as memory allows. Then damaged
 * chunks are repaired from second copies, if there are any, and all recipes are compared with the window.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/check/check_internal.h"
#include "store/pack/pack.h"
#include "store/pack/repair/pack_repair.h"

#define BAD_MAX 65536u /* soft: a window ends with a pack */

struct packs_check {
	struct check *k;
	struct pack_frame_rec *rec;
	struct pack_salvage *salvage;
	uint8_t *buf; /* holds a whole frame */
	struct check_window w;
	uint32_t last_pack; /* last pack in the window */
	struct pack_counts counts; /* of existing chunks; freed chunks do not count */
	bool uncounted; /* some table could not be read */
	struct check_hints hints;
};

/* --- headers --- */

static const char *header_why(int r)
{
	return r == -EBADMSG ? "is damaged" : r == -EOPNOTSUPP ? "has another version" : "cannot be read";
}

/* What is in the packs of all streams is the same. Only a pack that a stream continues must name that one. */
static enum pack_stream stream_of(const struct check *k, uint32_t pack)
{
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		if (k->marks.stream[s].pack == pack)
			return (enum pack_stream)s;
	return PACK_BULK;
}

static void check_header(struct check *k, uint32_t pack)
{
	enum pack_stream s;
	int r = packs_stream_of(k->packs, pack, &s);

	if (r > 0)
		return;
	if (r == 0) {
		check_found(k, CHECK_PACKS, false, "pack %" PRIu32 ": the file is missing", pack);
		return;
	}
	if (r == -EBADMSG && k->conf->repair && packs_repair_header(k->packs, pack, stream_of(k, pack)) == 0)
		check_found(k, CHECK_PACKS, true, "pack %" PRIu32 ": the header is damaged; rewritten", pack);
	else
		check_found(k, CHECK_PACKS, false, "pack %" PRIu32 ": the header %s; its chunks can still be read",
			    pack, header_why(r));
}

int check_headers(struct check *k)
{
	int r = 0;

	for (uint32_t pack = 1; pack < k->marks.next_pack && r == 0; pack++) {
		if (check_is_removed(k, pack))
			continue;
		k->res.nr_packs++;
		check_header(k, pack);
		r = check_step(k, "pack headers", pack, k->marks.next_pack, false);
	}
	return r;
}

/* --- tables and chunks --- */

/* Is the chunk stored here? */
static bool is_read(const struct pack_frame_rec *rec, uint32_t i)
{
	return !fp_is_none(rec->fps[i]) && !pack_rec_remote(rec, i);
}

static bool any_gone(const struct pack_frame_rec *rec)
{
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (!is_read(rec, i))
			return true;
	return false;
}

static int count_chunks(struct packs_check *c)
{
	const struct pack_frame_rec *rec = c->rec;
	uint64_t remote[PACK_GONE_WORDS];
	bool settled = true;
	int r;

	c->counts.nr_frames++;
	r = check_remote_of(c->k, rec->pack, rec->frame, remote, &settled);
	for (uint32_t i = 0; i < rec->nr_chunks && r >= 0; i++) {
		if (fp_is_none(rec->fps[i])) {
			r = check_window_add_gone(&c->w, pack_rec_addr(rec, i), pack_rec_len(rec, i));
			if (settled || !(remote[i / 64] >> i % 64 & 1))
				continue; /* else it was never written, but is counted in the marks */
		}
		c->counts.nr_chunks++;
		c->counts.chunk_bytes += pack_rec_len(rec, i);
	}
	return MIN(r, 0);
}

/* Reads the whole frame at once; if that fails, chunk by chunk. */
static int read_chunks(struct packs_check *c)
{
	const struct pack_frame_rec *rec = c->rec;
	uint32_t total = pack_rec_start(rec, rec->nr_chunks);
	int r;

	c->k->res.read_bytes += total;
	if (!any_gone(rec) && packs_read(c->k->packs, rec->first, total, c->buf) == 0)
		return 0;
	for (uint32_t i = 0; i < rec->nr_chunks; i++) {
		if (!is_read(rec, i))
			continue;
		r = packs_read(c->k->packs, pack_rec_addr(rec, i), pack_rec_len(rec, i), c->buf);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			r = check_window_add_chunk(&c->w, pack_rec_addr(rec, i), pack_rec_len(rec, i), rec->fps[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Hints may confirm fingerprints of a damaged table that the data does not confirm. */
static int prove_by_hints(struct check *k, struct pack_salvage *s)
{
	struct addr hints[PACK_FRAME_BLOCKS];
	struct addr first = { .pack = s->pack, .off = (1 + s->frame * PACK_FRAME_STRIDE + 1) * PACK_BLOCK };
	int r = k->db ? fingerprints_find(k->db, s->bytes, s->nr_chunks, hints) : 0;

	for (uint32_t i = 0; r == 0 && k->db && i < s->nr_chunks; i++) {
		uint8_t number = (uint8_t)(s->chunk_len ? i * (s->chunk_len / PACK_BLOCK) : i);
		struct addr own = { .pack = s->pack, .off = pack_hint(first, number) * PACK_BLOCK };

		if (!s->proved[i] && addr_equal(hints[i], own)) {
			s->fps[i] = s->bytes[i];
			s->proved[i] = true;
		}
	}
	return r;
}

/* Reads the frame again after its table was repaired; freed chunks are known then. */
static int read_again(struct packs_check *c)
{
	struct pack_iter it = pack_iter(c->k->packs, c->rec->pack, c->rec->frame);
	uint32_t frame = c->rec->frame;

	return pack_iter_next(&it, c->rec) > 0 && c->rec->frame == frame && !c->rec->damaged;
}

/* 1: repaired, and c->rec is as if it had never been damaged; 0: cannot be repaired; <0. */
static int repair_table(struct packs_check *c)
{
	struct pack_frame_rec *rec = c->rec;
	struct pack_salvage *s = c->salvage;
	uint32_t nr = 0, nr_unproved = 0;
	int r;

	r = packs_salvage_table(c->k->packs, rec->pack, rec->frame, s);
	if (r > 0)
		r = prove_by_hints(c->k, s) == 0;
	if (r > 0)
		r = packs_repair_table(c->k->packs, s) == 0 && read_again(c);
	if (r <= 0)
		return r == -ENOMEM ? r : 0;
	for (uint32_t i = 0; i < rec->nr_chunks; i++) {
		if (fp_is_none(rec->fps[i]))
			continue;
		nr++;
		nr_unproved += !s->proved[i];
		if (!s->proved[i] && !c->k->conf->read_data) /* read_chunks() would find it */
			r = check_window_add_chunk(&c->w, pack_rec_addr(rec, i), pack_rec_len(rec, i), rec->fps[i]);
		if (r < 0)
			return r;
	}
	check_found(c->k, CHECK_PACKS, true,
		    "pack %" PRIu32 " frame %" PRIu32 ": the table of fingerprints is damaged; rewritten, for %" PRIu32
		    " of %" PRIu32 " chunks",
		    rec->pack, rec->frame, nr - nr_unproved, nr);
	return 1;
}

/* 1: the frame has a usable table. */
static int check_table(struct packs_check *c)
{
	const struct pack_frame_rec *rec = c->rec;
	int r;

	if (!rec->damaged)
		return 1;
	r = c->k->conf->repair ? repair_table(c) : 0;
	if (r != 0)
		return r;
	r = check_window_add_frame(&c->w, rec->pack, rec->frame);
	return r < 0 ? r : frame_map_add(&c->w.map, rec->pack, rec->frame, FRAME_DAMAGED);
}

static int check_frame(struct packs_check *c)
{
	const struct pack_frame_rec *rec = c->rec;
	int r = check_table(c);

	if (r <= 0)
		return r;
	r = frame_map_add(&c->w.map, rec->pack, rec->frame, pack_rec_start(rec, rec->nr_chunks));
	if (r == 0)
		r = count_chunks(c);
	if (r == 0 && c->k->conf->read_data)
		r = read_chunks(c);
	if (r == 0)
		check_hints_expect(c->k, &c->w, rec);
	return r;
}

/* --- windows --- */

static int end_window(struct packs_check *c)
{
	int r = check_hints_compare(c->k, &c->w, &c->hints);

	return r < 0 ? r : check_window_close(c->k, &c->w, c->buf, &c->uncounted);
}

/* Adds all packs up to this one to the window. A full window is ended before. */
static int enter_pack(struct packs_check *c, uint32_t pack)
{
	uint64_t limit = c->k->conf->cache / 8;
	int r = 0;

	if (c->last_pack > 0 && pack > c->last_pack &&
	    (c->w.map.bytes > limit || c->w.nr_bad > BAD_MAX || c->w.nr_gone * sizeof(*c->w.gone) > limit))
		r = end_window(c);
	while (r == 0 && c->last_pack < pack)
		r = frame_map_add_pack(&c->w.map, ++c->last_pack);
	return r;
}

static int report_unreadable(struct packs_check *c, const struct pack_iter *it, int error)
{
	if (error == -ENOMEM)
		return error;
	c->uncounted = true;
	check_found(c->k, CHECK_PACKS, false, "pack %" PRIu32 ": a table of fingerprints cannot be read: %s", it->pack,
		    strerror(-error));
	return 0;
}

static int go_through_frames(struct packs_check *c)
{
	bool bytes = c->k->conf->read_data;
	uint64_t all = bytes ? c->k->marks.counts.chunk_bytes : c->k->marks.counts.nr_frames;
	struct pack_iter it = pack_iter(c->k->packs, 1, 0);
	int r;

	while ((r = pack_iter_next(&it, c->rec)) != 0) {
		if (r < 0) {
			r = report_unreadable(c, &it, r);
		} else {
			r = enter_pack(c, c->rec->pack);
			if (r == 0)
				r = check_frame(c);
		}
		if (r == 0)
			r = check_step(c->k, bytes ? "data" : "packs",
				       bytes ? c->counts.chunk_bytes : c->counts.nr_frames, all, bytes);
		if (r < 0)
			return r;
	}
	r = enter_pack(c, c->k->marks.next_pack - 1);
	return r < 0 ? r : end_window(c);
}

/* --- totals --- */

/*
 * Estimates the stored bytes of these chunk bytes in proportion, since the stored size of lost chunks is unknown. If
 * less is stored than the chunks hold, the result must keep that: packs take it as a sign of compressed frames.
 */
static uint64_t share_of_stored(const struct pack_counts *all, uint64_t chunk_bytes)
{
	if (all->stored_bytes == all->chunk_bytes)
		return chunk_bytes;
	return (uint64_t)((unsigned __int128)all->stored_bytes * chunk_bytes / MAX(all->chunk_bytes, UINT64_C(1)));
}

static int check_counts(struct packs_check *c)
{
	const struct pack_counts *said = &c->k->marks.counts;
	struct pack_counts now = *said;
	struct freed_totals gone = { 0 };
	int r = c->k->db ? freed_get_totals(c->k->db, &gone) : 0;

	if (c->k->has_tail_totals)
		gone = c->k->tail_totals;
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	c->k->res.nr_frames = c->counts.nr_frames;
	c->k->res.nr_chunks = c->counts.nr_chunks;
	c->k->res.chunk_bytes = c->counts.chunk_bytes;
	/*
	 * If something is lost it has been reported, and totals say nothing. Otherwise they reveal tables that have
	 * become zeros: these look like freed frames, and only commits that are not in the index refer to them, so
	 * their recipes have not been compared.
	 */
	if (c->uncounted || !c->k->db || c->k->journal_bad)
		return 0;
	now.nr_chunks = c->counts.nr_chunks + gone.nr_chunks;
	now.chunk_bytes = c->counts.chunk_bytes + gone.bytes;
	now.stored_bytes = share_of_stored(said, now.chunk_bytes);
	if (said->nr_chunks == now.nr_chunks && said->chunk_bytes == now.chunk_bytes)
		return 0;
	r = c->k->conf->repair ? check_repair_counts(c->k, &now) : -EROFS;
	if (r == -ENOMEM)
		return r;
	check_found(c->k, CHECK_PACKS, r == 0,
		    "packs: should have %s with %" PRIu64 " bytes, have %" PRIu64 " with %" PRIu64 "%s",
		    human_nr(said->nr_chunks - gone.nr_chunks, "chunk").s, said->chunk_bytes - gone.bytes,
		    c->counts.nr_chunks, c->counts.chunk_bytes, r == 0 ? "; recounted" : "");
	return 0;
}

int check_packs(struct check *k)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(freep) struct pack_salvage *salvage = malloc(sizeof(*salvage));
	_cleanup_(freep) void *buf = NULL;
	struct packs_check c = { .k = k, .rec = rec, .salvage = salvage, .w.is_first = true };
	int r;

	if (!rec || !salvage || posix_memalign(&buf, PACK_BLOCK, PACK_FRAME_BYTES) != 0)
		return -ENOMEM;
	c.buf = buf;
	r = go_through_frames(&c);
	check_window_release(&c.w);
	if (r == 0)
		r = check_hints_repair(k, &c.hints);
	free(c.hints.missing);
	if (r == 0)
		r = check_counts(&c);
	return r;
}
