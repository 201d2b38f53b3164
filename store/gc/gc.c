/*
 * Collecting what nobody refers to any more, while everybody goes on.
 *
 * The danger is sharing: a writer may find a chunk that nobody refers to just as it is being given back. Chunks are
 * found through hints from everywhere (champions, neighbours, memory, RocksDB), so the promise is kept at two places
 * that all of them pass: taking a chunk asks whether it is condemned, and whatever enters the log marks what it refers
 * to.
 *
 *   1. open a window over some packs, with all changes locked out for a moment: from here on every new reference is
 *      marked in the window as it enters the log; pin the state of the view
 *   2. mark what the recipes of that state refer to
 *   3. condemn what is not marked: from here on nobody takes it
 *   4. wait until everyone who may have taken it before is in the log, and every reader who may have met it is done
 *      (epoch_wait); pardon what has been marked meanwhile. What is still condemned is dead: no recipe has it, nobody
 *      is about to refer to it, and nobody can find it
 *      A pack of which nothing is left gets no more frames
 *   5. put into the log what is gone ('F', index/freed.h), and commit      COMMIT POINT
 *      crash before: nothing happened. The log is in order: with it every deletion that made it dead is durable
 *   6. forget it: the hints in memory, the tables in memory; now tables say so themselves. Close the window. What
 *      others have stored again because of 3, and was not given up, is stored once (gc_twins.c, which also tells of
 *      crashes)
 *   7. give the space back: punch, unlink    crash before or meanwhile: done at the next mount or collection
 *
 * Reading the tables again in step 6 must see step 5, hence its own wait: gc_sweep.c.
 */
#include "store/engine/gc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/freed.h"
#include "store/journal/journal.h"

#define STALE_PART 8 /* of what is stored, gone since: then the index is compacted */

bool gc_goes_on(struct gc *g)
{
	if (!g->stopped && g->deadline_ns > 0 && monotonic_ns() >= g->deadline_ns)
		g->stopped = true;
	if (!g->stopped && g->conf->step && !g->conf->step(g->conf->userdata, g->report))
		g->stopped = true;
	return !g->stopped;
}

static bool goes_on(void *gc)
{
	return gc_goes_on(gc);
}

void gc_pace(struct gc *g, uint64_t bytes)
{
	io_rate_wait_while(g->rate, bytes, goes_on, g);
}

int gc_write_back(struct engine *e)
{
	int r;

	rwlock_lock(&e->view_lock);
	r = view_write_back(e);
	rwlock_unlock(&e->view_lock);
	return r;
}

int gc_collect_packs(struct gc *g, const uint32_t *packs, size_t nr)
{
	int r;

	r = gc_window_open(g, packs, nr);
	if (r < 0)
		return r;
	r = gc_mark(g);
	if (r == 0)
		r = gc_find_dead(g);
	if (r == 0 && g->conf->delete)
		r = gc_sweep(g);
	gc_window_close(g);
	free(TAKE(g->doomed));
	g->nr_doomed = g->size_doomed = 0;
	return r;
}

/* What has been looked at before is looked at again: it counts once. */
static void count_once(struct gc_report *r, const struct gc_report *before)
{
	r->nr_packs = before->nr_packs;
	r->nr_frames = before->nr_frames;
	r->live_chunks = before->live_chunks;
	r->live_bytes = before->live_bytes;
	r->dead_bytes = before->dead_bytes;
	r->dead_chunks = before->dead_chunks;
}

/* What was found to be sparse is moved together; then those packs are collected once more, and are gone. */
static int move_sparse(struct gc *g)
{
	_cleanup_(freep) struct sparse *sparse = TAKE(g->sparse);
	_cleanup_(freep) uint32_t *packs = NULL;
	struct gc_report before = *g->report;
	size_t nr = g->nr_sparse;
	int r = 0;

	g->nr_sparse = 0;
	if (nr == 0)
		return 0;
	packs = calloc(nr, sizeof(*packs));
	if (!packs)
		return -ENOMEM;
	while (r == 0 && nr > 0 && gc_goes_on(g)) {
		size_t nr_moved = gc_fitting(sparse, nr);

		if (nr_moved == 0)
			break; /* too large for memory: left as it is */
		for (size_t i = 0; i < nr_moved; i++)
			packs[i] = sparse[i].pack;
		r = gc_move(g, packs, nr_moved);
		if (r == -ENOSPC)
			return 0; /* what could be punched has been; there is no room to move the rest */
		if (r == 0)
			r = gc_collect_packs(g, packs, nr_moved);
		nr -= nr_moved;
		memmove(sparse, sparse + nr_moved, nr * sizeof(*sparse));
		free(TAKE(g->sparse)); /* of what was just moved */
		g->nr_sparse = 0;
	}
	count_once(g->report, &before);
	return r;
}

/* 1: go on at *ret_next; 0: that was all. */
static int collect_window(struct gc *g, uint32_t from, uint32_t *ret_next)
{
	_cleanup_(freep) uint32_t *packs = NULL;
	uint32_t next;
	size_t nr;
	int r;

	r = g->e->conf.read_only ? 0 : engine_sync(g->e); /* only frames that are committed are looked at */
	if (r == 0)
		r = gc_choose_packs(g, from, &packs, &nr, &next);
	if (r < 0 || nr == 0)
		return r;
	r = gc_collect_packs(g, packs, nr);
	if (r == 0)
		r = move_sparse(g);
	free(TAKE(g->sparse));
	if (r == -ECANCELED) /* stopped before anything was decided */
		return 1;
	*ret_next = next;
	return r < 0 ? r : 1;
}

/* Where the next collection goes on; 0: at the beginning. */
static int remember_place(struct engine *e, uint32_t next_pack)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct freed_totals totals;

	freed_so_far(e, &totals);
	totals.next_pack = next_pack;
	return freed_apply(e, &tx, &totals);
}

/* The index and the journal shrink with what they were about: hints to packs that are gone, names and recipes that were
 * deleted. Much work, so only when much of it is stale. */
static int tidy(struct engine *e)
{
	int r;

	r = view_flush(e, true);
	if (r == 0)
		r = db_compact(e->db, DB_VIEW);
	if (r == 0)
		r = db_compact(e->db, DB_FINGERPRINTS);
	return r;
}

static bool is_stale(const struct gc *g)
{
	struct engine_stats s;

	engine_stats(g->e, &s);
	return g->report->freed_chunks > s.stored_chunks / STALE_PART;
}

/* All packs from *next on; complete or not. */
static int collect_from(struct gc *g, uint32_t *next)
{
	int r;

	do
		r = collect_window(g, *next, next);
	while (r > 0 && gc_goes_on(g));
	g->report->complete = r == 0;
	return MIN(r, 0);
}

/* After what is garbage has gone, so that there is room; then the places that the newest files have left are
 * garbage. */
static int place(struct gc *g, uint32_t *next)
{
	struct gc_report before = *g->report;
	int r = gc_place(g);

	if (r < 0 || g->report->placed_bytes == 0)
		return r;
	*next = 1;
	r = collect_from(g, next);
	count_once(g->report, &before);
	return r;
}

static int collect(struct gc *g)
{
	struct engine *e = g->e;
	struct freed_totals totals;
	uint32_t next;
	int r;

	freed_so_far(e, &totals);
	next = g->conf->delete ? MAX(totals.next_pack, 1u) : 1;
	r = collect_from(g, &next);
	if (r == 0 && g->conf->delete && g->conf->place && g->report->complete && gc_goes_on(g))
		r = place(g, &next);
	if (r < 0 || !g->conf->delete)
		return r;
	if (is_stale(g))
		journal_shrink(e->journal); /* what comes next is the first of it */
	r = remember_place(e, g->report->complete ? 0 : next);
	return r == 0 && is_stale(g) ? tidy(e) : r;
}

int engine_gc(struct engine *e, const struct gc_conf *conf, struct gc_report *ret)
{
	struct gc_report report = { 0 };
	struct gc g = { .e = e, .conf = conf, .report = &report };
	struct pack_stats ps;
	int r;

	if (conf->delete && e->conf.read_only)
		return -EROFS;
	if (atomic_exchange(&e->gc.running, true))
		return -EBUSY;
	mutex_lock(&e->gc.lock);
	packs_stats(e->packs, &ps);
	report.nr_packs_total = ps.nr_packs;
	if (conf->budget_ns > 0)
		g.deadline_ns = monotonic_ns() + conf->budget_ns;
	r = io_rate_new(conf->rate, &g.rate);
	if (r == 0)
		r = collect(&g);
	io_rate_free(g.rate);
	layer_set_release(&g.layers.live);
	mutex_unlock(&e->gc.lock);
	atomic_store(&e->gc.running, false);
	if (r < 0)
		return log_errno(r, "store %s: the collection ended early", e->path);
	*ret = report;
	return 0;
}
