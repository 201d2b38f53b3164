/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A filesystem in small on top of the engine, without FUSE: enough names, attributes and bytes to see whether a store
 * is right, as fs/ would write them. Paths are relative to the root and have no leading slash. One thread per subtree.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "store/engine.h"

/* Tiny steps, so that a few hundred operations go through every transition. */
struct engine_conf tree_conf(void);
/* Compression (not at first) and number of processors. Each combination has one seed in eight. */
void tree_set_options(uint64_t seed);

/* Times that tests set are before this; later ones are the engine's own "now" and compare as equal. */
#define TREE_TIME_NOW INT64_C(1000000000000000000)

int tree_format(struct engine *e, const char *const *dirs, size_t nr); /* the root and `dirs` in it: one transaction */
int tree_mkdir(struct engine *e, const char *path);
int tree_create(struct engine *e, const char *path, uint32_t mode);
int tree_symlink(struct engine *e, const char *path, const char *target);
int tree_link(struct engine *e, const char *path, const char *new_path);
int tree_rename(struct engine *e, const char *path, const char *new_path); /* over a file that may be there */
int tree_unlink(struct engine *e, const char *path);
int tree_set_owner(struct engine *e, const char *path, uint32_t mode, uint32_t uid);
int tree_set_xattr(struct engine *e, const char *path, const char *name, const char *value); /* NULL removes */
int tree_number(struct engine *e, const char *path, uint64_t *ret); /* of its inode */
int tree_open(struct engine *e, const char *path, struct content **ret); /* every other file is cut by content */

/*
 * Everything below `path`, a line per name, sorted by name:
 *	f0 100644 nlink 1 uid 0 size 8192 mtime now 0123456789abcdef user.a=b
 * with a hash of the bytes; every byte is read. A path that is not there gives an empty text. NUL-terminated.
 * -EIO, -EBADMSG: something could not be read.
 */
int tree_list(struct engine *e, const char *path, struct buf *ret);
/* The same for a damaged store: what cannot be read is a line "f0 !" and the rest goes on. */
int tree_list_damaged(struct engine *e, const char *path, struct buf *ret);
/* Is everything in `found` (of a damaged store) as in `expected`, or told to be unreadable? Why not: to `to`. */
bool tree_agrees(const char *expected, const char *found, FILE *to);
/* A line as tree_list() writes it, for models. */
struct tree_line {
	const char *name;
	uint32_t mode, nlink, uid;
	uint64_t size, hash; /* of regular files */
	int64_t mtime_ns;
	const char *target, *xattr; /* NULL: none */
};
void tree_line_add(const struct tree_line *line, struct buf *ret);
uint64_t tree_hash(const void *p, size_t len);
