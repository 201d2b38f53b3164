/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A checkpoint of a tier as a tree of names in memory, made from its manifest alone: no pack is read. Contents stay
 * runs of chunks, in the bytes of the manifest.
 *
 * Immutable once built: any number of threads may read it. Memory: about 150 bytes for each inode with its name, 24 for
 * each MiB of content, and extended attributes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "store/tier/tier_format.h"

struct tier_inode {
	uint32_t mode, uid, gid, nlink;
	uint64_t rdev;
	uint64_t size, mapped; /* bytes; mapped: without holes. Of a symbolic link the length of its target */
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint32_t parent; /* directory of its first name; of the top: itself */
	uint32_t name; /* its first name, in tier_tree.names */
	uint32_t first, nr; /* of a directory: its entries; of a file: its stretches */
	uint32_t first_xattr, nr_xattrs;
	const char *target; /* of a symbolic link; no zero byte at the end */
};

struct tier_entry {
	uint32_t dir, inode;
	uint32_t name; /* in tier_tree.names */
};

struct tier_xattr {
	uint32_t name; /* in tier_tree.names */
	uint32_t len;
	const uint8_t *value;
};

/* Some content of a file: a record of its runs. */
struct tier_stretch {
	uint64_t off;
	const uint8_t *runs;
	uint32_t len; /* of the record */
};

struct tier_tree {
	struct tier_inode *inodes; /* number 0 is the top */
	uint32_t nr_inodes;
	struct tier_entry *entries; /* sorted by directory and name */
	struct tier_xattr *xattrs;
	struct tier_stretch *stretches;
	uint32_t nr_entries, nr_xattrs, nr_stretches;
	struct buf names; /* each with a zero byte */
	uint64_t memory; /* bytes that the tree takes */
};

/* Borrows the manifest's bytes as long as it lives. -EBADMSG, -EOPNOTSUPP, -ENOMEM. Nothing is logged. */
int tier_tree_new(const struct tier_manifest *m, struct tier_tree **ret);
void tier_tree_free(struct tier_tree *t); /* NULL is fine */
void tier_tree_freep(struct tier_tree **t);

static inline const char *tier_tree_name(const struct tier_tree *t, uint32_t name)
{
	return (const char *)t->names.data + name;
}
/* The entry of this name; NULL: there is none. */
const struct tier_entry *tier_tree_find(const struct tier_tree *t, uint32_t dir, const char *name);
/* The first of its paths below the top, names with a slash between them; "": the top. Appended, with a zero byte. */
void tier_tree_path(const struct tier_tree *t, uint32_t inode, struct buf *ret);

/* Iterates over the runs of a regular file. Borrows the tree. */
struct tier_runs {
	const struct tier_tree *tree;
	uint32_t stretch, end; /* the next ones */
	struct cursor c; /* in the one before */
	uint64_t off;
};
/* The first run will be the one that has byte `off`, or none. */
struct tier_runs tier_runs_from(const struct tier_tree *t, uint32_t inode, uint64_t off);
/* false: the end of the file. *ret_off: where the run begins in the file. */
bool tier_runs_next(struct tier_runs *it, struct tier_run *ret, uint64_t *ret_off);
