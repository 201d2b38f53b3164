/*
 * Emptying packs of which little is left: what is live is stored once more elsewhere, recipes are pointed there, and
 * the next window finds the old pack dead and removes it. No address is ever given a second meaning.
 *
 *   1. copy the live chunks into new frames, checked on the way; memory knows the new places before the old ones
 *   2. point the recipes there and give up the old places (moving.c, which also tells what a crash leaves)
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/gc_recode.h"

#define MOVES_MAX (128u * 1024) /* chunks at a time: 28 bytes each, 512 MiB of pages */

static int copy_pack(struct gc_copy *c, struct gc_recode *rc, uint32_t pack, struct pack_frame_rec *rec)
{
	struct pack_iter it = pack_iter(c->g->e->packs, pack, 0);
	int r;

	it.end_pack = pack + 1;
	while ((r = pack_iter_next(&it, rec)) > 0) {
		r = gc_recode_switch(rc, c, rec->coded, rec->based);
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < rec->nr_chunks && !rec->damaged; i++) {
			if (fp_is_none(rec->fps[i]) || gc_copy_nr(c) == c->max)
				continue; /* gone; or stays where it is */
			r = gc_copy_add(c, pack_rec_addr(rec, i), pack_rec_len(rec, i), rec->chunk_len, rec->fps[i]);
			if (r < 0)
				return r;
		}
	}
	return r;
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
	_cleanup_(gc_recode_release) struct gc_recode rc = { 0 };
	_cleanup_(gc_copy_release) struct gc_copy c = { .g = g };
	int r = rec ? gc_copy_init(&c, g, MOVES_MAX) : -ENOMEM;

	for (size_t i = 0; i < nr && r == 0; i++)
		r = copy_pack(&c, &rc, packs[i], rec);
	if (r == 0 || r == -ENOSPC) { /* there is no room for more: the rest stays where it is */
		int q = gc_copy_repoint(&c);

		r = r < 0 ? r : q;
	}
	g->report->moved_bytes += c.copied;
	if (r == 0)
		g->report->nr_moved_packs += nr;
	return r;
}
