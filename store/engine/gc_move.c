/*
 * Emptying packs of which little is left: what is live is stored once more elsewhere, recipes are pointed there, and the
 * next window finds the old pack dead and removes it. No address is ever given a second meaning.
 *
 *   1. copy the live chunks into new frames, checked on the way; memory knows the new places before the old ones
 *      crash: copies that nobody refers to; collected next time
 *   2. point the recipes there (repoint.c)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine/gc.h"
#include "store/engine/repoint.h"

#define MOVES_MAX (128u * 1024) /* chunks at a time: 28 bytes each, 512 MiB of pages */

struct moves {
	struct gc *g;
	struct move *m; /* ordered by pack and offset, as they are read */
	size_t nr;
	/* Those from `first` on have been read and wait for their frame to fill. */
	size_t first;
	uint32_t chunk_len; /* PACK_VARIED: they differ */
	uint32_t used; /* bytes of them in the buffer */
	uint8_t *buffer;
	struct fp fps[PACK_FRAME_BLOCKS];
};

/* --- step 1 --- */

static void remember(struct engine *e, struct fp fp, const struct move *m, uint8_t number) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = fptable_find(&e->recent, fp);

	if (!s) {
		fptable_insert(&e->recent, fp, m->to, number); /* without memory RocksDB still knows the old place */
	} else if (s->pack == m->pack && s->off == m->off) {
		s->pack = m->to.pack;
		s->off = m->to.off;
		s->number = number;
	}
}

static struct addr add_chunk(struct moves *ms, struct pack_frame *f, size_t i, uint32_t at)
{
	const uint8_t *p = ms->buffer + at;

	return ms->chunk_len ? pack_frame_add(f, ms->fps[i], p) :
			       pack_frame_add_varied(f, ms->fps[i], p, ms->m[ms->first + i].len);
}

/* What has been read becomes a frame. It is open no longer than it takes to write it: commits wait for it. On failure
 * its moves never were. */
static int write_frame(struct moves *ms)
{
	struct engine *e = ms->g->e;
	size_t n = ms->nr - ms->first;
	uint32_t used = ms->used, at = 0;
	uint8_t numbers[PACK_FRAME_BLOCKS];
	struct pack_frame *f;
	int r;

	if (n == 0)
		return 0;
	ms->nr = ms->first;
	ms->used = 0;
	io_rate_wait(ms->g->rate, PACK_BLOCK + used);
	r = packs_frame_open(e->packs, ms->chunk_len ? PACK_BULK : PACK_SMALL, ms->chunk_len, &f);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; at += ms->m[ms->first + i++].len) {
		ms->m[ms->first + i].to = add_chunk(ms, f, i, at);
		numbers[i] = pack_frame_last(f);
	}
	r = packs_frame_write(e->packs, f);
	if (r < 0) {
		packs_frame_abandon(e->packs, f);
		return r;
	}
	mutex_lock(&e->append_lock);
	for (size_t i = 0; i < n; i++)
		remember(e, ms->fps[i], &ms->m[ms->first + i], numbers[i]);
	mutex_unlock(&e->append_lock);
	ms->g->report->moved_bytes += used;
	ms->first = ms->nr = ms->first + n;
	return 0;
}

static bool is_full(const struct moves *ms, const struct pack_frame_rec *rec, uint32_t len)
{
	size_t n = ms->nr - ms->first;

	return n > 0 && (ms->chunk_len != rec->chunk_len || len > PACK_FRAME_BYTES - ms->used ||
			 (rec->chunk_len == PACK_VARIED && n == PACK_VARIED_MAX));
}

static int read_chunk(struct moves *ms, const struct pack_frame_rec *rec, uint32_t i)
{
	struct addr from = pack_rec_addr(rec, i);
	uint32_t len = pack_rec_len(rec, i);
	int r = 0;

	if (ms->nr == MOVES_MAX)
		return 0; /* stays where it is */
	if (is_full(ms, rec, len))
		r = write_frame(ms);
	if (r < 0)
		return r;
	io_rate_wait(ms->g->rate, len);
	r = packs_read(ms->g->e->packs, from, len, ms->buffer + ms->used);
	if (r == -EBADMSG)
		return 0; /* it stays where it is, damaged; told where it was found */
	if (r < 0)
		return r;
	ms->chunk_len = rec->chunk_len;
	ms->used += len;
	ms->fps[ms->nr - ms->first] = rec->fps[i];
	ms->m[ms->nr++] = (struct move){ .pack = from.pack, .off = from.off, .len = len };
	return 0;
}

static int copy_pack(struct moves *ms, uint32_t pack, struct pack_frame_rec *rec)
{
	struct pack_iter it = pack_iter(ms->g->e->packs, pack, 0);
	int r;

	it.end_pack = pack + 1;
	while ((r = pack_iter_next(&it, rec)) > 0)
		for (uint32_t i = 0; i < rec->nr_chunks && !rec->damaged; i++) {
			if (fp_is_none(rec->fps[i]))
				continue;
			r = read_chunk(ms, rec, i);
			if (r < 0)
				return r;
		}
	return r;
}

static int moves_init(struct moves *ms, struct gc *g)
{
	*ms = (struct moves){ .g = g, .m = malloc(MOVES_MAX * sizeof(*ms->m)) };
	ms->buffer = aligned_alloc(PACK_BLOCK, PACK_FRAME_BYTES);
	return ms->m && ms->buffer ? 0 : -ENOMEM;
}

static void moves_release(struct moves *ms)
{
	free(ms->m);
	free(ms->buffer);
}

size_t gc_fitting(const struct sparse *sparse, size_t nr)
{
	size_t n = 0, left = MOVES_MAX;

	while (n < nr && sparse[n].nr_live <= left)
		left -= sparse[n++].nr_live;
	return n;
}

int gc_move(struct gc *g, const uint32_t *packs, size_t nr)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(moves_release) struct moves ms = { .g = g };
	int r = rec ? moves_init(&ms, g) : -ENOMEM;

	for (size_t i = 0; i < nr && r == 0; i++)
		r = copy_pack(&ms, packs[i], rec);
	if (r == 0)
		r = write_frame(&ms);
	if (r == 0 && ms.nr > 0)
		r = repoint(g->e, ms.m, ms.nr);
	if (r == 0)
		g->report->nr_moved_packs += nr;
	return r;
}
