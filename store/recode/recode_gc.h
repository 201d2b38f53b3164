/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Keeps chunks of coded frames coded when the collector copies them: each part is coded like the block that its first
 * chunk lies in. For gc_move.c. No coding is chosen again, so this costs little more than reading. A part coded against
 * other chunks of its frame is coded so again if these are live, else by itself. Repeats within a frame are removed
 * again from what is left of it.
 */
#pragma once

#include "store/codec/matching.h"
#include "store/gc/gc_copy.h"

struct gc_recode {
	struct code_work *work; /* NULL: not needed so far */
	uint8_t *stored, *base; /* a coded frame; the base of a part, or a block of it */
	bool based; /* the last frame had bases */
	struct matching matching; /* for frames with repeats removed; zeros: not needed so far */
};

void gc_recode_release(struct gc_recode *r); /* zeros are fine */
/* Adds those of these chunks of a frame that are not freed, as many as fit. They share frames with chunks that were
 * stored in the same way; chunks of a frame with bases get a frame of their own. */
int gc_recode_add(struct gc_recode *r, struct gc_copy *c, const struct pack_frame_rec *rec, const struct gc_bits *chunks);
