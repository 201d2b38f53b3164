/*
 * Storing live chunks once more, in the order in which they are given: the first half of moving them. The second is
 * repoint.h. Copies that nobody comes to refer to are garbage like any other.
 *
 * They are stored as the mount stores new bytes, or as a `gc_code` makes of each frame.
 */
#pragma once

#include "store/engine/gc.h"
#include "store/engine/repoint.h"

struct gc_copy;

/*
 * Codes the plain bytes of the next frame, c->buffer, c->used of them. GC_CODED: *ret_stored (valid until the next
 * call) is to be written, of which ret_parts tells; <0.
 */
enum gc_coded {
	GC_STAYS,
	/* these chunks stay where they are */ GC_CODED,
	GC_PLAIN /* as the mount stores new bytes */
};
typedef int gc_code(void *userdata, const struct gc_copy *c, const uint8_t **ret_stored, struct pack_parts *ret_parts);

struct gc_copy {
	struct gc *g;
	struct move *m; /* chunks that are stored in both places, in the order given */
	size_t nr, max;
	/* Those that will share the next frame. */
	struct gc_chunk {
		struct addr from;
		uint32_t len;
		struct fp fp;
		bool replaced; /* memory knew it at the old place, */
		uint8_t number; /* with this number */
		uint32_t phase, stored; /* for those who code (compact.c) */
	} next[PACK_FRAME_BLOCKS];
	unsigned nr_next;
	uint32_t chunk_len; /* of all of them, or PACK_VARIED */
	uint32_t used; /* bytes of them */
	uint8_t *buffer;
	uint64_t copied; /* bytes, ever */
	bool moving; /* moving_begin() has been told */
	gc_code *code; /* NULL: as the mount stores new bytes */
	void *userdata; /* of it */
};

int gc_copy_init(struct gc_copy *c, struct gc *g, size_t max);
void gc_copy_release(struct gc_copy *c);
/* One chunk, whole, of a frame with chunks of this length. Fewer than `max` have been added. One that is damaged stays
 * where it is. */
int gc_copy_add(struct gc_copy *c, struct addr from, uint32_t len, uint32_t chunk_len, struct fp fp);
int gc_copy_flush(struct gc_copy *c); /* no chunk is left without a frame */
/* Those not yet in a frame count. */
static inline size_t gc_copy_nr(const struct gc_copy *c)
{
	return c->nr + c->nr_next;
}
/* The next frame's chunks are of several domains: so they are not compressed together (dedup_append.c), nor coded. They
 * have been read. */
bool gc_copy_is_mixed(const struct gc_copy *c);
/* Flush, point all recipes to the copies, give up what they are copies of, and begin anew. If the flush fails, with
 * those that are there. */
int gc_copy_repoint(struct gc_copy *c);
