/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One segment (1 MiB) of a file's recipe in memory: extents sorted by offset, not overlapping, and merged where
 * possible. Pure: no I/O, no lock.
 *
 * A segment owns its extents, or shares them with segments of other files as layers (layer.h). A segment that may share
 * must be settled before x is used: then x holds all extents.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "store/file/extents/layer.h"
#include "store/gc/backrefs.h"

struct segment {
	uint64_t number; /* file offset / SEGMENT_SIZE */
	struct extent *x; /* NULL with layers: not settled */
	/* with layers, size 0: x belongs to the only layer; else x is all layers merged */
	uint32_t nr, size;
	struct layer *layers; /* the top one; NULL: nothing is shared */
	_Atomic uint64_t *memory; /* accounts layers */
	size_t counted, waiting; /* bytes accounted by content.c: in memory; to be written to the view */
	bool dirty;	      /* differs from the view */
	struct frames_set filed; /* while dirty: the frames that the view's version refers to */
	struct segment *lower, *higher; /* in the tree of its file */
};

/* True if it has no extents. */
static inline bool segment_is_empty(const struct segment *s)
{
	return s->nr == 0 && !s->layers;
}
int segment_settle(struct segment *s); /* -ENOMEM */
/* Let `to`, which is empty, share the extents of `from`, which is not; by reference, whatever their number. -ENOMEM */
int segment_share(struct segment *from, struct segment *to);
void segment_put_layers(struct segment *s, struct layer *l); /* s must be empty; takes the layers */
void segment_release(struct segment *s); /* frees all it holds */
/* Set [off, off+len) of a settled segment to `nr` extents relative to `off`; uncovered parts become holes. *ret_mapped
 * is the change in mapped bytes. -ENOMEM: unchanged. */
int segment_replace(struct segment *s, uint32_t off, uint32_t len, const struct extent *x, size_t nr,
		    int64_t *ret_mapped);
/* The same, but bytes between the extents stay as they are. A sharing segment need not be settled: if possible, the
 * extents become a new layer. */
int segment_patch(struct segment *s, uint32_t off, const struct extent *x, size_t nr, int64_t *ret_mapped);
/* Index of the first extent that ends after `off`; s->nr if none. */
size_t segment_find(const struct segment *s, uint32_t off);
uint64_t segment_mapped(const struct segment *s);

/* The segments of a file in memory, by number: a treap with priorities taken from the segments' addresses. It owns
 * nothing; operations take some 2 log n steps. */
struct segment_tree {
	struct segment *top; /* NULL: none */
};
struct segment *segment_tree_find(const struct segment_tree *t, uint64_t number); /* NULL: not there */
/* the first with at least this number, or NULL */
struct segment *segment_tree_from(const struct segment_tree *t, uint64_t number);
void segment_tree_add(struct segment_tree *t, struct segment *s); /* its number must not exist yet */
void segment_tree_remove(struct segment_tree *t, struct segment *s);

/* Does address `next`, at `off` of the segment, continue `x`? Only within a frame: a table lies between frames. */
bool extent_continues(const struct extent *x, uint32_t off, struct addr next);

/* An extent list under construction: appends, and merges extents adjacent in one frame. */
struct extent_list {
	struct extent *x;
	size_t nr, size;
};
int extent_list_reserve(struct extent_list *l, size_t nr); /* makes room to add `nr` more without -ENOMEM */
int extent_list_add(struct extent_list *l, uint32_t off, uint32_t len, struct addr a);
/* Append extents of a segment, which are already merged, shifted by `shift` bytes. */
int extent_list_append(struct extent_list *l, const struct extent *x, size_t nr, int64_t shift);
/* The upper extents and the visible parts of the lower ones, in an empty list. */
int extent_list_lay_over(const struct extent *lower, size_t nr_lower, const struct extent *upper, size_t nr_upper,
			 struct extent_list *ret);
/* The same for one or more lists, lowest first. */
struct extent_span {
	const struct extent *x;
	size_t nr;
};
int extent_list_merge(const struct extent_span *spans, size_t nr, struct extent_list *ret);
void extent_list_release(struct extent_list *l);
