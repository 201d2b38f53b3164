/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Where a filesystem is mounted, and which part of it: a bind mount, as in containers, may show a subdirectory only. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct place {
	char point[PATH_MAX + 1]; /* the mountpoint: absolute, with a trailing slash */
	char root[PATH_MAX + 1]; /* the mounted directory of the filesystem, without leading or trailing slash; "": its root */
};

/* Finds the mount that `fd` was opened on. -ENOENT: not, or no longer, mounted in this mount namespace. 0/<0 */
int place_find(int fd, struct place *ret);
/* Converts a path in the filesystem, without a leading slash, to one relative to the mountpoint. NULL: not visible. */
const char *place_inside(const struct place *p, const char *path);

/*
 * openat(2) of a path on the mount of `dir`. It never crosses a mountpoint: a user's filesystem that is mounted on a
 * directory, or that a symbolic link leads to, may hang. Without `follows_links`, no symbolic link is followed (-ELOOP,
 * except the last name with O_PATH | O_NOFOLLOW), and the path must be below `dir`. -EXDEV: the path leads to another
 * mount, or a symbolic link is absolute.
 */
int place_open(int dir, const char *path, int flags, bool follows_links);
