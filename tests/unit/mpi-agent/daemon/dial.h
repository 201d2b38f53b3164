/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A connection to the socket at `path`, which may be longer than a socket address, or a negative errno. */
static inline int dial(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *name = strrchr(path, '/') + 1;
	char dir[256];
	int at, fd, r = 0;

	snprintf(dir, sizeof(dir), "%.*s", (int)(name - path), path);
	at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -errno;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", at, name);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		r = -errno;
	close(at);
	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}
