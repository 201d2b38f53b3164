/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The content of a file as a sequence of chunks and holes, without reading data. */
#include <errno.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"

struct piece_list {
	struct content_piece *p;
	size_t nr, max;
	uint64_t at; /* end of the last piece */
};

static void add_hole(struct piece_list *l, uint64_t end)
{
	if (l->at >= end || l->nr == l->max)
		return;
	if (l->nr > 0 && fp_is_none(l->p[l->nr - 1].fp))
		l->p[l->nr - 1].len += end - l->at;
	else
		l->p[l->nr++] = (struct content_piece){ .len = end - l->at };
	l->at = end;
}

static int add_extent(struct piece_list *l, struct engine *e, const struct extent *x)
{
	for (uint32_t done = 0; done < x->len && l->nr < l->max;) {
		struct addr a = x->addr, start;
		struct content_piece p;
		int r;

		a.off += done;
		r = packs_chunk_at(e->packs, a, &start, &p.chunk_len, &p.fp);
		if (r <= 0 || fp_is_none(p.fp))
			return r < 0 ? r : -EBADMSG;
		p.from = a.off - start.off;
		p.len = MIN(p.chunk_len - p.from, x->len - done);
		l->p[l->nr++] = p;
		l->at += p.len;
		done += (uint32_t)p.len;
	}
	return 0;
}

int content_pieces(struct content *c, uint64_t off, struct content_piece *ret, size_t max)
{
	_cleanup_(extent_list_release) struct extent_list l = { 0 };
	struct piece_list pieces = { ret, 0, max, off };
	unsigned ticket = epoch_enter(&c->e->users);
	uint64_t end = off;
	int r = MIN(content_list_extents(c, off, &l, &end), 0);

	for (size_t i = 0; i < l.nr && r == 0 && pieces.nr < max; i++) {
		add_hole(&pieces, off + l.x[i].off);
		if (pieces.at == off + l.x[i].off)
			r = add_extent(&pieces, c->e, &l.x[i]);
	}
	if (r == 0 && (l.nr == 0 || pieces.at == off + l.x[l.nr - 1].off + l.x[l.nr - 1].len))
		add_hole(&pieces, end);
	epoch_leave(&c->e->users, ticket);
	return r < 0 ? r : (int)pieces.nr;
}
