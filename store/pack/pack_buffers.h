/*
 * Aligned memory for one frame: its table block, its data, and room for bytes that a read passes over. A few that are
 * not in use are kept, so that steady work does not map and unmap a megabyte each time. Thread rule: any thread.
 */
#pragma once

#include <stdint.h>

#include "base/mutex.h"
#include "store/pack/pack_format.h"

#define PACK_SKIP_BYTES (64u << 10) /* a gap up to this is read and thrown away: cheaper than another request */

struct pack_buffer {
	union {
		struct pack_table_disk table;
		struct pack_buffer *next_free;
	};
	uint8_t data[PACK_FRAME_BYTES];
	uint8_t skip[PACK_SKIP_BYTES];
};

struct pack_buffers {
	unsigned max_free; /* constant */
	struct mutex lock; /* leaf */
	struct pack_buffer *free GUARDED_BY(lock);
	unsigned nr_free GUARDED_BY(lock);
};

void pack_buffers_init(struct pack_buffers *bs, unsigned nr_spare); /* kept at most, if that is more than a few */
void pack_buffers_release(struct pack_buffers *bs);
struct pack_buffer *pack_buffer_get(struct pack_buffers *bs); /* NULL: no memory */
void pack_buffer_put(struct pack_buffers *bs, struct pack_buffer *b); /* NULL is fine */
