/*
 * Moves that were cut short, brought to an end.
 *
 * While chunks are moved there are two copies of each, and a fingerprint leads to one of them. Once that has been
 * collected nothing leads to the other: its bytes would be stored again. So no chunk is in two places when a move has
 * ended, or been finished:
 *
 *   1. note in the log that from these marks on there may be copies, and commit: a copy that is there after a crash is
 *      there with the note. (The marks of a commit may be ahead of its end of the log.)
 *   2. copy (gc_copy.c); nothing is absorbed meanwhile, RocksDB goes on knowing the old places
 *   3. point all files to the copies, and whatever enters the log (repoint.c)
 *   4. wait for all who may have met an old place, to share or to read it; nobody refers to one now
 *   5. what other nodes rely on at an old place is lent at the new one (shares_carry.c), after a commit of 3
 *   6. give the old places up (vacate.c), take the note out of the log, and commit: memory has forgotten the old
 *      places, so what is absorbed from now on must not lead to copies that a crash takes back
 *   7. forget the tables that still name the old places; until then whoever finds one through them is pointed on by 3
 *
 * A mount that finds the note looks up all chunks behind the marks (absorb.c). One that is known at another place is a
 * copy of that, and 3 to 7 are done for it. Before that none of them is absorbed and nothing is collected.
 *
 * Where something fails the moves are forgotten, never kept for later: the copies that nobody refers to may be
 * collected at any time from then on, and must not be pointed to any more.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/engine/engine_internal.h"
#include "store/engine/repoint.h"

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
	mutex_lock(&e->append_lock);
	e->moving.on = on;
	mutex_unlock(&e->append_lock);
}

int moving_begin(struct engine *e)
{
	struct pack_marks marks;
	int r;

	mutex_lock(&e->log.lock);
	marks = e->log.marks; /* of the last commit: copies come behind them */
	mutex_unlock(&e->log.lock);
	mutex_lock(&e->absorb_lock); /* none is under way */
	set_moving(e, true);
	mutex_unlock(&e->absorb_lock);
	r = put_note(e, &marks);
	if (r == 0)
		r = engine_sync(e);
	if (r < 0) {
		put_note(e, NULL);
		set_moving(e, false);
	}
	return r;
}

int moving_end(struct engine *e)
{
	int r = put_note(e, NULL);

	if (r == 0)
		set_moving(e, false);
	return r;
}

void moving_give_up(struct engine *e)
{
	log_warning("store %s: moves could not be finished: some chunks may be stored again", e->path);
	put_note(e, NULL); /* if it stays, the next mount finishes what is still there */
	set_moving(e, false);
}

int moving_load(struct engine *e)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta(MOVING_NOTE);
	int r;

	r = db_get(e->db, DB_VIEW, key.b, key.len, &value);
	if (r > 0)
		r = marks_decode(value.data, value.len, &e->moving.marks);
	if (r < 0)
		return r;
	set_moving(e, value.len > 0);
	return 0;
}

/* Where else a chunk is, if it is there: the first that was loaded, or what RocksDB knows. */
static int find_other(struct engine *e, struct fp fp, struct addr a, struct addr *ret)
{
	const struct fptable_slot *s = fptable_find(&e->recent, fp);
	struct fp found;
	uint32_t len;
	int r = 0;

	*ret = s ? (struct addr){ .pack = s->pack, .off = s->off } : ADDR_NONE;
	if (!s) {
		r = fingerprints_find(e->db, &fp, 1, ret);
		if (r == 0 && !addr_is_none(*ret))
			r = packs_find(e->packs, *ret, ret, &len, &found);
		if (r < 0)
			return r == -EBADMSG ? 0 : r; /* damaged: nothing leads there */
		if (r == 0 || !fp_equal(found, fp))
			return 0;
	}
	return !addr_equal(*ret, a);
}

static int add_move(struct engine *e, struct addr from, uint32_t len, struct addr to)
{
	if (e->moving.nr == e->moving.size) {
		size_t size = MAX(2 * e->moving.size, (size_t)1024);
		struct move *m = realloc(e->moving.m, size * sizeof(*m));

		if (!m)
			return -ENOMEM;
		e->moving.m = m;
		e->moving.size = size;
	}
	e->moving.m[e->moving.nr++] = (struct move){ .pack = from.pack, .off = from.off, .len = len, .to = to };
	return 0;
}

int moving_meet(struct engine *e, struct fp fp, struct addr a, uint32_t len)
{
	struct addr other;
	int r;

	assert(mutex_held(&e->append_lock));
	r = find_other(e, fp, a, &other);
	if (r <= 0)
		return r;
	r = add_move(e, other, len, a);
	if (r == 0)
		fptable_remove(&e->recent, fp); /* leads to the copy from now on */
	return r;
}

/* Of a chunk that was moved twice all go to the last copy. */
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
		r = shares_carry(e, m, nr);
		if (r >= 0)
			r = vacate(e, m, nr, r > 0, ret);
		if (r == 0)
			r = put_note(e, NULL);
		if (r == 0)
			r = engine_sync(e);
		if (r == 0)
			set_moving(e, false);
		vacate_forget_tables(e, m, nr); /* whatever became of it: some may be in the log as gone */
		shares_carried(e);
	}
	repoint_end(e);
	return r;
}

void moving_finish(struct engine *e)
{
	struct freed_totals gone = { 0 };
	int r;

	if (!e->moving.on)
		return;
	r = moving_complete(e, e->moving.m, e->moving.nr, &gone);
	if (r < 0)
		moving_give_up(e);
	else if (e->moving.nr > 0)
		log_info("store %s: %zu moves that were cut short are finished", e->path, e->moving.nr);
	free(TAKE(e->moving.m));
	e->moving.nr = e->moving.size = 0;
}
