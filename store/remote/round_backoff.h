/*
 * Round back-off: decides whether deferring new chunks for a round (round_commit.c) pays off. Where nodes have nothing
 * in common a round costs time and memory and finds nothing.
 *
 *          few chunks of a commit        a round on the first                       the commit
 *          were found on peers           frames has found few
 *   SHARING ───────────────────▶ PROBING ──────────────────────▶ LETTING_GO ────────▶ PROBING; after three such
 *      ▲                            │                                 │               commits LETTING_GO again
 *      └── a round has found more, ─┴── or peers announce that they ──┘
 *                                       have stored the same
 *
 * SHARING: every chunk is deferred until a round has decided. PROBING: likewise, but a round is requested as soon as
 * the sample is large enough; if this commit would complete the record (ALONE_RECORD), only the sample is deferred.
 * LETTING_GO: deferred chunks, and all chunks until the commit, are written at once without a round. They are announced
 * to peers afterwards. Peers answer if other nodes have announced the same chunks, so data that nodes have in common
 * only beyond the first frames is stored once per node, but not in every commit.
 *
 * After ALONE_RECORD commits with few common chunks, the next ALONE_UNASKED commits skip rounds from their first page
 * on; then one commit probes again. Meanwhile only announcements can detect common data. Each time they do, the record
 * required before the next back-off doubles. ALONE_UNASKED commits without a detection halve it again.
 *
 * The caller serializes access to struct alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

enum alone_state { ALONE_SHARING, ALONE_PROBING, ALONE_LETTING_GO };

#define ALONE_PART 256u /* "few": fewer than one page in 256 is on peers */
#define ALONE_PAGES 1024u /* minimum pages per judgement: as many as the sample of a round holds of each node */
#define ALONE_PROBE_FRAMES 4u /* hold ALONE_PAGES pages of 4 KiB and are worth a round */
#define ALONE_FRAMES 2u /* suffice as a probe if another node has started the round */
#define ALONE_RECORD 3u /* commits before rounds are skipped; the first of them was offered as a whole */
#define ALONE_UNASKED 16u /* commits without a round: the cost of one round in 16 is below what can be measured */
#define ALONE_FOUND_OUT_MAX 4u /* ALONE_RECORD doubles at most 4 times */
#define ALONE_UNTOLD_MAX (1u << 18) /* fingerprints to announce, at most: 4 MiB */

struct alone {
	enum alone_state state;
	/* pages offered to rounds since the last judgement; those of them that peers hold */
	uint64_t nr_asked, nr_found;
	uint64_t nr_unasked; /* pages written without a round since then */
	unsigned nr_little; /* consecutive commits of ALONE_PAGES or more pages with few common chunks */
	unsigned nr_found_out; /* times that announcements detected common data during back-off */
	struct fp *untold; /* written without a round and not announced yet, unordered */
	size_t nr_untold, size_untold;
};

void alone_release(struct alone *a);
/* A round on `nr_frames` frames was decided. true: write the deferred frames now. */
bool alone_decided(struct alone *a, size_t nr_frames, size_t nr_offered, size_t nr_found);
void alone_committed(struct alone *a);
/* Peers have stored some of the chunks that were written without a round. */
void alone_found_out(struct alone *a);
/* The set of peers has changed, or they have restarted without state: offer chunks again. */
void alone_met(struct alone *a);
/* Back-off is in effect: as far as is known, peers hold nothing of the chunks written, and rounds are skipped. */
bool alone_is_believed(const struct alone *a);
/* Back-off takes effect if this probe finds as little as the last ones: chunks after the sample are not deferred. */
bool alone_is_confirming(const struct alone *a);
/* Records a chunk written without a round, for announcement; dropped on ENOMEM. */
void alone_wrote(struct alone *a, struct fp fp);
/* Moves the list of fingerprints to announce to the caller, which frees it. */
size_t alone_take_untold(struct alone *a, struct fp **ret);
