/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Completes moves of chunks, including those interrupted by a crash.
 *
 * While chunks are moved there are two copies of each, and a fingerprint leads to one of them. Once that copy has been
 * collected, nothing leads to the other, and its bytes would be stored again. So no chunk is in two places when a move
 * has ended or has been completed later:
 *
 *   1. record in the log that there may be copies after these pack marks, and commit: a copy that survives a crash
 *      survives with the record. (The marks of a commit may be ahead of its end of the log.)
 *   2. copy (gc_copy.c); nothing is absorbed meanwhile, so RocksDB keeps the old places
 *   3. repoint all files to the copies, and everything that enters the log (repoint.c)
 *   4. wait for all threads that may have found an old place, to share or to read it; then nothing refers to one
 *   5. pin at the new place what is pinned for other nodes at an old one (pins_carry.c), after a commit of 3
 *   6. free the old places (moves_release.c), delete the record from the log, and commit: memory has dropped the old
 *      places, so entries absorbed from now on must not lead to copies that a crash would undo
 *   7. drop the frame tables that still list the old places; until then 3 redirects every reference found through them
 *
 * A mount that finds the record looks up all chunks after the marks (absorb.c). A chunk that is known at another place
 * is a copy, and 3 to 7 are done for it. Until then none of them is absorbed and nothing is collected.
 *
 * On failure the moves are dropped, never kept for later: unreferenced copies may be collected at any time from then
 * on, and must not be referred to any more.
 */
#include "store/gc/moves.h"

#include <errno.h>
#include <stdlib.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/fptable.h"
#include "store/engine_state.h"
#include "store/gc/gc_state.h"
#include "store/gc/repoint.h"
#include "store/log/commit.h"
#include "store/log/record_format.h"
#include "store/remote_hooks.h"

static int put_note(struct engine *e, const struct pack_marks *marks)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	if (marks) {
		marks_encode(marks, &value);
		engine_tx_put(&tx, ns_key_meta(MOVING_NOTE), value.data, value.len);
	} else {
		engine_tx_del(&tx, ns_key_meta(MOVING_NOTE));
	}
	r = buf_error(&value);
	return r < 0 ? r : engine_tx_apply(e, &tx);
}

static void set_moving(struct engine *e, bool on)
{
	dedup_lock(e);
	e->gc->moving.on = on;
	dedup_unlock(e);
}

bool moving_is_on(const struct engine *e)
{
	return e->gc->moving.on;
}

const struct pack_marks *moving_marks(const struct engine *e)
{
	return &e->gc->moving.marks;
}

int moving_begin(struct engine *e)
{
	struct pack_marks marks;
	int r;

	commit_marks(e, &marks); /* copies are written after them */
	dedup_lock_tables(e); /* no absorption is in progress */
	e->gc->moving.on = true;
	dedup_unlock_tables(e);
	r = put_note(e, &marks);
	if (r == 0)
		r = engine_sync(e);
	if (r < 0) {
		put_note(e, NULL);
		set_moving(e, false);
	}
	return r;
}

static int moving_end(struct engine *e)
{
	int r = put_note(e, NULL);

	if (r == 0)
		set_moving(e, false);
	return r;
}

void moving_abort(struct engine *e)
{
	log_warning("store %s: cannot finish moving chunks: some may be stored twice", e->path);
	put_note(e, NULL); /* if it stays, the next mount completes the remaining moves */
	set_moving(e, false);
}

int moving_load(struct engine *e)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta(MOVING_NOTE);
	int r;

	r = db_get(e->db, DB_VIEW, key.b, key.len, &value);
	if (r > 0)
		r = marks_decode(value.data, value.len, &e->gc->moving.marks);
	if (r < 0)
		return r;
	set_moving(e, value.len > 0);
	return 0;
}

/* Finds another place of a chunk: the first one loaded, or the one in RocksDB. */
static int find_other(struct engine *e, struct fp fp, struct addr a, struct addr *ret) REQUIRES(append_lock)
{
	const struct fptable_slot *s = fptable_find(dedup_table(e, DEDUP_RECENT), fp);
	struct fp found;
	uint32_t len;
	int r = 0;

	*ret = s ? (struct addr){ .pack = s->pack, .off = s->off } : ADDR_NONE;
	if (!s) {
		r = fingerprints_find(e->db, &fp, 1, ret);
		if (r == 0 && !addr_is_none(*ret))
			r = packs_find(e->packs, *ret, ret, &len, &found);
		if (r < 0)
			return r == -EBADMSG ? 0 : r; /* damaged: not usable */
		if (r == 0 || !fp_equal(found, fp))
			return 0;
	}
	return !addr_equal(*ret, a);
}

static int add_move(struct engine *e, struct addr from, uint32_t len, struct addr to)
{
	if (e->gc->moving.nr == e->gc->moving.size) {
		size_t size = MAX(2 * e->gc->moving.size, (size_t)1024);
		struct move *m = realloc(e->gc->moving.m, size * sizeof(*m));

		if (!m)
			return -ENOMEM;
		e->gc->moving.m = m;
		e->gc->moving.size = size;
	}
	e->gc->moving.m[e->gc->moving.nr++] = (struct move){ .pack = from.pack, .off = from.off, .len = len, .to = to };
	return 0;
}

int moving_find(struct engine *e, struct fp fp, struct addr a, uint32_t len)
{
	struct addr other;
	int r;

	assert(dedup_is_locked(e));
	r = find_other(e, fp, a, &other);
	if (r <= 0)
		return r;
	r = add_move(e, other, len, a);
	if (r == 0)
		fptable_remove(dedup_table(e, DEDUP_RECENT), fp); /* the caller inserts the copy */
	return r;
}

/* If a chunk was moved twice, all moves lead to the last copy. */
static void follow_copies(struct move *m, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		const struct move *next;

		while ((next = move_of(m, nr, m[i].to, m[i].to.off + m[i].len)) && next->off == m[i].to.off)
			m[i].to = next->to;
	}
}

int moving_complete(struct engine *e, struct move *m, size_t nr, struct freed_totals *ret)
{
	int r;

	if (nr == 0)
		return moving_end(e);
	moves_sort(m, nr);
	follow_copies(m, nr);
	r = repoint(e, m, nr);
	if (r == 0) {
		epoch_wait(&e->users);
		r = e->remote ? e->remote->carry(e, m, nr) : 0;
		if (r >= 0)
			r = release_moved(e, m, nr, r > 0, ret);
		if (r == 0)
			r = put_note(e, NULL);
		if (r == 0)
			r = engine_sync(e);
		if (r == 0)
			set_moving(e, false);
		release_moved_tables(e, m, nr); /* even on failure: the log may have some as freed */
		if (e->remote)
			e->remote->moved(e);
	}
	repoint_end(e);
	return r;
}

void moving_finish(struct engine *e)
{
	struct freed_totals gone = { 0 };
	int r;

	if (!e->gc->moving.on)
		return;
	r = moving_complete(e, e->gc->moving.m, e->gc->moving.nr, &gone);
	if (r < 0)
		moving_abort(e);
	else if (e->gc->moving.nr > 0)
		log_info("store %s: finished %s", e->path, human_nr(e->gc->moving.nr, "interrupted move").s);
	free(TAKE(e->gc->moving.m));
	e->gc->moving.nr = e->gc->moving.size = 0;
}
