/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Relays requests between daemons of different nodes: PUT, REPLICATE, DROP and QUERY of this node's daemon are sent to
 * the agent of the target node, which passes them to its daemon; the answer comes back the same way. Every request is
 * answered once, in bounded time: with an error, of either agent, if the node is not connected or does not answer in
 * time.
 *
 * A limited number of requests of other nodes is passed to the daemon at once; the rest stays with the sender
 * (peers.h). Queries are not queued: excess ones are answered with -EBUSY. Bodies of other nodes are checked before
 * they are passed on: a malformed one is an error of that node, and no reason for the daemon to close the connection.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi-agent/wire/peer_format.h"

struct link;
struct peers;
struct relays;
struct waits;
struct world;

struct relays_figures {
	uint64_t kept_chunks, kept_bytes; /* replica chunks received and made durable */
	uint64_t replicas; /* replicas created */
};

/* Borrows all arguments. */
int relays_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
	       struct relays **ret);
void relays_free(struct relays *rs); /* NULL is fine */

/* The daemon's PUT, REPLICATE, DROP or QUERY; its KEPT, REPLICATED, DROPPED or ANSWER. -EBADMSG, -ENOMEM, -EIO */
int relays_request(struct relays *rs, const struct link_header *h, const void *body);
int relays_answer(struct relays *rs, const struct link_header *h, const void *body);
/* Messages of other nodes. */
bool relays_has_room(const struct relays *rs); /* for another message of PEER_LANE_KEEPS */
int relays_peer_request(struct relays *rs, const struct peer_header *h, const void *body, size_t len);
int relays_peer_answer(struct relays *rs, const struct peer_header *h, const void *body, size_t len);
int relays_progress(struct relays *rs, uint64_t now_ns); /* 1: made progress; 0; <0 */
const struct relays_figures *relays_figures(const struct relays *rs);
