/*
 * Sealed directories of N nodes with M of them (compact_group=): nodes form groups, the first of a group are its
 * collectors, and get what the others have sealed (fs/push.h), which these let go then. So variables of all ranks of a
 * group are in one store, and ckptfs-compact --copies codes them together there.
 *
 *   1. the collectors have all of it: chunks, durable and lent, and a copy (fs/nodes.h)     crash: it is sent again
 *   2. file by file, this node's chunks are elsewhere from now on, with the collectors      crash: what is left goes the next time
 * Chunks that other nodes have from here stay. protect.c notes who has what.
 */
#pragma once

#include <stdint.h>

#include "store/engine/cluster.h"

struct push;
struct service_world;

/*
 * Who collects for this node: `replicas` nodes, each on a host of its own, the first of its group. Groups are of
 * `group` nodes in the order of ids, of those that take part; the last one has the rest, too. So all nodes come to the
 * same without talking. How many, of the world their numbers; -EHOSTUNREACH: the group has not as many hosts. Pure.
 */
int hand_over_collectors(const struct service_world *w, uint32_t group, uint32_t replicas,
			 uint32_t ret[CLUSTER_OWNERS_MAX]);
/*
 * Step 2, of all files below `dir`. p->to does not matter; p->goes_on is asked. Long: waits for a collector that
 * compacts. -EAGAIN: not all could be let go now; what could has been. Others as push_directory().
 */
int hand_over_let_go(const struct push *p, const uint32_t *collectors, uint32_t nr, uint64_t dir,
		     struct cluster_let_go *sums);
