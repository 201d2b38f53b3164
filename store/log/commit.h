/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Commits beyond engine_sync(), which engine.h has.
 *
 * Up to two of the threads that want a commit lead it, one half each, or one leads all of a small one. An idle leader
 * waits and holds nothing. A worker may run the first half for a caller that will want a commit, and sync packs for a
 * leader that syncs the journal. An fsync or a synchronous write does not wait: the
 * thread that ends the commit, or the last job that it needs, continues and answers it (engine_sync_then()). A waiting
 * request holds no lock and no thread.
 */
#pragma once

struct buf;
struct engine;
struct pack_marks;

int commit_frames(struct engine *e, struct pack_marks *ret); /* make all existing frames durable, without the log */
/* Commit notes as a separate journal group. `marks`: those of a sync in progress, which the caller runs; NULL: those of
 * the last completed sync. */
int commit_notes(struct engine *e, const struct pack_marks *marks, const struct buf *records);
void commit_open(struct engine *e, const struct pack_marks *marks); /* at open: the last commit ended at these */
void commit_marks(struct engine *e, struct pack_marks *ret); /* pack ends at the last commit */
void commit_durable(struct engine *e, struct pack_marks *ret); /* everything before these is on disk */
/* If the last group is that of a joint commit (joint.c), append a group that proves that it was complete. */
void commit_confirm(struct engine *e);
/* The first half of a commit, unless it is already running, so that the next commit has less to do. */
void commit_begin(struct engine *e);
int engine_sync_patiently(struct engine *e); /* engine_sync() without urgency: there is time to compress */
