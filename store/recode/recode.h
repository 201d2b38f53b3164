/*
 * The chunks of a variable, one after the other in the order in which its parts, one for each file, are merged. For
 * compact.c alone. Belongs to one thread.
 */
#pragma once

#include "store/code/merge.h"
#include "store/engine/engine.h"
#include "store/pack/pack.h"

struct extent;

/* What a file has of the variable. */
struct compact_part {
	uint64_t ino;
	const struct compact_extent *extent; /* borrowed; one behind the other in the variable */
	size_t nr_extents;
	size_t at; /* the walk is in this extent, */
	uint64_t begin; /* which begins here in the variable */
	/* The segment of the recipe that was looked at last. */
	uint64_t segment; /* and 1 more; 0: none */
	struct extent *x;
	size_t nr_x;
};

struct compact_walk {
	struct engine *e;
	struct compact_part *part;
	struct merge_part *merge_part;
	struct merge merge;
	uint64_t bytes; /* of the variable */
	/* The piece of a part whose turn it is: bytes of the variable that are left of it, and those of the file that
	 * are walked through. */
	struct compact_part *in;
	uint64_t left, left_end;
	uint64_t begin, off, end;
	uint64_t origin; /* of the file: an element begins here */
	uint64_t at, next_at; /* bytes of all parts, as merged, before these and behind them */
};

/* A chunk that belongs to the variable: the one that has the byte in the middle of it. */
struct compact_chunk {
	struct pack_chunk_info info;
	uint32_t phase; /* bytes from its start to the first element that begins in it, modulo 8 */
	int64_t at; /* its first byte, among those of all parts as they are merged; it may be before them */
};

/* block: bytes of parts that take turns; 0: one whole part behind the other. -ENOMEM. */
int compact_walk_init(struct compact_walk *w, struct engine *e, const struct compact_variable *v, const uint64_t *inos,
		      uint64_t block);
void compact_walk_release(struct compact_walk *w); /* of zeros, too */
/* 1/0/<0. Chunks of other nodes, gone or damaged ones are passed over; what files refer to twice comes twice. */
int compact_walk_next(struct compact_walk *w, struct compact_chunk *ret);
/* Recipes may have changed. */
void compact_walk_forget(struct compact_walk *w);
/* Have they as many parts, with as many bytes each? Then what is at the same place in both belongs together. */
bool compact_same_parts(const struct compact_variable *a, const struct compact_variable *b);
/* As many parts, and in each half as many bytes? */
bool compact_half_parts(const struct compact_variable *half, const struct compact_variable *whole);
