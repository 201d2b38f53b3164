/*
 * What daemons of different nodes want of each other: PUT, COPY, DROP and QUERY go from this node's daemon to the agent
 * of the node they are for, which has its own daemon do it; the answer comes back the same way. Whatever is asked for
 * is answered, once and in bounded time: with an error if that node does not take part, or does not answer in time, by
 * the agent there, or else by the one here.
 *
 * Of what other nodes want, some is with the daemon at once; the rest waits where it came from (peers.h). Questions do
 * not wait: more than some at once are answered with -EBUSY. Bodies of other nodes are looked at before the daemon gets
 * them: what cannot be right is that node's fault, and not a reason for the daemon to hang up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi-agent/peer_format.h"

struct link;
struct peers;
struct relays;
struct waits;
struct world;

struct relays_figures {
	uint64_t kept_chunks, kept_bytes; /* sent here by others, and durable */
	uint64_t copies; /* directories of others, made here */
};

/* Borrows all of these. */
int relays_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
	       struct relays **ret);
void relays_free(struct relays *rs); /* NULL is fine */

/* The daemon's PUT, COPY, DROP or QUERY; its KEPT, COPIED, DROPPED or ANSWER. -EBADMSG, -ENOMEM, -EIO */
int relays_request(struct relays *rs, const struct link_header *h, const void *body);
int relays_answer(struct relays *rs, const struct link_header *h, const void *body);
/* Those of other nodes. */
bool relays_has_room(const struct relays *rs); /* for one that is to be kept (PEER_LANE_KEEPS) */
int relays_peer_request(struct relays *rs, const struct peer_header *h, const void *body, size_t len);
int relays_peer_answer(struct relays *rs, const struct peer_header *h, const void *body, size_t len);
int relays_progress(struct relays *rs, uint64_t now_ns); /* 1: something has happened; 0; <0 */
const struct relays_figures *relays_figures(const struct relays *rs);
