/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sets of checkpoint files, and the variables in a set that are compacted together. */
#pragma once

#include "tools/analyze/analyze_sets.h"

/* The part of a variable that is in one file. */
struct compact_piece {
	const char *key; /* "": no variable */
	const struct coding_shape *shape;
	const char *wide; /* key of the variable that it was rounded from, the same in all files; NULL: none */
	size_t member; /* of the set */
	const struct typed_extent *extent; /* borrowed from the set */
	size_t nr_extents;
	uint64_t len;
};

struct compact_pieces {
	struct compact_piece *piece; /* by key, then by member */
	size_t nr;
	size_t nr_extents; /* of all pieces */
};

/*
 * All variables of a set, or without `aware` all files as plain bytes. Variables that are small in all files together
 * are treated as plain bytes: a frame of their own would cost more than it saves. Borrows the set. -ENOMEM; other
 * errors are those of reading a file, reported.
 */
int compact_pieces_init(struct compact_pieces *p, const struct set *set, bool aware);
void compact_pieces_release(struct compact_pieces *p);

/* Calls f for each step of up to `group` ranks (0: all), in order; `follows`: it is the next step of the same ranks.
 * Stops when f returns nonzero, and returns that. */
int compact_sets_each(struct files *files, unsigned group,
		      int (*f)(void *userdata, struct file **file, size_t nr, bool follows), void *userdata);
