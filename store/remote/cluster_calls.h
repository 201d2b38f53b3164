/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Calls between the engine of a clustered store and the other nodes. The engine uses neither sockets nor MPI: the
 * program that opens it passes these calls (struct engine_conf) and serves requests of other nodes with the functions
 * below.
 *
 * A round belongs to one commit. New chunks are deferred in memory; at the commit
 *   1. they are offered; the decision lists the chunks that peers offer or hold, too, and the owners of each;
 *   2. this node writes the chunks that it owns and those that no peer has, makes them durable, and records which of
 *      them peers rely on: *pinned* (`pinned` in code);
 *   3. it reports this, and receives which peers have stored theirs;
 *   4. chunks that peers have stored durably are *remote* from now on (`remote`, `remote`), and the rest is written
 *      here after all; only then the commit continues.
 * A failure or timeout in 1 or 3 costs space, not data: all chunks are written here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct engine;

#define CLUSTER_OWNERS_MAX 4u
#define CLUSTER_ID_LEN 16u /* id of a store, which identifies the node */

struct cluster_node {
	uint8_t id[CLUSTER_ID_LEN];
	char name[64];
};

/* Owners of one offered chunk. */
struct cluster_owners {
	uint32_t index; /* in the offer */
	uint32_t nr;
	uint16_t owners[CLUSTER_OWNERS_MAX]; /* node numbers of this round, ascending */
	uint32_t has; /* bit i: owners[i] has held it since before this round, durable and pinned */
};

/* Decision of one round. Freed with cluster_decision_release(). */
struct cluster_decision {
	uint64_t round;
	struct cluster_node *nodes;
	uint32_t nr_nodes, self;
	struct cluster_owners *owners; /* sorted by index; chunks not listed are on no peer */
	size_t nr;
};
void cluster_decision_release(struct cluster_decision *d);

struct cluster_want {
	struct fp fp;
	uint32_t len;
	void *buf;
	bool as_is; /* the serving node need not verify it: the caller does, and fetches again on a mismatch */
	const struct fp_key *key; /* to verify on arrival, while the bytes are in the CPU caches; NULL: not needed */
	bool got; /* result: buf is filled; the caller verifies it against the fingerprint, ... */
	bool matches; /* unless this is set: it was verified on arrival */
	uint32_t nr_owners;
	uint8_t owners[CLUSTER_OWNERS_MAX][CLUSTER_ID_LEN]; /* nodes expected to have it; others may, too */
};

/* Any thread may call these; they return in bounded time. */
struct cluster_calls {
	void *userdata;
	/* Are rounds possible at all? If not, nothing is deferred. */
	bool (*is_there)(void *userdata);
	/* Runs a round on these fingerprints (ascending, distinct, or none). -ENOTCONN, -ETIMEDOUT, -ECANCELED:
	 * none. */
	int (*decide)(void *userdata, const struct fp *offer, size_t nr, struct cluster_decision *ret);
	/* Reports whether this node's share is durable (`stored` is 0). has_stored[node]: the same for each node; false
	 * for this node: the report came too late and the round ended without it. Errors as for decide(). has_stored
	 * NULL: the caller needs no result, and the call does not wait. Follows every successful decide(). */
	int (*settle)(void *userdata, const struct cluster_decision *d, int stored, bool *has_stored);
	/* 0: `got` is set for the chunks fetched; -ENOTCONN, -ETIMEDOUT: none. */
	int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr);
	/* Enough is deferred for a round: have another thread call engine_cluster_round() soon. Does not wait. NULL:
	 * only commits start rounds. */
	void (*want)(void *userdata);
	/* These chunks were stored without a round (round_backoff.h), unordered, and may be announced to peers.
	 * `has_time`: not urgent, no peer has had common chunks for long. Does not wait. NULL: nothing is announced. */
	void (*stored)(void *userdata, const struct fp *fps, size_t nr, bool has_time);
};

/* --- serving other nodes. Except for the first two, only stores of a cluster may be passed. --- */

/* Identity of this store for peers. All stores of a cluster have the first three fields in common. */
struct cluster_identity {
	enum fp_kind hash;
	uint32_t incompat; /* of the superblock */
	uint8_t proof_key[FP_KEY_LEN]; /* derived from the cluster key, without revealing it */
	uint8_t id[CLUSTER_ID_LEN];
};
/* 1; 0: the store belongs to no cluster (the first mount had no cluster=). */
int engine_cluster_identity(const struct engine *e, struct cluster_identity *ret);
bool engine_cluster_pending(struct engine *e); /* chunks are deferred for a round */

/*
 * Runs the first half of a commit in the background: offers the deferred chunks and stores them durably, here or on
 * peers. So written data reaches the disk while the program is still writing, as it does without a cluster.
 */
int engine_cluster_round(struct engine *e);
/* Peers have stored some of the chunks announced by stored(): the next chunks are deferred for rounds. */
void engine_cluster_is_shared(struct engine *e);
/* The set of participating nodes has changed, or they have restarted: back-off starts over. */
void engine_cluster_peers_changed(struct engine *e);
/*
 * Time (monotonic_ns()) when a chunk was last deferred, if peers are likely to bring the same chunks; else 0. If a
 * round ran on pages that peers offer while this program is about to write them, the peers would store them all.
 */
uint64_t engine_cluster_deferred_ns(struct engine *e);
/* Reads the chunks with these fingerprints and lengths that are here, in as few reads as their placement allows; `got`
 * is set for each. They are verified, unless all are wanted `as_is`. -ENOMEM. */
int engine_cluster_chunks(struct engine *e, struct cluster_want *wants, size_t nr);
int engine_cluster_chunk(struct engine *e, struct fp fp, uint32_t len, void *buf); /* one: 1/0/<0 */
/* Locates chunks without reading them. `got`: here; otherwise `owners` lists the nodes that hold the chunk according to
 * this store, none if the chunk is unknown. */
int engine_cluster_locate(struct engine *e, struct cluster_want *wants, size_t nr);
/*
 * Are the owners verified? A single owner may come from a catalog (engine_cluster_refer()), and the node that sent the
 * catalog may itself only refer to the chunk. Several owners come from a round only, in which each of them has
 * confirmed that the chunk is durable and pinned there.
 */
static inline bool cluster_owners_are_confirmed(const struct cluster_want *w)
{
	return w->nr_owners >= 2;
}

/*
 * A chunk that this node is to store for peers, whether its own files use it or not: durable and pinned on return. If
 * the data does not match the fingerprint: -EBADMSG, and nothing is stored. A chunk that was remote is here, too,
 * afterwards: lookups by fingerprint find it, new recipes refer to it, and files that refer to its remote place read it
 * from here if no peer has it any more.
 */
struct cluster_chunk {
	struct fp fp;
	uint32_t len; /* 1 to 1 MiB */
	const void *data;
};
/* -EAGAIN: a cluster collection is running. The caller must store the chunk again before it refers to it. */
int engine_cluster_keep(struct engine *e, const struct cluster_chunk *chunks, size_t nr);

/* Pins chunks by fingerprint for peers. pinned[i]: the chunk is here, durable, and pinned from now on. Waits for no
 * commit, because the round may belong to a commit that waits for the agent: only durable chunks are pinned, which is
 * recorded between two groups of the journal, and none while a collection runs or a round is settling their frame. */
int engine_cluster_pin(struct engine *e, const struct fp *fps, size_t nr, bool *pinned);

/* Pins those that are here and ignores the rest. -EAGAIN: one is here and cannot be pinned now. */
int engine_cluster_pin_all(struct engine *e, const struct fp *fps, size_t nr);

struct content;
struct content_piece;
/* Pieces of a file, from `off` on. */
struct cluster_run {
	struct content *c;
	uint64_t off;
	size_t nr; /* pieces */
};
/*
 * Gives files these pieces without moving data, those of the first run, then those of the next: chunks unknown here
 * become remote chunks of `owner`. On return that is durable, after a single sync, and the changes of the files are in
 * the log. -EAGAIN: as above.
 */
int engine_cluster_refer(struct engine *e, const struct cluster_run *runs, size_t nr_runs,
			 const struct content_piece *pieces, const struct cluster_node *owner);

/*
 * Releases the chunks of a file to the nodes that store them from now on: local bytes that are not pinned are punched
 * out (release.c) and fetched when they are read.
 */
struct cluster_takers {
	const struct cluster_node *nodes;
	uint32_t nr; /* 1 to CLUSTER_OWNERS_MAX */
	/* Does each of the nodes hold these chunks, durable, and pinned from now on? has[i] is false initially. Takes
	 * no engine lock; takes as long as a request to other nodes. */
	int (*pin)(void *userdata, const struct cluster_want *chunks, size_t nr, bool *has);
	void *userdata;
};
struct cluster_released {
	uint64_t chunks, bytes; /* released */
	uint64_t nr_refused; /* chunks that not all nodes hold or could pin now: they stay here */
};
/*
 * Adds to *sums. Durable on return; whatever it returns, every byte can be read from some node. -EAGAIN: a cluster
 * collection or a local collection is running. Other errors: those of `pin`. Idempotent.
 */
int engine_cluster_release(struct content *c, const struct cluster_takers *takers, struct cluster_released *sums);

/*
 * Cluster collection (cluster_gc.c): unpins chunks that no node refers to any more; each node's own collection then
 * frees them.
 *
 * Fingerprints are divided into windows. For each window every node marks its remote chunks in a filter. The filters
 * are united, and every node unpins the chunks that are not in the union. A false positive of the filter (one in 1700
 * at 16 bits per chunk) stays pinned until the next collection, which uses another seed.
 */
struct cluster_window {
	uint32_t number, nr; /* window `number` of `nr`; nr >= 1 */
	uint64_t seed; /* of the filter */
};
#define CLUSTER_FILTER_MIN 4096u /* bytes */
#define CLUSTER_FILTER_MAX (8u << 20)

/* Registers peers that may refer to chunks of this node from now on; a round registers its nodes itself. Durable. A
 * node that is only recorded as an owner, such as the node of a replica, is not registered by that. */
int engine_cluster_register_peers(struct engine *e, const struct cluster_node *nodes, size_t nr);
/* Returns one registered peer that is not among `here` and may refer to chunks pinned on this node. 1/0 */
int engine_cluster_missing(struct engine *e, const struct cluster_node *here, size_t nr, struct cluster_node *ret);
/* Sets the participating nodes, including this one. Empty, as before the first call: no agent is running. Writes do not
 * refer to chunks of absent owners, but store them again. */
void engine_cluster_present(struct engine *e, const struct cluster_node *here, size_t nr);
/* Marks a node that will not return as forgotten: it does not count as missing. Durable. If it does return, chunks that
 * it refers to may have been freed. -ENOENT: no node of that name is registered. */
int engine_cluster_forget(struct engine *e, const char *name);
/* The node is registered and not forgotten. */
bool engine_cluster_is_expected(struct engine *e, const uint8_t id[CLUSTER_ID_LEN]);
bool engine_cluster_is_forgotten(struct engine *e, const uint8_t id[CLUSTER_ID_LEN]);
uint64_t engine_cluster_nr_referred(struct engine *e); /* remote chunks */
/*
 * Adds the fingerprints of all remote chunks in the window to `filter` (initially zeros). From here until
 * engine_cluster_unpin() or engine_cluster_end_collection(), storing or pinning chunks for peers and referring to theirs
 * fail with -EAGAIN. -EAGAIN: a round has not ended here; -EBADMSG: a frame table cannot be read, so its references are
 * unknown.
 */
int engine_cluster_mark(struct engine *e, const struct cluster_window *w, uint8_t *filter, size_t len);
struct cluster_unpinned {
	uint64_t nr_kept, kept_bytes; /* still referred to */
	uint64_t nr_dropped, dropped_bytes; /* unpinned */
};
/* Unpins, durably, the chunks that were pinned when this window was marked here and are not in the united filter.
 * -ESTALE: the window was not marked here, or another one was since. A failure halfway leaves part of the chunks
 * unpinned, which is a valid state. */
int engine_cluster_unpin(struct engine *e, const struct cluster_window *w, const uint8_t *filter, size_t len,
			  struct cluster_unpinned *ret);
void engine_cluster_end_collection(struct engine *e); /* ends the window: done, or its outcome is unknown */
