/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Iterates over all names of a store with their paths, to name the files concerned when only inodes are known. The path
 * of a directory is built upwards, and only on request; names are sorted by directory, so this is done once for each.
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
	struct buf path; /* valid after name_walk_path(): from the root, no leading slash, NUL-terminated */

	struct db *db;
	const struct fp_key *key;
	struct db_iter *it;
	const void *dirent, *value; /* the current entry */
	size_t value_len;
	struct buf dir_path;
	uint64_t dir; /* directory of dir_path */
};

/* borrows both; release it even if this fails */
int name_walk_open(struct db *db, const struct fp_key *key, struct name_walk *ret);
void name_walk_release(struct name_walk *w);
int name_walk_next(struct name_walk *w); /* 1/0/<0; skips damaged entries */
/* 0/<0. Paths not connected to the root begin with "?/". */
int name_walk_path(struct name_walk *w);
