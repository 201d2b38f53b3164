/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shared by the files that decide whether the chunks of a job are new or known; see dedup.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/engine_state.h"
#include "store/dedup/dedup_tables.h"
#include "store/file/extents/segment.h"
#include "store/remote_hooks.h"

#define PAGES_MAX (ENGINE_BUFFER_SIZE / PACK_BLOCK)

/* CLAIMED: new, and this job is about to append it; FRESH: appended. SHIFTED: part of it was found at another offset,
 * so it is not stored as a chunk. */
enum cause { UNKNOWN, ZERO, CHAMPION, SUCCESSOR, MEMORY, INDEXED, SHIFTED, CLAIMED, FRESH };

struct batch {
	struct engine *e;
	struct content *c;
	const uint8_t *data;
	uint64_t off;
	uint32_t page; /* chunk size; PACK_VARIED: variable */
	struct pack_compression compression;
	struct fp tweak; /* of the domain that they are stored in */
	unsigned n;
	uint32_t at[PAGES_MAX + 1]; /* start of each chunk in data, and the end of the last one */
	struct fp fps[PAGES_MAX];
	struct addr addr[PAGES_MAX];
	uint8_t cause[PAGES_MAX];
	bool absent[PAGES_MAX]; /* not in RocksDB, according to the filter */
	bool alone[PAGES_MAX]; /* must not be shared: the known copy has different bytes, or cannot be repaired */
	struct addr refused[PAGES_MAX]; /* address known in memory that must not be shared */
	struct remote_look look; /* of batch_may_refer() */
	bool any_damaged;
	struct addr damaged[PAGES_MAX]; /* address of a copy known to be damaged; valid if any_damaged */
};

static inline const uint8_t *batch_chunk(const struct batch *b, unsigned i)
{
	return b->data + b->at[i];
}

static inline uint32_t batch_len(const struct batch *b, unsigned i)
{
	return b->at[i + 1] - b->at[i];
}

/* May new data refer to the chunk at `a`? Its bytes may be on another node, which may be lost. */
static inline bool batch_may_refer(struct batch *b, struct addr a)
{
	return !b->e->remote || b->e->remote->chunk_is_usable(b->e, a, &b->look);
}

/* The cheap lookups for unknown chunks. */
void batch_begin(struct batch *b);
/* The expensive lookups; nothing is stored yet. */
int batch_look(struct batch *b);
/* All the rest: turn `len` bytes, which start at `base` of the job, into extents. */
int batch_finish(struct batch *b, uint32_t base, uint32_t len, struct extent_list *ret);
/* The whole process for a job chunked by content. */
int batch_store_cuts(struct batch *b, const struct job *j, struct extent_list *ret);

/* dedup_compare.c. Chunk i is stored at `a`: use it if it may be shared. */
bool batch_use_known(struct batch *b, unsigned i, struct addr a, enum cause cause);
/* Does the hint lead to chunk i? Then *ret is its address. */
bool batch_matches(struct batch *b, unsigned i, struct addr hint, struct addr *ret);
/* Expected address of chunk k if chunk i is at `a` and the two are as far apart there as here. */
struct addr batch_after(const struct batch *b, struct addr a, unsigned i, unsigned k);
/* Use chunks that have the fingerprints of unknown ones at the expected addresses. */
void batch_compare(struct batch *b, const struct addr *a, enum cause cause);

/* The address in memory's tables, if it may be shared. A caller that holds the lock shared holds that of the part too. */
struct addr batch_find_in_memory(struct engine *e, struct fp fp) REQUIRES_SHARED(append_lock);

/* dedup_shifted.c: the same with a search for moved bytes */
int batch_store_shifted(struct batch *b, const struct job *j, struct extent_list *ret);

/* --- calls from other folders --- */

int dedup_store(struct engine *e, const struct job *j, struct extent_list *ret);

int dedup_sync_frames(struct engine *e, struct pack_marks *ret); /* make all existing frames durable */
/* The same up to packs_sync_written(): >=0 its result, and the caller calls packs_sync_end(). Not in a cluster. */
int dedup_write_frames(struct engine *e, struct pack_written *ret);
