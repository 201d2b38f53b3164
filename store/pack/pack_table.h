/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Frame tables in memory: (pack, frame) -> the fingerprints of its chunks, and how they are stored.
 *
 * A table is in one of three states:
 *
 *   pinned ──written──▶ cached ──evicted──▶ (none)
 *      │                   ▲
 *      └──lost──▶ lost     └──inserted, read from disk
 *
 * pinned: its frame is being filled or written and holds the bytes. cached: same as on disk, kept while memory lasts.
 * lost: its frame could not be written. A lost table is kept for the rest of the mount, so that its addresses are never
 * taken for something else.
 *
 * Sharded by key, with one short mutex each. The memory limit is divided among the shards; eviction is by clock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "store/pack/pack_format.h"

struct pack_frame;
struct pack_tables;
struct table;

int pack_tables_new(uint64_t limit, struct pack_tables **ret);
void pack_tables_set_limit(struct pack_tables *ts, uint64_t limit);
void pack_tables_free(struct pack_tables *ts); /* NULL is fine */

/* A table for a new frame. Allocation may fail, so it is separate from pinning, which needs the place of the frame. */
struct table *table_new(uint32_t chunk_len); /* PACK_VARIED: of chunks of any lengths; NULL: no memory */
void table_free(struct table *t); /* one that was never pinned; NULL is fine */
void pack_tables_pin(struct pack_tables *ts, struct table *t, uint32_t pack, uint32_t frame, struct pack_frame *f);
/* By the owner of a pinned table. A thread that looks it up afterwards sees the chunk and all bytes stored before. */
void table_add(struct table *t, struct fp fp, uint32_t len);
uint32_t table_nr_chunks(const struct table *t);
uint32_t table_total(const struct table *t); /* bytes of its chunks; if pinned, by its owner only */
struct fp table_fp(const struct table *t, uint32_t i); /* likewise */
struct pack_cuts table_cuts(const struct table *t);
void table_copy(const struct table *t, struct pack_table *ret);

/* End the pinned state. Return when no reader uses the frame any more. */
void pack_tables_written(struct pack_tables *ts, struct table *t, const struct pack_coding *coding,
			 const uint64_t remote[PACK_GONE_WORDS]);
void pack_tables_lost(struct pack_tables *ts, struct table *t, int error);
void pack_tables_drop(struct pack_tables *ts, struct table *t); /* none of its addresses was given out */

/* Result of pack_tables_get(). */
struct table_view {
	uint32_t chunk_len, nr_chunks;
	uint32_t ends[PACK_VARIED_MAX]; /* if they differ */
	struct pack_coding coding; /* if not pinned */
	uint64_t remote[PACK_GONE_WORDS]; /* likewise */
	int error; /* < 0: lost, with this */
	struct pack_frame *frame; /* not NULL: pinned, and used until pack_tables_put() */
	struct table *table; /* of `frame` */
	struct fp fps[PACK_FRAME_BLOCKS]; /* only those of the range, at their own index */
};
static inline struct pack_cuts table_view_cuts(const struct table_view *v)
{
	return (struct pack_cuts){ v->chunk_len, v->nr_chunks, v->ends };
}
/* Look up and copy the fingerprints of the chunks that overlap `len` bytes from `from` of the frame's data. */
bool pack_tables_get(struct pack_tables *ts, uint32_t pack, uint32_t frame, uint32_t from, uint32_t len,
		     struct table_view *ret);
void pack_tables_put(struct pack_tables *ts, struct table_view *v);
/* Cache a table read from disk. Without memory it is not cached. */
void pack_tables_insert(struct pack_tables *ts, uint32_t pack, uint32_t frame, const struct pack_table *t);

/* Drop a cached table; pinned and lost ones stay. */
void pack_tables_forget(struct pack_tables *ts, uint32_t pack, uint32_t frame);

struct pack_tables_stats {
	uint64_t memory, hits, misses;
};
void pack_tables_stats(struct pack_tables *ts, struct pack_tables_stats *ret);
