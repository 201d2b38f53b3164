/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Writing the view, and snapshots of it to the journal. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"

struct db;
struct db_batch;
struct db_snapshot;
struct engine;
struct journal_snapshot;
struct pack_marks;
struct log_view;

struct log_view *log_view_new(void); /* NULL: -ENOMEM */
void log_view_free(struct log_view *v); /* NULL is fine */

/*
 * The lock of the view (docs/locking.md). Every change of the logged state, with its record in the log, is made under
 * the shared lock. The exclusive lock keeps them out while the view is cut. Never wait for a job while holding it: the
 * job needs it to finish.
 */
extern struct hidden_lock view_lock;
void view_lock_shared(struct engine *e) ACQUIRE_SHARED(view_lock);
void view_unlock_shared(struct engine *e) RELEASE_SHARED(view_lock);
void view_lock_exclusive(struct engine *e) ACQUIRE(view_lock);
void view_unlock_exclusive(struct engine *e) RELEASE(view_lock);

uint64_t view_layers_end(struct engine *e); /* lowest unused layer number; view_lock exclusive */
uint64_t view_number_layer(struct engine *e); /* for the writer of the view alone: takes the lowest unused number */
#define LAYERS_NOTE "layers"
int view_flush(struct engine *e, bool snapshot);
int view_put_position(struct db_batch *batch, struct engine *e, uint64_t number, const struct pack_marks *marks);
/* Write the contents of a journal snapshot, from a pinned state or, if NULL, from the current one. */
int view_write_state(struct db *db, const struct db_snapshot *state, const struct pack_marks *marks,
		     struct journal_snapshot *s);
bool view_wants_flush(struct engine *e);
/*
 * For changes that are small in the log but large in the view, after log_admit_growth(). Bounds the data waiting for
 * the view and checks that the disk has room for it; otherwise a collection could not start. May write the view out: no
 * lock held.
 */
int view_admit_growth(struct engine *e);
int view_bound_memory(struct engine *e); /* the same without the check of the disk, for deletions */
bool view_wants_snapshot(struct engine *e);
