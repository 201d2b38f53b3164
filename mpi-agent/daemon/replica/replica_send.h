/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sends a sealed directory to another node, so that it has all of it: chunks, and a catalog from which it creates a
 * replica (mpi-agent/daemon/replica/replica.h). After that every chunk survives the loss of any one host.
 *
 * A chunk stored here is safe once the other node stores it too. Locations known to the other node do not count: they
 * may be replicas with remote chunks. A chunk that is remote for this store is safe if two connected nodes on different
 * hosts store it; the other node may be one of them, or refer to them as this one does. Unverified locations
 * (store/remote/cluster_calls.h) are verified by a query.
 *
 * All other chunks are sent, remote ones after fetching them. Chunks that would then be on the other node or its host
 * only are stored here too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/remote/cluster_calls.h"

struct fs;
struct link_replica;
struct service;
struct service_world;

struct replica_sent {
	uint64_t asked; /* chunks of the directory, without duplicates within a batch */
	uint64_t chunks, bytes; /* sent */
};

struct replica_target {
	struct fs *fs;
	struct service *service;
	const struct service_world *world; /* borrowed */
	uint32_t to; /* index in the world */
	bool (*goes_on)(void *userdata); /* called from time to time */
	void *userdata;
};

/*
 * Send the directory `dir` of this store, described by replica->origin, name, ino, sealed_ns and path; the rest of
 * *replica is filled in. Adds to *figures. Long.
 *   -ENODATA, -ESTALE  not sealed, or no longer
 *   -ESTALE            also: the other node has released chunks meanwhile; a retry may succeed
 *   -EAGAIN            all nodes are collecting; a retry may succeed
 *   -ENOTCONN          no agent is connected, or it has disconnected
 *   -EHOSTUNREACH      the other node has disconnected
 *   -ECANCELED         goes_on() returned false
 *   -EIO               a chunk cannot be read
 *   others             errors of the other node
 */
int replica_send_directory(const struct replica_target *target, uint64_t dir, struct link_replica *replica,
			   struct replica_sent *figures);
/*
 * The same for a node that replaces this one (mpi-agent/daemon/replica/gather_group.h): remote chunks need not be
 * stored here.
 */
int replica_send_to_gatherer(const struct replica_target *target, uint64_t dir, struct link_replica *replica,
			     struct replica_sent *figures);
/*
 * Query which of these chunks, at most LINK_CHUNKS_MAX, a node has. LINK_IS_HERE: durable, and pinned from now on;
 * other values as in enum link_kept.
 */
int replica_query_chunks(const struct replica_target *target, const uint8_t *node, const struct cluster_want *wants,
			 size_t nr, uint8_t *ret_kept);
/*
 * The same without chunks, in four steps. They ensure that covered chunks (mpi-agent/daemon/parity/stripes.h) are not
 * released afterwards, and that the previous parity is not dropped too early:
 *   1. replica_send_catalog(): each of several nodes, with replica->slot of nr_slots, creates a replica and refers to
 *      chunks that only this node has.
 *   2. replica_pin_sources(): chunks that the loss of one other node would lose are fetched to this node, all local
 *      chunks are pinned, and the seal is checked again. target->to is not used.
 *   3. replica_send_cover(): each node covers the chunks of its slot.
 *   4. replica_send_settle(): each node may drop parity that the replica no longer needs.
 * Errors as above.
 */
int replica_send_catalog(const struct replica_target *target, uint64_t dir, struct link_replica *replica,
			 struct replica_sent *figures);
int replica_pin_sources(const struct replica_target *target, uint64_t dir, struct link_replica *replica);
int replica_send_cover(const struct replica_target *target, struct link_replica *replica);
int replica_send_settle(const struct replica_target *target, struct link_replica *replica);
/* Ask the other node to drop its replica; `abandons`: on all nodes (mpi-agent/daemon/replica/abandon.h). */
int replica_send_drop(const struct replica_target *target, const uint8_t origin[CLUSTER_ID_LEN], const char *name,
		      uint64_t ino, int64_t sealed_ns, bool abandons);
