/*
 * The collector's own: what gc*.c share, and what the paths of data ask it.
 */
#pragma once

#include "store/engine/engine_internal.h"
#include "store/engine/gc_window.h"
#include "store/engine/layer_set.h"

struct db_snapshot;
struct stack;

/* A frame that has chunks to give back. */
struct doomed {
	uint32_t pack, frame, chunk_len, nr_chunks;
	size_t at; /* its number in the window */
	struct gc_bits gone; /* chunks given back before */
	struct gc_bits fresh; /* and those that are now, ... */
	struct gc_bits blocks, starts; /* all blocks that they touch, those that they begin in, */
	uint32_t bytes; /* and how long they are */
	bool with_pack; /* the whole pack goes */
};

/* A pack of which little is live. */
struct sparse {
	uint32_t pack;
	size_t nr_live; /* chunks at most */
};

struct gc {
	struct engine *e;
	const struct gc_conf *conf;
	struct gc_report *report;
	uint64_t deadline_ns;
	struct io_rate *rate;
	bool stopped; /* by the caller or the clock */
	uint32_t end_pack; /* later ones came since the beginning */
	struct gc_window *w;
	struct db_snapshot *state; /* of the view when the window was opened */
	struct doomed *doomed;
	size_t nr_doomed, size_doomed;
	struct sparse *sparse; /* room for as many as there are packs in the window */
	size_t nr_sparse;
	struct {
		bool wanted, done; /* this time; for this collection */
		uint64_t end; /* numbers from here on were given since the state was pinned */
		struct layer_set live; /* that recipes need */
	} layers;
};

bool gc_goes_on(struct gc *g); /* call it often */
void gc_pace(struct gc *g, uint64_t bytes); /* to be read or written: waits as the rate says, not past the end */

/* gc.c */
/* The view as it is now: recipes that were changed before this are read from RocksDB. */
int gc_write_back(struct engine *e);
/* As many as a window takes, in order of their numbers; what is dead in them is given back. What was moved before is
 * committed. -ECANCELED: stopped before anything was decided. */
int gc_collect_packs(struct gc *g, const uint32_t *packs, size_t nr);

/* gc_mark.c */
/* Committed packs from `from` on that are there, as many as a window takes; caller frees. *ret_next: the first one not
 * looked at. */
int gc_choose_packs(struct gc *g, uint32_t from, uint32_t **ret, size_t *ret_nr, uint32_t *ret_next);
int gc_window_open(struct gc *g, const uint32_t *packs, size_t nr);
void gc_window_shut(struct gc *g); /* nobody else looks at it any more */
void gc_window_close(struct gc *g);
int gc_mark(struct gc *g);

/* gc_layers.c: once for each collection */
void gc_layers_begin(struct gc *g); /* when the state is being pinned */
int gc_layers_note(struct gc *g, const struct stack *s); /* of each recipe */
int gc_layers_sweep(struct gc *g); /* with the state still pinned */

/* gc_sweep.c */
int gc_find_dead(struct gc *g);
int gc_sweep(struct gc *g);

/* gc_twins.c */
/* Between moving_begin() and the end of it, with the window shut: what was stored again because it was condemned, and
 * was not given up after all, is stored once. */
int gc_merge_twins(struct gc *g);

/* gc_place.c */
int gc_place(struct gc *g);

/* gc_move.c */
size_t gc_fitting(const struct sparse *sparse, size_t nr); /* how many of the first can be moved in one go */
int gc_move(struct gc *g, const uint32_t *packs, size_t nr); /* in order of their numbers */
