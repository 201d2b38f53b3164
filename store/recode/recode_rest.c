/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Moves the remaining chunks of frames that compaction leaves.
 *
 * A part of 64 KiB of a compressed frame is freed only when every chunk in it is gone, a block of an uncompressed one
 * likewise, and the whole frame, with its table, when none is left. Chunks that stay next to coded ones may therefore
 * keep more disk space allocated than coding saves. Before recipes point to the copies, each such frame is examined,
 * and its remaining chunks are copied, compressed as before, if the copies take less space than the chunks keep
 * allocated: those of parts or blocks that have lost a chunk, or all of the frame.
 *
 * Garbage chunks are copied as well: only the collector can distinguish them. The next collection frees them in either
 * place.
 *
 * The space that the copies take and the old places free is then known exactly. If nothing is saved, all moves are
 * reversed: recipes point to the old places again, also those of files that have shared a copy meanwhile, and the
 * copies are freed like any other old places. After a crash in between, the next mount finishes the moves that it
 * finds (moves.c) in the other direction, which costs only space.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/util.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/recode/recode_job.h"
#include "store/recode/recode_gc.h"

/* Copies may compress slightly worse than their originals: at least 1/20 of their size must be gained. */
#define MARGIN 20u

struct rest {
	struct compact *c;
	uint64_t freed; /* disk bytes freed by all chunks that leave */
	struct gc_recode recode;
	struct pack_frame_rec rec;
};

static uint64_t key_of(struct addr a)
{
	return (uint64_t)a.pack << 32 | a.off;
}

static struct addr addr_of(uint64_t key)
{
	return (struct addr){ .pack = (uint32_t)(key >> 32), .off = (uint32_t)key };
}

static int compare_keys(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Old places of the moved chunks, sorted; caller frees. */
static uint64_t *sorted_places(const struct gc_copy *copy)
{
	uint64_t *places = malloc(MAX(copy->nr, (size_t)1) * sizeof(*places));

	for (size_t i = 0; places && i < copy->nr; i++)
		places[i] = key_of((struct addr){ .pack = copy->m[i].pack, .off = copy->m[i].off });
	if (places)
		qsort(places, copy->nr, sizeof(*places), compare_keys);
	return places;
}

static struct gc_bits bits_or(struct gc_bits a, const struct gc_bits *b)
{
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		a.w[i] |= b->w[i];
	return a;
}

/* The chunks of the frame that begin at these places. */
static struct gc_bits chunks_at(const struct pack_frame_rec *rec, const uint64_t *places, size_t nr)
{
	struct gc_bits found = { 0 };
	size_t at = 0;

	for (uint32_t i = 0; i < rec->nr_chunks && at < nr; i++)
		if (key_of(pack_rec_addr(rec, i)) == places[at]) {
			gc_set_bit(&found, i);
			at++;
		}
	return found;
}

/* Existing chunks that do not leave. Remote chunks take no space here, and copying them would fetch them. */
static struct gc_bits staying_in(const struct pack_frame_rec *rec, const struct gc_bits *leaving)
{
	struct gc_bits staying = { 0 };

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (!fp_is_none(rec->fps[i]) && !gc_bit(leaving, i) && !pack_rec_remote(rec, i))
			gc_set_bit(&staying, i);
	return staying;
}

/* Those of them that have a byte in a part, or a block where nothing is compressed, that a leaving chunk lies in. */
static struct gc_bits staying_beside(const struct pack_frame_rec *rec, const struct gc_bits *leaving)
{
	uint32_t unit = rec->codec == PACK_CODEC_NONE ? PACK_BLOCK : PACK_PART_BYTES;
	struct gc_bits staying = staying_in(rec, leaving), units = { 0 }, beside = { 0 };

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		for (uint32_t u = pack_rec_start(rec, i) / unit; gc_bit(leaving, i) && u * unit < rec->ends[i]; u++)
			gc_set_bit(&units, u);
	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (gc_bit(&staying, i) &&
		    (gc_bit(&units, pack_rec_start(rec, i) / unit) || gc_bit(&units, (rec->ends[i] - 1) / unit)))
			gc_set_bit(&beside, i);
	return beside;
}

/* Size of copies of these chunks, with their share of a table. */
static uint32_t cost_of_copies(const struct pack_frame_rec *rec, const struct gc_bits *chunks)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		if (gc_bit(chunks, i))
			bytes += pack_rec_stored(rec, pack_rec_start(rec, i), rec->ends[i]) +
				 PACK_BLOCK / PACK_FRAME_BLOCKS;
	return bytes;
}

/* The remaining chunks of the frame that are to be copied. */
static struct gc_bits choose_chunks(const struct pack_frame_rec *rec, const struct gc_bits *leaving)
{
	uint32_t least = pack_rec_disk(rec, leaving->w);
	const struct gc_bits choices[] = { staying_beside(rec, leaving), staying_in(rec, leaving) };
	struct gc_bits best = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
		struct gc_bits gone = bits_or(*leaving, &choices[i]);
		uint32_t copies = cost_of_copies(rec, &choices[i]), all = pack_rec_disk(rec, gone.w) + copies;

		if (all + copies / MARGIN < least) {
			best = choices[i];
			least = all + copies / MARGIN;
		}
	}
	return best;
}

/* Handles the frame of these places. */
static int take_from(struct rest *rest, const uint64_t *places, size_t nr)
{
	static const struct gc_bits none;
	struct addr a = addr_of(places[0]);
	struct pack_frame_rec *rec = &rest->rec;
	struct gc_bits leaving, rest_of_it = { 0 };
	int r = packs_frame_rec(rest->c->g.e->packs, a.pack, pack_frame_of(a), rec);

	if (r <= 0 || rec->damaged)
		return MIN(r, 0);
	leaving = chunks_at(rec, places, nr);
	rest_of_it = choose_chunks(rec, &leaving);
	leaving = bits_or(leaving, &rest_of_it);
	rest->freed += pack_rec_disk(rec, none.w) - pack_rec_disk(rec, leaving.w);
	return gc_count(&rest_of_it) > 0 ? gc_recode_add(&rest->recode, &rest->c->copy, rec, &rest_of_it) : 0;
}

/* In memory, fingerprints point to the old places of the frame's chunks again. */
static int lead_back(struct rest *rest, const uint64_t *places, size_t nr)
{
	struct engine *e = rest->c->g.e;
	struct addr a = addr_of(places[0]);
	struct pack_frame_rec *rec = &rest->rec;
	struct gc_bits left;
	int r = packs_frame_rec(e->packs, a.pack, pack_frame_of(a), rec);

	if (r <= 0 || rec->damaged)
		return MIN(r, 0);
	left = chunks_at(rec, places, nr);
	dedup_lock(e);
	for (uint32_t i = 0; i < rec->nr_chunks; i++) {
		struct fptable_slot *s = gc_bit(&left, i) ? fptable_find(dedup_table(e, DEDUP_RECENT), rec->fps[i]) : NULL;

		if (s) {
			s->pack = rec->pack;
			s->off = pack_rec_addr(rec, i).off;
			s->number = pack_rec_number(rec, i);
		}
	}
	dedup_unlock(e);
	return 0;
}

/* Calls `fn` for each frame. */
static int each_frame(struct rest *rest, const uint64_t *places, size_t nr,
		      int (*fn)(struct rest *rest, const uint64_t *places, size_t nr))
{
	int r = 0;

	for (size_t i = 0, n; i < nr && r == 0; i += n) {
		struct addr first = addr_of(places[i]);

		for (n = 1; i + n < nr; n++) {
			struct addr a = addr_of(places[i + n]);

			if (a.pack != first.pack || pack_frame_of(a) != pack_frame_of(first))
				break;
		}
		r = fn(rest, places + i, n);
	}
	return r;
}

/* Data counted as coded stays after all. */
static void count_as_kept(struct compact_result *r)
{
	r->kept += r->coded;
	r->coded = r->before = r->after = 0;
}

static int reverse_moves(struct rest *rest)
{
	struct compact *c = rest->c;
	struct gc_copy *copy = &c->copy;
	_cleanup_(freep) uint64_t *places = sorted_places(copy);
	int r = places ? engine_sync(c->g.e) : -ENOMEM; /* only committed places are freed */

	if (r == 0)
		r = each_frame(rest, places, copy->nr, lead_back);
	if (r < 0)
		return r; /* not reversed: the store grows slightly, but stays valid */
	for (size_t i = 0; i < copy->nr; i++) {
		struct move *m = &copy->m[i], there = *m;

		*m = (struct move){ .pack = there.to.pack, .off = there.to.off, .len = there.len };
		m->to = (struct addr){ .pack = there.pack, .off = there.off };
	}
	for (size_t i = 0; i < c->conf->nr_variables; i++)
		count_as_kept(&c->conf->result[i]);
	count_as_kept(&c->report.sum);
	return 0;
}

static int copy_rest(struct rest *rest)
{
	struct gc_copy *copy = &rest->c->copy;
	size_t nr = copy->nr;
	_cleanup_(freep) uint64_t *places = sorted_places(copy);
	int r, q;

	if (!places)
		return -ENOMEM;
	copy->code = NULL;
	r = each_frame(rest, places, nr, take_from);
	q = gc_copy_flush(copy);
	copy->code = compact_code_frame;
	copy->userdata = rest->c;
	r = r < 0 ? r : q;
	return io_is_full(r) ? 0 : r; /* the remaining chunks stay where they are */
}

int compact_take_rest(struct compact *c)
{
	struct rest *rest = calloc(1, sizeof(*rest));
	int r = rest ? 0 : -ENOMEM;

	if (r == 0) {
		rest->c = c;
		r = copy_rest(rest);
	}
	/* includes the headers of packs that may have been started, one bulk and one small */
	if (r == 0 && rest->freed < c->copy.disk_bytes - c->disk_repointed + 2 * PACK_BLOCK)
		r = reverse_moves(rest);
	if (rest)
		gc_recode_release(&rest->recode);
	c->disk_repointed = c->copy.disk_bytes;
	free(rest);
	return r;
}
