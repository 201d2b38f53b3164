/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Paths of directories, from the root of the mount. They are not stored: each name is looked up in the directory that
 * contains it (dir_names.h), and directories above may be renamed meanwhile. So a path is built without a lock, then
 * checked under one.
 */
#pragma once

#include <stdint.h>

struct buf;
struct fs;
struct ns_inode;

/*
 * Prepend the path of a directory to *path. The time grows with the number and size of the directories above, which
 * users choose, so the caller holds no lock. -ENOENT: also if one was renamed meanwhile; -ELOOP: longer than
 * NS_PATH_MAX or too deep.
 */
int dir_path_prepend(struct fs *fs, uint64_t dir, struct buf *path);
/* -ENAMETOOLONG: the directory is too deep for a path that could be opened or returned; -ENOENT; <0. */
int dir_path_check_depth(struct fs *fs, const struct ns_inode *of);
/* 0: `path` currently leads to `dir`; -ENOENT: it does not; <0. Requires fs.names, shared. */
int dir_path_check(struct fs *fs, const struct buf *path, uint64_t dir);
