/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Storage for other nodes: chunks, and replicas of their sealed directories. Called by the service
 * (mpi-agent/daemon/service.h), one call at a time.
 */
#pragma once

#include <stdint.h>

struct cluster_node;
struct fs;
struct link_replica;
struct link_drop;
struct link_put;
struct service_world;
struct stripe_io;

/* `nodes` are the connected ones. */
int replica_receive_chunks(struct fs *fs, const struct link_put *put, const struct cluster_node *nodes,
			   uint32_t nr_nodes,
		uint8_t *kept);
/*
 * Create a replica. -ESTALE: some chunks are neither here nor on a node other than the sender. With slots that is not
 * checked, since chunks may be on the sender only: replica_receive_cover() follows.
 */
int replica_receive_catalog(struct fs *fs, const struct link_replica *replica, const struct cluster_node *nodes,
			    uint32_t nr_nodes);
/*
 * replica_receive_cover() covers the chunks of a replica with slots, which exists here and for which the sender has
 * pinned its
 * chunks (mpi-agent/daemon/parity/stripes.h). When all nodes have done so, replica_receive_settle() drops stripes that
 * are no
 * longer needed; so does replica_receive_uncover() after the drop of a replica. -ESTALE: there is no such replica.
 */
int replica_receive_cover(struct fs *fs, const struct link_replica *replica, const struct stripe_io *io,
			  const struct service_world *w);
int replica_receive_settle(struct fs *fs, const struct link_replica *replica, const struct service_world *w);
int replica_receive_uncover(struct fs *fs, const struct service_world *w);
/* -EHOSTDOWN: of an abandoned directory, if this node has no record that the owner is lost for good. */
int replica_receive_drop(struct fs *fs, const struct link_drop *drop);
