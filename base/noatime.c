/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/noatime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int openat_noatime(int dirfd, const char *path, int flags)
{
	int fd = openat(dirfd, path, flags | O_NOATIME);

	return fd < 0 && errno == EPERM ? openat(dirfd, path, flags) : fd;
}

/* O_PATH opens the inode without calling its driver. The link in /proc leads to that inode, wherever the path leads. */
int open_plain_noatime(int dirfd, const char *path, int flags)
{
	int found = openat(dirfd, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW)), fd = -1, error;
	char link[32];
	struct stat st;

	if (found < 0)
		return -1;
	if (fstat(found, &st) == 0) {
		errno = EINVAL;
		snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
		if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
			fd = openat_noatime(AT_FDCWD, link, flags & ~O_NOFOLLOW);
	}
	error = errno;
	close(found);
	errno = error;
	return fd;
}
