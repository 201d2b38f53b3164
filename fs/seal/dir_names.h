/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names of directories in the directories that contain them. A directory's record has its parent but not its name,
 * which is found by reading the parent. To list many sealed directories, that would be done for each of them; so the
 * places of the others are kept, as hints, in bounded memory. A hint is checked against the entry that it leads to.
 */
#pragma once

#include <stdint.h>

struct db;
struct dir_names;
struct ns_dirent;

int dir_names_new(struct dir_names **ret);
void dir_names_free(struct dir_names *n); /* NULL is fine */

/* The entry of `dir` in its parent. Callers ask in the order of inode numbers; the parent is read once for some
 * thousand of them. Call without a lock. 0; -ENOENT; -EINTR: cancelled; <0 */
int dir_names_find(struct dir_names *n, struct db *db, uint64_t parent, uint64_t dir, struct ns_dirent *ret);
