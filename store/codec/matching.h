/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Codes the frames of a variable with repetitions removed (match.h), where that pays: some frames are coded both ways,
 * and the caller reports the results. The decision holds for the following frames; each time it did not pay, for more
 * of them. Belongs to one thread.
 */
#pragma once

#include "store/codec/coding.h"
#include "store/codec/match.h"

#define MATCHING_ROOM (MATCH_PARTS * MATCH_PART + CODE_BLOCK_MAX(MATCH_PART))

struct matching {
	struct match *match; /* NULL: not for this type */
	struct coding rest; /* for left-over elements */
	struct code_type type;
	bool guess; /* untyped bytes */
	double budget; /* ns per byte; <= 0: any */
	bool pays;
	unsigned wait, last_wait; /* frames until both ways are tried again */
	uint64_t trial_ns; /* of trials of `rest`, before the frame that is coded both ways */
	struct {
		uint64_t plain, alone, matched, ns;
	} tried; /* since the last decision: short frames are not significant */
	uint8_t *room; /* for the block of left-over elements */
};

enum matching_turn {
	MATCHING_NOT,
	MATCHING_BOTH, /* and report by matching_record() */
	MATCHING_ONLY,
};

/* Like coding_init(). Never pays for variables that are neither untyped bytes nor have 8-byte elements. */
int matching_init(struct matching *m, struct code_work *work, const struct coding_shape *shape, double budget,
		  uint64_t (*cpu_ns)(void));
void matching_release(struct matching *m);
/* How to code the next frame. */
enum matching_turn matching_next(struct matching *m);
/*
 * Code the parts of a frame to `ret`, which has MATCHING_ROOM. Returns the total length, the end of each part, and its
 * base (0: none). A part that does not shrink is stored uncoded. leads: as in match_look(). 0: too little repeats;
 * -ENOMEM.
 */
int matching_frame(struct matching *m, const uint8_t *frame, uint32_t len, const uint32_t *leads, uint8_t *ret,
		   uint32_t *ret_end, uint32_t *ret_base);
/* Report a frame that was coded both ways: plain bytes, coded bytes, and the time of the second way. Trials of coders for
 * what is left over, which have a budget of their own, do not count. */
void matching_record(struct matching *m, uint64_t plain, uint64_t alone, uint64_t matched, uint64_t ns);
/* How left-over elements are coded. */
struct coder_spec matching_chosen(const struct matching *m);
