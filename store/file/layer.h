/*
 * Extents of a segment that several files have in common. A clone refers to what its source has, and what changes of it
 * afterwards, in many small places, is laid over that:
 *
 *        version 1      version 2      version 3
 *                                      82 extents  ─┐ seen where they are,
 *                       82 extents ◀── below        │ and what is below
 *        1 extent  ◀─── below                      ─┘ where they are not
 *
 * So the next version of a file costs as much as it changes, however many extents it has. Whoever wants them all has
 * the layers merged. A layer does not change while anybody refers to it, and is read without a lock.
 *
 * A layer that is laid on one with not many more extents takes those in, and so on down: it becomes one with them, for
 * whoever comes next. So each extent is copied some times the logarithm of the number of versions, and there are not
 * more layers than that below each other. What "not many more" is depends on chance: with a rule all segments
 * of a file would have all their layers merged for one and the same version, which would take as long as all those
 * before it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "store/engine/referrers.h"

struct extent_list;

struct layer {
	_Atomic unsigned refs;
	_Atomic uint64_t *memory; /* its bytes are counted there; NULL: nowhere */
	struct layer *below; /* holds a reference; NULL: what is not here is a hole */
	unsigned depth; /* layers from here on down */
	uint32_t mapped; /* bytes that all of them cover */
	bool is_dense; /* ... which are the first ones of the segment, without a hole */
	/* These two belong to whoever writes the view, one at a time (write_back.c). */
	uint64_t number; /* that it has in the view; 0: it is not there */
	struct frames_set frames; /* where x lies, if that has been asked for; else empty */
	uint32_t nr;
	struct extent *x; /* in order, not overlapping */
	struct extent own[]; /* x, or nothing */
};

/* The lowest. Takes the extents of `l`, whose memory is given back as far as it is not used; -ENOMEM. */
int layer_new(struct extent_list *l, _Atomic uint64_t *memory, struct layer **ret);
/* On another one, which it takes on success, and of which it covers no byte that that one does not: these extents,
 * which begin `off` bytes further. -ENOMEM */
int layer_on(struct layer *below, uint32_t off, const struct extent *x, size_t nr, struct layer **ret);
/* The same as the view has it: nothing is merged, and the extents of `l`, at least one, are taken. */
int layer_as_read(struct layer *below, struct extent_list *l, _Atomic uint64_t *memory, struct layer **ret);
struct layer *layer_get(struct layer *l);
void layer_put(struct layer *l); /* NULL is fine */
/* Do the layers cover all of [0, end)? */
static inline bool layer_covers(const struct layer *l, uint32_t end)
{
	return l->is_dense && end <= l->mapped;
}
/* All that is seen of `nr` layers from `top` on down, in an empty list; -ENOMEM. */
int layer_merge_some(const struct layer *top, unsigned nr, struct extent_list *ret);
int layer_merge(const struct layer *top, struct extent_list *ret); /* of all of them */
/* The frames that its own extents lie in, borrowed. -ENOMEM */
int layer_frames(struct layer *l, const struct frames_set **ret);
