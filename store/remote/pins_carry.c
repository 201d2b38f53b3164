/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Moving the pins of chunks that the collector moves (moves.c, step 5).
 *
 * A pin is recorded at the address of its chunk. By now all files refer to the new addresses. This is made durable
 * first, together with the frames of the new addresses, which pin records must not precede:
 *   1. commit                                            crash: the next mount finds the move record and starts over
 *   2. pin at the new address what is pinned at the old one        crash: likewise; starting over drops the second pin
 *   3. free the old address and its pin record (moves_release.c)
 * A thread that stores a chunk for a peer (replica_chunks.c) does not hold gc_lock and may have found an old address.
 * Either its pin record is written before step 2 reads it, or the thread gets -EAGAIN.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/gc/repoint.h"
#include "store/remote/remote.h"

#define AT_ONCE 65536u /* chunks in one group of the journal: the records of some hundred frames */

struct carrying {
	struct engine *e;
	struct share_frame note;
	struct pack_frame_rec rec;
	struct addr where[AT_ONCE]; /* new addresses of pinned chunks */
	size_t nr;
};

static struct addr old_address(const struct move *m)
{
	return (struct addr){ .pack = m->pack, .off = m->off };
}

static int record_carried(struct carrying *c) REQUIRES(c->e->shares->lock)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	int r = c->nr > 0 ? shares_note_pinned(c->e, c->where, c->nr, &records) : 0;

	if (r == 0 && c->nr > 0)
		r = shares_commit(c->e, NULL, &records);
	c->nr = 0;
	return r;
}

/* `nr` moves from one frame, in order. If the frame table cannot be read, the chunks stay: it is unknown which of them
 * are pinned. */
static int look_at_frame(struct carrying *c, const struct move *m, size_t nr) REQUIRES(c->e->shares->lock)
{
	struct engine *e = c->e;
	struct addr a = old_address(m);
	uint32_t i = 0;
	int r = share_get(e->db, a.pack, pack_frame_of(a), &c->note);

	if (r <= 0 || !share_any(c->note.pinned))
		return MIN(r, 0);
	r = packs_frame_rec(e->packs, a.pack, pack_frame_of(a), &c->rec);
	if (r <= 0 || c->rec.damaged)
		return r < 0 ? r : -EBADMSG;
	if (c->nr + nr > AT_ONCE) {
		r = record_carried(c);
		if (r < 0)
			return r;
	}
	for (size_t k = 0; k < nr; k++) {
		while (i < c->rec.nr_chunks && pack_rec_addr(&c->rec, i).off < m[k].off)
			i++;
		if (i < c->rec.nr_chunks && pack_rec_addr(&c->rec, i).off == m[k].off && share_bit(c->note.pinned, i))
			c->where[c->nr++] = m[k].to;
	}
	return 0;
}

static int carry(struct carrying *c, const struct move *m, size_t nr) REQUIRES(c->e->shares->lock)
{
	int r = 0;

	for (size_t i = 0, n; i < nr && r == 0; i += n) {
		for (n = 1; i + n < nr && pack_same_frame(old_address(&m[i]), old_address(&m[i + n])); n++)
			;
		r = look_at_frame(c, m + i, n);
	}
	return r == 0 ? record_carried(c) : r;
}

int remote_carry(struct engine *e, const struct move *m, size_t nr)
{
	_cleanup_(freep) struct carrying *c = NULL;
	int r = 0;

	mutex_lock(&e->shares->lock);
	e->shares->moved = m;
	e->shares->nr_moved = nr;
	mutex_unlock(&e->shares->lock);
	if (!atomic_load(&e->shares->any)) /* the very first pin gets -EAGAIN from shares_any_moved() */
		return 0;
	c = malloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->e = e;
	c->nr = 0;
	r = engine_sync(e);
	if (r < 0)
		return r;
	mutex_lock(&c->e->shares->lock);
	r = carry(c, m, nr);
	mutex_unlock(&c->e->shares->lock);
	return r < 0 ? r : 1;
}

void remote_moved(struct engine *e)
{
	mutex_lock(&e->shares->lock);
	e->shares->moved = NULL;
	e->shares->nr_moved = 0;
	mutex_unlock(&e->shares->lock);
}

bool shares_any_moved(struct engine *e, const struct addr *where, size_t nr)
{
	for (size_t i = 0; i < nr && e->shares->moved; i++)
		if (move_of(e->shares->moved, e->shares->nr_moved, where[i], where[i].off + 1))
			return true;
	return false;
}
