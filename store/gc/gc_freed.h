/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks that the collector has freed, and those that it is about to free. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/file/extents/segment.h"
#include "store/pack/pack.h"

struct engine;
struct engine_tx;
struct freed_frame;
struct freed_totals;
struct pack_fate;

int freed_load(struct engine *e, uint32_t **ret_removed, size_t *ret_nr); /* at open; caller frees */
/* Sorted packs with freed chunks that may not have been punched, according to RocksDB; caller frees. */
int freed_unpunched(struct engine *e, uint32_t **ret, size_t *ret_nr);
int freed_fate(void *engine, uint32_t pack, uint32_t frame, struct pack_fate *ret);
void freed_put_frame(struct engine_tx *tx, uint32_t pack, uint32_t frame, const struct freed_frame *f);
/* Is an entry of the fingerprint table stale? */
bool freed_is_stale(void *engine, const void *key, size_t key_len, const void *value, size_t len);
void freed_so_far(struct engine *e, struct freed_totals *ret);
/* Logs freed chunks and the totals that count them in one transaction: of two, one could fail. `shared`: the chunks, if
 * some are shared with other nodes (remote_hooks.free_chunks()); else NULL. */
struct remote_freed;
int freed_apply(struct engine *e, struct engine_tx *tx, const struct freed_totals *t, const struct remote_freed *shared,
		size_t nr);
/* The chunk is gc-pending and must not be shared. Call inside e->users. */
bool freed_is_gc_pending(struct engine *e, struct addr a);
/* Records that extents entering the log are referenced. view_lock held shared. */
void freed_referred(struct engine *e, const struct extent *x, size_t nr);
