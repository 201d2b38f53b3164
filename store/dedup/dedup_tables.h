/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The lock under which new chunks get their addresses (append_lock in docs/locking.md), and the tables of fingerprints
 * that it protects.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"

struct dedup;
struct engine;
struct engine_stats;
struct fptable;
struct pack_frame;

struct dedup *dedup_new(unsigned processors); /* NULL: -ENOMEM */
void dedup_free(struct dedup *d); /* NULL is fine; after dedup_abandon_frames() */
void dedup_abandon_frames(struct engine *e); /* when closing, before the packs */
void dedup_stats(struct engine *e, struct engine_stats *ret); /* sets the memory of tables and filter */

extern struct hidden_lock append_lock;
void dedup_lock(struct engine *e) ACQUIRE(append_lock);
void dedup_unlock(struct engine *e) RELEASE(append_lock);
bool dedup_is_locked(struct engine *e); /* by the calling thread */
/* Beside other holders like this one; see dedup_state.h. */
void dedup_lock_shared(struct engine *e) ACQUIRE_SHARED(append_lock);
void dedup_unlock_shared(struct engine *e) RELEASE_SHARED(append_lock);
/* Until fingerprints have been absorbed. Drops and retakes the lock. false: the time is over */
bool dedup_wait_for(struct engine *e, uint64_t timeout_ns) REQUIRES(append_lock);
void dedup_wake(struct engine *e);
/* With this lock all tables may be changed, also while fingerprints are absorbed: that is excluded. */
void dedup_lock_tables(struct engine *e) ACQUIRE(append_lock);
void dedup_unlock_tables(struct engine *e) RELEASE(append_lock);

/* Fingerprints in memory: not absorbed by RocksDB yet; being absorbed; absorbed, and still in memory. */
enum dedup_table { DEDUP_RECENT, DEDUP_FROZEN, DEDUP_KEPT, NR_DEDUP_TABLES };
struct fptable *dedup_table(struct engine *e, enum dedup_table which) REQUIRES(append_lock);
/* In a store of a cluster: the frame that is being filled with pages, or with chunks cut by content. NULL: none. */
struct pack_frame *dedup_open_frame(struct engine *e, bool varied) REQUIRES(append_lock);
