/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Empties packs with few live chunks: the live chunks are copied, recipes are repointed, and the next window finds the
 * old pack dead and removes it. Addresses are never reused.
 *
 *   1. copy the live chunks into new frames, verifying them; from then on lookups in memory return the new places
 *   2. repoint the recipes and free the old places (moves.c, which also describes crashes)
 */
#include <errno.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/util.h"
#include "store/recode/recode_gc.h"

#define MOVES_MAX (128u * 1024) /* chunks at a time: 24 bytes each, 512 MiB of pages */

static int copy_pack(struct gc_copy *c, struct gc_recode *rc, uint32_t pack, struct pack_frame_rec *rec)
{
	static const struct gc_bits all = { { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX } };
	struct pack_iter it = pack_iter(c->g->e->packs, pack, 0);
	int r;

	it.end_pack = pack + 1;
	while ((r = pack_iter_next(&it, rec)) > 0) {
		r = rec->damaged ? 0 : gc_recode_add(rc, c, rec, &all);
		if (r < 0)
			return r;
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
	if (r == 0 || io_is_full(r)) { /* no space left: the rest stays where it is */
		int q = gc_copy_repoint(&c);

		r = r < 0 ? r : q;
	}
	g->report->moved_bytes += c.copied;
	if (r == 0)
		g->report->nr_moved_packs += nr;
	return r;
}
