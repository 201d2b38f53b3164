/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Layers: extents of a segment shared by several files. A clone refers to the layers of its source, and later small
 * changes are laid over them:
 *
 *        version 1      version 2      version 3
 *                                      82 extents  ─┐ visible where they are;
 *                       82 extents ◀── below        │ elsewhere the layers
 *        1 extent  ◀─── below                      ─┘ below are visible
 *
 * A new version of a file therefore costs as much as it changes, however many extents the file has. To get all extents
 * of a segment, its layers are merged. A referenced layer is immutable and is read without a lock.
 *
 * A new layer absorbs the one below it if that has not many more extents, and so on downwards. Each extent is thus
 * copied a few times the logarithm of the number of versions, and the depth is bounded by about the same. The threshold
 * for "not many more" is randomized: with a fixed one, all segments of a file would merge all their layers in the same
 * version, which would take as long as all versions before it.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "store/gc/backrefs.h"

struct extent_list;

struct layer {
	_Atomic unsigned refs;
	_Atomic uint64_t *memory; /* accounts its bytes; NULL: not accounted */
	struct layer *below; /* holds a reference; NULL: uncovered bytes are a hole */
	unsigned depth; /* number of layers from here down */
	uint32_t mapped; /* bytes covered by all of them */
	bool is_dense; /* ... without a hole, starting at offset 0 of the segment */
	/* These two belong to the current writer of the view (write_back.c). */
	uint64_t number; /* its number in the view; 0: not in the view */
	struct frames_set frames; /* frames that contain x, once computed; else empty */
	uint32_t nr;
	struct extent *x; /* in order, not overlapping */
	struct extent own[]; /* the memory of x, if allocated with the layer */
};

/* A bottom layer. Takes the extents of `l` and shrinks their memory to fit; -ENOMEM. */
int layer_new(struct extent_list *l, _Atomic uint64_t *memory, struct layer **ret);
/* A layer on `below`, which it takes on success, made of these extents shifted by `off`. It must cover no byte that
 * `below` does not. -ENOMEM */
int layer_on(struct layer *below, uint32_t off, const struct extent *x, size_t nr, struct layer **ret);
/* A layer as read from the view: nothing is merged, and the extents of `l`, at least one, are taken. */
int layer_as_read(struct layer *below, struct extent_list *l, _Atomic uint64_t *memory, struct layer **ret);
struct layer *layer_get(struct layer *l);
void layer_put(struct layer *l); /* NULL is fine */
/* Do the layers cover all of [0, end)? */
static inline bool layer_covers(const struct layer *l, uint32_t end)
{
	return l->is_dense && end <= l->mapped;
}
/* The visible extents of the top `nr` layers, in an empty list; -ENOMEM. */
int layer_merge_some(const struct layer *top, unsigned nr, struct extent_list *ret);
int layer_merge(const struct layer *top, struct extent_list *ret); /* of all layers */
/* The frames that contain its own extents, borrowed. -ENOMEM */
int layer_frames(struct layer *l, const struct frames_set **ret);
