/*
 * Single duplicates: pages that one node alone has stored in an earlier round, and that another one offers now. Each
 * page has a *home*, a node that follows from its fingerprint.
 *
 *   after a round     TELL: what this node has stored, and no other, to the homes of these pages, which remember it as far as memory goes
 *   in the next       ASK ──▶ home ──▶ FOUND      who may have the pages that nothing is known of here
 *                     LEND ─▶ holder ─▶ LENT      its daemon looks, and notes, durably, that others rely on it
 *
 * A home that is told of a page by two nodes says so to both (TWICE), if it is more than a few: they store the same,
 * and would better find that out in a round.
 *
 * Only what LENT says counts: that a home remembers is a hint. A node that does not answer in time, or has it no
 * longer: the page is as if nobody had it. What is lent, and by then not wanted any more, stays lent: space, not bytes.
 * One look-up is under way at a time, of LOOKUPS_MAX pages at most.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fp;
struct holders;
struct link;
struct lookups;
struct peer_header;
struct peers;
struct waits;
struct world;

#define LOOKUPS_MAX (1u << 18) /* 4 MiB of fingerprints, and as much of answers */
#define LOOKUPS_TWICE_PART 256u /* of what a node tells, less than one page of so many is not worth a word */

struct lookups_figures {
	uint64_t asked; /* pages that homes were asked about */
	uint64_t found; /* of these, that were lent to this node */
	uint64_t told; /* pages that homes were told of */
	uint64_t lent; /* pages of this node for others; one that several asked for is counted for each */
	uint64_t known; /* pages that this node is home of and remembers */
};

/* Borrows all of these. `remember`: bytes. */
int lookups_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits, size_t remember,
		struct lookups **ret);
void lookups_free(struct lookups *ls); /* NULL is fine */
void lookups_forget(struct lookups *ls); /* all that homes were told */

/*
 * Pages, ascending, of which had[i] is empty: borrowed until lookups_progress() has returned 1, or lookups_stop().
 * Holders on different hosts that have lent a page are added. -ENOMEM, -EIO
 */
int lookups_begin(struct lookups *ls, uint64_t round, const struct fp *pages, struct holders *had, uint32_t nr);
int lookups_progress(struct lookups *ls, uint64_t now_ns); /* 1: no more is to come; 0; <0 */
void lookups_stop(struct lookups *ls);
/* This node has these: pages, in any order. */
int lookups_tell(struct lookups *ls, uint64_t round, const struct fp *pages, uint32_t nr);
/* What other nodes have told, if nobody is likely to be kept from anything by that (homes.h). -ENOMEM, -EIO */
int lookups_note(struct lookups *ls, uint64_t now_ns);

/* What other nodes say: ASK, FOUND, TELL, TWICE, LEND, LENT. -EBADMSG: what cannot be. */
int lookups_hear(struct lookups *ls, const struct peer_header *h, const void *body, size_t len);
/* The daemon's LENT. */
int lookups_lent(struct lookups *ls, uint64_t number, const void *body, size_t len);
const struct lookups_figures *lookups_figures(struct lookups *ls);
