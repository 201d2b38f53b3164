/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sealed directories of permanently lost nodes. Other nodes have replicas (mpi-agent/daemon/replica/replica.h), and the
 * directory can no longer be unsealed on its own node. So the users that could have unsealed it there may do so here.
 */
#pragma once

#include <stdint.h>

struct buf;
struct fs;
struct cred;

/*
 * Drop the replicas of all connected nodes that are of the same directory as the one with this top, this node's last.
 * The next garbage collections free the unreferenced chunks. *node is the name of the owning node; or, if another node
 * has not confirmed, the name of that one.
 *
 *   -EROFS       not the top of a replica
 *   -EPERM       the caller is neither its owner nor root
 *   -EBUSY       the owning node is connected and can unseal it
 *   -EHOSTDOWN   this node, or another one, has no record that the owner is lost for good (protect_forget())
 *   -ENOLINK     no agent is connected, so other replicas would remain
 *   -EAGAIN      another one is being abandoned; only one request may occupy a thread for this
 *   -EREMOTEIO, -ETIMEDOUT
 *                another node has not confirmed; the replica stays visible here, but that node may still drop its own
 */
int abandon_replica(struct fs *fs, uint64_t top, const struct cred *cred, struct buf *node);
