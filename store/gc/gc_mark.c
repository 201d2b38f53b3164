/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Opens a window of the collector and marks what the recipes refer to. gc.c gives the reasons for the order. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/gc/gc.h"
#include "store/file/extents/layer_stack.h"
#include "store/file/write_back.h"
#include "store/gc/gc_state.h"
#include "store/log/commit.h"
#include "store/log/view.h"
#include "store/remote_hooks.h"

#define FRAMES_MAX (128u * 1024) /* per window: per frame (1 MiB) 73 bytes here and up to 160 more in gc_sweep.c */
#define RECIPES_PER_STEP 4096u

static struct pack_marks committed_marks(struct engine *e)
{
	struct pack_marks m;

	commit_marks(e, &m);
	return m;
}

/* Counts the committed frames of a pack; later frames are not examined. */
static int look_at_pack(struct engine *e, const struct pack_marks *marks, uint32_t pack, struct gc_pack *ret)
{
	struct gc_pack p = { .pack = pack, .is_full = true };
	bool is_full;
	int r;

	r = packs_frames_of(e->packs, pack, &p.nr_frames, &is_full);
	if (r <= 0)
		return r;
	p.nr_places = p.nr_frames;
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		if (marks->stream[s].pack == pack) {
			p.nr_places = marks->stream[s].nr_frames;
			p.nr_frames = MIN(p.nr_frames, p.nr_places);
			p.is_full = false;
		}
	p.is_full &= is_full;
	*ret = p;
	return 1;
}

int gc_choose_packs(struct gc *g, uint32_t from, uint32_t **ret, size_t *ret_nr, uint32_t *ret_next)
{
	struct pack_marks marks = committed_marks(g->e);
	_cleanup_(freep) uint32_t *packs = NULL;
	size_t nr = 0, nr_frames = 0, size = 0, max = g->conf->window_frames ? g->conf->window_frames : FRAMES_MAX;
	struct gc_pack p;
	uint32_t pack;
	int r;

	if (g->end_pack == 0)
		g->end_pack = marks.next_pack;
	for (pack = from; pack < g->end_pack && nr_frames < max; pack++) {
		r = look_at_pack(g->e, &marks, pack, &p);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		if (nr == size) {
			uint32_t *more = realloc(packs, (size = MAX(2 * size, (size_t)64)) * sizeof(*more));

			if (!more)
				return -ENOMEM;
			packs = more;
		}
		packs[nr++] = pack;
		nr_frames += p.nr_frames;
	}
	*ret = TAKE(packs);
	*ret_nr = nr;
	*ret_next = pack;
	return 0;
}

static int window_of(struct engine *e, const uint32_t *packs, size_t nr, struct gc_window **ret)
{
	struct pack_marks marks = committed_marks(e);
	struct gc_pack *ps = calloc(nr, sizeof(*ps));
	size_t n = 0;
	int r = ps ? 0 : -ENOMEM;

	for (size_t i = 0; i < nr && r >= 0; i++) {
		r = look_at_pack(e, &marks, packs[i], &ps[n]);
		n += r > 0;
	}
	if (r < 0) {
		free(ps);
		return r;
	}
	return gc_window_new(ps, n, ret);
}

int gc_window_open(struct gc *g, const uint32_t *packs, size_t nr)
{
	struct engine *e = g->e;
	int r;

	r = window_of(e, packs, nr, &g->w);
	if (r < 0)
		return r;
	view_lock_exclusive(e);
	r = files_write_back(e);
	if (r == 0)
		r = db_snapshot_new(e->db, &g->state);
	if (r == 0)
		atomic_store(&e->gc->window, g->w);
	gc_layers_begin(g);
	view_unlock_exclusive(e);
	if (r < 0)
		gc_window_free(TAKE(g->w));
	return r;
}

void gc_window_shut(struct gc *g)
{
	struct engine *e = g->e;

	view_lock_exclusive(e);
	atomic_store(&e->gc->window, NULL);
	view_unlock_exclusive(e);
	epoch_wait(&e->users); /* threads that check for gc-pending chunks are inside the epoch */
}

void gc_window_close(struct gc *g)
{
	if (!g->w)
		return;
	gc_window_shut(g);
	if (g->state)
		db_snapshot_free(TAKE(g->state));
	gc_window_free(TAKE(g->w));
}

static int mark_value(struct gc *g, const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	struct stack s;
	size_t nr;
	int r = stack_read(g->e->db, g->state, value, len, &s);

	if (r < 0)
		return log_errno(r, "index: a recipe is damaged: run fsck.ckptfs");
	r = gc_layers_note(g, &s);
	if (r == 0)
		r = stack_merge(&s, &x, &nr);
	if (r == 0)
		gc_window_mark_bytes(g->w, x, nr);
	stack_release(&s);
	return r;
}

/* An unreadable recipe ends the collection, since its references are unknown. */
int gc_mark(struct gc *g)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	r = g->e->remote ? g->e->remote->mark_pinned(g->e, g->state, g->w) : 0;
	if (r == 0)
		r = db_iter_new(g->e->db, g->state, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = mark_value(g, value, value_len);
		if (++g->report->nr_recipes % RECIPES_PER_STEP == 0 && !gc_goes_on(g))
			break;
	}
	if (r == 0)
		r = gc_layers_sweep(g);
	if (r < 0)
		return r;
	db_iter_freep(&it);
	it = NULL;
	db_snapshot_free(TAKE(g->state));
	return gc_goes_on(g) ? 0 : -ECANCELED;
}
