/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decode ahead: decodes the data that will probably be read next, while the reader is busy with the data it has got.
 *
 * The kernel reads ahead within a file, but cannot predict the next file. Files that were coded together are stored one
 * after the other and are usually restored in that order. This module therefore keeps a few trails of consecutive reads
 * from compressed frames. When a file ends that began where another file had ended, the following file is probably read
 * next: a stretch as long as the last one is queued as a wish. packs_read_ahead() takes wishes from the queue and
 * decodes them into a buffer that caches decoded parts (pack_buffers.h). A reader that arrives first cancels the wish
 * and reads by itself, or waits while its frame is being decoded, holding nothing. Decoding ahead waits for the disk and
 * the rate limit only.
 *
 * No wishes are queued while there are other readers: they may be decoding the same data, and no processor is idle.
 * There are no more trails than buffers can serve: with more concurrent readers than that, each trail is replaced
 * before it continues, so nothing is decoded in vain.
 *
 * Data decoded ahead is still verified before it is returned to a reader. Parts that cannot be decoded are not cached:
 * the reader fails on them in the same way and reports it.
 *
 * Thread rule: any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "store/pack/pack_buffers.h"

#define PACK_AHEAD_NR (PACK_HELD_MIN / 2) /* trails: each may need two cached frames */

/* Plain bytes [from, to) of a pack, with offsets as if all of its frames were full. */
struct pack_stretch {
	uint32_t pack;
	uint64_t from, to;
};

/* A sequence of consecutive reads. */
struct pack_trail {
	struct pack_stretch last;
	uint64_t next; /* start of the data that follows; not last.to if the frame is not full */
	unsigned nr_files; /* that ended in the sequence */
};

struct pack_ahead {
	_Atomic unsigned nr_readers; /* in packs_read_of_file() */
	_Atomic unsigned nr_open; /* queued wishes, plus one in progress; 0: readers need not take the lock */
	struct mutex lock; /* leaf */
	struct cond done;
	struct pack_trail trails[PACK_AHEAD_NR] GUARDED_BY(lock); /* most recent first */
	struct pack_stretch wishes[PACK_AHEAD_NR] GUARDED_BY(lock); /* oldest first */
	unsigned nr_trails GUARDED_BY(lock), nr_wishes GUARDED_BY(lock);
	bool busy GUARDED_BY(lock); /* a wish is being decoded, in this frame: */
	uint32_t pack GUARDED_BY(lock), frame GUARDED_BY(lock);
};

void pack_ahead_init(struct pack_ahead *a);
void pack_ahead_release(struct pack_ahead *a);

static inline uint64_t pack_stretch_at(uint32_t frame, uint32_t in)
{
	return (uint64_t)frame * PACK_FRAME_BYTES + in;
}
bool pack_trail_goes_on(const struct pack_trail *t, const struct pack_stretch *s);
/* Record the progress of one reader: it extends a trail or starts a new one. */
void pack_ahead_read(struct pack_ahead *a, const struct pack_trail *t);
/* Call before reading this range of a frame. Cancels wishes in it, and waits while the frame is being decoded. */
void pack_ahead_claim(struct pack_ahead *a, const struct pack_stretch *s);
/* Take the next frame of a wish; pack_ahead_done() ends it. */
bool pack_ahead_take(struct pack_ahead *a, struct pack_stretch *ret);
void pack_ahead_done(struct pack_ahead *a);
