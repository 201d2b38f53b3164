/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Hooks of a store whose chunks may be on other nodes of a cluster, or pinned for them. store/remote implements them;
 * the other folders of store/ know it by this table alone. engine.remote points to it in stores that were made with
 * cluster=, and is NULL in all others, so every call reads
 *
 *	if (e->remote)
 *		e->remote->committed(e);
 *
 * Each hook names the locks that the caller holds; no lock named: none. Words as in store/remote/cluster_calls.h: a
 * *pinned* chunk is here and other nodes refer to it; a *remote* chunk has an address here and its bytes on other
 * nodes; a *deferred* frame is full and waits in memory for a round to decide which nodes store its chunks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "store/pack/pack.h"

struct batch;
struct db;
struct db_snapshot;
struct engine;
struct engine_stats;
struct engine_tx;
struct gc_window;
struct move;
struct superblock;

/* Cache of chunk_is_usable(): the last frame looked up. Pack 0, which does not exist: none. */
struct remote_look {
	uint32_t pack, frame;
	uint64_t unusable[PACK_GONE_WORDS]; /* by number of the chunk in the frame */
};

/* Chunks that the collector frees. */
struct remote_freed {
	uint32_t pack, frame; /* frame UINT32_MAX: the whole pack */
	uint64_t gone[PACK_GONE_WORDS];
};

struct remote_hooks {
	/* --- new chunks (store/dedup) --- */

	/* May new data refer to the chunk that contains `a`? Any locks up to append_lock. Mostly two atomic loads. */
	bool (*chunk_is_usable)(struct engine *e, struct addr a, struct remote_look *look);
	/* Is there a chunk that chunk_is_usable() refuses? Any locks. */
	bool (*any_unusable)(struct engine *e);
	/* append_lock. Are full frames deferred? Then new chunks share frames, however many they are. */
	bool (*is_deferring)(struct engine *e);
	/* append_lock. Defers a full frame. Returns the frame to write now, this or an earlier one; NULL: none. */
	struct pack_frame *(*defer)(struct engine *e, struct pack_frame *f);
	/* append_lock. A batch is about to get its places. Returns what append_end() needs to know. */
	bool (*append_begin)(struct engine *e);
	/* append_lock. The CLAIMED chunks of the batch have their places; NULL: it failed. true: call request_round()
	 * once the lock is released. */
	bool (*append_end)(struct engine *e, bool begun, const struct batch *b);
	void (*request_round)(struct engine *e);

	/* --- commits (store/log); one thread at a time from sync_room() to committed() --- */

	/* append_lock. Makes room to defer `nr` frames again. Returns the number of deferred ones, or -ENOMEM. */
	int (*sync_room)(struct engine *e, size_t nr);
	/* append_lock. Adds the deferred frames to the *nr frames of this commit, after sync_room(). false: the caller
	 * writes and syncs them all; true: sync_frames() does. */
	bool (*sync_begin)(struct engine *e, struct pack_frame **frames, size_t *nr);
	/* Writes the frames, in a round if possible, and syncs the packs. Frames that it cannot write are deferred. */
	int (*sync_frames)(struct engine *e, struct pack_frame **frames, size_t nr, struct pack_marks *ret);
	void (*committed)(struct engine *e); /* all frames are durable; new chunks belong to the next commit */
	void (*announce)(struct engine *e); /* the log is durable, and its waiters have been answered */

	/* --- cutting the view: begin, commit, lock, cut, unlock (store/log/view.c); view_lock, exclusive --- */

	void (*cut_begin)(struct engine *e); /* until the end, commits run no rounds */
	void (*cut_lock)(struct engine *e); /* until the end, the notes in the view are those of the last commit */
	void (*cut_end)(struct engine *e);

	/* --- reading (callbacks of store/pack); any locks up to append_lock --- */

	int (*fate)(struct engine *e, uint32_t pack, uint32_t frame, struct pack_fate *ret); /* as in packs_conf */
	int (*fetch)(void *engine, uint32_t pack, uint32_t frame, const struct pack_remote *chunks, size_t nr);

	/* --- collection and moves (store/gc, store/recode); gc_lock --- */

	bool (*any)(struct engine *e); /* some chunks are, or were, pinned or remote */
	int (*mark_pinned)(struct engine *e, struct db_snapshot *state, struct gc_window *w); /* as live */
	bool (*has_pack)(struct engine *e, uint32_t pack); /* has pinned or remote chunks: nothing in it may be moved */
	/* Is the frame part of a round that has not ended? Its chunks must stay. 1/0/<0 */
	int (*is_settling)(struct engine *e, uint32_t pack, uint32_t frame);
	/* Logs `tx`, which frees these chunks, together with what changes for other nodes; durable on return. The
	 * deletions that made the chunks dead must be durable already, as this is written beside the log. */
	int (*free_chunks)(struct engine *e, struct engine_tx *tx, const struct remote_freed *freed, size_t nr);
	/* All files refer to the new places of these sorted moves, and no new reference to an old one can appear. Pins
	 * follow. 1: durably, and free_chunks() frees the old places; 0: nothing is shared. Until moved() nothing is
	 * pinned at an old place; `m` is borrowed until then. */
	int (*carry)(struct engine *e, const struct move *m, size_t nr);
	void (*moved)(struct engine *e);

	/* --- the store as a whole (store/engine.c) --- */

	unsigned (*nr_spare)(const struct engine *e); /* frames typically deferred at once */
	void (*stats)(struct engine *e, struct engine_stats *ret);
	void (*abandon_frames)(struct engine *e); /* when closing, before the packs */
	void (*free)(struct engine *e); /* when closing, after packs and index */
};

/* Sets e->remote, or leaves it NULL. After the view was recovered, before the packs are opened. In a build without the
 * cluster -EOPNOTSUPP if chunks of the store are shared with other nodes (remote_none.c). */
int remote_open(struct engine *e, const struct pack_marks *marks);
/* May this build repair the store? -EOPNOTSUPP: it may share chunks with other nodes, and this build cannot check. */
int remote_check_repair(const char *path, const struct superblock *sb);

/*
 * Notes of a store about other nodes, for fsck.ckptfs, which checks stores that are not open: chunks that it shares
 * (table 'E' of the view) and holders of its replicas ('G').
 */
struct remote_notes; /* those of commits that are not in the index; NULL: none */
struct remote_check {
	/* What is wrong with an entry of these tables; NULL: nothing. */
	const char *(*entry)(const void *key, size_t key_len, const void *value, size_t len);
	/* Adds a valid entry of 'E' from the journal, in order; the last one of a frame counts. -ENOMEM */
	int (*add)(struct remote_notes **notes, const void *key, size_t key_len, const void *value, size_t len);
	void (*sort)(struct remote_notes *notes); /* when all have been added */
	void (*free)(struct remote_notes *notes);
	/* Chunks of a frame that are remote, by these notes, else by the index (NULL: there is none). 1; 0: none; <0.
	 * *ret_settled: other nodes have confirmed them; otherwise they were never written anywhere. */
	int (*of_frame)(const struct remote_notes *notes, struct db *db, uint32_t pack, uint32_t frame,
			uint64_t remote[PACK_GONE_WORDS], bool *ret_settled);
};
extern const struct remote_check *const remote_check; /* NULL in a build without the cluster */
/* May this build check the store? -EOPNOTSUPP: it shares chunks with other nodes, or may do so by commits that are not
 * in the index (`unapplied`). */
int remote_check_allowed(const char *path, const struct superblock *sb, struct db *db, bool unapplied);
