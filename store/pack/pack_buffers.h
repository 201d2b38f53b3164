/*
 * Aligned memory for one frame: its table block, its data, and room for bytes that a read passes over. A few that are
 * not in use are kept, so that steady work does not map and unmap a megabyte each time. Some of these still hold parts
 * of a compressed frame that a read has decoded for others: the next read of that frame need not do so again. A file is
 * read by requests that end anywhere in a part, and files one behind the other that share frames. It stays true: bytes
 * of a compressed frame are never written over (packs_heal()), and no pack of a mount gets the number of another.
 *
 * Memory that was never used has to be found and cleared by the kernel, which takes as long as to decode to it. So a
 * frame of which as many bytes were given out as it has is likely read, and its buffer used again before a new one.
 *
 * Thread rule: any thread.
 */
#pragma once

#include <stdint.h>

#include "base/mutex.h"
#include "store/pack/pack_format.h"

#define PACK_SKIP_BYTES (64u << 10) /* a gap up to this is read and thrown away: cheaper than another request */
#define PACK_HELD_MIN 12u /* frames: those of files of four steps that are read in turn, and those that they share */

/* Plain bytes of a frame's parts, a bit each, in a buffer's data, each at its place. */
struct pack_held {
	uint32_t pack, frame;
	uint32_t whole, left; /* all of it; or what is left in it (store/code/match.h) */
	uint32_t plain_len, given; /* bytes of the frame; those that were given out of it, at most as many */
};

struct pack_buffer {
	union {
		struct pack_table_disk table;
		struct {
			struct pack_buffer *next_free;
			struct pack_held held;
		};
	};
	uint8_t data[PACK_FRAME_BYTES];
	uint8_t skip[PACK_SKIP_BYTES];
};

struct pack_buffers {
	unsigned max_free, max_held; /* constant */
	struct mutex lock; /* leaf */
	struct pack_buffer *free GUARDED_BY(lock); /* that hold nothing */
	struct pack_buffer *held GUARDED_BY(lock); /* the last one first, behind all others those that are likely read */
	unsigned nr_free GUARDED_BY(lock), nr_held GUARDED_BY(lock);
	unsigned nr_read GUARDED_BY(lock); /* of those that are held */
};

/* Kept at most, if that is more than a few: so many, and as many that hold parts as fit in so much memory. */
void pack_buffers_init(struct pack_buffers *bs, unsigned nr_spare, uint64_t held_memory);
void pack_buffers_release(struct pack_buffers *bs);
struct pack_buffer *pack_buffer_get(struct pack_buffers *bs); /* NULL: no memory */
void pack_buffer_put(struct pack_buffers *bs, struct pack_buffer *b); /* NULL is fine */
/* Of one that a compressed frame was read with, and that holds nothing: kept among those that do, if there is room. */
void pack_buffer_put_read(struct pack_buffers *bs, struct pack_buffer *b); /* NULL is fine */
/* The same of a buffer that holds parts of this frame, if there is one; what it holds is *ret. */
struct pack_buffer *pack_buffer_get_held(struct pack_buffers *bs, uint32_t pack, uint32_t frame, struct pack_held *ret);
void pack_buffer_put_held(struct pack_buffers *bs, struct pack_buffer *b, const struct pack_held *held);
