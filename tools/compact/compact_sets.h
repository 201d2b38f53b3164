/* Files of checkpoints, set by set, and what of them becomes variables to be compacted together. */
#pragma once

#include "tools/analyze/analyze_sets.h"

/* A part of a variable: what a file has of it. */
struct compact_piece {
	const char *key; /* "": no variable */
	const struct coding_shape *shape;
	const char *wide; /* key of what it was rounded from, the same in all files; NULL: it was not */
	size_t member; /* of the set */
	const struct typed_extent *extent; /* borrowed from the set */
	size_t nr_extents;
	uint64_t len;
};

struct compact_pieces {
	struct compact_piece *piece; /* by key, then by member */
	size_t nr;
	size_t nr_extents; /* of all */
};

/*
 * All variables of a set; or, not `aware`, all files as if they had none. Variables that are small in all files
 * together count as no variable: a frame of their own would cost more than it saves. Borrows the set. -ENOMEM, or a
 * file could not be read, which has been told.
 */
int compact_pieces_init(struct compact_pieces *p, const struct set *set, bool aware);
void compact_pieces_release(struct compact_pieces *p);

/* Each step of up to `group` ranks (0: all) that belong together, in order; `follows`: it is the step after the last
 * one. Stops when f returns other than 0, and returns that. */
int compact_sets_each(struct files *files, unsigned group,
		      int (*f)(void *userdata, struct file **file, size_t nr, bool follows), void *userdata);
