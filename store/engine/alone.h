/*
 * Is it worth holding new chunks back for a round (collective.c)? Where nodes have nothing in common it costs time and
 * memory, and finds nothing.
 *
 *          little of a commit was        a round about the first                    the commit
 *          found on other nodes          frames has found little
 *   SHARING ───────────────────▶ PROBING ──────────────────────▶ LETTING_GO ────────▶ PROBING; after three such
 *      ▲                            │                                 │               commits LETTING_GO again
 *      └── a round has found more, ─┴── or others say that they have ─┘
 *                                       stored the same
 *
 * SHARING: everything is held until a round has decided. PROBING: likewise, but a round is wanted as soon as there is
 * enough to tell by; and if enough commits are going to be believed with this one, only that is held. LETTING_GO: what
 * is held and what comes until the commit is written at once, and no round is about it. Other nodes are told of it
 * afterwards; they tell if they were told the same by others, so that what nodes have in common only behind the first
 * frames is stored by each of them once, and not for ever.
 *
 * After ALONE_RECORD commits of which little was found the next ALONE_UNASKED are let go from their first page on, and
 * then one is a probe again. What is told is all that finds out meanwhile; each time that it does, twice as many
 * commits are asked about before that is believed once more, until a probe has confirmed it.
 *
 * Whoever has a struct alone keeps others from it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

enum alone_state { ALONE_SHARING, ALONE_PROBING, ALONE_LETTING_GO };

#define ALONE_PART 256u /* fewer than one page of so many is with others */
#define ALONE_PAGES 1024u /* of commits, at least, to tell by: as many as the sample of a round has of each node */
#define ALONE_PROBE_FRAMES 4u /* which have as many, of 4 KiB, are worth a round, ... */
#define ALONE_FRAMES 2u /* and so many are enough if somebody else has wanted it */
#define ALONE_RECORD 3u /* commits, of which the first was asked about as a whole, before the next are not */
#define ALONE_UNASKED 16u /* commits: a round in as many is below what can be measured */
#define ALONE_FOUND_OUT_MAX 4u /* times that ALONE_RECORD is doubled */
#define ALONE_UNTOLD_MAX (1u << 18) /* more are not told: 4 MiB */

struct alone {
	enum alone_state state;
	/* pages that rounds were about since this was judged last; and of these, with others */
	uint64_t nr_asked, nr_found;
	uint64_t nr_unasked; /* and pages that were let go since then */
	unsigned nr_little; /* commits in a row, of ALONE_PAGES or more, of which little was found */
	unsigned nr_found_out; /* times that it was not so when nobody had asked */
	struct fp *untold; /* what was let go, in no order */
	size_t nr_untold, size_untold;
};

void alone_release(struct alone *a);
/* A round about so many frames has come to a decision. true: what is held is to be written now. */
bool alone_decided(struct alone *a, size_t nr_frames, size_t nr_offered, size_t nr_found);
void alone_committed(struct alone *a);
/* Others have stored some of what was let go. */
void alone_found_out(struct alone *a);
/* The nodes are others now, or the same and know nothing: they are asked. */
void alone_met(struct alone *a);
/* What is let go others do not have, by all that is known: nobody asks about it. */
bool alone_is_believed(const struct alone *a);
/* It will be, if this probe finds as little as the last ones: what comes behind it is let go meanwhile. */
bool alone_is_confirming(const struct alone *a);
/* It was let go. Without memory it is not told. */
void alone_wrote(struct alone *a, struct fp fp);
/* Takes what is to be told, for the caller to free. */
size_t alone_take_untold(struct alone *a, struct fp **ret);
