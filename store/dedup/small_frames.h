/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The frames that jobs share: for a few new pages, and for chunks cut by content.
 *
 *   open ─ full, or a commit ─▶ being written ─▶ written
 *                                     └─ failed ─▶ unwritten ─ a commit, or too many ─▶ being written
 *
 * Chunks are copied into these frames, so a chunk can be read and shared before its frame is written, and after a failed
 * write. Several frames are open at a time, so that jobs do not contend for one lock (dedup_state.h).
 */
#pragma once

#include "store/dedup/dedup.h"

struct shared_frames;

/* Locks a set of shared frames for one job, until shared_frames_put(). */
struct shared_frames *shared_frames_take(struct engine *e) REQUIRES_SHARED(append_lock);
void shared_frames_put(struct shared_frames *s);
/* Returns a frame with room for chunk i. If the previous frame is full, adds it to `full`; the caller writes it later. The
 * caller has taken `s`, or holds append_lock exclusively. */
int small_frame_for(struct engine *e, struct shared_frames *s, const struct batch *b, unsigned i,
		    struct pack_frame **full, unsigned *nr_full, struct pack_frame **ret) REQUIRES_SHARED(append_lock);
void small_frame_write(struct engine *e, struct pack_frame *f); /* records a failure; call without locks */
/* Is there room for two more full frames? false: too many are being written, or their writes failed. */
bool small_frames_have_room(const struct engine *e);
/* Waits for room. Retries one failed write. If there is still no room, returns the error of the last write. Call without
 * locks. */
int small_frames_wait(struct engine *e);
