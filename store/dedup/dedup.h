/* What the files share that decide whether a job's chunks are new or known: dedup.c tells how. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/engine/engine_internal.h"

#define PAGES_MAX (ENGINE_BUFFER_SIZE / PACK_BLOCK)

/* CLAIMED: new, and this job is about to append it; FRESH: it has. SHIFTED: some of it is elsewhere, and it is no
 * chunk. */
enum cause { UNKNOWN, ZERO, CHAMPION, SUCCESSOR, MEMORY, INDEXED, SHIFTED, CLAIMED, FRESH };

struct batch {
	struct engine *e;
	struct content *c;
	const uint8_t *data;
	uint64_t off;
	uint32_t page; /* of all; PACK_VARIED: they differ */
	struct pack_compression compression;
	struct fp tweak; /* of the domain they are stored for */
	unsigned n;
	uint32_t at[PAGES_MAX + 1]; /* where each begins in data, and where the last one ends */
	struct fp fps[PAGES_MAX];
	struct addr addr[PAGES_MAX];
	uint8_t cause[PAGES_MAX];
	bool absent[PAGES_MAX]; /* from RocksDB, for sure */
	bool alone[PAGES_MAX]; /* must not be shared: its twin has other bytes, or cannot be healed */
	struct addr refused[PAGES_MAX]; /* what memory has, and must not be shared */
	struct shares_look look;
	bool any_damaged;
	struct addr damaged[PAGES_MAX]; /* a copy that is known to be damaged; if any is */
};

static inline const uint8_t *batch_chunk(const struct batch *b, unsigned i)
{
	return b->data + b->at[i];
}

static inline uint32_t batch_len(const struct batch *b, unsigned i)
{
	return b->at[i + 1] - b->at[i];
}

/* All are unknown that are not zero. n and at[] have been set. */
void batch_clear(struct batch *b);
/* The cheap questions, for those that are unknown. */
void batch_begin(struct batch *b);
/* The dear ones, but nothing is stored yet. */
int batch_look(struct batch *b);
/* All the rest: the bytes at `base` of a job, `len` of them, become extents. */
int batch_finish(struct batch *b, uint32_t base, uint32_t len, struct extent_list *ret);
/* All of it, for a job that is cut by content. */
int batch_store_cuts(struct batch *b, const struct job *j, struct extent_list *ret);

/* dedup_append.c */
/* Where memory has it, if it may be shared. */
struct addr batch_find_in_memory(struct engine *e, struct fp fp) REQUIRES(e->append_lock);
/* 1: appended; 0: fingerprints moved into RocksDB since it was asked, in another generation, so ask again; <0. */
int batch_append(struct batch *b, uint64_t generation);

/* dedup_shifted.c: the same for pages that may have moved */
int batch_store_shifted(struct batch *b, const struct job *j, struct extent_list *ret);
