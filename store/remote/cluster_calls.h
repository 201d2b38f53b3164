/*
 * What a store that is one of a cluster asks of the others. The engine knows neither sockets nor MPI: whoever opens it
 * gives it these calls (struct engine_conf), and has it answer for this node (the functions below).
 *
 * A round is one commit's business. New chunks are held in memory; at the commit
 *   1. they are offered, and it is decided which of them other nodes hold, too, and which nodes are to store each;
 *   2. this node writes those it is to store, or nobody else has, makes them durable, and notes that others rely on
 *      them: *lent*;
 *   3. it says so, and hears who else has;
 *   4. what others have stored durably is *elsewhere* from now on, and the rest is written here after all; only then
 *      the commit goes on.
 * Whatever fails or takes too long at 1 or 3 costs space, not bytes: all is written here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct engine;

#define CLUSTER_OWNERS_MAX 4u
#define CLUSTER_ID_LEN 16u /* of a store: what a node is known by */

struct cluster_node {
	uint8_t id[CLUSTER_ID_LEN];
	char name[64];
};

/* Who stores a chunk that was offered. */
struct cluster_owners {
	uint32_t index; /* in the offer */
	uint32_t nr;
	uint16_t owners[CLUSTER_OWNERS_MAX]; /* numbers of nodes of this round, ascending */
	uint32_t has; /* bit i: owners[i] has it since before this round, durable and lent */
};

/* Of one round. Freed with cluster_decision_release(). */
struct cluster_decision {
	uint64_t round;
	struct cluster_node *nodes;
	uint32_t nr_nodes, self;
	struct cluster_owners *owners; /* by index; what is not here nobody else has */
	size_t nr;
};
void cluster_decision_release(struct cluster_decision *d);

struct cluster_want {
	struct fp fp;
	uint32_t len;
	void *buf;
	bool as_is; /* whoever has it need not compare it: the caller does, and asks once more for what does not match */
	const struct fp_key *key; /* to compare it with as it comes, while it is in a processor's caches; NULL: need not be */
	bool got; /* result: buf has as many bytes, which the caller compares with the fingerprint, ... */
	bool matches; /* unless that was done */
	uint32_t nr_owners;
	uint8_t owners[CLUSTER_OWNERS_MAX][CLUSTER_ID_LEN]; /* who should have it; others may, too */
};

/* Any thread may call these; they return in bounded time. */
struct cluster_calls {
	void *userdata;
	/* Can there be a round at all? Else nothing is held back for one. */
	bool (*is_there)(void *userdata);
	/* A round with these (ascending, each once; perhaps none). -ENOTCONN, -ETIMEDOUT, -ECANCELED: without one. */
	int (*decide)(void *userdata, const struct fp *offer, size_t nr, struct cluster_decision *ret);
	/* What this node was to store is durable (0), or not; has_stored[node]: so it is there; not of this one: it
	 * came too late, and the round was over without it. The same errors. NULL: nobody here wants to know, and
	 * nobody waits. After each decide() that came to something. */
	int (*settle)(void *userdata, const struct cluster_decision *d, int stored, bool *has_stored);
	/* 0: `got` says which of them; -ENOTCONN, -ETIMEDOUT: none. */
	int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr);
	/* Enough is held for a round: have engine_cluster_round() called soon, by another thread. Does not wait. NULL:
	 * commits alone come to rounds. */
	void (*want)(void *userdata);
	/* These were stored without a round (alone.h), in no order: others may be told; `has_time`: nobody has had the
	 * like for long. Does not wait. NULL: nobody is told. */
	void (*stored)(void *userdata, const struct fp *fps, size_t nr, bool has_time);
};

/* --- for the other nodes --- */

/* Who this store is to them. Stores of a cluster have the first three in common. */
struct cluster_identity {
	enum fp_kind hash;
	uint32_t incompat; /* of the superblock */
	uint8_t proof_key[FP_KEY_LEN]; /* made of the cluster's key, which it does not give away */
	uint8_t id[CLUSTER_ID_LEN];
};
/* 1; 0: it is of no cluster (the first mount had no cluster=). */
int engine_cluster_identity(const struct engine *e, struct cluster_identity *ret);

/*
 * The first half of a commit, for which nobody has to wait: what is held is offered, and stored here or elsewhere,
 * durably. While a program still writes, what it has written goes to the disk, as it does without a cluster.
 */
int engine_cluster_round(struct engine *e);
/* Of what stored() has told, other nodes have stored some, too: the next chunks are held for rounds. */
void engine_cluster_is_shared(struct engine *e);
/* The nodes that take part are others than before, or begin anew: what they have in common is to be found out again. */
void engine_cluster_met(struct engine *e);
/*
 * When something was held last (monotonic_ns()), if others are likely to bring the same; else 0. Of pages that a
 * program is about to write, and others offer already, these would store all.
 */
uint64_t engine_cluster_held_ns(struct engine *e);
bool engine_cluster_pending(struct engine *e); /* something is held that a round would be about */
/* Of chunks that have these fingerprints and lengths, those that are here, in as few reads as they lie together; `got`
 * says which. They are compared, unless all are wanted as they are. -ENOMEM. */
int engine_cluster_chunks(struct engine *e, struct cluster_want *wants, size_t nr);
int engine_cluster_chunk(struct engine *e, struct fp fp, uint32_t len, void *buf); /* one: 1/0/<0 */
/* Where they are, without reading any: `got`, here; else `owners` are those who have it as far as this store knows, of
 * whom there are none if it does not know it. */
int engine_cluster_locate(struct engine *e, struct cluster_want *wants, size_t nr);
/*
 * Do they have it? One that is named alone may be named on the word of a catalog (engine_cluster_refer()), whose teller
 * may only refer to it; several are named by a round alone, in which each of them has said that it is there, durable
 * and lent.
 */
static inline bool cluster_owners_are_sure(const struct cluster_want *w)
{
	return w->nr_owners >= 2;
}

/*
 * A chunk that this node is to have for others, whether it has a use for it or not: durable, and lent, when this
 * returns. One whose bytes are not those of its fingerprint: -EBADMSG, and nothing is kept. One that was elsewhere is
 * here then, too: it is found by its fingerprint, what is made of chunks refers to it, and files that refer to its
 * place elsewhere have it from here if nobody else has it any more.
 */
struct cluster_chunk {
	struct fp fp;
	uint32_t len; /* 1 to 1 MiB */
	const void *data;
};
/* -EAGAIN: nodes are collecting together. Whoever refers to it then has it kept anew before. */
int engine_cluster_keep(struct engine *e, const struct cluster_chunk *chunks, size_t nr);

/* Chunks by their fingerprints, for others to rely on: lent[i], it is here, durable, and lent from now on. Waits for
 * nothing: while a collection runs, and what a round is at, is not lent. */
int engine_cluster_lend(struct engine *e, const struct fp *fps, size_t nr, bool *lent);

/* Those of them that are here; the others are nobody's business. -EAGAIN: one is here, and cannot be lent now. */
int engine_cluster_lend_all(struct engine *e, const struct fp *fps, size_t nr);

/*
 * Bytes of a file as chunks that whoever has the same cluster's key knows by their fingerprints.
 */
struct cluster_piece {
	struct fp fp; /* FP_NONE: a hole */
	uint32_t chunk_len; /* 1 to 1 MiB; of a hole 0 */
	uint32_t from; /* of the chunk */
	uint64_t len; /* bytes */
};
struct content;
/* What c has from `off` on: up to `max` pieces, one behind the other. How many; 0: nothing more. */
int engine_cluster_pieces(struct content *c, uint64_t off, struct cluster_piece *ret, size_t max);
/*
 * c gets that from `off` on, without any bytes being moved: what is not known here is elsewhere from now on, with this
 * node. When this returns that is durable, and the change of c is in the log. -EAGAIN: as above.
 */
int engine_cluster_refer(struct content *c, uint64_t off, const struct cluster_piece *pieces, size_t nr,
			 const struct cluster_node *owner);
/* The same for several files at once, which costs one sync: pieces of the first run, then those of the next. */
struct cluster_run {
	struct content *c;
	uint64_t off;
	size_t nr; /* pieces */
};
int engine_cluster_refer_runs(struct engine *e, const struct cluster_run *runs, size_t nr_runs,
			      const struct cluster_piece *pieces, const struct cluster_node *owner);

/*
 * Chunks of a file that others are to have for this node, from now on: bytes that are here, and that nobody has from
 * here, go (let_go.c), and are fetched when they are read.
 */
struct cluster_takers {
	const struct cluster_node *nodes;
	uint32_t nr; /* 1 to CLUSTER_OWNERS_MAX */
	/* Has each of them these chunks, durable, and lent from now on? has[i], false to begin with. Takes no lock of
	 * the engine; may take as long as asking other nodes does. */
	int (*lend)(void *userdata, const struct cluster_want *chunks, size_t nr, bool *has);
	void *userdata;
};
struct cluster_let_go {
	uint64_t chunks, bytes; /* that have gone */
	uint64_t nr_refused; /* chunks that not all of them have, or could lend now: they stay */
};
/*
 * Adds to *sums. When this returns that is durable; whatever it returns, every byte can be had from somewhere. -EAGAIN:
 * nodes collect together, or a collection runs here; whatever `lend` returns. What is done twice is done once.
 */
int engine_cluster_let_go(struct content *c, const struct cluster_takers *takers, struct cluster_let_go *sums);

/*
 * Collecting together (together.c): what no node refers to any more is not lent any more, and then each node's own
 * collection frees it.
 *
 * Fingerprints are divided into windows. Of each window every node marks in a filter what it has elsewhere; these are
 * united, and then every node has it say what stays lent. What is marked though nobody has it (one in 1700 if there are
 * 16 bits for each) stays for once: another seed, other chunks.
 */
struct cluster_window {
	uint32_t number, nr; /* which of how many: nr 1 or more */
	uint64_t seed; /* of the filter */
};
#define CLUSTER_FILTER_MIN 4096u /* bytes */
#define CLUSTER_FILTER_MAX (8u << 20)
#define CLUSTER_FILTER_BITS 16u /* for a chunk */

/* These may refer to chunks of this node from now on; in a round they are met anyway. Durable. Who is only noted as
 * having some, as the node of a copy, is not met by that. */
int engine_cluster_meet(struct engine *e, const struct cluster_node *nodes, size_t nr);
/* Of those this store has ever met, one that is not among these, and may refer to what it has lent. 1/0 */
int engine_cluster_missing(struct engine *e, const struct cluster_node *here, size_t nr, struct cluster_node *ret);
/* These take part, this one among them; none, as before the first call: no agent is there. What others have is
 * stored again where it is written again. */
void engine_cluster_present(struct engine *e, const struct cluster_node *here, size_t nr);
/* A node that will not come back is not missing. Durable; if it comes back after all, what it refers to may be gone.
 * -ENOENT: nobody of that name was met. */
int engine_cluster_forget(struct engine *e, const char *name);
/* It was met, and is not forgotten. */
bool engine_cluster_is_expected(struct engine *e, const uint8_t id[CLUSTER_ID_LEN]);
bool engine_cluster_is_forgotten(struct engine *e, const uint8_t id[CLUSTER_ID_LEN]);
uint64_t engine_cluster_nr_referred(struct engine *e); /* chunks that are elsewhere */
/*
 * Adds all that is elsewhere to `filter` (zeros to begin with). From here until engine_cluster_unlend() or
 * engine_cluster_collected() nothing is kept for other nodes nor referred to (-EAGAIN). -EAGAIN: a round has not ended
 * here; -EBADMSG: a table cannot be read, and so nobody knows.
 */
int engine_cluster_mark(struct engine *e, const struct cluster_window *w, uint8_t *filter, size_t len);
struct cluster_unlent {
	uint64_t nr_kept, kept_bytes; /* others refer to them */
	uint64_t nr_dropped, dropped_bytes; /* nobody does */
};
/* Of what was lent when this window was marked here, what is not in the filter of all is not lent any more, durably.
 * -ESTALE: it was not, or something came between. What fails in the middle is done in part, which is right, too. */
int engine_cluster_unlend(struct engine *e, const struct cluster_window *w, const uint8_t *filter, size_t len,
			  struct cluster_unlent *ret);
void engine_cluster_collected(struct engine *e); /* it is over, or nobody knows what becomes of it */
