/*
 * Chunks for other nodes, by their fingerprints.
 *
 * What is asked for together mostly lies together, and in the same order: two nodes have had the same bytes. So the index is asked for the first of such
 * chunks, and the table of its frame, which is in memory then, for those behind it; and they are read as one piece. Who asks for one frame after the other gets the next one
 * without the index, once two have been so: a table tells whether a chunk is in its frame, wherever the guess came from.
 */
#include "store/engine/cluster.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"

/* The rest of a frame, behind the chunk that was found last. */
struct rest {
	struct pack_chunk chunks[PACK_FRAME_BLOCKS];
	uint32_t pack;
	int at, nr;
	bool is_written; /* waited for: whoever finds the first chunk of it does so */
};

static bool may_be_given(struct engine *e, struct addr a)
{
	return !freed_condemned(e, a) && !packs_is_damaged(e->packs, a);
}

/* The next that has this fingerprint: some between may be asked of others. */
static bool find_behind(struct engine *e, struct rest *rest, const struct cluster_want *w, struct addr *ret)
{
	for (int i = rest->at; i < rest->nr && !fp_is_none(w->fp); i++) { /* what is gone has none */
		const struct pack_chunk *c = &rest->chunks[i];
		struct addr a = { .pack = rest->pack, .off = c->off };

		if (!fp_equal(c->fp, w->fp))
			continue;
		if (c->len != w->len || c->is_away || !may_be_given(e, a) || (!rest->is_written && packs_wait(e->packs, a) < 0))
			return false;
		rest->is_written = true;
		rest->at = i + 1;
		*ret = a;
		return true;
	}
	return false;
}

/* shares_find() has waited for the frame, so what is behind it is written, or still in memory, as well. */
static bool find(struct engine *e, struct rest *rest, const struct cluster_want *w, struct addr *ret)
{
	if (find_behind(e, rest, w, ret))
		return true;
	if (shares_find(e, w->fp, w->len, true, ret) <= 0)
		return false;
	rest->pack = ret->pack;
	rest->nr = packs_chunks(e->packs, *ret, PACK_FRAME_BYTES, ARRAY_SIZE(rest->chunks), rest->chunks);
	rest->at = 1;
	rest->is_written = true;
	return true;
}

/* What lies behind the last piece, and is wanted behind it, is one with it. A frame's chunks and those of the next have its table between them. */
static void add_piece(struct pack_piece *pieces, size_t *nr, const struct cluster_want *w, struct addr a)
{
	struct pack_piece *last = *nr > 0 ? &pieces[*nr - 1] : NULL;

	if (last && last->addr.pack == a.pack && last->addr.off + last->len == a.off && (uint8_t *)last->buf + last->len == w->buf)
		last->len += w->len;
	else
		pieces[(*nr)++] = (struct pack_piece){ a, w->len, w->buf };
}

/* What is likely asked for now: what lies behind the chunk that was given last, if the one before was asked for in the same way. */
static void look_behind_last(struct engine *e, struct rest *rest)
{
	uint64_t next = atomic_load_explicit(&e->shares.give_next, memory_order_relaxed);
	struct addr a = { .pack = (uint32_t)(next >> 32), .off = (uint32_t)next };

	if (!atomic_load_explicit(&e->shares.gives_next, memory_order_relaxed))
		return;
	rest->pack = a.pack;
	rest->nr = packs_chunks(e->packs, a, PACK_FRAME_BYTES, ARRAY_SIZE(rest->chunks), rest->chunks);
}

/* `rest` is behind the last of them, of which the first was at `first`. A guess that is wrong, as of several who ask at once, costs a look at a table. */
static void guess_next(struct engine *e, struct addr first, const struct rest *rest)
{
	uint64_t guessed = atomic_load_explicit(&e->shares.give_next, memory_order_relaxed), next;

	if (rest->at < rest->nr)
		next = rest->chunks[rest->at].off;
	else
		next = (pack_hint((struct addr){ .pack = rest->pack, .off = rest->chunks[rest->nr - 1].off }, 0) + PACK_FRAME_STRIDE) * (uint64_t)PACK_BLOCK;
	atomic_store_explicit(&e->shares.gives_next, guessed == ((uint64_t)first.pack << 32 | first.off), memory_order_relaxed);
	atomic_store_explicit(&e->shares.give_next, (uint64_t)rest->pack << 32 | (uint32_t)next, memory_order_relaxed);
}

static void find_all(struct engine *e, struct cluster_want *wants, size_t nr, struct addr *where, struct rest *rest)
{
	for (size_t i = 0; i < nr; i++)
		wants[i].got = find(e, rest, &wants[i], &where[i]);
}

static void read_all(struct engine *e, struct cluster_want *wants, size_t nr, const struct addr *where, struct pack_piece *pieces)
{
	size_t n = 0;

	for (size_t i = 0; i < nr; i++)
		if (wants[i].got)
			add_piece(pieces, &n, &wants[i], where[i]);
	if (packs_read_pieces(e->packs, pieces, n) == 0)
		return;
	for (size_t i = 0; i < nr; i++) /* what is damaged another one has, perhaps */
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
	look_behind_last(e, rest);
	find_all(e, wants, nr, where, rest);
	if (nr > 0 && wants[0].got && rest->nr > 0)
		guess_next(e, where[0], rest);
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
