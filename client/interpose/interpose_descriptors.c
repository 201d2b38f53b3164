/* SPDX-License-Identifier: BSD-3-Clause */
/* Interposed functions (interpose.h): descriptors, sockets, their options, and polling. */
#include "client/interpose/interpose.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/lib/own_fd.h"

/* --- descriptors of libckptfs are invisible to the program --- */

int close(int fd)
{
	if (own_fd_has(fd)) {
		errno = EBADF;
		return -1;
	}
	return NEXT(close)(fd);
}

/* A bare system call: not every C library has close_range(). */
int close_range(unsigned first, unsigned last, int flags)
{
	while (first <= last) {
		int fd = first <= INT_MAX ? own_fd_next((int)first) : -1;
		bool ours = fd >= 0 && (unsigned)fd <= last;
		unsigned until = ours ? (unsigned)fd : last;

		if ((!ours || until > first) && syscall(SYS_close_range, first, ours ? until - 1 : until, flags) < 0)
			return -1;
		if (until == last)
			return 0;
		first = until + 1;
	}
	return 0;
}

void closefrom(int low)
{
	close_range(low > 0 ? (unsigned)low : 0, UINT_MAX, 0);
}

int dup2(int fd, int to)
{
	if (own_fd_has(to)) {
		errno = EBUSY;
		return -1;
	}
	return NEXT(dup2)(fd, to);
}

int dup3(int fd, int to, int flags)
{
	if (own_fd_has(to)) {
		errno = EBUSY;
		return -1;
	}
	return NEXT(dup3)(fd, to, flags);
}

/* --- descriptors and sockets --- */

int pipe(int fds[2])
{
	return RESULTS(fds, 2 * sizeof(*fds), at, NEXT(pipe)(at));
}

int pipe2(int fds[2], int flags)
{
	return RESULTS(fds, 2 * sizeof(*fds), at, NEXT(pipe2)(at, flags));
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
	return RESULTS(fds, 2 * sizeof(*fds), at, NEXT(socketpair)(domain, type, protocol, at));
}

int accept(int fd, __SOCKADDR_ARG address, socklen_t *len)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(accept)(fd, at, at_len));
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *len, int flags)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(accept4)(fd, at, at_len, flags));
}

int getsockname(int fd, __SOCKADDR_ARG address, socklen_t *len)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(getsockname)(fd, at, at_len));
}

int getpeername(int fd, __SOCKADDR_ARG address, socklen_t *len)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(getpeername)(fd, at, at_len));
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	return ADDRESS(value, len, at, at_len, NEXT(getsockopt)(fd, level, name, at, at_len));
}

/* The kernel writes back how much of each message was sent, for at most UIO_MAXIOV messages. */
int sendmmsg(int fd, struct mmsghdr *m, unsigned nr, int flags)
{
	return RESULTS(m, MIN((size_t)nr, (size_t)UIO_MAXIOV) * sizeof(*m), at, NEXT(sendmmsg)(fd, at, nr, flags));
}

/* --- the type and length of `p` vary: the longest possible range is opened --- */

int ioctl(int fd, unsigned long request, ...)
{
	void *p = TAKE_ARGUMENT(request);
	size_t len = MAX((size_t)_IOC_SIZE(request), (size_t)256); /* older requests do not encode it */

	return OPENED(ckptfs_touch(p, len), NEXT(ioctl)(fd, request, p));
}

int fcntl(int fd, int command, ...)
{
	void *p = TAKE_ARGUMENT(command);

	return OPENED(ckptfs_touch(p, sizeof(struct flock)), NEXT(fcntl)(fd, command, p));
}

int fcntl64(int fd, int command, ...)
{
	void *p = TAKE_ARGUMENT(command);

	return OPENED(ckptfs_touch(p, sizeof(struct flock64)), NEXT(fcntl64)(fd, command, p));
}

/* --- waiting for descriptors --- */

int poll(struct pollfd *fds, nfds_t nr, int timeout)
{
	return RESULTS(fds, nr * sizeof(*fds), at, NEXT(poll)(at, nr, timeout));
}

int ppoll(struct pollfd *fds, nfds_t nr, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return RESULTS(fds, nr * sizeof(*fds), at, NEXT(ppoll)(at, nr, timeout, mask));
}

/* The kernel accesses as many words as `nr` descriptors need, which may be more than fd_set has. */
static size_t set_bytes(int nr)
{
	return nr > 0 ? ((size_t)nr + 63) / 64 * 8 : 0;
}

#define SETS(nr, read, write, except, call)                                            \
	RESULTS(read, set_bytes(nr), read_at,                                          \
		RESULTS(write, set_bytes(nr), write_at, RESULTS(except, set_bytes(nr), except_at, call)))

int select(int nr, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout)
{
	return SETS(nr, read, write, except, RESULT(timeout, at, NEXT(select)(nr, read_at, write_at, except_at, at)));
}

int pselect(int nr, fd_set *read, fd_set *write, fd_set *except, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return SETS(nr, read, write, except, NEXT(pselect)(nr, read_at, write_at, except_at, timeout, mask));
}

static size_t event_bytes(int nr)
{
	return nr > 0 ? (size_t)nr * sizeof(struct epoll_event) : 0;
}

int epoll_wait(int fd, struct epoll_event *events, int nr, int timeout)
{
	return RESULTS(events, event_bytes(nr), at, NEXT(epoll_wait)(fd, at, nr, timeout));
}

int epoll_pwait(int fd, struct epoll_event *events, int nr, int timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return RESULTS(events, event_bytes(nr), at, NEXT(epoll_pwait)(fd, at, nr, timeout, mask));
}

int epoll_pwait2(int fd, struct epoll_event *events, int nr, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return RESULTS(events, event_bytes(nr), at, NEXT(epoll_pwait2)(fd, at, nr, timeout, mask));
}

/* --- variants for programs compiled with -D_FORTIFY_SOURCE --- */

int __poll_chk(struct pollfd *fds, nfds_t nr, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t nr, const struct timespec *timeout, const sigset_t *mask, size_t room);

int __poll_chk(struct pollfd *fds, nfds_t nr, int timeout, size_t room)
{
	return nr > room / sizeof(*fds) ? NEXT(__poll_chk)(fds, nr, timeout, room) : poll(fds, nr, timeout);
}

int __ppoll_chk(struct pollfd *fds, nfds_t nr, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	return nr > room / sizeof(*fds) ? NEXT(__ppoll_chk)(fds, nr, timeout, mask, room) : ppoll(fds, nr, timeout, mask);
}
