/* Where a mount is, and what of its filesystem is there: a bind mount, as containers are given, may have a part. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct place {
	char point[PATH_MAX + 1]; /* absolute, with a slash at its end */
	char root[PATH_MAX + 1]; /* of the filesystem, what is mounted there; without slashes at its ends, "": all */
};

/* Of the mount that `fd` was opened on. -ENOENT: it is not mounted any more, or not for this process. 0/<0 */
int place_find(int fd, struct place *ret);
/* What a path in the filesystem, without a slash in front, is from the mountpoint on. NULL: not to be seen there. */
const char *place_inside(const struct place *p, const char *path);

/*
 * openat(2) of a path on the mount of `dir`. It never crosses a mountpoint: the filesystem of a user that is mounted on
 * a directory, or that a symbolic link leads to, may not answer. Without `follows_links`, no symbolic link is followed
 * (-ELOOP, except the last name with O_PATH | O_NOFOLLOW), and the path lies below `dir`. -EXDEV: the path leads to
 * another mount, or a symbolic link is absolute.
 */
int place_open(int dir, const char *path, int flags, bool follows_links);
