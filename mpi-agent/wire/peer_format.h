/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages between agents of different nodes, besides the collective part of a round (reduce.h). docs/format.md
 * ("Between nodes") changes with this.
 *
 *   WANT     to rank 0: a daemon requests a round; `number` is the last one started there
 *   BEGIN    starts round `number`; from rank 0, down a tree
 *   GET      chunks that the receiver may have (body as that of LINK_GET)
 *   CHUNKS   the answer (body as that of LINK_CHUNKS)
 *   ALIVE    to the next rank, periodically: a silent node counts as dead
 *   END      all agents end; the receiver need not send it as well
 *   ASK      looks up pages (body as that of LINK_OFFER)
 *   FOUND    the answer: pages that some node may have (body as that of LINK_DECISION)
 *   ANNOUNCE     announces pages of the sender (body as that of LINK_ANNOUNCE)
 *   TWICE    another node has announced `number` of the pages that the receiver has announced
 *   PIN      for the receiver's daemon (body as that of LINK_PIN)
 *   PINNED   the answer (body as that of LINK_PINNED)
 *   COLLECT  to rank 0: a daemon requests a collection by all nodes
 *   STEP     of collection `number` (body as that of LINK_STEP); from rank 0 down the tree of BEGIN
 *   DONE     the sender and its subtree are done (body as that of LINK_DONE); up the tree to rank 0
 *   COLLECTED   the result (body as that of LINK_COLLECTED); sent like STEP
 *   PUT, REPLICATE, DROP   for the receiver's daemon (bodies as those of LINK_PUT and so on, with the sender's id)
 *   KEPT, REPLICATED, DROPPED   the answers (bodies likewise)
 *   QUESTION for the receiver's daemon (body as that of LINK_QUESTION)
 *   ANSWER   its answer, or an error (body as that of LINK_ANSWER)
 *
 * Each message has a MAC with a session key (world.h), and a sequence number per sender and lane: messages that are
 * forged, changed, replayed, misdirected or of another session are rejected.
 *
 * Decoding is a pure function of (bytes, length) that trusts nothing: -EBADMSG.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/wire/mac.h"

/* The longest body: chunks, and a byte for each. */
#define PEER_BODY_MAX (LINK_BYTES_MAX + LINK_CHUNKS_MAX)

enum peer_type {
	PEER_WANT = 1,
	PEER_BEGIN,
	PEER_GET,
	PEER_CHUNKS,
	PEER_ALIVE,
	PEER_END,
	PEER_ASK,
	PEER_FOUND,
	PEER_ANNOUNCE,
	PEER_PIN,
	PEER_PINNED,
	PEER_COLLECT,
	PEER_STEP,
	PEER_DONE,
	PEER_COLLECTED,
	PEER_PUT = 16,
	PEER_KEPT,
	PEER_REPLICATE,
	PEER_REPLICATED,
	PEER_DROP,
	PEER_DROPPED,
	PEER_QUESTION = 30,
	PEER_ANSWER,
	PEER_TWICE = 40,
};

struct peer_header_wire {
	uint8_t mac[MAC_LEN]; /* of all bytes after it */
	struct le32 type;
	struct le32 from, to; /* ranks */
	struct le32 len; /* of the body */
	struct le64 sequence; /* per sender and lane: 0, 1, ... */
	struct le64 number; /* of the round or the request; 0: none */
};
static_assert(sizeof(struct peer_header_wire) == 48, "on the wire");

struct peer_header {
	enum peer_type type;
	uint32_t from, to;
	uint64_t sequence, number;
};

/*
 * Requests that need work of the receiver's daemon have separate lanes: a busy node stops receiving them, but not other
 * messages. Storing replicas waits for the disk, or for a commit, which may have to read from other nodes. So it is
 * separate from the reads of other nodes (GETS), which never queue behind it. Hints are separate because they are not
 * urgent.
 */
enum peer_lane { PEER_LANE_ANSWERS, PEER_LANE_GETS, PEER_LANE_HINTS, PEER_LANE_KEEPS, NR_PEER_LANES };

static inline enum peer_lane peer_lane(enum peer_type type)
{
	switch (type) {
	case PEER_GET:
		return PEER_LANE_GETS;
	case PEER_ANNOUNCE:
		return PEER_LANE_HINTS;
	case PEER_PUT:
	case PEER_REPLICATE:
	case PEER_DROP:
		return PEER_LANE_KEEPS;
	default:
		return PEER_LANE_ANSWERS;
	}
}

struct buf;

/* Header for a message whose body is sent after it. */
struct peer_header_wire peer_header_encode(const struct mac_key *key, const struct peer_header *h, const void *body,
					   size_t len);
/* Appends a whole message to `ret`. */
void peer_encode(const struct mac_key *key, const struct peer_header *h, const void *body, size_t len, struct buf *ret);
/* The body is what follows the header. */
int peer_decode(const struct mac_key *key, const void *p, size_t len, struct peer_header *ret);
