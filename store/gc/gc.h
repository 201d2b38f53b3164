/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Internals of the collector, shared by gc*.c.
 *
 * The collector waits for all users of an address that no lock protects (engine.users, base/epoch.h): jobs from their
 * first look-up until they are in the log, readers, clones. They never wait for the collector. A move waits likewise
 * before it frees the old places, and again before it stops pointing new log entries to the copies.
 */
#pragma once

#include "store/engine_state.h"
#include "store/gc/gc_window.h"
#include "store/file/extents/layer_set.h"

struct db_snapshot;
struct stack;

/* A frame with chunks to free. */
struct gc_pending {
	uint32_t pack, frame, chunk_len, nr_chunks;
	size_t at; /* its number in the window */
	struct gc_bits gone; /* chunks freed before */
	struct gc_bits fresh; /* chunks freed now: */
	struct gc_bits blocks, starts; /* all blocks that they touch, the blocks that they begin in, */
	uint32_t bytes; /* and their total length */
	bool with_pack; /* the whole pack is removed */
};

/* A pack with few live chunks. */
struct sparse {
	uint32_t pack;
	size_t nr_live; /* upper bound, chunks */
};

struct gc {
	struct engine *e;
	const struct gc_conf *conf;
	struct gc_report *report;
	uint64_t deadline_ns;
	struct io_rate *rate;
	bool stopped; /* by the caller or the clock */
	bool finishes; /* continues although it was stopped, without waiting for the rate limit */
	uint32_t end_pack; /* packs from here on were started after the collection */
	struct gc_window *w;
	struct db_snapshot *state; /* the view when the window was opened */
	struct gc_pending *pending;
	size_t nr_pending, size_pending;
	struct sparse *sparse; /* as many slots as packs in the window */
	size_t nr_sparse;
	struct {
		bool wanted, done; /* in this window; in this collection */
		uint64_t end; /* layer numbers from here on were assigned after the snapshot */
		struct layer_set live; /* layers that recipes need */
	} layers;
};

bool gc_goes_on(struct gc *g); /* false: stop soon. Call it often */
void gc_pace(struct gc *g, uint64_t bytes); /* before reading or writing: waits for the rate limit, not past the end */

/* gc.c */
/* Writes the view back, so that RocksDB has all recipe changes made before this call. */
int gc_write_back(struct engine *e);
/* Frees the dead chunks of these packs: as many as a window takes, sorted. Earlier moves are committed. -ECANCELED:
 * stopped before anything was decided. */
int gc_collect_packs(struct gc *g, const uint32_t *packs, size_t nr);

/* gc_mark.c */
/* Lists existing packs with committed frames from `from` on, as many as a window takes; caller frees. *ret_next: the
 * first pack not examined. */
int gc_choose_packs(struct gc *g, uint32_t from, uint32_t **ret, size_t *ret_nr, uint32_t *ret_next);
int gc_window_open(struct gc *g, const uint32_t *packs, size_t nr);
void gc_window_shut(struct gc *g); /* no other thread uses it afterwards */
void gc_window_close(struct gc *g);
int gc_mark(struct gc *g);

/* gc_layers.c: once per collection */
void gc_layers_begin(struct gc *g); /* when the snapshot is taken */
int gc_layers_note(struct gc *g, const struct stack *s); /* for each recipe */
int gc_layers_sweep(struct gc *g); /* before the snapshot is freed */

/* gc_sweep.c */
int gc_find_dead(struct gc *g);
int gc_sweep(struct gc *g);

/* gc_twins.c */
/* Between moving_begin() and its end, with the window shut: merges chunks that were stored again while they were
 * gc-pending, but not freed in the end. */
int gc_merge_twins(struct gc *g);

/* gc_place.c */
int gc_place(struct gc *g);

/* gc_move.c */
size_t gc_fitting(const struct sparse *sparse, size_t nr); /* how many from the first on can be moved at once */
int gc_move(struct gc *g, const uint32_t *packs, size_t nr); /* packs sorted by number */
