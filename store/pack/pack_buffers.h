/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Aligned buffers for one frame each: its table block, its data, and space for bytes that a read skips. A few unused
 * buffers are kept, so that steady work does not map and unmap a megabyte each time. Some of them cache decoded parts
 * of a compressed frame, so that the next read of that frame need not decode them again: requests for a file end
 * anywhere in a part, and consecutive files share frames. The cache never goes stale: bytes of a compressed frame are
 * never overwritten (packs_repair_chunk()), and pack numbers are not reused within a mount.
 *
 * The kernel has to find and clear new memory, which takes as long as decoding into it. Once as many bytes were read
 * from a cached frame as it has, it has probably been read completely, and its buffer is reused before a new one is
 * allocated.
 *
 * Thread rule: any thread.
 */
#pragma once

#include <stdint.h>

#include "base/mutex.h"
#include "store/pack/pack_format.h"

#define PACK_SKIP_BYTES (64u << 10) /* a gap up to this is read and discarded: cheaper than another request */
#define PACK_HELD_MIN 12u /* frames: enough for files of four time steps read in turn, and the frames they share */

/* Decoded parts (bit masks) in a buffer's data, each at its own offset. */
struct pack_held {
	uint32_t pack, frame;
	uint32_t whole, left; /* fully decoded; only the left-over bytes are (store/codec/match.h) */
	uint32_t plain_len, given; /* size of the frame; bytes of it that were read, at most plain_len */
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
	struct pack_buffer *free GUARDED_BY(lock); /* that cache nothing */
	struct pack_buffer *held GUARDED_BY(lock); /* most recent first; those probably read completely at the end */
	unsigned nr_free GUARDED_BY(lock), nr_held GUARDED_BY(lock);
	unsigned nr_read GUARDED_BY(lock); /* probably read completely, of nr_held */
};

/* Limits on unused buffers, with a minimum of a few: a number, and the memory of those that cache parts. */
void pack_buffers_init(struct pack_buffers *bs, unsigned nr_spare, uint64_t held_memory);
void pack_buffers_release(struct pack_buffers *bs);
struct pack_buffer *pack_buffer_get(struct pack_buffers *bs); /* NULL: no memory */
void pack_buffer_put(struct pack_buffers *bs, struct pack_buffer *b); /* NULL is fine */
/* Put back a buffer that was used to read a compressed frame and caches nothing: kept among `held` if there is room. */
void pack_buffer_put_read(struct pack_buffers *bs, struct pack_buffer *b); /* NULL is fine */
/* Get the buffer that caches parts of this frame, if there is one, else any; *ret: what it caches. */
struct pack_buffer *pack_buffer_get_held(struct pack_buffers *bs, uint32_t pack, uint32_t frame, struct pack_held *ret);
void pack_buffer_put_held(struct pack_buffers *bs, struct pack_buffer *b, const struct pack_held *held);
