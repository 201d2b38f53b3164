/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The protocol between a daemon and the agent of its node, over a socket that only their user can open. Each message is
 * a header and `len` bytes. docs/format.md ("Between daemon and agent") changes with this.
 *
 *   agent                daemon
 *   HELLO          ───▶  ◀─── WELCOME          handshake: identity and parameters of the store
 *   NODES          ───▶                        all connected nodes, from now on
 *                        ◀─── WANT             requests a round soon: a thread waits for it, or much is deferred
 *   BEGIN          ───▶  ◀─── OFFER            of round `number`: pages that this node is about to store
 *   DECISION       ───▶  ◀─── STORED           pages that peers have as well, and their owners; own part is durable
 *   SETTLED        ───▶                        the nodes that have stored their part
 *                        ◀─── ANNOUNCE         announces pages that were stored here without a round
 *   SHARED         ───▶                        other nodes have announced the same pages: rounds would pay
 *                        ◀─── FETCH            requests remote chunks
 *   CHUNKS, PLACES ───▶
 *   GET            ───▶  ◀─── CHUNKS, THERE    chunks that another node wants
 *   TAKEN          ───▶  ◀─── TAKEN            the memory of PLACES or THERE can be reused
 *   PIN            ───▶  ◀─── PINNED           pins chunks that another node wants to refer to
 *                        ◀─── WANT_COLLECT     requests a collection by all nodes (collects.h)
 *   STEP           ───▶  ◀─── DONE             one step of that
 *   COLLECTED      ───▶                        its result
 *                        ◀─── QUERY            a query for the daemon of another node, opaque to agents
 *   QUESTION       ───▶  ◀─── ANSWER           a query of the daemon of another node
 *   ANSWER         ───▶                        answer of the other daemon
 *                        ◀─── PUT              sends chunks of a replica to another node
 *   KEPT           ───▶
 *                        ◀─── REPLICATE, DROP  creates or drops the replica of a sealed directory on another node
 *   REPLICATED, DROPPED ─▶
 *   PUT, REPLICATE, DROP ─▶                    the same requests from another node,
 *                        ◀─── KEPT, ...        and the answer
 *                        ◀─── REFUSED          instead of WELCOME; the connection ends
 *
 * `number` of an answer is that of its request; the daemon's requests (FETCH, PUT, REPLICATE, DROP, QUERY), GET, PIN,
 * QUESTION and the requests of other nodes are numbered separately. A daemon that receives no more messages of a round
 * continues without it, and so does an agent: late messages are dropped by their number.
 *
 * Decoding is a pure function of (bytes, length) that trusts nothing: -EBADMSG.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "base/le.h"

#define LINK_VERSION 1u
#define LINK_LEN_MAX (64u << 20) /* of a message; longer ones are rejected unread */
#define LINK_CHUNKS_MAX 4096u /* in one request, ... */
#define LINK_BYTES_MAX (16u << 20) /* with this many bytes in total */
#define LINK_NODES_MAX 65535u
#define LINK_OWNERS_MAX 4u
#define LINK_NAME_LEN 64u
#define LINK_KEY_LEN 32u
#define LINK_QUESTION_MAX 8192u /* bytes */
#define LINK_ANSWER_MAX (1u << 20)
#define LINK_PUT_BYTES_MAX (4u << 20) /* of chunks in one PUT */
#define LINK_PATH_MAX 4095u
#define LINK_REPLICA_CHUNKS_MAX 65536u /* of a catalog */
#define LINK_ANNOUNCE_MAX (1u << 18) /* pages */

enum link_type {
	LINK_HELLO = 1,
	LINK_WELCOME,
	LINK_NODES,
	LINK_WANT,
	LINK_BEGIN,
	LINK_OFFER,
	LINK_DECISION,
	LINK_STORED,
	LINK_SETTLED,
	LINK_FETCH,
	LINK_GET,
	LINK_CHUNKS,
	LINK_REFUSED,
	LINK_PIN,
	LINK_PINNED,
	LINK_WANT_COLLECT,
	LINK_STEP,
	LINK_DONE,
	LINK_COLLECTED,
	LINK_PUT = 20,
	LINK_KEPT,
	LINK_REPLICATE,
	LINK_REPLICATED,
	LINK_DROP,
	LINK_DROPPED,
	LINK_QUERY = 30,
	LINK_QUESTION,
	LINK_ANSWER,
	LINK_ANNOUNCE = 40,
	LINK_SHARED,
	LINK_PLACES = 50,
	LINK_THERE,
	LINK_TAKEN,
};

struct link_header_wire {
	struct le32 len; /* of the body */
	struct le16 type;
	struct le16 reserved;
	struct le64 number; /* of the round or the request; 0: none */
};
static_assert(sizeof(struct link_header_wire) == 16, "on the wire");

struct link_hello_wire {
	struct le32 version;
};

struct link_welcome_wire {
	struct le32 version;
	struct le32 hash; /* enum fp_kind, and ... */
	struct le32 incompat; /* bits of the superblock: the same on all nodes */
	struct le32 replicas;
	struct le64 popular_max; /* most pages in a round, by the memory limit */
	uint8_t store_id[16]; /* identifies the node */
	uint8_t proof_key[LINK_KEY_LEN]; /* derived from the cluster's key; proves that nodes share it */
	uint8_t name[LINK_NAME_LEN]; /* in messages and paths; zero-terminated and zero-padded */
};
static_assert(sizeof(struct link_welcome_wire) == 136, "on the wire");

/* NODES: le32 number of nodes, le32 which of them this one is, and for each: */
struct link_node_wire {
	uint8_t store_id[16];
	struct le32 host; /* nodes on one host fail together */
	uint8_t name[LINK_NAME_LEN];
};
static_assert(sizeof(struct link_node_wire) == 84, "on the wire");

/* OFFER: fingerprints of FP_LEN bytes, ascending, each once. */

/* ANNOUNCE: like OFFER, in any order, at most LINK_ANNOUNCE_MAX. SHARED: no body; `number`: how many of them another
 * node has announced as well. */

/* DECISION: entries, ascending by `index`, of those pages of the offer that at least one other node offers as well, or
 * already has. */
struct link_owners_wire {
	struct le32 index; /* in the offer */
	uint8_t nr; /* 1 to LINK_OWNERS_MAX */
	uint8_t has; /* bit i: owners[i] already has it, durable and pinned, whether or not this round succeeds there */
	uint8_t reserved[2];
	struct le16 owners[LINK_OWNERS_MAX]; /* numbers in NODES, ascending; zero-padded */
};
static_assert(sizeof(struct link_owners_wire) == 16, "on the wire");

/*
 * Steps of a collection by all nodes; `number` is that of the collection:
 *   PREPARE   collects local garbage; answers how many remote chunks the node refers to, and whether a node that may
 *             refer to any of its chunks is missing
 *   MARK      answers the fingerprints of remote chunks in this window, as a filter
 *   UNPIN     unpins the pinned chunks in this window that are not in the united filter of all nodes
 */
enum link_step_kind { LINK_PREPARE = 1, LINK_MARK, LINK_UNPIN };
#define LINK_FILTER_MIN 4096u
#define LINK_FILTER_MAX (8u << 20)

struct link_step_wire {
	struct le32 kind;
	struct le32 window, nr_windows; /* PREPARE: zeros, as all below */
	struct le32 len; /* of the filter: MARK: requested; UNPIN: follows */
	struct le64 seed;
};
static_assert(sizeof(struct link_step_wire) == 24, "on the wire");

/* DONE: of one node, or the sum of several; COLLECTED: the sum of all, with kind 0. The filter of MARK follows. */
struct link_done_wire {
	struct le32 kind, window;
	struct le32 error; /* an errno, or 0 */
	struct le32 len; /* of the filter: MARK without an error; else 0 */
	struct le64 nr_referred; /* PREPARE */
	struct le64 nr_kept, kept_bytes, nr_dropped, dropped_bytes; /* UNPIN: pinned chunks */
	uint8_t missing[LINK_NAME_LEN]; /* name of a missing node; zeros: none */
};
static_assert(sizeof(struct link_done_wire) == 120, "on the wire");

/* REFUSED: no body; `number` is an errno. EBUSY: another agent is connected; EACCES: the store belongs to
 * another user. */

/* STORED: le32, an errno or 0. */
/* SETTLED: a byte for each of NODES: 1: it has stored its part; 0: it has not, or this is unknown. 0 for the receiver:
 * the round ended without it, and its decision is void. */

/* GET: entries. */
struct link_want_wire {
	uint8_t fp[FP_LEN];
	uint8_t nr_owners; /* FETCH, else 0; in both LINK_AS_IS */
	struct le32 len; /* of the chunk: 1 to 1 MiB */
};
static_assert(sizeof(struct link_want_wire) == 20, "on the wire");
#define LINK_AS_IS 0x80u /* the sender of the chunk need not verify it */

/* FETCH: le32 number of nodes, le32 number of chunks, store ids of the nodes, and for each chunk: */
struct link_fetch_wire {
	struct link_want_wire want;
	/* indices into the nodes of this message, best first; zero-padded */
	struct le16 owners[LINK_OWNERS_MAX];
};
static_assert(sizeof(struct link_fetch_wire) == 28, "on the wire");

/* CHUNKS: a byte for each requested chunk, 1: present; then the bytes of the present ones, concatenated. */

/*
 * HELLO and WELCOME may carry a descriptor (SCM_RIGHTS) of an arena (arena.h) in which the sender places answers.
 *
 * PLACES: instead of CHUNKS, an le64 for each requested chunk: its offset in the agent's memory; 0: missing.
 * THERE: instead of CHUNKS, the location of their body in the daemon's memory.
 * TAKEN: no body; `number` is that of a PLACES or THERE, whose memory can be reused.
 */
struct link_there_wire {
	struct le64 off;
	struct le32 len;
};
static_assert(sizeof(struct link_there_wire) == 12, "on the wire");

/* PIN: like OFFER, at most LINK_CHUNKS_MAX. PINNED: a byte for each of these, 1: present, durable and now pinned. */

/* QUERY: the store id of the node (16), and the query, up to LINK_QUESTION_MAX bytes. QUESTION: the query alone. */
/* ANSWER: le32, an errno or 0; without one, up to LINK_ANSWER_MAX bytes. */
/*
 * PUT, REPLICATE and DROP begin with a store id (16): of the target node when sent by the daemon, of the requesting
 * node when sent by the agent.
 *
 * PUT: le32 number of chunks, at most LINK_CHUNKS_MAX; entries as of GET; for each a byte, 1: its bytes follow; these
 * bytes, concatenated.
 * KEPT: le32, an errno or 0; for each a byte (enum link_kept).
 */
enum link_kept {
	LINK_NOT_KEPT, /* not sent, and not present */
	LINK_IS_HERE, /* present, durable and now pinned */
	/* not present, but this node refers to it, and a connected node other than the requesting one has it */
	LINK_ON_PEERS,
};

#define LINK_SLOTS_MAX 7u
enum link_replica_step {
	LINK_REPLICA_CREATE,
	/* for an existing replica with slots: */
	LINK_REPLICA_COVER, /* cover its chunks */
	LINK_REPLICA_SETTLE, /* all nodes have covered theirs: drop stripes that are not needed any more */
};

/* REPLICATE: this struct, the path, and for each chunk of the catalog, in order, an entry as of GET.
 * REPLICATED: le32, an errno or 0. */
struct link_replica_wire {
	uint8_t node[16];
	uint8_t origin[16]; /* the store in which the directory was sealed */
	uint8_t name[LINK_NAME_LEN]; /* of the node of `origin` */
	struct le64 ino, sealed_ns; /* in `origin` */
	struct le32 path_len, nr_chunks;
	/* nr_slots nodes, at most LINK_SLOTS_MAX, cover the chunks that only the sender has; 0: none to cover */
	struct le32 slot, nr_slots;
	struct le32 step; /* enum link_replica_step: only the first has chunks */
};
static_assert(sizeof(struct link_replica_wire) == 132, "on the wire");

/* DROP: drops the replica if it was sealed no later than sealed_ns. LINK_DROP_ABANDONS: and never re-creates it, since
 * its node is lost for good. DROPPED: le32, an errno or 0. */
#define LINK_DROP_ABANDONS 1u
struct link_drop_wire {
	uint8_t node[16];
	uint8_t origin[16];
	uint8_t name[LINK_NAME_LEN];
	struct le64 ino, sealed_ns;
	struct le32 flags, reserved;
};
static_assert(sizeof(struct link_drop_wire) == 120, "on the wire");

/* --- decoded; pointers point into the decoded bytes, unless the caller frees them --- */

struct link_header {
	enum link_type type;
	uint32_t len;
	uint64_t number;
};

struct link_welcome {
	uint32_t hash, incompat, replicas;
	uint64_t popular_max;
	uint8_t store_id[16], proof_key[LINK_KEY_LEN];
	char name[LINK_NAME_LEN]; /* zero-terminated, printable, not empty, without slashes, not "." or ".." */
};

struct link_node {
	uint8_t store_id[16];
	uint32_t host;
	char name[LINK_NAME_LEN];
};

struct link_owners {
	uint32_t index, nr;
	uint16_t owners[LINK_OWNERS_MAX];
	uint32_t has;
};

struct link_want {
	struct fp fp;
	uint32_t len;
	uint32_t nr_owners : 31, as_is : 1; /* as_is: the sender of the chunk need not verify it */
	uint16_t owners[LINK_OWNERS_MAX];
};

struct link_step {
	enum link_step_kind kind;
	uint32_t window, nr_windows, len;
	uint64_t seed;
	const uint8_t *filter; /* UNPIN: `len` bytes */
};

struct link_done {
	enum link_step_kind kind; /* 0: COLLECTED */
	uint32_t window, len;
	int error; /* 0 or negative */
	uint64_t nr_referred, nr_kept, kept_bytes, nr_dropped, dropped_bytes;
	char missing[LINK_NAME_LEN]; /* empty: none */
	const uint8_t *filter; /* MARK without an error: `len` bytes */
};

/* A sealed directory of another node. */
struct link_replica {
	uint8_t node[16], origin[16];
	char name[LINK_NAME_LEN];
	uint64_t ino;
	int64_t sealed_ns;
	char path[LINK_PATH_MAX + 1]; /* from the root, without a slash at either end; "": the root */
	struct link_want *chunks; /* of its catalog; the caller frees them */
	uint32_t nr_chunks;
	uint32_t slot, nr_slots;
	enum link_replica_step step;
};

struct link_drop {
	uint8_t node[16], origin[16];
	char name[LINK_NAME_LEN];
	uint64_t ino;
	int64_t sealed_ns; /* or earlier; INT64_MAX: any time */
	bool abandons;
};

struct link_put {
	uint8_t node[16];
	struct link_want *wants; /* the caller frees this array and the next */
	const void **chunks; /* NULL: not sent */
	uint32_t nr;
};

struct buf;

/* Encoders append a whole message, including its header, to `ret` (check buf_error()). */
void link_encode_hello(struct buf *ret);
void link_encode_welcome(const struct link_welcome *w, struct buf *ret);
void link_encode_nodes(const struct link_node *nodes, uint32_t nr, uint32_t self, struct buf *ret);
/* WANT, BEGIN, REFUSED, SHARED, TAKEN: no body */
void link_encode_plain(enum link_type type, uint64_t number, struct buf *ret);
void link_encode_announce(const struct fp *pages, uint32_t nr, struct buf *ret);
void link_encode_offer(uint64_t round, const struct fp *pages, uint32_t nr, struct buf *ret);
void link_encode_decision(uint64_t round, const struct link_owners *owners, uint32_t nr, struct buf *ret);
void link_encode_stored(uint64_t round, int error, struct buf *ret); /* error: 0 or negative */
void link_encode_settled(uint64_t round, const uint8_t *has_stored, uint32_t nr_nodes, struct buf *ret);
void link_encode_fetch(uint64_t number, const uint8_t (*store_ids)[16], uint32_t nr_nodes,
		       const struct link_want *wants, uint32_t nr, struct buf *ret);
void link_encode_get(uint64_t number, const struct link_want *wants, uint32_t nr, struct buf *ret);
/* chunks[i]: bytes of the chunk; NULL: missing. */
void link_encode_chunks(uint64_t number, const struct link_want *wants, const void *const *chunks, uint32_t nr,
			struct buf *ret);
/* The same for contiguous chunks: only the LINK_CHUNKS_HEAD(nr) bytes in front of them. */
#define LINK_CHUNKS_HEAD(nr) (sizeof(struct link_header_wire) + (nr))
void link_put_chunks_head(uint64_t number, const bool *is_here, uint32_t nr, size_t bytes, uint8_t *ret);

/* chunks[i]: after `base`, the beginning of the arena; NULL: missing. */
void link_encode_places(uint64_t number, const void *base, const void *const *chunks, uint32_t nr, struct buf *ret);
void link_encode_there(uint64_t number, uint64_t off, uint32_t len, struct buf *ret);

void link_encode_pin(uint64_t number, const struct fp *pages, uint32_t nr, struct buf *ret);
void link_encode_pinned(uint64_t number, const uint8_t *pinned, uint32_t nr, struct buf *ret);
void link_encode_step(uint64_t number, const struct link_step *s, struct buf *ret);
/* DONE, COLLECTED */
void link_encode_done(enum link_type type, uint64_t number, const struct link_done *d, struct buf *ret);
void link_encode_query(uint64_t number, const uint8_t store_id[16], const void *question, size_t len, struct buf *ret);
/* On error len must be 0. */
void link_encode_answer(uint64_t number, int error, const void *p, size_t len, struct buf *ret);
/* The body without a header. */
void link_encode_step_body(const struct link_step *s, struct buf *ret);
void link_encode_done_body(const struct link_done *d, struct buf *ret);
/* chunks[i]: NULL: not sent, asks whether the receiver has it. */
void link_encode_put(uint64_t number, const uint8_t node[16], const struct link_want *wants, const void *const *chunks,
		     uint32_t nr, struct buf *ret);
void link_encode_kept(uint64_t number, int error, const uint8_t *kept, uint32_t nr, struct buf *ret);
void link_encode_replica(uint64_t number, const struct link_replica *c, struct buf *ret);
void link_encode_drop(uint64_t number, const struct link_drop *d, struct buf *ret);
/* With an encoded body. */
void link_encode_body(enum link_type type, uint64_t number, const void *body, size_t len, struct buf *ret);
void link_encode_error(enum link_type type, uint64_t number, int error, struct buf *ret); /* REPLICATED, DROPPED */

/* len must be sizeof(struct link_header_wire). */
int link_decode_header(const void *p, size_t len, struct link_header *ret);
/* Decoders take the body. The caller frees arrays. -EBADMSG, -ENOMEM; -EOPNOTSUPP: another version. */
int link_decode_hello(const void *p, size_t len);
int link_decode_welcome(const void *p, size_t len, struct link_welcome *ret);
int link_decode_nodes(const void *p, size_t len, struct link_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
int link_decode_offer(const void *p, size_t len, struct fp **ret, uint32_t *ret_nr);
int link_decode_announce(const void *p, size_t len, struct fp **ret, uint32_t *ret_nr);
int link_decode_decision(const void *p, size_t len, uint32_t nr_offered, uint32_t nr_nodes, struct link_owners **ret,
			 uint32_t *ret_nr);
int link_decode_stored(const void *p, size_t len, int *ret); /* 0 or negative */
int link_decode_settled(const void *p, size_t len, uint32_t nr_nodes, const uint8_t **ret);
int link_decode_fetch(const void *p, size_t len, const uint8_t (**ret_ids)[16], uint32_t *ret_nr_nodes,
		      struct link_want **ret, uint32_t *ret_nr);
int link_decode_get(const void *p, size_t len, struct link_want **ret, uint32_t *ret_nr);
int link_decode_pin(const void *p, size_t len, struct fp **ret, uint32_t *ret_nr);
int link_decode_pinned(const void *p, size_t len, uint32_t nr, const uint8_t **ret);
/* chunks[i] points to the chunk requested as wants[i]; NULL: missing. */
int link_decode_chunks(const void *p, size_t len, const struct link_want *wants, uint32_t nr, const void **chunks);
/* The same for chunks in the `base_len` bytes at `base`, which are not read. */
int link_decode_places(const void *p, size_t len, const struct link_want *wants, uint32_t nr, const void *base,
		       size_t base_len, const void **chunks);
/* The result lies within base_len. */
int link_decode_there(const void *p, size_t len, size_t base_len, uint64_t *ret_off, uint32_t *ret_len);
int link_decode_step(const void *p, size_t len, struct link_step *ret);
int link_decode_done(const void *p, size_t len, struct link_done *ret);
/* Results point into the bytes at p. */
int link_decode_query(const void *p, size_t len, const uint8_t **ret_id, const void **ret, size_t *ret_len);
int link_decode_question(const void *p, size_t len);
int link_decode_answer(const void *p, size_t len, int *ret_error, const void **ret, size_t *ret_len);
int link_decode_put(const void *p, size_t len, struct link_put *ret);
/* On error all are LINK_NOT_KEPT. */
int link_decode_kept(const void *p, size_t len, uint32_t nr, int *ret_error, const uint8_t **ret);
int link_decode_replica(const void *p, size_t len, struct link_replica *ret);
int link_decode_drop(const void *p, size_t len, struct link_drop *ret);
int link_decode_error(const void *p, size_t len, int *ret); /* REPLICATED, DROPPED: 0 or negative */
