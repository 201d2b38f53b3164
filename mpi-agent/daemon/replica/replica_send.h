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
struct link_copy;
struct service;
struct service_world;

struct push_figures {
	uint64_t asked; /* chunks of the directory, without duplicates within a batch */
	uint64_t chunks, bytes; /* sent */
};

struct push {
	struct fs *fs;
	struct service *service;
	const struct service_world *world; /* borrowed */
	uint32_t to; /* index in the world */
	bool (*goes_on)(void *userdata); /* called from time to time */
	void *userdata;
};

/*
 * Send the directory `dir` of this store, described by copy->origin, name, ino, sealed_ns and path; the rest of *copy
 * is filled in. Adds to *figures. Long.
 *   -ENODATA, -ESTALE  not sealed, or no longer
 *   -ESTALE            also: the other node has released chunks meanwhile; a retry may succeed
 *   -EAGAIN            all nodes are collecting; a retry may succeed
 *   -ENOTCONN          no agent is connected, or it has disconnected
 *   -EHOSTUNREACH      the other node has disconnected
 *   -ECANCELED         goes_on() returned false
 *   -EIO               a chunk cannot be read
 *   others             errors of the other node
 */
int push_directory(const struct push *p, uint64_t dir, struct link_copy *copy, struct push_figures *figures);
/*
 * The same for a node that replaces this one (mpi-agent/daemon/replica/gather_directory.h): remote chunks need not be
 * stored
 * here.
 */
int push_over(const struct push *p, uint64_t dir, struct link_copy *copy, struct push_figures *figures);
/*
 * Query which of these chunks, at most LINK_CHUNKS_MAX, a node has. LINK_IS_HERE: durable, and pinned from now on;
 * other values as in enum link_kept.
 */
int push_ask(const struct push *p, const uint8_t *node, const struct cluster_want *wants, size_t nr, uint8_t *ret_kept);
/*
 * The same without chunks, in four steps. They ensure that covered chunks (mpi-agent/daemon/parity/stripes.h) are not
 * released afterwards, and that the previous parity is not dropped too early:
 *   1. push_catalog(): each of several nodes, with copy->slot of nr_slots, creates a replica and refers to chunks that
 *      only this node has.
 *   2. push_hold(): chunks that the loss of one other node would lose are fetched to this node, all local chunks are
 *      pinned, and the seal is checked again. `to` is not used.
 *   3. push_cover(): each node covers the chunks of its slot.
 *   4. push_settle(): each node may drop parity that the replica no longer needs.
 * Errors as above.
 */
int push_catalog(const struct push *p, uint64_t dir, struct link_copy *copy, struct push_figures *figures);
int push_hold(const struct push *p, uint64_t dir, struct link_copy *copy);
int push_cover(const struct push *p, struct link_copy *copy);
int push_settle(const struct push *p, struct link_copy *copy);
/* Ask the other node to drop its replica; `abandons`: on all nodes (mpi-agent/daemon/replica/abandon.h). */
int push_drop(const struct push *p, const uint8_t origin[CLUSTER_ID_LEN], const char *name, uint64_t ino,
	      int64_t sealed_ns, bool abandons);
