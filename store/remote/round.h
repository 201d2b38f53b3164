/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decisions of a round on one node (cluster_calls.h): the fate of each chunk that the node has offered. Pure functions.
 *
 *   offered ─┬─ no peer offers it ─────────────────────────────────────▶ WRITE
 *            ├─ this node is one of the assigned owners ───────────────▶ PIN
 *            └─ peers are ──▶ AWAIT ─┬─ all owners have stored it ─────▶ REMOTE
 *                                    └─ one has not, or end unknown ───▶ WRITE
 *
 * An owner may hold a chunk since before this round, durable and pinned; it need not confirm it again. If the end of
 * the round does not arrive, even such an owner is not relied on. The same holds if the end does not list this node
 * among those that have stored: that round was over before this node had stored. Nodes may have run a cluster
 * collection since (cluster_gc.c), in which this node did not mark the chunks that it was about to refer to.
 *
 * round_decide() takes the first step, round_settle() the second; without a decision all chunks are WRITE. Safety
 * depends on the order that the caller keeps:
 *   1. WRITE and PIN chunks, and the pin records of the latter, are durable before this node reports that it has
 *      stored its share;
 *   2. nothing refers to a chunk as remote before round_settle() has returned ROUND_REMOTE for it.
 * So every reference to another node is younger than the pin there that keeps the chunk from being freed. A node that
 * misses the end of a round, or crashes, leaves chunks pinned that no node refers to. This costs space, not data.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/remote/cluster_calls.h"

enum round_fate {
	ROUND_WRITE, /* stored here, as without a cluster */
	ROUND_PIN, /* stored here and pinned: peers refer to it */
	ROUND_AWAIT, /* deferred until the round is settled */
	ROUND_REMOTE, /* remote */
};

/*
 * `fates`: one byte (enum round_fate) per offered chunk. `self`: the id of this store. -EBADMSG: the decision does not
 * match the offer (indices out of order or out of range, wrong `self`, another node with this id); all chunks are then
 * ROUND_WRITE.
 */
int round_decide(const struct cluster_decision *d, const uint8_t self[CLUSTER_ID_LEN], size_t nr_offered, uint8_t *fates);
/* has_stored[node], including this node; NULL: the end of the round is unknown. Leaves no ROUND_AWAIT. */
void round_settle(const struct cluster_decision *d, const bool *has_stored, size_t nr_offered, uint8_t *fates);
