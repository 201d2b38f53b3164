#include "store/engine/gc_copy.h"

#include <errno.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/util.h"

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
		moving_give_up(c->g->e);
	c->moving = false;
	c->nr = 0;
	return r;
}

/*
 * What has been copied is pointed to even if something failed behind it: memory leads to the copies by now, and once
 * these had been collected nothing would lead to what they are copies of.
 */
void gc_copy_release(struct gc_copy *c)
{
	if (c->moving)
		end_moving(c);
	free(c->m);
	free(c->buffer);
}

/* Whoever finds the chunk finds the new place from now on. */
static void remember(struct engine *e, struct gc_chunk *chunk, struct addr to, uint8_t number) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = fptable_find(&e->recent, chunk->fp);

	if (!s) {
		/* without memory it would be stored again, no more */
		fptable_insert(&e->recent, chunk->fp, to, number);
	} else if (s->pack == chunk->from.pack && s->off == chunk->from.off) {
		chunk->replaced = true;
		chunk->number = s->number;
		s->pack = to.pack;
		s->off = to.off;
		s->number = number;
	}
}

/* There is no new place after all. */
static void take_back(struct engine *e, const struct gc_chunk *chunk, struct addr to) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = fptable_find(&e->recent, chunk->fp);

	if (!s || s->pack != to.pack || s->off != to.off)
		return;
	fptable_remove(&e->recent, chunk->fp);
	if (chunk->replaced)
		/* there is room: one has just left */
		fptable_insert(&e->recent, chunk->fp, chunk->from, chunk->number);
}

/* All at once or, where one of them is damaged, one by one; those are left out. */
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

/* The chunks of the next frame, put into it. Memory knows them before the frame can be committed: what it does not
 * know by then counts as absorbed (absorb.c). */
static void fill_frame(struct gc_copy *c, struct pack_frame *f)
{
	struct engine *e = c->g->e;
	uint32_t at = 0;

	mutex_lock(&e->append_lock);
	for (unsigned i = 0; i < c->nr_next; at += c->next[i++].len) {
		struct gc_chunk *k = &c->next[i];
		const uint8_t *p = c->buffer + at;
		struct addr to = c->chunk_len == PACK_VARIED ? pack_frame_add_varied(f, k->fp, p, k->len) :
							       pack_frame_add(f, k->fp, p);

		c->m[c->nr + i] = (struct move){ .pack = k->from.pack, .off = k->from.off, .len = k->len, .to = to };
		remember(e, k, to, pack_frame_last(f));
	}
	mutex_unlock(&e->append_lock);
}

/* The first frame is about to be written: from here on there may be copies. */
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
			return true; /* it has just been read, and compared: never */
		if (i == 0)
			first = d;
		if (d.kind != first.kind || d.id != first.id)
			return true;
	}
	return false;
}

/* It is open no longer than it takes to write it: commits wait for it. On failure these chunks were never copied.
 * `stored`: as it was coded; NULL: it was not. */
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
	fill_frame(c, f);
	r = stored ? packs_frame_write_coded(e->packs, f, stored, parts) : packs_frame_write(e->packs, f);
	if (r < 0) {
		mutex_lock(&e->append_lock);
		for (unsigned i = 0; i < c->nr_next; i++)
			take_back(e, &c->next[i], c->m[c->nr + i].to);
		mutex_unlock(&e->append_lock);
		packs_frame_abandon(e->packs, f);
		return r;
	}
	c->nr += c->nr_next;
	c->copied += c->used;
	return 0;
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
	c->nr_next = 0;
	c->used = 0;
	return MIN(r, 0);
}

int gc_copy_add(struct gc_copy *c, struct addr from, uint32_t len, uint32_t chunk_len, struct fp fp)
{
	unsigned max = chunk_len == PACK_VARIED ? PACK_VARIED_MAX : PACK_FRAME_BLOCKS;
	int r = 0;

	if (c->nr_next > 0 && (c->chunk_len != chunk_len || c->nr_next == max || len > PACK_FRAME_BYTES - c->used))
		r = gc_copy_flush(c);
	if (r < 0)
		return r;
	c->chunk_len = chunk_len;
	c->next[c->nr_next++] = (struct gc_chunk){ .from = from, .len = len, .fp = fp };
	c->used += len;
	return 0;
}

int gc_copy_repoint(struct gc_copy *c)
{
	int r = gc_copy_flush(c);
	int q = c->moving ? end_moving(c) : 0;

	return r < 0 ? r : q;
}
