/*
 * Decoding what is likely read next, while whoever has read the last of it is busy with that.
 *
 * Within a file the kernel reads ahead; which file is next it does not know. But files that were coded together lie one
 * behind the other, and are restored in the same order. So trails are kept of what was read of compressed frames, a few:
 * where a file has ended that began where another one ended, the next one is likely read next, and as much as of this
 * one becomes a wish. packs_read_ahead() fulfils it: it decodes into a buffer that holds parts for whoever comes for
 * them (pack_buffers.h). Who comes before that takes the wish back and reads for himself, or waits for who is at it.
 *
 * While others read nothing is wished: they may be at it already, and there is no processor to spare. More trails than
 * there are buffers for are none: each is forgotten before it is gone on with, so nothing is decoded in vain.
 *
 * Nobody gives out what is decoded so without comparing it. What cannot be decoded is not held: who reads it meets that
 * himself, and tells it.
 *
 * Thread rule: any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "store/pack/pack_buffers.h"

#define PACK_AHEAD_NR (PACK_HELD_MIN / 2) /* trails: each may need two frames that are held */

/* Plain bytes [from, to) of a pack, as if all of its frames were full. */
struct pack_stretch {
	uint32_t pack;
	uint64_t from, to;
};

/* What was read one behind the other. */
struct pack_trail {
	struct pack_stretch last;
	uint64_t next; /* where what follows begins: a frame may not be full */
	unsigned nr_files; /* that ended in it */
};

struct pack_ahead {
	_Atomic unsigned nr_readers; /* who are in packs_read_of_file() */
	_Atomic unsigned nr_open; /* wishes, and what somebody is at: with none nobody has to look */
	struct mutex lock; /* leaf */
	struct cond done;
	struct pack_trail trails[PACK_AHEAD_NR] GUARDED_BY(lock); /* the last one first */
	struct pack_stretch wishes[PACK_AHEAD_NR] GUARDED_BY(lock); /* the oldest first */
	unsigned nr_trails GUARDED_BY(lock), nr_wishes GUARDED_BY(lock);
	bool busy GUARDED_BY(lock); /* somebody fulfils one: of this frame */
	uint32_t pack GUARDED_BY(lock), frame GUARDED_BY(lock);
};

void pack_ahead_init(struct pack_ahead *a);
void pack_ahead_release(struct pack_ahead *a);

static inline uint64_t pack_stretch_at(uint32_t frame, uint32_t in)
{
	return (uint64_t)frame * PACK_FRAME_BYTES + in;
}
bool pack_trail_goes_on(const struct pack_trail *t, const struct pack_stretch *s);
/* So far one of nr_readers has come. What is new goes on with a trail, or begins one. */
void pack_ahead_read(struct pack_ahead *a, const struct pack_trail *t);
/* It is going to be read, within a frame: nobody else is at that frame when this returns. */
void pack_ahead_claim(struct pack_ahead *a, const struct pack_stretch *s);
/* The next frame of a wish, to be said done. */
bool pack_ahead_take(struct pack_ahead *a, struct pack_stretch *ret);
void pack_ahead_done(struct pack_ahead *a);
