/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/noatime.h"

#include <errno.h>
#include <fcntl.h>

int openat_noatime(int dirfd, const char *path, int flags)
{
	int fd = openat(dirfd, path, flags | O_NOATIME);

	return fd < 0 && errno == EPERM ? openat(dirfd, path, flags) : fd;
}
