/*
 * Coding the frames of a variable with what repeats in each taken out (match.h), where that pays: some frames are coded
 * both ways, and who codes tells what came of it. What is said then holds for the next frames; where it did not pay,
 * for more of them each time. Belongs to one thread.
 */
#pragma once

#include "store/code/coding.h"
#include "store/code/match.h"

#define MATCHING_ROOM (MATCH_PARTS * MATCH_PART + CODE_BLOCK_MAX(MATCH_PART))

struct matching {
	struct match *match; /* NULL: not with this type */
	struct coding rest; /* of what is left */
	struct code_type type;
	bool guess; /* nothing is known of the bytes */
	double budget; /* ns per byte; <= 0: any */
	bool pays;
	unsigned wait, last_wait; /* frames until both ways are tried again */
	struct {
		uint64_t plain, alone, matched, ns;
	} tried; /* since that was decided: short frames say too little */
	uint8_t *room; /* for the block of what is left */
};

enum matching_turn {
	MATCHING_NOT,
	MATCHING_BOTH, /* and matching_tell() */
	MATCHING_ONLY,
};

/* As coding_init(); of variables whose elements have not 8 bytes, and which are not just bytes, it never pays. */
int matching_init(struct matching *m, struct code_work *work, const struct coding_shape *shape, double budget,
		  uint64_t (*cpu_ns)(void));
void matching_release(struct matching *m);
/* What to do with the next frame. */
enum matching_turn matching_next(struct matching *m);
/*
 * Codes the parts of a frame to `ret`, which has MATCHING_ROOM: bytes of all, where each ends, and where each has its
 * base (0: nowhere). A part that is no smaller is as it was. leads: as in match_look(). 0: too little repeats; -ENOMEM.
 */
int matching_frame(struct matching *m, const uint8_t *frame, uint32_t len, const uint32_t *leads, uint8_t *ret,
		   uint32_t *ret_end, uint32_t *ret_base);
/* Of a frame that was coded both ways: plain bytes, coded ones, and how long the second took. */
void matching_tell(struct matching *m, uint64_t plain, uint64_t alone, uint64_t matched, uint64_t ns);
/* What is left is coded in this way, and what repeats was taken out. */
struct coder_spec matching_chosen(const struct matching *m);
