/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Rounds, as one node sees them. Rank 0 starts them at the request of a daemon; everything else is collective. Nothing
 * blocks.
 *
 *   IDLE ──▶ OFFERING ──▶ ASKING ──▶ REDUCING ──▶ STORING ──▶ GATHERING ──▶ IDLE
 *
 *   OFFERING    sends BEGIN to the daemon; ends with its OFFER, or a timeout
 *   ASKING      lookups; ends when all are answered, or with a timeout
 *   REDUCING    merges the offers of all nodes; ends with DECISION to the daemon
 *   STORING     ends with the daemon's STORED, or a timeout
 *   GATHERING   collects which nodes have stored their part; ends with SETTLED to the daemon
 *
 * All nodes may collect between two rounds (collects.h): rounds_hold() switches from IDLE to PAUSED, where no round
 * begins, and back.
 *
 * A daemon that does not answer in time counts as having offered nothing, or not stored: that costs space on other
 * nodes, and never data. Its late messages are answered so that it does not wait: no decision, no node has stored. An
 * agent that has lost its daemon takes part like one with an unresponsive daemon.
 *
 * A sample is reduced first: the SAMPLE_MAX lowest fingerprints of each node. If no page in it is on two nodes, few
 * others can be, and the round is decided; likewise if the sample contains all pages. Otherwise all pages are reduced,
 * as far as memory allows: docs/cluster.md.
 *
 * The results of rounds are cached as long as the agents run: a node that has confirmed storing a page has durably
 * pinned it. They decide pages that any node offers later. A page that enough hosts have does not enter the reduction.
 * A page on fewer hosts enters it together with them, and one of the offering nodes becomes another owner. Pages that
 * are not cached are looked up on other nodes (lookups.h), which pin them. Caches may differ between nodes: a page that
 * is missing in one is stored once more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct waits;
struct link;
struct peers;
struct rounds;
struct world;

struct rounds_conf {
	/* bytes of the caches: half of them for results of rounds, the others for announcements */
	size_t remember;
	bool lookup; /* look up pages on other nodes, and announce pages to them */
};

struct lookups_figures;
struct peer_header;

struct rounds_figures {
	uint64_t nr; /* ended rounds */
	uint64_t unanswered; /* of these, rounds without OFFER, or STORED, of the daemon */
	uint64_t failed; /* rounds without a decision: an error on some node */
	uint64_t offered; /* pages of this node */
	uint64_t popular, popular_last; /* pages that several nodes had: in all rounds, and in the last */
	uint64_t shared; /* offered pages that peers have as well */
	uint64_t message_bytes; /* of one message of the last reduction */
	uint64_t remembered; /* offered pages that enough peers had, according to the cache */
	uint64_t known; /* pages in the cache */
	/* Total time of all rounds on this node, by state. */
	uint64_t offering_ns, asking_ns, reducing_ns, storing_ns, gathering_ns;
};

/* Borrows all arguments. `daemon` has fd -1 once disconnected. */
int rounds_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
	       const struct rounds_conf *conf, struct rounds **ret);
void rounds_free(struct rounds *rs); /* NULL is fine */

/* Messages of the daemon. -EBADMSG: malformed; -ENOMEM, -EIO: fatal. */
int rounds_want(struct rounds *rs);
int rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_pinned(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_announce(struct rounds *rs, const void *body, size_t len);
/* Messages of other nodes. */
int rounds_peer_want(struct rounds *rs, uint64_t number);
int rounds_peer_begin(struct rounds *rs, uint64_t number);
int rounds_peer_page(struct rounds *rs, const struct peer_header *h, const void *body, size_t len);
/* Starts no more rounds. */
void rounds_end(struct rounds *rs);
/*
 * Clears the caches, since pages may be unpinned from now on. Called on all nodes, while no round that may have used
 * the caches is in progress on any of them.
 */
void rounds_forget(struct rounds *rs);

/* Called repeatedly. 1: made progress; 0; -ETIMEDOUT: other nodes do not respond; -ENOMEM, -EIO: fatal. */
int rounds_progress(struct rounds *rs, uint64_t now_ns);
/* No round begins while held. Only if rounds_idle(). */
void rounds_hold(struct rounds *rs, bool hold);
bool rounds_wanted(const struct rounds *rs); /* rank 0: another round is due */
bool rounds_gathering(const struct rounds *rs); /* only waits for the other nodes to store */
bool rounds_idle(const struct rounds *rs);
bool rounds_are_urgent(const struct rounds *rs); /* a daemon waits for messages of other agents */
/* Round back-off: the last rounds have found nothing in common, so no wait is likely. */
bool rounds_are_backed_off(const struct rounds *rs);
/* How long the agent may nap without calling MPI if no message has arrived for quiet_ns. Longer with `is_backed_off`,
 * when no wait is likely. */
uint64_t rounds_nap_ns(const struct rounds *rs, uint64_t quiet_ns, bool is_backed_off);
const struct rounds_figures *rounds_figures(struct rounds *rs);
const struct lookups_figures *rounds_lookups(struct rounds *rs);
