/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The frames that jobs share: one for a few new pages, one for chunks cut by content.
 *
 *   open ─ full, or a commit ─▶ being written ─▶ written
 *                                     └─ failed ─▶ unwritten ─ a commit, or too many ─▶ being written
 *
 * Chunks are copied into them, so a chunk can be read and shared before its frame is written, and after a failed write.
 */
#pragma once

#include "store/dedup/dedup.h"

/* A frame that takes chunk i. The one before, if it had no room, is added to `full`: the caller writes it later. */
int small_frame_for(struct engine *e, const struct batch *b, unsigned i, struct pack_frame **full, unsigned *nr_full,
		    struct pack_frame **ret) REQUIRES(append_lock);
void small_frame_write(struct engine *e, struct pack_frame *f); /* a failure is recorded; with no lock held */
/* Wait for room for another frame. The disk may accept by now what it refused before: one such frame is tried again.
 * Drops and retakes the lock. */
void small_frames_wait(struct engine *e) REQUIRES(append_lock);
/* The error of the last write, if there is still no room; else 0. */
int small_frames_refuse(const struct engine *e) REQUIRES(append_lock);
