/*
 * What agents of different nodes tell each other, besides the collective part of a round (reduce.h). docs/format.md
 * ("Between nodes") changes with this.
 *
 *   WANT     to rank 0: a daemon wants a round, `number` being the last one that had begun there
 *   BEGIN    round `number` begins; from rank 0 and on, in a tree
 *   GET      chunks that the receiver may have (body as that of LINK_GET)
 *   CHUNKS   the answer (body as that of LINK_CHUNKS)
 *   ALIVE    to the next rank, now and then: silence means death
 *   END      this world ends; the receiver has no need to say so, too
 *   ASK      who has these pages? (body as that of LINK_OFFER)
 *   FOUND    the answer: those that somebody is said to have (body as that of LINK_DECISION)
 *   TELL     the sender has these (body as that of LINK_TELL)
 *   TWICE    of what the receiver has told, another node has told `number` pages, too
 *   LEND     for the receiver's daemon (body as that of LINK_LEND)
 *   LENT     the answer (body as that of LINK_LENT)
 *   COLLECT  to rank 0: a daemon wants all nodes to collect together
 *   STEP     of collection `number` (body as that of LINK_STEP); from rank 0 and on, in the tree of BEGIN
 *   DONE     it is done there and behind it (body as that of LINK_DONE); back to rank 0 in that tree
 *   COLLECTED   the end of it (body as that of LINK_COLLECTED), like STEP
 *   PUT, COPY, DROP   for the receiver's daemon (bodies as those of LINK_PUT and so on, with the sender's store id)
 *   KEPT, COPIED, DROPPED   the answers (bodies likewise)
 *   QUESTION for the receiver's daemon (body as that of LINK_QUESTION)
 *   ANSWER   what that says, or why it does not (body as that of LINK_ANSWER)
 *
 * Each is sealed with a key of this world (world.h), and has the number of the messages before it from that node and of
 * its kind: what is not from where it says, not for this node, of another world, changed, or here a second time is no
 * message.
 *
 * Decoding is a pure function of (bytes, length) that trusts nothing: -EBADMSG.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "mpi-agent/link_format.h"
#include "mpi-agent/seal.h"

/* Chunks, and a byte for each. */
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
	PEER_TELL,
	PEER_LEND,
	PEER_LENT,
	PEER_COLLECT,
	PEER_STEP,
	PEER_DONE,
	PEER_COLLECTED,
	PEER_PUT = 16,
	PEER_KEPT,
	PEER_COPY,
	PEER_COPIED,
	PEER_DROP,
	PEER_DROPPED,
	PEER_QUESTION = 30,
	PEER_ANSWER,
	PEER_TWICE = 40,
};

struct peer_header_wire {
	uint8_t seal[SEAL_LEN]; /* of all that follows */
	struct le32 type;
	struct le32 from, to; /* ranks */
	struct le32 len; /* of the body */
	struct le64 sequence; /* from there, and of that lane: 0, 1, ... */
	struct le64 number; /* of the round or the request; 0 where there is none */
};
static_assert(sizeof(struct peer_header_wire) == 48, "on the wire");

struct peer_header {
	enum peer_type type;
	uint32_t from, to;
	uint64_t sequence, number;
};

/*
 * What the receiver's daemon has to work for is apart: a node that has enough of that to do does not take more for now,
 * and hears all else. What it is to keep takes as long as its disk, or a commit, for which it may have to read what
 * others have: so that is apart from what others read (GETS), which is never behind it. So is what nobody waits for,
 * and may be long on its way: both ends have better things to do.
 */
enum peer_lane { PEER_LANE_ANSWERS, PEER_LANE_GETS, PEER_LANE_HINTS, PEER_LANE_KEEPS, NR_PEER_LANES };

static inline enum peer_lane peer_lane(enum peer_type type)
{
	switch (type) {
	case PEER_GET:
		return PEER_LANE_GETS;
	case PEER_TELL:
		return PEER_LANE_HINTS;
	case PEER_PUT:
	case PEER_COPY:
	case PEER_DROP:
		return PEER_LANE_KEEPS;
	default:
		return PEER_LANE_ANSWERS;
	}
}

struct buf;

/* The header of a message with that body, which is to follow it. */
struct peer_header_wire peer_seal(const struct seal_key *key, const struct peer_header *h, const void *body, size_t len);
/* Adds a whole message to `ret`. */
void peer_encode(const struct seal_key *key, const struct peer_header *h, const void *body, size_t len, struct buf *ret);
/* The body is what follows the header. */
int peer_decode(const struct seal_key *key, const void *p, size_t len, struct peer_header *ret);
