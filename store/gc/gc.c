/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Garbage collection of unreferenced chunks, concurrent with all other work.
 *
 * The danger is sharing: a writer may find an unreferenced chunk just as it is being freed. Chunks are found through
 * hints from many sources (champions, neighbours, memory, RocksDB), so the collector relies on two points that all
 * paths pass: a writer that is about to share a chunk checks whether it is gc-pending (`gc_pending`), and every
 * reference that enters the log is marked.
 *
 *   1. open a window over some packs, with all changes locked out for a moment: from here on every new reference is
 *      marked in the window as it enters the log; take a snapshot of the view
 *   2. mark what the recipes of the snapshot refer to
 *   3. make the unmarked chunks gc-pending: from here on no writer shares them
 *   4. wait until all writers that may have shared one before are in the log, and all readers that may have found one
 *      are done (epoch_wait); clear the gc-pending state of chunks marked meanwhile. The remaining ones are dead: no
 *      recipe refers to them, no writer is about to, and no lookup returns them
 *      A pack without live chunks gets no more frames
 *   5. record the freed chunks in the log ('F', index/freed.h), and commit      COMMIT POINT
 *      crash before: nothing happened. The log is ordered, so every deletion that made them dead is durable with it
 *   6. drop the hints and the frame tables in memory; tables read from now on have the freed chunks. Close the window.
 *      Chunks that writers stored again because of 3, but that were not freed, are merged (gc_twins.c, which also
 *      covers crashes)
 *   7. return the space: punch, unlink    crash before or meanwhile: done at the next mount or collection
 *
 * Tables read again in step 6 must include step 5, hence a separate wait: gc_sweep.c.
 */
#include "store/gc/gc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/freed.h"
#include "store/file/write_back.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/journal/journal.h"
#include "store/log/view.h"

#define STALE_PART 8 /* the index is compacted if more than 1/8 of the stored chunks were freed */

bool gc_goes_on(struct gc *g)
{
	if (!g->stopped && g->deadline_ns > 0 && monotonic_ns() >= g->deadline_ns)
		g->stopped = true;
	if (!g->stopped && g->conf->step && !g->conf->step(g->conf->userdata, g->report))
		g->stopped = true;
	return !g->stopped || g->finishes;
}

static bool is_paced(void *gc)
{
	struct gc *g = gc;

	return gc_goes_on(g) && !g->stopped;
}

void gc_pace(struct gc *g, uint64_t bytes)
{
	io_rate_wait_while(g->rate, bytes, is_paced, g);
}

int gc_write_back(struct engine *e)
{
	int r;

	view_lock_exclusive(e);
	r = files_write_back(e);
	view_unlock_exclusive(e);
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
	free(TAKE(g->pending));
	g->nr_pending = g->size_pending = 0;
	return r;
}

/* Packs collected a second time are counted once. */
static void count_once(struct gc_report *r, const struct gc_report *before)
{
	r->nr_packs = before->nr_packs;
	r->nr_frames = before->nr_frames;
	r->live_chunks = before->live_chunks;
	r->live_bytes = before->live_bytes;
	r->dead_bytes = before->dead_bytes;
	r->dead_chunks = before->dead_chunks;
}

/* Moves the live chunks of sparse packs together; a second collection then removes these packs. */
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
			break; /* too many chunks for the memory limit: left as it is */
		for (size_t i = 0; i < nr_moved; i++)
			packs[i] = sparse[i].pack;
		r = gc_move(g, packs, nr_moved);
		if (io_is_full(r))
			return 0; /* dead chunks have been punched; there is no space to move the live ones */
		if (r == 0)
			r = gc_collect_packs(g, packs, nr_moved);
		nr -= nr_moved;
		memmove(sparse, sparse + nr_moved, nr * sizeof(*sparse));
		free(TAKE(g->sparse)); /* result of the second collection */
		g->nr_sparse = 0;
	}
	count_once(g->report, &before);
	return r;
}

/* 1: continue at *ret_next; 0: done. */
static int collect_window(struct gc *g, uint32_t from, uint32_t *ret_next)
{
	_cleanup_(freep) uint32_t *packs = NULL;
	uint32_t next;
	size_t nr;
	int r;

	r = g->e->read_only ? 0 : engine_sync(g->e); /* only committed frames are examined */
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

/* Stores where the next collection continues; 0: at the first pack. */
static int remember_place(struct engine *e, uint32_t next_pack)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct freed_totals totals;

	freed_so_far(e, &totals);
	totals.next_pack = next_pack;
	return freed_apply(e, &tx, &totals, NULL, 0);
}

/* Shrinks the index and the journal: drops hints to removed packs, and deleted names and recipes. Expensive, so only
 * when much of it is stale. */
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

/* Collects all packs from *next on, possibly not to the end. */
static int collect_from(struct gc *g, uint32_t *next)
{
	int r;

	do
		r = collect_window(g, *next, next);
	while (r > 0 && gc_goes_on(g));
	g->report->complete = r == 0;
	return MIN(r, 0);
}

/* Runs after garbage has been freed, so that there is space. The old places of the newest files are garbage afterwards,
 * hence the second collection. */
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

static int collect_packs(struct gc *g)
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
		journal_shrink(e->journal); /* before the records that follow */
	r = remember_place(e, g->report->complete ? 0 : next);
	return r == 0 && is_stale(g) ? tidy(e) : r;
}

int engine_gc(struct engine *e, const struct gc_conf *conf, struct gc_report *ret)
{
	struct gc_report report = { 0 };
	struct gc g = { .e = e, .conf = conf, .report = &report };
	struct pack_stats ps;
	int r;

	if (conf->delete && e->read_only)
		return -EROFS;
	if (!gc_begin(e))
		return -EBUSY;
	gc_wait_lock(e);
	packs_stats(e->packs, &ps);
	report.nr_packs_total = ps.nr_packs;
	if (conf->budget_ns > 0)
		g.deadline_ns = monotonic_ns() + conf->budget_ns;
	r = io_rate_new(conf->rate, &g.rate);
	if (r == 0)
		r = collect_packs(&g);
	io_rate_free(g.rate);
	layer_set_release(&g.layers.live);
	gc_unlock(e);
	gc_end(e);
	if (r < 0)
		return log_errno(r, "store %s: the collection ended early", e->path);
	*ret = report;
	return 0;
}
