/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A checkpoint of a tier as a tree of names in memory, built from its manifest without reading packs. The content of a
 * file remains encoded, as runs of chunks in the manifest.
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
	uint64_t size, mapped; /* bytes; mapped: without holes. Symbolic link: length of the target */
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

/* Part of the content of a file: one record of runs. */
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

/* Borrows the bytes of the manifest. -EBADMSG, -EOPNOTSUPP, -ENOMEM. Logs nothing. */
int tier_tree_new(const struct tier_manifest *m, struct tier_tree **ret);
void tier_tree_free(struct tier_tree *t); /* NULL is fine */
void tier_tree_freep(struct tier_tree **t);

static inline const char *tier_tree_name(const struct tier_tree *t, uint32_t name)
{
	return (const char *)t->names.data + name;
}
/* The entry of this name; NULL: there is none. */
const struct tier_entry *tier_tree_find(const struct tier_tree *t, uint32_t dir, const char *name);
/* Appends the first path of the inode below the top, with a zero byte. "": the top. */
void tier_tree_path(const struct tier_tree *t, uint32_t inode, struct buf *ret);

/* Iterates over the runs of a regular file. Borrows the tree. */
struct tier_runs {
	const struct tier_tree *tree;
	uint32_t stretch, end; /* the remaining stretches */
	struct cursor c; /* in the current stretch */
	uint64_t off;
};
/* Begins with the run that contains byte `off`. */
struct tier_runs tier_runs_from(const struct tier_tree *t, uint32_t inode, uint64_t off);
/* false: the end of the file. *ret_off: where the run begins in the file. */
bool tier_runs_next(struct tier_runs *it, struct tier_run *ret, uint64_t *ret_off);
