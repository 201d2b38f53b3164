/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/gc/gc_copy.h"

#include <errno.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/util.h"
#include "index/freed.h"
#include "store/dedup/compress.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/gc/moves.h"

int gc_copy_init(struct gc_copy *c, struct gc *g, size_t max)
{
	*c = (struct gc_copy){ .g = g, .max = max, .m = malloc(max * sizeof(*c->m)) };
	c->buffer = aligned_alloc(PACK_BLOCK, PACK_FRAME_BYTES);
	return c->m && c->buffer ? 0 : -ENOMEM;
}

static int end_moving(struct gc_copy *c)
{
	struct freed_totals gone = { 0 };
	int r = moving_complete(c->g->e, c->m, c->nr, &gone);

	c->g->report->freed_chunks += gone.nr_chunks;
	c->g->report->freed_bytes += gone.bytes;
	if (r < 0)
		moving_abort(c->g->e);
	c->moving = false;
	c->nr = 0;
	return r;
}

/*
 * Copies made so far are repointed to even after a later failure: the in-memory table already leads to the copies, and
 * once these were collected, nothing would lead to the originals.
 */
void gc_copy_release(struct gc_copy *c)
{
	if (c->moving)
		end_moving(c);
	free(c->m);
	free(c->buffer);
}

/* From now on lookups in memory return the new place. */
static void remember(struct engine *e, struct gc_chunk *chunk, struct addr to, uint8_t number) REQUIRES(append_lock)
{
	struct fptable_slot *s = fptable_find(dedup_table(e, DEDUP_RECENT), chunk->fp);

	if (!s) {
		/* on ENOMEM the chunk may be stored twice */
		fptable_insert(dedup_table(e, DEDUP_RECENT), chunk->fp, to, number);
	} else if (s->pack == chunk->from.pack && s->off == chunk->from.off) {
		chunk->replaced = true;
		chunk->number = s->number;
		s->pack = to.pack;
		s->off = to.off;
		s->number = number;
	}
}

/* Undoes remember(): the copy was not written. */
static void take_back(struct engine *e, const struct gc_chunk *chunk, struct addr to) REQUIRES(append_lock)
{
	struct fptable_slot *s = fptable_find(dedup_table(e, DEDUP_RECENT), chunk->fp);

	if (!s || s->pack != to.pack || s->off != to.off)
		return;
	fptable_remove(dedup_table(e, DEDUP_RECENT), chunk->fp);
	if (chunk->replaced)
		/* cannot fail: a slot was just freed */
		fptable_insert(dedup_table(e, DEDUP_RECENT), chunk->fp, chunk->from, chunk->number);
}

/* Reads all chunks at once or, if one is damaged, one by one; damaged chunks are left out. */
static int read_chunks(struct gc_copy *c)
{
	struct pack_piece pieces[PACK_FRAME_BLOCKS];
	struct packs *packs = c->g->e->packs;
	unsigned n = 0;
	uint32_t at = 0;
	int r;

	for (unsigned i = 0; i < c->nr_next; at += c->next[i++].len)
		pieces[i] = (struct pack_piece){ c->next[i].from, c->next[i].len, c->buffer + at };
	gc_pace(c->g, at);
	r = packs_read_pieces(packs, pieces, c->nr_next);
	if (r != -EBADMSG)
		return r;
	at = 0;
	for (unsigned i = 0; i < c->nr_next; i++) {
		r = packs_read(packs, c->next[i].from, c->next[i].len, c->buffer + at);
		if (r == -EBADMSG)
			continue;
		if (r < 0)
			return r;
		at += c->next[i].len;
		c->next[n++] = c->next[i];
	}
	c->nr_next = n;
	c->used = at;
	return 0;
}

/* Fills the next frame. The in-memory table gets the new places before the frame can be committed: chunks missing from
 * it by then count as absorbed (absorb.c). */
static void fill_frame(struct gc_copy *c, struct pack_frame *f)
{
	struct engine *e = c->g->e;
	uint32_t at = 0;

	dedup_lock(e);
	for (unsigned i = 0; i < c->nr_next; at += c->next[i++].len) {
		struct gc_chunk *k = &c->next[i];
		const uint8_t *p = c->buffer + at;
		struct addr to = c->chunk_len == PACK_VARIED ? pack_frame_add_varied(f, k->fp, p, k->len) :
							       pack_frame_add(f, k->fp, p);

		c->m[c->nr + i] = (struct move){ .pack = k->from.pack, .off = k->from.off, .len = k->len, .to = to };
		remember(e, k, to, pack_frame_last(f));
	}
	dedup_unlock(e);
}

/* Called before the first frame is written: from here on there may be copies. */
static int begin_moving(struct gc_copy *c)
{
	int r = c->moving ? 0 : moving_begin(c->g->e);

	c->moving |= r == 0;
	return r;
}

bool gc_copy_is_mixed(const struct gc_copy *c)
{
	const struct engine *e = c->g->e;
	struct fp_domain d, first = { 0 };
	uint32_t at = 0;

	if (superblock_domains(&e->dirs.sb) == FP_OF_ALL)
		return false;
	for (unsigned i = 0; i < c->nr_next; at += c->next[i++].len) {
		if (!fp_domain_of(&e->key, c->next[i].fp, fp_of(&e->key, c->buffer + at, c->next[i].len), &d))
			return true; /* cannot happen: the data was just read and verified */
		if (i == 0)
			first = d;
		if (d.kind != first.kind || d.id != first.id)
			return true;
	}
	return false;
}

/* Chunks that were compressed are compressed again, at least with their old codec. */
static void keep_compressed(const struct gc_copy *c, struct pack_frame *f)
{
	enum pack_codec was = c->next[0].codec;

	if (compress_for_pack(c->g->e->conf.compress).kind == PACK_COMPRESS_ZSTD)
		return;
	if (was == PACK_CODEC_ZSTD || was == PACK_CODEC_LZ4)
		pack_frame_set_compression(f, (struct pack_compression){ .kind = was == PACK_CODEC_ZSTD ?
											 PACK_COMPRESS_ZSTD :
											 PACK_COMPRESS_LZ4 });
}

/* Adds the size of the frame that begins at `first`. */
static int count_written(struct gc_copy *c, struct addr first)
{
	static const struct gc_bits none;
	struct pack_frame_rec rec;
	int r = packs_frame_rec(c->g->e->packs, first.pack, pack_frame_of(first), &rec);

	if (r > 0 && !rec.damaged)
		c->disk_bytes += pack_rec_disk(&rec, none.w);
	return MIN(r, 0);
}

/* The frame is open only while it is written, since commits wait for it. On failure its chunks count as not copied.
 * `stored`: coded data; NULL: not coded. */
static int write_frame(struct gc_copy *c, const uint8_t *stored, const struct pack_parts *parts)
{
	struct engine *e = c->g->e;
	struct pack_frame *f;
	int r;

	r = begin_moving(c);
	if (r < 0)
		return r;
	gc_pace(c->g, PACK_BLOCK + c->used);
	r = packs_frame_open(e->packs, c->chunk_len == PACK_VARIED ? PACK_SMALL : PACK_BULK, c->chunk_len, &f);
	if (r < 0)
		return r;
	if (gc_copy_is_mixed(c))
		pack_frame_set_uncompressed(f);
	else
		keep_compressed(c, f);
	fill_frame(c, f);
	r = stored ? packs_frame_write_coded(e->packs, f, stored, parts) : packs_frame_write(e->packs, f);
	if (r < 0) {
		dedup_lock(e);
		for (unsigned i = 0; i < c->nr_next; i++)
			take_back(e, &c->next[i], c->m[c->nr + i].to);
		dedup_unlock(e);
		packs_frame_abandon(e->packs, f);
		return r;
	}
	c->nr += c->nr_next;
	c->copied += c->used;
	return count_written(c, c->m[c->nr - c->nr_next].to);
}

void gc_copy_drop(struct gc_copy *c)
{
	c->nr_next = 0;
	c->used = 0;
}

int gc_copy_flush(struct gc_copy *c)
{
	const uint8_t *stored = NULL;
	struct pack_parts parts = { 0 };
	int r = c->nr_next > 0 ? read_chunks(c) : 0;
	bool is_written = r == 0 && c->nr_next > 0;

	if (is_written && c->code) {
		r = c->code(c->userdata, c, &stored, &parts);
		is_written = r > GC_STAYS;
	}
	if (is_written)
		r = write_frame(c, r == GC_CODED ? stored : NULL, &parts);
	gc_copy_drop(c);
	return MIN(r, 0);
}

/* Would both be stored with the same codec? */
static bool go_together(const struct gc_copy *c, const struct gc_chunk *a, const struct gc_chunk *b)
{
	return c->code || a->codec == b->codec || compress_for_pack(c->g->e->conf.compress).kind == PACK_COMPRESS_ZSTD;
}

int gc_copy_add(struct gc_copy *c, uint32_t chunk_len, const struct gc_chunk *chunk)
{
	unsigned max = chunk_len == PACK_VARIED ? PACK_VARIED_MAX : PACK_FRAME_BLOCKS;
	int r = 0;

	if (c->nr_next > 0 && (c->chunk_len != chunk_len || c->nr_next == max ||
			       chunk->len > PACK_FRAME_BYTES - c->used || !go_together(c, &c->next[0], chunk)))
		r = gc_copy_flush(c);
	if (r < 0)
		return r;
	c->chunk_len = chunk_len;
	c->next[c->nr_next++] = *chunk;
	c->used += chunk->len;
	return 0;
}

int gc_copy_repoint(struct gc_copy *c)
{
	int r = gc_copy_flush(c);
	int q = c->moving ? end_moving(c) : 0;

	return r < 0 ? r : q;
}
