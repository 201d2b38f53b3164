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
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"

struct extent_list;

struct layer {
	_Atomic unsigned refs;
	_Atomic uint64_t *memory; /* its bytes are counted there; NULL: nowhere */
	struct layer *below; /* holds a reference; NULL: what is not here is a hole */
	unsigned depth; /* layers from here on down */
	uint32_t mapped; /* bytes that all of them cover */
	bool is_dense; /* ... which are the first ones of the segment, without a hole */
	uint32_t nr_most; /* extents that they are at most when merged */
	uint32_t nr;
	struct extent *x; /* in order, not overlapping */
	struct extent own[]; /* x, or nothing */
};

/* The lowest. Takes the extents of `l`, whose memory is given back as far as it is not used; -ENOMEM. */
int layer_new(struct extent_list *l, _Atomic uint64_t *memory, struct layer **ret);
/* On another one, which it takes on success, and of which it covers no byte that that one does not: these extents, which
 * begin `off` bytes further. -ENOMEM */
int layer_on(struct layer *below, uint32_t off, const struct extent *x, size_t nr, struct layer **ret);
struct layer *layer_get(struct layer *l);
void layer_put(struct layer *l); /* NULL is fine */
/* Do the layers cover all of [0, end)? */
static inline bool layer_covers(const struct layer *l, uint32_t end)
{
	return l->is_dense && end <= l->mapped;
}
int layer_merge(const struct layer *top, struct extent_list *ret); /* all that is seen, in an empty list; -ENOMEM */
