/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Crash-safe moves of chunks. While one is in progress, a chunk has two copies. */
#pragma once

#include "store/engine_state.h"
#include "store/dedup/dedup_tables.h"

struct freed_totals;
struct move;

#define MOVING_NOTE "moving"
int moving_begin(struct engine *e); /* before the first copy; needs gc_lock, like those below. Costs a commit */
/* Redirect all files to the copies and release the original places. Sorts `m`. Adds the released totals to *ret.
 * Success ends the move; after a failure call moving_abort(). */
int moving_complete(struct engine *e, struct move *m, size_t nr, struct freed_totals *ret);
void moving_abort(struct engine *e); /* copies may exist */
void moving_finish(struct engine *e); /* finish a move interrupted by a crash; at open only */
int moving_load(struct engine *e); /* at open only */
bool moving_is_on(const struct engine *e); /* chunks may have two copies: absorb nothing. append_lock, or at open */
const struct pack_marks *moving_marks(const struct engine *e); /* of the note found at open */
/* Check a chunk that lies beyond the marks of the note: if it is known at another place, it is a copy. */
int moving_find(struct engine *e, struct fp fp, struct addr a, uint32_t len) REQUIRES(append_lock);

/* moves_release.c */
/* Release the old places of sorted moves; is_shared: the result of remote_hooks.carry(). The caller commits after the
 * first call, then makes the second. */
int release_moved(struct engine *e, const struct move *m, size_t nr, bool is_shared, struct freed_totals *ret);
void release_moved_tables(struct engine *e, const struct move *m, size_t nr);
