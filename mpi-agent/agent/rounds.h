/*
 * Rounds, as one node sees them. Rank 0 begins them, when a daemon wants one; all else is collective, and none of it
 * blocks.
 *
 *          BEGIN             OFFER, or time is up     what is known, or time is up     merged, decided         STORED, or time is up         who has stored
 *   IDLE ─────────▶ OFFERING ──────────────────▶ ASKING ──────────────────────────▶ REDUCING ─────────▶ STORING ─────────────────────▶ GATHERING ───────────▶ IDLE
 *      to the daemon                                                                           DECISION                                            SETTLED
 *
 * Between two of them nodes may collect together (collects.h): rounds_hold() leads from IDLE to HELD, where none
 * begins, and back.
 *
 * A daemon that does not answer in time has offered nothing, or has not stored: that costs space elsewhere, and never
 * bytes. What it says later is answered so that it does not wait: nothing is decided, nobody has stored. A node without
 * a daemon, at the end of the world, takes part like one that does not answer.
 *
 * The reduction is done with a sample first, the SAMPLE_MAX lowest fingerprints of each node, of which all nodes have
 * the same part. If nothing in it is on two nodes, little can be in all there is, and that was it; if all there is fits
 * into it, too. Else all is reduced, as far as memory allows: docs/cluster.md.
 *
 * What rounds have settled is remembered, for as long as this world lasts: who has said that it has stored a page has
 * noted, durably, that others rely on it, and will not give it up. So a page that comes later, on any node, is decided
 * by that. If as many hosts have it as there are to be, it does not even enter the reduction; if fewer have it, it
 * does, with those that do, and one more of those that offer it becomes an owner. What a node does not remember it asks
 * others about (lookups.h), which lend it. Nodes need not remember the same: a page that one of them knows nothing of
 * is stored once more.
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
	/* bytes for what is remembered: half of them for what rounds have settled, the others for who has stored what
	 * alone */
	size_t remember;
	bool lookup; /* other nodes are asked, and told */
};

struct lookups_figures;
struct peer_header;

struct rounds_figures {
	uint64_t nr; /* that have ended */
	uint64_t unanswered; /* of these, without pages of the daemon, or without a word that they are stored */
	uint64_t failed; /* that decided nothing: an error on some node */
	uint64_t offered; /* pages of this node */
	uint64_t popular, popular_last; /* pages that were on several nodes: in all rounds, and in the last */
	uint64_t shared; /* pages of this node among these */
	uint64_t message_bytes; /* of one message of the last reduction */
	uint64_t remembered; /* pages of this node that enough others were known to have */
	uint64_t known; /* pages that are, now */
	/* Nanoseconds of all rounds, as this node saw them: for the offer, for look-ups, for the reduction, for its
	 * daemon to store, and until all have. */
	uint64_t offering_ns, asking_ns, reducing_ns, storing_ns, gathering_ns;
};

/* Borrows all of these. `daemon` has fd -1 once it is gone. */
int rounds_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
	       const struct rounds_conf *conf, struct rounds **ret);
void rounds_free(struct rounds *rs); /* NULL is fine */

/* What the daemon says. -EBADMSG: what cannot be; -ENOMEM, -EIO: the end. */
int rounds_want(struct rounds *rs);
int rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_lent(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_tell(struct rounds *rs, const void *body, size_t len);
/* What other nodes say. */
int rounds_peer_want(struct rounds *rs, uint64_t number);
int rounds_peer_begin(struct rounds *rs, uint64_t number);
int rounds_peer_page(struct rounds *rs, const struct peer_header *h, const void *body, size_t len); /* of lookups.h */
/* No more are begun. */
void rounds_end(struct rounds *rs);
/*
 * All that is remembered is forgotten: what is lent may be given up from now on. On all nodes, and no round may be
 * under way on any of them, which may have been decided by it.
 */
void rounds_forget(struct rounds *rs);

/* Called again and again. 1: something has happened; 0; -ETIMEDOUT: others do not take part; -ENOMEM, -EIO: this cannot
 * go on. */
int rounds_progress(struct rounds *rs, uint64_t now_ns);
/* No more begin until they may again. Only if rounds_idle(). */
void rounds_hold(struct rounds *rs, bool hold);
bool rounds_wanted(const struct rounds *rs); /* rank 0: another one would begin */
bool rounds_gathering(const struct rounds *rs); /* all that is missing is what others have stored */
bool rounds_idle(const struct rounds *rs);
bool rounds_are_urgent(const struct rounds *rs); /* somebody waits for what other agents are about to say */
/* Nobody is likely to wait for anything: the last rounds have found nothing in common. */
bool rounds_are_alone(const struct rounds *rs);
/* MPI, which goes on only when it is called, is to be looked after again after that, if no node has said anything for
 * so long; longer if nobody is likely to wait for anything, `is_alone` */
uint64_t rounds_nap_ns(const struct rounds *rs, uint64_t quiet_ns, bool is_alone);
const struct rounds_figures *rounds_figures(struct rounds *rs);
const struct lookups_figures *rounds_lookups(struct rounds *rs);
