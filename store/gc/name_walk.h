/*
 * All names of a store, with their paths: for telling which files something is about, when only inodes are known. The
 * path above a name is found upwards, directory by directory, and only if asked for; names come sorted by directory,
 * so it is done once for each.
 *
 *	while ((r = name_walk_next(&w)) > 0)
 *		if (is_wanted(w.ino) && (r = name_walk_path(&w)) == 0)
 *			puts(w.path.data);
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/fp.h"

struct db;
struct db_iter;

struct name_walk {
	uint64_t ino; /* of the current name */
	struct buf path; /* of it, from the root without a slash, with its NUL, after name_walk_path() */

	struct db *db;
	const struct fp_key *key;
	struct db_iter *it;
	const void *dirent, *value; /* the current entry */
	size_t value_len;
	struct buf dir_path;
	uint64_t dir; /* that it is of */
};

/* borrows both; release it even if this fails */
int name_walk_open(struct db *db, const struct fp_key *key, struct name_walk *ret);
void name_walk_release(struct name_walk *w);
int name_walk_next(struct name_walk *w); /* 1/0/<0; damaged entries are passed over */
/* 0/<0. What is not connected to the root begins with "?/". */
int name_walk_path(struct name_walk *w);
