/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Iterates over the chunks of a variable in the order in which its parts, one per file, are merged. Used by recode*.c
 * only. Belongs to one thread.
 */
#pragma once

#include "store/codec/merge.h"
#include "store/engine.h"
#include "store/pack/pack.h"

struct extent;

/* The part of the variable that is in one file. */
struct compact_part {
	uint64_t ino;
	const struct compact_extent *extent; /* borrowed; contiguous in the variable */
	size_t nr_extents;
	size_t at; /* index of the current extent, */
	uint64_t begin; /* and its offset in the variable's part */
	/* The segment of the recipe that was loaded last. */
	uint64_t segment; /* plus 1; 0: none */
	struct extent *x;
	size_t nr_x;
};

struct compact_walk {
	struct engine *e;
	struct compact_part *part;
	struct merge_part *merge_part;
	struct merge merge;
	uint64_t bytes; /* of the variable */
	/* The current piece of the current part: the range of the part that is left, and the range of the file being
	 * walked. */
	struct compact_part *in;
	uint64_t left, left_end;
	uint64_t begin, off, end;
	uint64_t origin; /* file offset at which an element begins */
	uint64_t at, next_at; /* offset of this piece and of the next one in the merged parts */
};

/* A chunk of the variable: a chunk belongs to it if its middle byte does. */
struct compact_chunk {
	struct pack_chunk_info info;
	uint32_t phase; /* bytes from its start to the first element that begins in it, modulo 8 */
	int64_t at; /* offset of its first byte in the merged parts; may be negative */
};

/* block: bytes after which parts alternate; 0: whole parts one after another. -ENOMEM. */
int compact_walk_init(struct compact_walk *w, struct engine *e, const struct compact_variable *v, const uint64_t *inos,
		      uint64_t block);
void compact_walk_release(struct compact_walk *w); /* zeros are fine */
/* 1/0/<0. Skips chunks of other nodes and freed or damaged ones; one that files refer to twice comes twice. */
int compact_walk_next(struct compact_walk *w, struct compact_chunk *ret);
/* Drops cached recipes, which may have changed. */
void compact_walk_forget(struct compact_walk *w);
/* Have they the same number of parts, of the same sizes? Then data at the same offset belongs together. */
bool compact_same_parts(const struct compact_variable *a, const struct compact_variable *b);
/* The same number of parts, each of half the size? */
bool compact_half_parts(const struct compact_variable *half, const struct compact_variable *whole);
