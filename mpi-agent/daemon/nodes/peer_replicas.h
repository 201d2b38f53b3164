/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Replicas of sealed directories of other nodes that are created here on first access
 * (mpi-agent/daemon/replica/replica.h).
 *
 * A replica created here consists of references. Then the node that sent the catalog is asked to pin the chunks it has
 * (HOLD). The order matters: once the references exist, every collection by all nodes finds them; pinning then verifies
 * that the directory is still sealed. So no chunk is released in between, whatever is unsealed, deleted and collected
 * meanwhile. If the node cannot pin all chunks because it is collecting, the replica is usable as long as the directory
 * exists; after that reads return the right data or EIO.
 *
 * Thread rule: any thread, holding no lock. Several readers of one replica wait for the thread that creates it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct ns_replica;
struct peer_list_seal;
struct peer_query;
struct peer_replicas;

int peer_replicas_new(struct fs *fs, struct peer_query *query, struct peer_replicas **ret); /* borrows both */
void peer_replicas_free(struct peer_replicas *o); /* NULL is fine */

/* The top of the replica of this seal, created if there is none. -ENOENT: removed meanwhile, or abandoned. */
int peer_replicas_open(struct peer_replicas *o, const struct peer_list_seal *s, uint64_t *ret_top);

/*
 * Abandoned directories (mpi-agent/daemon/replica/abandon.h): no replica is created until all other nodes have had time
 * to drop theirs. Otherwise an access meanwhile would restore it from a node that has not done so yet. `yes` false:
 * undo.
 */
void peer_replicas_abandon(struct peer_replicas *o, const uint8_t *store, uint64_t ino, bool yes);
bool peer_replicas_is_abandoned(struct peer_replicas *o, const uint8_t *store, uint64_t ino);

/* Drop a replica: true if that succeeded. */
bool peer_replica_drop(struct fs *fs, uint64_t top, const struct ns_replica *c);
