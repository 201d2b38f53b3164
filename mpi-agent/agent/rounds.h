/*
 * Rounds, as one node sees them. Rank 0 starts them at the request of a daemon; everything else is collective. Nothing
 * blocks.
 *
 *          BEGIN             OFFER, or time is up     lookups, or time is up           merged, decided         STORED, or time is up         owners known
 *   IDLE ─────────▶ OFFERING ──────────────────▶ ASKING ──────────────────────────▶ REDUCING ─────────▶ STORING ─────────────────────▶ GATHERING ───────────▶ IDLE
 *      to the daemon                                                                           DECISION                                            SETTLED
 *
 * Between two of them nodes may collect together (collects.h): rounds_hold() leads from IDLE to HELD, where none
 * begins, and back.
 *
 * A daemon that does not answer in time counts as having offered nothing, or not stored: that costs space elsewhere,
 * and never data. Its late messages are answered so that it does not wait: nothing is decided, no node has stored. An
 * agent that has lost its daemon takes part like one with an unresponsive daemon.
 *
 * The reduction is done with a sample first, the SAMPLE_MAX lowest fingerprints of each node, of which all nodes have
 * the same part. If nothing in it is on two nodes, little can be in all there is, and that was it; if all there is fits
 * into it, too. Else all is reduced, as far as memory allows: docs/cluster.md.
 *
 * The results of rounds are cached as long as the agents run: a node that has confirmed storing a page has durably
 * pinned it. Pages offered later, on any node, are decided by that. A page that enough hosts have does not enter the
 * reduction; if fewer have it, it does, with these hosts, and one more of the offering nodes becomes an owner. Pages
 * that are not cached are looked up on other nodes (lookups.h), which pin them. Caches may differ between nodes: a page
 * that is missing in one is stored once more.
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

/* Messages of the daemon. -EBADMSG: malformed; -ENOMEM, -EIO: fatal. */
int rounds_want(struct rounds *rs);
int rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_pinned(struct rounds *rs, uint64_t number, const void *body, size_t len);
int rounds_announce(struct rounds *rs, const void *body, size_t len);
/* Messages of other nodes. */
int rounds_peer_want(struct rounds *rs, uint64_t number);
int rounds_peer_begin(struct rounds *rs, uint64_t number);
int rounds_peer_page(struct rounds *rs, const struct peer_header *h, const void *body, size_t len); /* of lookups.h */
/* No more are begun. */
void rounds_end(struct rounds *rs);
/*
 * Clears the caches: pages may be unpinned from now on. On all nodes, while no round is in progress on any of them that
 * may have used the caches.
 */
void rounds_forget(struct rounds *rs);

/* Called repeatedly. 1: made progress; 0; -ETIMEDOUT: other nodes do not respond; -ENOMEM, -EIO: fatal. */
int rounds_progress(struct rounds *rs, uint64_t now_ns);
/* No more begin until they may again. Only if rounds_idle(). */
void rounds_hold(struct rounds *rs, bool hold);
bool rounds_wanted(const struct rounds *rs); /* rank 0: another one would begin */
bool rounds_gathering(const struct rounds *rs); /* all that is missing is what others have stored */
bool rounds_idle(const struct rounds *rs);
bool rounds_are_urgent(const struct rounds *rs); /* a daemon waits for messages of other agents */
/* Round back-off: the last rounds have found nothing in common, so no wait is likely. */
bool rounds_are_backed_off(const struct rounds *rs);
/* How long MPI, which progresses only when it is called, may be left alone if no message has arrived for quiet_ns;
 * longer with `is_backed_off`, when no wait is likely */
uint64_t rounds_nap_ns(const struct rounds *rs, uint64_t quiet_ns, bool is_backed_off);
const struct rounds_figures *rounds_figures(struct rounds *rs);
const struct lookups_figures *rounds_lookups(struct rounds *rs);
