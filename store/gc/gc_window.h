/*
 * What the collector knows of the packs that it is at: two bits per block. Bounded memory, whatever the store holds: a
 * large store is collected window by window.
 *
 *   live       somebody refers to it, or did so since the window was opened; never unset
 *   condemned  a chunk begins in it that is about to be given back: must not be shared any more
 *
 * Chunks of varied lengths share blocks, so what the recipes refer to is marked to the byte, by the collector: of a
 * block that an extent ends or begins in, how much of it. That is kept only for frames that need it, within bounds;
 * past them, and for what others mark meanwhile, the whole block counts, and a dead chunk beside a live one stays for
 * once.
 *
 * What begins in a condemned block is refused to whoever wants to share it, its live neighbours as well. So it is kept
 * of which frames anything was: there may be chunks that were stored again and are there twice (gc_twins.c).
 *
 * Bits are set from any thread without a lock. The order in which others see them is the collector's business (gc.c).
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
	bool is_full; /* nothing more is added to it */
	size_t first; /* of its frames among those of the window */
	uint64_t nr_blocks; /* of chunks, those included that are gone; counted by the collector */
	uint64_t nr_chunks; /* without those that were gone before; likewise */
};

/* Of each block of a frame, how many bytes of its beginning and of its end are live, if not all of it is. */
struct gc_edges {
	uint16_t head[PACK_FRAME_BLOCKS], tail[PACK_FRAME_BLOCKS];
};

struct gc_window {
	struct gc_pack *packs; /* in order of their numbers */
	size_t nr_packs, nr_frames;
	_Atomic uint64_t *live, *condemned; /* PACK_GONE_WORDS per frame */
	/* by frame: somebody wanted to share a condemned chunk of it, or its neighbour in a block */
	_Atomic bool *refused;
	struct gc_edges **edges; /* by frame, NULL: none. The collector's own */
	size_t nr_edges;
};

/* Takes `packs`, even if it fails; their `first` is set here. */
int gc_window_new(struct gc_pack *packs, size_t nr_packs, struct gc_window **ret);
void gc_window_free(struct gc_window *w); /* NULL is fine */

void gc_window_mark(struct gc_window *w, const struct extent *x, size_t nr);
void gc_window_mark_bytes(struct gc_window *w, const struct extent *x, size_t nr); /* the collector: to the byte */
bool gc_window_condemned(const struct gc_window *w, struct addr a);
bool gc_window_refuses(struct gc_window *w, struct addr a); /* is it condemned? It was wanted */
void gc_window_set_condemned(struct gc_window *w, size_t frame, const struct gc_bits *blocks);
void gc_window_pardon(struct gc_window *w, size_t frame);
/* Blocks of which anything is. */
struct gc_bits gc_window_live(const struct gc_window *w, size_t frame);
/* Chunks, which end at `ends`, of which anything is. */
struct gc_bits gc_window_live_chunks(const struct gc_window *w, size_t frame, const uint32_t *ends, uint32_t nr_chunks);

/* Blocks of a frame that some chunks touch, and those that they begin in. */
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
