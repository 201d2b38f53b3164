/*
 * Bytes read ahead. Direct I/O has no page cache to read into, so a few frame buffers of our own take its place: a
 * thread fills them with what packs_prefetch() asked for, and reads that come are served from them. Bounded: when all
 * are full the oldest is given up, and when all are being filled or used a wish is dropped.
 *
 * Nothing here is trusted: the reader checks the bytes as if it had read them itself, and reads itself if they fail.
 * Thread rule: any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/pack/pack_buffers.h"

struct pack_prefetch;
struct packs;

int pack_prefetch_new(struct packs *p, struct pack_prefetch **ret); /* the thread starts with the first wish */
void pack_prefetch_free(struct pack_prefetch *pf); /* NULL is fine */

/* Bytes [from, to) of a frame's data, block aligned. */
void pack_prefetch_wish(struct pack_prefetch *pf, uint32_t pack, uint32_t frame, uint32_t from, uint32_t to);
/* Wait while anything of this frame is being read ahead, its table perhaps. One load when nothing is. */
void pack_prefetch_wait(struct pack_prefetch *pf, uint32_t pack, uint32_t frame);
/* A buffer that has these bytes at their place in `data`, until it is put. NULL: not read ahead. */
struct pack_buffer *pack_prefetch_get(struct pack_prefetch *pf, uint32_t pack, uint32_t frame, uint32_t from,
				      uint32_t to);
/* `done`: nobody is likely to want more of it. */
void pack_prefetch_put(struct pack_prefetch *pf, struct pack_buffer *b, bool done);
