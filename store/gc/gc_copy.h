/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Copies live chunks in the order in which they are added: the first half of moving them. The second half is repoint.h.
 * Copies that nothing refers to are garbage like any other chunk.
 *
 * Copies are stored as the mount stores new data, or as a `gc_code` encodes each frame. Compressed chunks stay
 * compressed, whatever the mount options say: a store must not grow because its chunks move.
 */
#pragma once

#include "store/gc/gc.h"
#include "store/gc/repoint.h"

struct gc_copy;

/*
 * Encodes the data of the next frame: c->used bytes in c->buffer. GC_CODED: *ret_stored (valid until the next call) is
 * to be written, with the layout in ret_parts; <0: error.
 */
enum gc_coded {
	GC_STAYS, /* do not move these chunks */
	GC_CODED,
	GC_PLAIN /* not coded: as without a gc_code */
};
typedef int gc_code(void *userdata, const struct gc_copy *c, const uint8_t **ret_stored, struct pack_parts *ret_parts);

struct gc_copy {
	struct gc *g;
	struct move *m; /* chunks with two copies, in the order added */
	size_t nr, max;
	/* Chunks of the next frame. */
	struct gc_chunk {
		struct addr from;
		uint32_t len;
		struct fp fp;
		enum pack_codec codec; /* of its old frame */
		uint32_t phase, stored; /* for the coder (recode.c) */
		bool replaced; /* gc_copy.c: the in-memory table had the old place, */
		uint8_t number; /* with this number */
	} next[PACK_FRAME_BLOCKS];
	unsigned nr_next;
	uint32_t chunk_len; /* of all of them, or PACK_VARIED */
	uint32_t used; /* bytes in buffer */
	uint8_t *buffer;
	uint64_t copied; /* bytes in total */
	bool moving; /* moving_begin() was called */
	uint64_t disk_bytes; /* size of the new frames, tables included */
	gc_code *code; /* NULL: none */
	void *userdata; /* of `code` */
};

int gc_copy_init(struct gc_copy *c, struct gc *g, size_t max);
void gc_copy_release(struct gc_copy *c);
/* Adds one whole chunk of a frame with this chunk_len; copies `chunk`. Requires gc_copy_nr() < `max`. A damaged chunk
 * stays where it is. */
int gc_copy_add(struct gc_copy *c, uint32_t chunk_len, const struct gc_chunk *chunk);
int gc_copy_flush(struct gc_copy *c); /* writes the chunks of the next frame */
void gc_copy_drop(struct gc_copy *c); /* drops the chunks of the next frame: they stay where they are */
/* Includes those not yet in a frame. */
static inline size_t gc_copy_nr(const struct gc_copy *c)
{
	return c->nr + c->nr_next;
}
/* The chunks of the next frame, already read, belong to several domains: they are neither compressed together
 * (dedup.c) nor coded. */
bool gc_copy_is_mixed(const struct gc_copy *c);
/* Flushes, repoints all recipes to the copies, frees the old places, and resets `c`. If the flush fails, does so for
 * the frames written before. */
int gc_copy_repoint(struct gc_copy *c);
