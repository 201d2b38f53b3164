/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Moves fingerprints of recent chunks from memory to RocksDB, in bulk. */
#pragma once

#include "store/engine_state.h"
#include "store/dedup/dedup_tables.h"

int absorb_load(struct engine *e); /* at open: fingerprints of frames that RocksDB has not absorbed */
int absorb(struct engine *e); /* not while chunks are being moved */
int absorb_if_many(struct engine *e); /* as many as would be absorbed soon, or at close */
int absorb_at_close(struct engine *e); /* if they are many; no other thread runs */
int absorb_loaded(struct engine *e); /* at open only */
/* Before a job appends: while one table is being ingested, the other may grow to half of a full one; then the job
 * waits. */
int absorb_throttle(struct engine *e) REQUIRES(append_lock);
bool absorb_has_room(struct engine *e) REQUIRES_SHARED(append_lock); /* absorb_throttle() has nothing to do */
bool absorb_wanted(struct engine *e);
void absorb_share_memory(struct engine *e); /* gives memory that the tables do not need to other caches */
