/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The frames that jobs share: for a few new pages, and for chunks cut by content.
 *
 *   open ─ full, or a commit ─▶ being written ─▶ written
 *                                     └─ failed ─▶ unwritten ─ a commit, or too many ─▶ being written
 *
 * Chunks are copied into them, so a chunk can be read and shared before its frame is written, and after a failed write.
 * Several are open at once, so that jobs need not wait for each other (dedup_state.h).
 */
#pragma once

#include "store/dedup/dedup.h"

struct shared_frames;

/* Frames for one job at a time, until they are put back. */
struct shared_frames *shared_frames_take(struct engine *e) REQUIRES_SHARED(append_lock);
void shared_frames_put(struct shared_frames *s);
/* A frame that takes chunk i. The one before, if it had no room, is added to `full`: the caller writes it later. The
 * caller has taken `s`, or holds append_lock alone. */
int small_frame_for(struct engine *e, struct shared_frames *s, const struct batch *b, unsigned i,
		    struct pack_frame **full, unsigned *nr_full, struct pack_frame **ret) REQUIRES_SHARED(append_lock);
void small_frame_write(struct engine *e, struct pack_frame *f); /* a failure is recorded; with no lock held */
/* May two more frames fill up? Otherwise too many are being written, or could not be. */
bool small_frames_have_room(const struct engine *e);
/* Wait for room. The disk may accept by now what it refused before: one such frame is tried again. If there is still no
 * room, the error of the last write. With no lock held. */
int small_frames_wait(struct engine *e);
