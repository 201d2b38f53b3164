/*
 * Chunks of coded frames, stored once more, stay coded: each part in the way of the block that its first chunk lies in.
 * For gc_move.c. Nothing is chosen anew, so it costs little more than reading. What is coded against other chunks of
 * its frame is so again, if these are live; else it is coded by itself. What repeats in a frame is taken out of what is
 * left of it.
 */
#pragma once

#include "store/code/matching.h"
#include "store/engine/gc_copy.h"

struct gc_recode {
	struct code_work *work; /* NULL: not needed so far */
	uint8_t *stored, *base; /* a frame as coded; what a part is coded against, or a block of it */
	bool based; /* the last frame had bases */
	struct matching matching; /* for frames without what repeated in them; of zeros: not needed so far */
};

void gc_recode_release(struct gc_recode *r); /* of zeros, too */
/* From the next chunk on, those of coded frames come, or others; what has been added before goes to a frame of its own.
 * `based`: those of one frame that has bases, and then they go to one. */
int gc_recode_switch(struct gc_recode *r, struct gc_copy *c, bool coded, bool based);
