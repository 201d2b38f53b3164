/*
 * A round as one node sees it (cluster.h): what becomes of each chunk that it has offered. Pure.
 *
 *   offered ─┬─ nobody else offers it ─────────────────────────────────▶ WRITE
 *            ├─ this node is one of those who are to store it ─────────▶ LEND
 *            └─ others are ─▶ AWAIT ─┬─ all of them say that they have ▶ ELSEWHERE
 *                                    └─ one does not, or nobody knows ─▶ WRITE
 *
 * An owner may have a chunk since before this round, durable and lent: it need not say so again. Without an end of the
 * round it is not believed either, nor with one that does not count this node among those who have stored: that round
 * was over before this node had, nodes may have collected together since (together.c), and nobody has marked for it
 * what it was about to refer to.
 *
 * round_decide() takes the first step, round_settle() the second; without a decision all are WRITE. What makes it safe
 * is the order that the caller keeps:
 *   1. what is WRITE or LEND is durable, and the notes that the latter is lent are, too, before this node says that it
 *      has stored;
 *   2. nothing refers to a chunk as being elsewhere before round_settle() has said so.
 * Thus at each moment each reference to another node is younger than the note there that forbids giving the chunk up. A
 * node that does not hear of the end, or dies, leaves chunks lent that nobody refers to: space, not bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/engine/cluster.h"

enum round_fate {
	ROUND_WRITE, /* here, as if there were no cluster */
	ROUND_LEND, /* here, and others rely on it */
	ROUND_AWAIT, /* held until the round is settled */
	ROUND_ELSEWHERE, /* not here */
};

/*
 * `fates`: one enum round_fate for each of the chunks offered, as a byte. `self`: the store's id. -EBADMSG: no decision
 * on this offer, all are ROUND_WRITE (numbers out of order or out of range, another node than this one, two nodes that
 * are the same).
 */
int round_decide(const struct cluster_decision *d, const uint8_t self[CLUSTER_ID_LEN], size_t nr_offered, uint8_t *fates);
/* has_stored[node], of this one, too, which has; NULL: nobody knows. No ROUND_AWAIT is left. */
void round_settle(const struct cluster_decision *d, const bool *has_stored, size_t nr_offered, uint8_t *fates);
