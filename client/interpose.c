/*
 * System calls that write to memory, of a program with memory that is tracked by mprotect(2): there the kernel does not raise SIGSEGV but the call
 * fails with EFAULT. So functions are put before those of the C library that are used for it: what they will write to is opened first.
 * If another thread asks for a checkpoint in between, the pages are closed again and the call may fail; then it is made once more. (A
 * datagram may be lost by that: the kernel has taken it. Where that matters, no checkpoint is asked for while another thread receives.)
 *
 * And sigaction(2) and signal(2): a handler of SIGSEGV that the program, or MPI, installs is called for what is none of ours; ours stays.
 *
 * They are called before anything has been initialised: by constructors, by the loader, by sanitizers that begin. So up to the look at that variable
 * they use nothing but static data; functions are looked for when they are first called; and this file is compiled without sanitizers.
 *
 * None of it costs more than a look at a variable where no region is tracked that way. A call that is not here (see ckptfs(3)) wants
 * ckptfs_touch() before it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"
#include "client/ckptfs.h"
#include "client/client.h"
#include "client/own_fd.h"
#include "client/track.h"

static void *next_of(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort(); /* it is called by somebody, who has linked it */
	return p;
}

/* The function that this one is put before; looked for once. */
#define NEXT(name)                                                                      \
	({                                                                              \
		static __typeof__(&name) _next;                                         \
		__typeof__(&name) _found = __atomic_load_n(&_next, __ATOMIC_RELAXED);   \
		if (!_found) {                                                          \
			_found = (__typeof__(&name))next_of(#name);                     \
			__atomic_store_n(&_next, _found, __ATOMIC_RELAXED);             \
		}                                                                       \
		_found;                                                                 \
	})

static void open_iov(const struct iovec *iov, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		ckptfs_touch(iov[i].iov_base, iov[i].iov_len);
}

/*
 * `open` opens what `call` writes to. Pages that were open when it was made and are not any more have been closed by a checkpoint in between:
 * an EFAULT that comes without one is the program's.
 */
#define CALL(type, open, call)                                                          \
	({                                                                              \
		type _r;                                                                \
		uint64_t _epoch;                                                        \
		if (track_mprotect_used())                                              \
			do {                                                            \
				_epoch = atomic_load(&client.epoch_ns);                 \
				open;                                                   \
				_r = call;                                              \
			} while (_r == (type)-1 && errno == EFAULT && _epoch != atomic_load(&client.epoch_ns)); \
		else                                                                    \
			_r = call;                                                      \
		_r;                                                                     \
	})

/* --- reading --- */

ssize_t read(int fd, void *p, size_t len)
{
	return CALL(ssize_t, ckptfs_touch(p, len), NEXT(read)(fd, p, len));
}

ssize_t pread(int fd, void *p, size_t len, off_t off)
{
	return CALL(ssize_t, ckptfs_touch(p, len), NEXT(pread)(fd, p, len, off));
}

ssize_t pread64(int fd, void *p, size_t len, off64_t off)
{
	return CALL(ssize_t, ckptfs_touch(p, len), NEXT(pread64)(fd, p, len, off));
}

ssize_t readv(int fd, const struct iovec *iov, int nr)
{
	return CALL(ssize_t, open_iov(iov, (size_t)nr), NEXT(readv)(fd, iov, nr));
}

ssize_t preadv(int fd, const struct iovec *iov, int nr, off_t off)
{
	return CALL(ssize_t, open_iov(iov, (size_t)nr), NEXT(preadv)(fd, iov, nr, off));
}

ssize_t preadv64(int fd, const struct iovec *iov, int nr, off64_t off)
{
	return CALL(ssize_t, open_iov(iov, (size_t)nr), NEXT(preadv64)(fd, iov, nr, off));
}

ssize_t preadv2(int fd, const struct iovec *iov, int nr, off_t off, int flags)
{
	return CALL(ssize_t, open_iov(iov, (size_t)nr), NEXT(preadv2)(fd, iov, nr, off, flags));
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int nr, off64_t off, int flags)
{
	return CALL(ssize_t, open_iov(iov, (size_t)nr), NEXT(preadv64v2)(fd, iov, nr, off, flags));
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nr_local, const struct iovec *remote,
			 unsigned long nr_remote, unsigned long flags)
{
	return CALL(ssize_t, open_iov(local, nr_local), NEXT(process_vm_readv)(pid, local, nr_local, remote, nr_remote, flags));
}

ssize_t getrandom(void *p, size_t len, unsigned flags)
{
	return CALL(ssize_t, ckptfs_touch(p, len), NEXT(getrandom)(p, len, flags));
}

/* The C library reads large pieces straight to where they are to be. What it has in its buffer it copies. */
size_t fread(void *p, size_t size, size_t nr, FILE *f)
{
	if (track_mprotect_used())
		ckptfs_touch(p, size * nr);
	return NEXT(fread)(p, size, nr, f);
}

/* --- receiving --- */

ssize_t recv(int fd, void *p, size_t len, int flags)
{
	return CALL(ssize_t, ckptfs_touch(p, len), NEXT(recv)(fd, p, len, flags));
}

ssize_t recvfrom(int fd, void *p, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len)
{
	return CALL(ssize_t, ckptfs_touch(p, len), NEXT(recvfrom)(fd, p, len, flags, from, from_len));
}

static void open_message(const struct msghdr *m)
{
	ckptfs_touch(m, sizeof(*m));
	open_iov(m->msg_iov, m->msg_iovlen);
	ckptfs_touch(m->msg_control, m->msg_controllen);
	ckptfs_touch(m->msg_name, m->msg_namelen);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	return CALL(ssize_t, open_message(m), NEXT(recvmsg)(fd, m, flags));
}

static void open_messages(struct mmsghdr *m, unsigned nr)
{
	ckptfs_touch(m, nr * sizeof(*m));
	for (unsigned i = 0; i < nr; i++)
		open_message(&m[i].msg_hdr);
}

int recvmmsg(int fd, struct mmsghdr *m, unsigned nr, int flags, struct timespec *timeout)
{
	return CALL(int, open_messages(m, nr), NEXT(recvmmsg)(fd, m, nr, flags, timeout));
}

/* --- the same for programs that were compiled with checks of lengths (-D_FORTIFY_SOURCE) --- */

ssize_t __read_chk(int fd, void *p, size_t len, size_t room);
ssize_t __pread_chk(int fd, void *p, size_t len, off_t off, size_t room);
ssize_t __pread64_chk(int fd, void *p, size_t len, off64_t off, size_t room);
ssize_t __recv_chk(int fd, void *p, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *p, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len);
size_t __fread_chk(void *p, size_t room, size_t size, size_t nr, FILE *f);

ssize_t __read_chk(int fd, void *p, size_t len, size_t room)
{
	return CALL(ssize_t, ckptfs_touch(p, MIN(len, room)), NEXT(__read_chk)(fd, p, len, room));
}

ssize_t __pread_chk(int fd, void *p, size_t len, off_t off, size_t room)
{
	return CALL(ssize_t, ckptfs_touch(p, MIN(len, room)), NEXT(__pread_chk)(fd, p, len, off, room));
}

ssize_t __pread64_chk(int fd, void *p, size_t len, off64_t off, size_t room)
{
	return CALL(ssize_t, ckptfs_touch(p, MIN(len, room)), NEXT(__pread64_chk)(fd, p, len, off, room));
}

ssize_t __recv_chk(int fd, void *p, size_t len, size_t room, int flags)
{
	return CALL(ssize_t, ckptfs_touch(p, MIN(len, room)), NEXT(__recv_chk)(fd, p, len, room, flags));
}

ssize_t __recvfrom_chk(int fd, void *p, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len)
{
	return CALL(ssize_t, ckptfs_touch(p, MIN(len, room)), NEXT(__recvfrom_chk)(fd, p, len, room, flags, from, from_len));
}

size_t __fread_chk(void *p, size_t room, size_t size, size_t nr, FILE *f)
{
	if (track_mprotect_used())
		ckptfs_touch(p, MIN(size * nr, room));
	return NEXT(__fread_chk)(p, room, size, nr, f);
}

/* --- handlers --- */

int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	if (number == SIGSEGV && track_mprotect_installed && track_mprotect_action(action, old))
		return 0;
	return NEXT(sigaction)(number, action, old);
}

sighandler_t signal(int number, sighandler_t handler)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART }, old;

	if (number == SIGSEGV && track_mprotect_installed && track_mprotect_action(&action, &old))
		return old.sa_flags & SA_SIGINFO ? SIG_DFL : old.sa_handler;
	return NEXT(signal)(number, handler);
}

/* --- descriptors: what the program has not opened is not there for it --- */

int close(int fd)
{
	if (own_fd_has(fd)) {
		errno = EBADF;
		return -1;
	}
	return NEXT(close)(fd);
}

/* Straight to the kernel: closefrom(3) is not in every C library. */
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
