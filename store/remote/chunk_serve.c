/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Serves chunks to other nodes by fingerprint.
 *
 * Chunks requested together mostly lie together and in the same order, since two nodes have stored the same bytes. So
 * only the first chunk of such a run is looked up in the index. The chunks after it are found in the table of its
 * frame, which is in memory by then, and the run is read with one read. A reader that requests one frame after another
 * gets the next frame without an index lookup: within a request, and across requests once two have been sequential. The
 * guess may come from anywhere, as the frame table is checked for the fingerprint. Requests of one reader overtake each
 * other, and there may be several readers, so the expected next addresses of the last few requests are kept.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/gc/gc_freed.h"
#include "store/remote/remote.h"

/* The rest of a frame after the chunk that was found last. */
struct rest {
	struct pack_chunk chunks[PACK_FRAME_BLOCKS];
	uint32_t pack;
	int at, nr;
	bool is_written; /* packs_wait() has returned; called when the first chunk of it is found */
};

static bool may_be_served(struct engine *e, struct addr a)
{
	return !freed_is_gc_pending(e, a) && !packs_is_damaged(e->packs, a);
}

/* Finds the next chunk with this fingerprint. It may skip some, which the reader may request from other nodes. */
static bool find_in_rest(struct engine *e, struct rest *rest, const struct cluster_want *w, struct addr *ret)
{
	for (int i = rest->at; i < rest->nr && !fp_is_none(w->fp); i++) { /* freed chunks have no fingerprint */
		const struct pack_chunk *c = &rest->chunks[i];
		struct addr a = { .pack = rest->pack, .off = c->off };

		if (!fp_equal(c->fp, w->fp))
			continue;
		if (c->len != w->len || c->is_remote || !may_be_served(e, a) ||
		    (!rest->is_written && packs_wait(e->packs, a) < 0))
			return false;
		rest->is_written = true;
		rest->at = i + 1;
		*ret = a;
		return true;
	}
	return false;
}

static void load_rest(struct engine *e, struct addr a, struct rest *rest)
{
	rest->pack = a.pack;
	rest->nr = packs_chunks(e->packs, a, PACK_FRAME_BYTES, ARRAY_SIZE(rest->chunks), rest->chunks);
	rest->at = 0;
	rest->is_written = false;
}

/* Address of the chunk after the last one found, possibly in the next frame. */
static struct addr address_after(const struct rest *rest)
{
	struct addr a = { .pack = rest->pack };

	if (rest->at < rest->nr)
		a.off = rest->chunks[rest->at].off;
	else
		a.off = (uint32_t)((pack_hint((struct addr){ .pack = rest->pack, .off = rest->chunks[rest->nr - 1].off },
					      0) +
				    PACK_FRAME_STRIDE) *
				   PACK_BLOCK);
	return a;
}

/* shares_find() has waited for the frame, so the chunks after it are written or still in memory as well. */
static bool find_wanted(struct engine *e, struct rest *rest, const struct cluster_want *w, struct addr *ret)
{
	if (find_in_rest(e, rest, w, ret))
		return true;
	if (rest->nr > 0 && rest->at == rest->nr) { /* the frame is exhausted */
		load_rest(e, address_after(rest), rest);
		if (find_in_rest(e, rest, w, ret))
			return true;
	}
	if (shares_find(e, w->fp, w->len, true, ret) <= 0)
		return false;
	rest->pack = ret->pack;
	rest->nr = packs_chunks(e->packs, *ret, PACK_FRAME_BYTES, ARRAY_SIZE(rest->chunks), rest->chunks);
	rest->at = 1;
	rest->is_written = true;
	return true;
}

/* Extends the last piece if the chunk follows it on disk and in the buffer. Pieces end with their frame: the table of
 * the next frame lies between. */
static void add_piece(struct pack_piece *pieces, size_t *nr, const struct cluster_want *w, struct addr a)
{
	struct pack_piece *last = *nr > 0 ? &pieces[*nr - 1] : NULL;

	if (last && last->addr.pack == a.pack && last->addr.off + last->len == a.off &&
	    (uint8_t *)last->buf + last->len == w->buf)
		last->len += w->len;
	else
		pieces[(*nr)++] = (struct pack_piece){ a, w->len, w->buf };
}

static uint64_t addr_number(struct addr a)
{
	return (uint64_t)a.pack << 32 | a.off;
}

static uint64_t guess_of(struct engine *e, unsigned i)
{
	return atomic_load_explicit(&e->shares->next_guesses[i], memory_order_relaxed);
}

/* Guesses the start of this request: the address after one of the last requests, if the previous request was
 * sequential, too. */
static void load_guessed(struct engine *e, struct fp first, struct rest *rest)
{
	struct pack_chunk chunk;

	if (!atomic_load_explicit(&e->shares->was_guess_right, memory_order_relaxed))
		return;
	for (unsigned i = 0; i < NEXT_GUESSES; i++) {
		struct addr a = { .pack = (uint32_t)(guess_of(e, i) >> 32), .off = (uint32_t)guess_of(e, i) };

		if (a.pack == 0 || packs_chunks(e->packs, a, PACK_BLOCK, 1, &chunk) != 1 || !fp_equal(chunk.fp, first))
			continue;
		load_rest(e, a, rest);
		return;
	}
}

/* `first` is the address of the first chunk served, `rest` follows the last one. A wrong guess costs a table lookup. */
static void note_guess(struct engine *e, struct addr first, const struct rest *rest)
{
	unsigned i = 0;

	while (i < NEXT_GUESSES && guess_of(e, i) != addr_number(first))
		i++;
	atomic_store_explicit(&e->shares->was_guess_right, i < NEXT_GUESSES, memory_order_relaxed);
	if (i == NEXT_GUESSES)
		i = atomic_fetch_add_explicit(&e->shares->guess_turn, 1, memory_order_relaxed) % NEXT_GUESSES;
	atomic_store_explicit(&e->shares->next_guesses[i], addr_number(address_after(rest)), memory_order_relaxed);
}

static void find_all(struct engine *e, struct cluster_want *wants, size_t nr, struct addr *where, struct rest *rest)
{
	for (size_t i = 0; i < nr; i++)
		wants[i].got = find_wanted(e, rest, &wants[i], &where[i]);
}

static void read_all(struct engine *e, struct cluster_want *wants, size_t nr, const struct addr *where,
		     struct pack_piece *pieces)
{
	bool as_is = true;
	size_t n = 0;

	for (size_t i = 0; i < nr; i++) {
		if (wants[i].got)
			add_piece(pieces, &n, &wants[i], where[i]);
		as_is = as_is && wants[i].as_is;
	}
	if ((as_is ? packs_read_as_is : packs_read_pieces)(e->packs, pieces, n) == 0)
		return;
	for (size_t i = 0; i < nr; i++) /* the reader may get damaged ones from another node */
		if (wants[i].got)
			wants[i].got = packs_read(e->packs, where[i], wants[i].len, wants[i].buf) == 0;
}

int engine_cluster_chunks(struct engine *e, struct cluster_want *wants, size_t nr)
{
	_cleanup_(freep) struct pack_piece *pieces = calloc(MAX(nr, (size_t)1), sizeof(*pieces));
	_cleanup_(freep) struct addr *where = calloc(MAX(nr, (size_t)1), sizeof(*where));
	_cleanup_(freep) struct rest *rest = malloc(sizeof(*rest));
	unsigned ticket;

	if (!pieces || !where || !rest)
		return -ENOMEM;
	rest->at = rest->nr = 0;
	rest->is_written = false;
	ticket = epoch_enter(&e->users);
	if (nr > 0)
		load_guessed(e, wants[0].fp, rest);
	find_all(e, wants, nr, where, rest);
	if (nr > 0 && wants[0].got && rest->nr > 0)
		note_guess(e, where[0], rest);
	read_all(e, wants, nr, where, pieces);
	epoch_leave(&e->users, ticket);
	return 0;
}

int engine_cluster_chunk(struct engine *e, struct fp fp, uint32_t len, void *buf)
{
	struct cluster_want w = { .fp = fp, .len = len, .buf = buf };
	int r = engine_cluster_chunks(e, &w, 1);

	return r < 0 ? r : w.got;
}
