/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Gathers the sealed directories of N nodes on M of them (compact_group=). Nodes form groups. The first nodes of a
 * group gather (`gatherers`): they receive what the others have sealed (mpi-agent/daemon/replica/replica_send.h), and
 * the others then release their chunks. So the variables of all ranks of a group are in one store, and ckptfs-compact
 * --replicas encodes them together there.
 *
 *   1. The gathering nodes have everything: chunks, durable and pinned, and a replica
 *      (mpi-agent/daemon/replica/replica.h).                                          crash: it is sent again
 *   2. File by file, chunks of this node become remote, on the gathering nodes.       crash: the rest is released later
 * Chunks that other nodes use from here stay. protect.c records the locations.
 */
#pragma once

#include <stdint.h>

#include "store/remote/cluster_calls.h"

struct replica_target;
struct service_world;

/*
 * Choose the gathering nodes for this node: the first `replicas` nodes of its group, each on a host of its own. Groups
 * consist of `group` connected nodes in the order of ids; the last group includes the remainder. So all nodes reach the
 * same result without communication. Returns their number, and their indexes in the world; -EHOSTUNREACH: the group has
 * too few hosts. Pure.
 */
int gather_group_nodes(const struct service_world *w, uint32_t group, uint32_t replicas,
			 uint32_t ret[CLUSTER_OWNERS_MAX]);
/*
 * Step 2 for all files below `dir`. target->to is not used; target->goes_on is called. Long: waits for a gathering node
 * that is compacting. -EAGAIN: some chunks could not be released now; the others were. Other errors as
 * replica_send_directory().
 */
int gather_group_release(const struct replica_target *target, const uint32_t *gatherers, uint32_t nr, uint64_t dir,
			 struct cluster_released *sums);
