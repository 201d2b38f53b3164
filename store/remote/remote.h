/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * State of a store in a cluster, and what the files of store/remote call of each other. Only they include this header;
 * the rest of store/ calls the hooks of store/remote_hooks.h, which are listed in remote.c.
 */
#pragma once

#include <stdatomic.h>

#include "base/mutex.h"
#include "index/pin_table.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_tables.h"
#include "store/remote/cluster_calls.h"
#include "store/remote/round_backoff.h"
#include "store/remote_hooks.h"

/* A frame left by a round with notes or bytes still to be written. */
struct unsettled {
	struct unsettled *next;
	struct pack_frame *f; /* partly written; NULL: all of its local bytes are written */
	uint32_t pack, frame;
	struct share_frame note; /* the final note */
	uint64_t nr_more, more_bytes; /* remote chunks not counted yet */
};

/* Chunks shared with other nodes, and frames deferred until a round. */
struct shares {
	/* Held while notes, and the freed chunks of their frames, are appended to the journal, and while the view is cut:
	 * both have the same notes. Also while tables of these frames are read. After view_lock, before txlog.lock. */
	struct mutex lock;
	struct share_totals totals GUARDED_BY(lock);
	struct share_node *nodes GUARDED_BY(lock); /* by number */
	struct buf waiting GUARDED_BY(lock); /* notes that the next commit of notes includes */
	struct pack_marks opened; /* frames before these existed when the store was opened; constant */
	/* operations that may still record a chunk as remote or pinned. Marking for a joint collection waits a few
	 * seconds at most for them; they never wait for it: a later one that would have to is refused */
	unsigned nr_settling GUARDED_BY(lock);
	struct cond settled;
	/* all references of this window have been sent; unreferenced chunks may be unpinned */
	bool collecting GUARDED_BY(lock);
	struct cluster_window window GUARDED_BY(lock);
	struct pack_marks marked GUARDED_BY(lock); /* pack ends when the window was marked */
	/* old places being released (pins_carry.c), sorted; NULL: none */
	const struct move *moved GUARDED_BY(lock);
	size_t nr_moved GUARDED_BY(lock);
	_Atomic bool any; /* chunks are shared: check the notes for each pack table read */
	_Atomic bool any_unconfirmed; /* copy of totals.any_unconfirmed */
	/* an agent is present; bitmap of nodes, by number, that do not take part (pins_usable.c). Changed under
	 * lock */
	_Atomic bool has_world, any_lost;
	_Atomic uint64_t lost[(UINT16_MAX + 1) / 64];
	/* a round left unfinished frames; their notes are not final */
	_Atomic bool has_left;
	_Atomic bool paused; /* writers are blocked on a commit: commit without a round */
	_Atomic uint64_t fetched, nr_rounds;
#define NEXT_GUESSES 8u /* twice the number of concurrent requests between two nodes */
	/* likely locations of the next chunks that peers request: pack and offset (chunk_serve.c) */
	_Atomic uint64_t next_guesses[NEXT_GUESSES];
	_Atomic unsigned guess_turn; /* slot to replace next */
	_Atomic bool was_guess_right; /* the last prediction was right */

	/* --- under append_lock --- */

	/* full frames deferred until a round, in order, and those that the last round could not settle */
	struct pack_frame **deferred;
	/* taken frames may all be put back: nr_deferred + nr_taken <= size_deferred */
	size_t nr_deferred, nr_taken, size_deferred;
	bool is_mostly_unique; /* the last round found fewer than one chunk in MOSTLY_UNIQUE_PART on peers */
	bool is_round_due; /* enough frames are deferred, and none were taken since */
	bool wants_round; /* the agent has not been notified of it yet */
	/* a commit has taken the deferred frames and is about to start a round */
	bool is_offering;
	/* time of the last chunk added to a deferred frame, or to one that will be */
	uint64_t deferred_ns;
	struct backoff backoff; /* round back-off */
	struct unsettled *unsettled; /* owned by the thread in the first half of a commit */
	struct unsettled *arriving; /* for the next commit */
};

/* Hooks, by file; store/remote_hooks.h describes them. */

/* round_commit.c */
bool remote_is_deferring(struct engine *e) REQUIRES(append_lock);
struct pack_frame *remote_defer(struct engine *e, struct pack_frame *f) REQUIRES(append_lock);
bool remote_append_begin(struct engine *e) REQUIRES(append_lock);
bool remote_append_end(struct engine *e, bool begun, const struct batch *b) REQUIRES(append_lock);
void remote_request_round(struct engine *e);
int remote_sync_room(struct engine *e, size_t nr) REQUIRES(append_lock);
bool remote_sync_begin(struct engine *e, struct pack_frame **frames, size_t *nr) REQUIRES(append_lock);
int remote_sync_frames(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret);
void remote_committed(struct engine *e);
void remote_announce(struct engine *e);
unsigned remote_nr_spare(const struct engine *e);
void remote_abandon_frames(struct engine *e);

/* pins.c */
int remote_fate(struct engine *e, uint32_t pack, uint32_t frame, struct pack_fate *ret);
int remote_fetch(void *engine, uint32_t pack, uint32_t frame, const struct pack_remote *chunks, size_t nr);

/* pins_usable.c */
bool remote_chunk_is_usable(struct engine *e, struct addr a, struct remote_look *look);
bool remote_any_unusable(struct engine *e);

/* pins_gc.c */
int remote_mark_pinned(struct engine *e, struct db_snapshot *state, struct gc_window *w);
bool remote_has_pack(struct engine *e, uint32_t pack);
int remote_is_settling(struct engine *e, uint32_t pack, uint32_t frame);
int remote_free_chunks(struct engine *e, struct engine_tx *tx, const struct remote_freed *freed, size_t nr);

/* pins_carry.c */
int remote_carry(struct engine *e, const struct move *m, size_t nr);
void remote_moved(struct engine *e);

/* Calls between files. */

/* pins.c */
int shares_load(struct engine *e, const struct pack_marks *marks);
/* The number of a node. A new node gets the next one and does not count as missing until it is registered. */
int shares_number(struct engine *e, const struct cluster_node *n, uint16_t *ret) REQUIRES(e->shares->lock);
/* takes effect with the next commit of notes */
void shares_forget(struct engine *e, uint32_t number, bool is_forgotten) REQUIRES(e->shares->lock);
/* Location of a chunk that may be shared, from memory or RocksDB; `here`: with local bytes only. 1/0/<0 */
int shares_find(struct engine *e, struct fp fp, uint32_t len, bool here, struct addr *ret);
void shares_put(const struct share_frame *f, uint32_t pack, uint32_t frame, struct buf *records);
/* A local chunk of any length. */
int shares_find_here(struct engine *e, struct fp fp, struct addr *ret, uint32_t *ret_len);
/* Make these notes durable, with the marks (NULL as in commit_notes()), and put them into the view. */
int shares_commit(struct engine *e, const struct pack_marks *marks, struct buf *records) REQUIRES(e->shares->lock);
void shares_del(uint32_t pack, uint32_t frame, struct buf *records);

/* pins_carry.c */
bool shares_any_moved(struct engine *e, const struct addr *where, size_t nr) REQUIRES(e->shares->lock);

/* replica_chunks.c: notes that pin local chunks, in any order; existing notes are kept. -EAGAIN: a chunk is no longer
 * local */
int shares_note_pinned(struct engine *e, struct addr *where, size_t nr, struct buf *records) REQUIRES(e->shares->lock);

/* cluster_gc.c */
/* Begin an operation that ends with a note about another node's chunk; shares_settled() ends it. -EAGAIN during a
 * cluster-wide collection, unless even_then. */
int shares_settling(struct engine *e, bool even_then);
void shares_settled(struct engine *e);
/* Register nodes that may refer to pinned chunks; committed with the next notes. */
int shares_register_peers(struct engine *e, const struct cluster_node *nodes, size_t nr) REQUIRES(e->shares->lock);
