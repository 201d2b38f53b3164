/*
 * One segment (1 MiB) of a file's recipe in memory: extents in order of offset, no two overlapping, no two that could
 * be one. Pure: no I/O, no lock.
 *
 * A segment has its extents for itself, or shares them with segments of other files as layers (layer.h). Whoever looks
 * at x of one that may share has it settled first: then all its extents are there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "store/engine/layer.h"
#include "store/engine/referrers.h"

struct segment {
	uint64_t number; /* file offset / SEGMENT_SIZE */
	struct extent *x; /* NULL, where there are layers: to be settled */
	/* size 0, where there are layers: x is that of the one layer; else x is all of them, merged */
	uint32_t nr, size;
	struct layer *layers; /* the highest; NULL: nothing is shared */
	_Atomic uint64_t *memory; /* where layers are counted */
	size_t counted, waiting; /* bytes that content.c has counted for it: in memory; that the view is to get */
	bool dirty;	      /* differs from the view */
	struct frames_set filed; /* while it does: what the view has refers to these */
	struct segment *lower, *higher; /* in the tree of its file */
};

/* Does nothing refer to it? */
static inline bool segment_is_empty(const struct segment *s)
{
	return s->nr == 0 && !s->layers;
}
int segment_settle(struct segment *s); /* -ENOMEM */
/* `to`, which is empty, gets the extents of `from`, which is not: by reference, however many. -ENOMEM */
int segment_share(struct segment *from, struct segment *to);
void segment_put_layers(struct segment *s, struct layer *l); /* of one that is empty; takes them */
void segment_release(struct segment *s); /* all it has */
/* Set [off, off+len) of a settled segment to `nr` extents given relative to `off`; what they leave out becomes a hole.
 * *ret_mapped is by how many mapped bytes the segment grew. -ENOMEM leaves it as it was. */
int segment_replace(struct segment *s, uint32_t off, uint32_t len, const struct extent *x, size_t nr,
		    int64_t *ret_mapped);
/* The same for what the extents cover only: what lies between them stays. A segment that shares need not be settled: if
 * it can be, they are laid over what it shares. */
int segment_patch(struct segment *s, uint32_t off, const struct extent *x, size_t nr, int64_t *ret_mapped);
/* Index of the first extent that ends after `off`; s->nr if none. */
size_t segment_find(const struct segment *s, uint32_t off);
uint64_t segment_mapped(const struct segment *s);

/*
 * The segments of a file that are in memory, by number: a tree that chance keeps flat, as where a segment happens to
 * lie in memory says which stands above which. It owns nothing; all steps are some 2 log n.
 */
struct segment_tree {
	struct segment *top; /* NULL: none */
};
struct segment *segment_tree_find(const struct segment_tree *t, uint64_t number); /* NULL: not there */
struct segment *segment_tree_from(const struct segment_tree *t, uint64_t number); /* the first from there on, or NULL */
void segment_tree_add(struct segment_tree *t, struct segment *s); /* its number must not be there */
void segment_tree_remove(struct segment_tree *t, struct segment *s);

/* Is what lies at `next`, and `off` of the segment, one with `x`? Only inside one frame: between frames lies a
 * table. */
bool extent_continues(const struct extent *x, uint32_t off, struct addr next);

/* An extent list under construction: appends and merges neighbours that lie side by side in one frame. */
struct extent_list {
	struct extent *x;
	size_t nr, size;
};
int extent_list_reserve(struct extent_list *l, size_t nr); /* more that can be added without -ENOMEM */
int extent_list_add(struct extent_list *l, uint32_t off, uint32_t len, struct addr a);
/* Those of a segment, where none could be one with its neighbour, `shift` bytes further. */
int extent_list_append(struct extent_list *l, const struct extent *x, size_t nr, int64_t shift);
/* The upper ones, and where they are not what can be seen of the lower ones, in an empty list. */
int extent_list_lay_over(const struct extent *lower, size_t nr_lower, const struct extent *upper, size_t nr_upper,
			 struct extent_list *ret);
/* The same of at least one list, the lowest first. */
struct extent_span {
	const struct extent *x;
	size_t nr;
};
int extent_list_merge(const struct extent_span *spans, size_t nr, struct extent_list *ret);
void extent_list_release(struct extent_list *l);
