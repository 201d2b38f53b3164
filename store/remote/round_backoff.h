/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Round back-off: how much of its new chunks a node offers to the next round (round_commit.c). Where nodes have nothing
 * in common a round costs time and memory and finds nothing.
 *
 * The rule: a commit has *little in common* if peers hold fewer than one in BACKOFF_PART of its chunks. After one such
 * commit the next ones offer a sample, their first 4 MiB, and the rest only if the sample has more in common. After
 * BACKOFF_AFTER such commits in a row, BACKOFF_SKIPPED commits offer nothing; then one offers a sample again. Chunks
 * that are not offered are announced to peers. If peers then report that they have stored the same, a back-off was
 * wrong: everything is offered again, and BACKOFF_AFTER doubles until a back-off ends without such a report.
 *
 *              little in common                BACKOFF_AFTER times in a row
 *   OFFER_ALL ──────────────────▶ OFFER_SAMPLE ────────────────────────────▶ OFFER_NOTHING
 *       ▲                           │   ▲                                       │    │
 *       │                           │   └───────── BACKOFF_SKIPPED commits ─────┘    │
 *       └──── more in common ───────┴──────────────── a report of peers ─────────────┘
 *
 * A sample that has little in common sets OFFER_NOTHING for the rest of its commit. Chunks after the sample are
 * deferred until it is decided, except in the commit that would complete the row: there they are written meanwhile.
 *
 * Data that nodes have in common only beyond the sample, or during a back-off, is stored once per node, but not in
 * every commit. The caller serializes access to struct backoff.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

enum backoff_state { OFFER_ALL, OFFER_SAMPLE, OFFER_NOTHING };

#define BACKOFF_PART 256u
#define BACKOFF_PAGES \
	1024u /* smaller commits are judged together: as many as the sample of a round holds of each node */
#define BACKOFF_SAMPLE_FRAMES 4u /* hold BACKOFF_PAGES pages of 4 KiB and are worth a round */
#define BACKOFF_FRAMES 2u /* suffice as a sample if another node has started the round */
#define BACKOFF_AFTER 3u /* the first of these commits was offered as a whole */
#define BACKOFF_SKIPPED 16u /* the cost of one round in 16 is below what can be measured */
#define BACKOFF_DOUBLED_MAX 4u /* BACKOFF_AFTER becomes at most 48 */
#define BACKOFF_UNANNOUNCED_MAX (1u << 18) /* fingerprints: 4 MiB */

struct backoff {
	enum backoff_state state;
	uint64_t nr_offered, nr_found; /* chunks since the last judgement; those of them that peers hold */
	uint64_t nr_written; /* chunks written without a round since then */
	unsigned nr_little; /* judged commits in a row with little in common, back-offs included */
	unsigned nr_doubled; /* times that BACKOFF_AFTER is doubled */
	struct fp *unannounced; /* written without a round, unordered */
	size_t nr_unannounced, size_unannounced;
};

void backoff_release(struct backoff *b);
/* A round on `nr_frames` frames was decided. true: write the deferred frames now. */
bool backoff_decided(struct backoff *b, size_t nr_frames, size_t nr_offered, size_t nr_found);
void backoff_committed(struct backoff *b);
/* Peers report that they have stored some of the chunks that were written without a round. */
void backoff_reported(struct backoff *b);
/* The set of peers has changed, or they have restarted without state: offer chunks again. */
void backoff_peers_changed(struct backoff *b);
/* Are commits without a round in progress? */
bool backoff_is_on(const struct backoff *b);
/* Would this sample complete the row? Then chunks after it are not deferred. */
bool backoff_is_last_sample(const struct backoff *b);
/* Records a chunk written without a round, for announcement; dropped on ENOMEM. */
void backoff_add_written(struct backoff *b, struct fp fp);
/* Moves the list of fingerprints to announce to the caller, which frees it. */
size_t backoff_take_unannounced(struct backoff *b, struct fp **ret);
