/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * State of the packs being collected: two bits per block. Memory is bounded, whatever the size of the store: a large
 * store is collected window by window.
 *
 *   live         referred to now or since the window was opened; never cleared
 *   gc_pending   a chunk begins in it that is about to be freed and must not be shared any more
 *
 * Chunks of varied lengths share blocks, so the collector marks references of recipes with byte precision: for a block
 * that an extent begins or ends in, how much of it. This is kept only for frames that need it, within bounds. Beyond
 * them, and for marks of other threads, the whole block counts, and a dead chunk beside a live one stays until the next
 * collection.
 *
 * Chunks that begin in a gc-pending block are refused to writers that want to share them, including live neighbours. So
 * the window records which frames had a refusal: chunks of these may have been stored twice (gc_twins.c).
 *
 * Any thread sets bits without a lock. The collector ensures the order in which other threads see them (gc.c).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "index/recipes.h"
#include "store/pack/pack.h"

struct gc_bits {
	uint64_t w[PACK_GONE_WORDS]; /* bit i % 64 of w[i / 64]: block, or chunk, i of a frame */
};

struct gc_pack {
	uint32_t pack, nr_frames;
	uint32_t nr_places; /* those given out; the last ones may have stayed empty */
	bool is_full; /* gets no more frames */
	size_t first; /* number of its first frame in the window */
	uint64_t nr_blocks; /* of chunks, including freed ones; counted by the collector */
	uint64_t nr_chunks; /* without those freed before; likewise */
	uint64_t disk_bytes; /* its size once dead chunks have been punched, */
	uint64_t live_stored; /* and if its live chunks were stored again; likewise */
};

/* For each block of a frame that is not live as a whole: the live bytes at its start and at its end. */
struct gc_edges {
	uint16_t head[PACK_FRAME_BLOCKS], tail[PACK_FRAME_BLOCKS];
};

struct gc_window {
	struct gc_pack *packs; /* sorted by number */
	size_t nr_packs, nr_frames;
	_Atomic uint64_t *live, *gc_pending; /* PACK_GONE_WORDS per frame */
	/* by frame: a writer wanted to share a gc-pending chunk of it, or its neighbour in a block */
	_Atomic bool *refused;
	struct gc_edges **edges; /* by frame, NULL: none. Used by the collector only */
	size_t nr_edges;
};

/* Takes `packs`, even if it fails; their `first` is set here. */
int gc_window_new(struct gc_pack *packs, size_t nr_packs, struct gc_window **ret);
void gc_window_free(struct gc_window *w); /* NULL is fine */

void gc_window_mark(struct gc_window *w, const struct extent *x, size_t nr);
void gc_window_mark_bytes(struct gc_window *w, const struct extent *x, size_t nr); /* collector only: by byte */
bool gc_window_is_pending(const struct gc_window *w, struct addr a);
bool gc_window_refuses(struct gc_window *w, struct addr a); /* the same for a writer: records the refusal */
void gc_window_set_pending(struct gc_window *w, size_t frame, const struct gc_bits *blocks);
/* Blocks that are live, in whole or in part. */
struct gc_bits gc_window_live(const struct gc_window *w, size_t frame);
/* Chunks, ending at `ends`, with any live byte. */
struct gc_bits gc_window_live_chunks(const struct gc_window *w, size_t frame, const uint32_t *ends, uint32_t nr_chunks);

/* Blocks of a frame that the chunks touch, and blocks that they begin in. */
struct gc_bits gc_blocks_of_chunks(const struct gc_bits *chunks, const uint32_t *ends, uint32_t nr_chunks);
struct gc_bits gc_starts_of_chunks(const struct gc_bits *chunks, const uint32_t *ends, uint32_t nr_chunks);

static inline bool gc_bit(const struct gc_bits *b, uint32_t i)
{
	return b->w[i / 64] >> i % 64 & 1;
}

static inline void gc_set_bit(struct gc_bits *b, uint32_t i)
{
	b->w[i / 64] |= UINT64_C(1) << i % 64;
}

static inline unsigned gc_count(const struct gc_bits *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		n += (unsigned)__builtin_popcountll(b->w[i]);
	return n;
}
