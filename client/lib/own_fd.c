/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>

#include "base/util.h"

#define NUMBER_MIN 3 /* above standard output and error */
#define NUMBER_WANTED 512 /* above what shells and programs choose */

static _Atomic(int) ours[OWN_FD_MAX]; /* number + 1; 0: none */

static int lowest_number(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur / 2 > NUMBER_WANTED)
		return NUMBER_WANTED;
	return MAX((int)limit.rlim_cur / 2, NUMBER_MIN);
}

static void register_fd(int fd)
{
	for (size_t i = 0; i < OWN_FD_MAX; i++) {
		int none = 0;

		if (atomic_compare_exchange_strong(&ours[i], &none, fd + 1))
			return;
	}
}

static void unregister_fd(int fd)
{
	for (size_t i = 0; i < OWN_FD_MAX; i++) {
		int number = fd + 1;

		atomic_compare_exchange_strong(&ours[i], &number, 0);
	}
}

int own_fd(int fd)
{
	int saved = errno, to;

	if (fd < 0)
		return fd;
	to = fcntl(fd, F_DUPFD_CLOEXEC, lowest_number());
	if (to < 0 && fd >= NUMBER_MIN) {
		to = fd; /* near the limit of descriptors */
	} else {
		closep(&fd);
		if (to < 0) {
			errno = EMFILE;
			return -EMFILE;
		}
	}
	register_fd(to);
	errno = saved;
	return to;
}

void own_fd_closep(int *fd)
{
	if (*fd < 0)
		return;
	unregister_fd(*fd);
	closep(fd);
}

bool own_fd_has(int fd)
{
	return own_fd_next(fd) == fd;
}

int own_fd_next(int from)
{
	int next = -1;

	for (size_t i = 0; i < OWN_FD_MAX; i++) {
		int fd = atomic_load(&ours[i]) - 1;

		if (fd >= from && fd >= 0 && (next < 0 || fd < next))
			next = fd;
	}
	return next;
}
