/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Repoints recipes to copies of chunks: because the old pack is to be removed (gc_move.c), or because the old copy is
 * damaged (repair.c).
 *
 * In each recipe that refers to old places these are replaced by the new ones. It is a record of the log like any other
 * write, except that the file times stay. The frames are durable before the record (commit.c). Recipes are found
 * through a snapshot of the view. A thread may have found an old place before it, or share a recipe that is not
 * repointed yet. So from the snapshot on, until repoint_end(), references are redirected as they enter the log.
 *
 * Changes are locked out while a few segments are repointed. This makes it safe against concurrent deletion of a file:
 * under the lock the file either exists or does not. No collection runs meanwhile: it could free a new place before
 * anything refers to it.
 */
#include "store/gc/repoint.h"

#include <stdlib.h>

#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/file/content.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/extents/segment.h"
#include "store/file/write_back.h"
#include "store/gc/gc_state.h"
#include "store/log/txlog.h"
#include "store/log/view.h"

#define SEGMENTS_AT_ONCE 32u /* repointed while changes are locked out: well below a millisecond each */

struct moves {
	struct engine *e;
	const struct move *m;
	size_t nr;
};

static int by_place(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return (x->off > y->off) - (x->off < y->off);
}

void moves_sort(struct move *m, size_t nr)
{
	qsort(m, nr, sizeof(*m), by_place);
}

const struct move *move_of(const struct move *m, size_t nr, struct addr a, uint32_t end)
{
	size_t low = 0, high = nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m[middle].pack < a.pack || (m[middle].pack == a.pack && m[middle].off + m[middle].len <= a.off))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == nr || m[low].pack != a.pack || m[low].off >= end || a.node != 0)
		return NULL;
	return &m[low];
}

static bool extent_moved(const struct moves *ms, const struct extent *x)
{
	struct addr a = x->addr;

	if (a.pack < ms->m[0].pack || a.pack > ms->m[ms->nr - 1].pack)
		return false; /* most are in other packs */
	return move_of(ms->m, ms->nr, a, a.off + x->len) != NULL;
}

static bool any_moved(const struct moves *ms, const struct extent *x, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (extent_moved(ms, &x[i]))
			return true;
	return false;
}

static int add_moved(const struct moves *ms, const struct extent *x, struct extent_list *ret)
{
	uint32_t done = 0;
	int r = 0;

	while (done < x->len && r == 0) {
		struct addr a = x->addr;
		uint32_t n = x->len - done;
		const struct move *m;

		a.off += done;
		m = move_of(ms->m, ms->nr, a, a.off + n);
		if (m && m->off <= a.off) {
			n = MIN(n, m->off + m->len - a.off);
			a = (struct addr){ .pack = m->to.pack, .off = m->to.off + (a.off - m->off) };
		} else if (m) {
			n = m->off - a.off;
		}
		r = extent_list_add(ret, x->off + done, n, a);
		done += n;
	}
	return r;
}

static int add_all_moved(const struct moves *ms, const struct extent *x, size_t nr, struct extent_list *ret)
{
	int r = 0;

	for (size_t i = 0; i < nr && r == 0; i++)
		r = add_moved(ms, &x[i], ret);
	return r;
}

int repoint_new(struct engine *e, const struct extent *x, size_t nr, struct extent_list *ret)
{
	struct moves ms = { .e = e, .m = e->gc->repointed.m, .nr = e->gc->repointed.nr };
	struct extent_list l = { 0 };
	int r;

	if (!ms.m || !any_moved(&ms, x, nr))
		return 0;
	r = add_all_moved(&ms, x, nr, &l);
	if (r < 0) {
		extent_list_release(&l);
		return r;
	}
	*ret = l;
	return 1;
}

struct place {
	struct content *c;
	uint64_t number;
};

static int repoint_places(struct engine *e, const struct place *places, unsigned nr)
{
	int r = 0;

	for (unsigned i = 0; i < nr; i++)
		content_load_segment(places[i].c, places[i].number); /* before changes are locked out */
	view_lock_exclusive(e);
	for (unsigned i = 0; i < nr && r == 0; i++)
		r = content_repoint(places[i].c, places[i].number);
	view_unlock_exclusive(e);
	log_throttle(e);
	return r;
}

/* Does the recipe refer to a moved chunk? */
static int wants_repoint(const struct moves *ms, const struct db_snapshot *state, const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	size_t nr;
	int r = recipe_read(ms->e->db, state, value, len, &x, &nr);

	return r < 0 ? r : any_moved(ms, x, nr);
}

static int repoint_some(struct engine *e, struct place *places, unsigned *nr)
{
	int r = repoint_places(e, places, *nr);

	while (*nr > 0)
		content_close(places[--*nr].c);
	return r;
}

static int repoint_all(const struct moves *ms, struct db_snapshot *state)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct place places[SEGMENTS_AT_ONCE];
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len;
	unsigned nr = 0;
	uint64_t ino;
	int r, last;

	r = db_iter_new(ms->e->db, state, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = wants_repoint(ms, state, value, value_len);
		if (r <= 0)
			continue;
		r = recipe_key_decode(key, key_len, &ino, &places[nr].number);
		if (r == 0)
			r = content_open(ms->e, ino, &places[nr].c);
		if (r == 0 && ++nr == SEGMENTS_AT_ONCE)
			r = repoint_some(ms->e, places, &nr);
	}
	last = repoint_some(ms->e, places, &nr);
	return r < 0 ? r : last;
}

int repoint(struct engine *e, const struct move *m, size_t nr)
{
	struct moves ms = { .e = e, .m = m, .nr = nr };
	struct db_snapshot *state;
	int r;

	view_lock_exclusive(e);
	r = files_write_back(e);
	if (r == 0)
		r = db_snapshot_new(e->db, &state);
	if (r == 0) {
		e->gc->repointed.m = m;
		e->gc->repointed.nr = nr;
	}
	view_unlock_exclusive(e);
	if (r < 0)
		return r;
	r = repoint_all(&ms, state);
	db_snapshot_free(state);
	return r;
}

bool repoint_is_on(const struct engine *e)
{
	return e->gc->repointed.m;
}

void repoint_end(struct engine *e)
{
	view_lock_exclusive(e);
	e->gc->repointed.m = NULL;
	e->gc->repointed.nr = 0;
	view_unlock_exclusive(e);
}
