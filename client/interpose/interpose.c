/* SPDX-License-Identifier: BSD-3-Clause */
/* Interposed functions (interpose.h): their resolution, loans, and functions that read and receive. */
#include "client/interpose/interpose.h"

#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/lib/client.h"

void *interposed_resolve(struct interposed *f)
{
	void *next = dlsym(RTLD_NEXT, f->name);

	if (!next)
		abort(); /* cannot happen: the caller was linked with it */
	__atomic_store_n(&f->next, next, __ATOMIC_RELAXED);
	return next;
}

extern struct interposed __start_ckptfs_interposed[], __stop_ckptfs_interposed[] __attribute__((visibility("hidden")));

/* Runs before the constructor of preload.c, which starts threads. */
__attribute__((constructor(102))) static void resolve_all(void)
{
	for (struct interposed *f = __start_ckptfs_interposed; f < __stop_ckptfs_interposed; f++)
		if (f->name) /* not every C library has all of them: then it stays NULL */
			__atomic_store_n(&f->next, dlsym(RTLD_NEXT, f->name), __ATOMIC_RELAXED);
	/* after dlopen(3) the program still calls the C library's functions */
	track_mprotect_not_interposed = dlsym(RTLD_DEFAULT, "recvmmsg") == dlsym(RTLD_NEXT, "recvmmsg");
}

uint64_t interpose_epoch(bool settled)
{
	sigset_t before;

	if (settled) {
		siglock_enter(&client.lock, &before);
		siglock_leave(&client.lock, &before);
	}
	return atomic_load(&client.epoch_ns);
}

/* --- loans --- */

void loan_take(struct loan *l, void *p, size_t len, bool keep)
{
	int saved = errno;

	l->p = l->buffer = p;
	l->len = len;
	if (len <= sizeof(l->small)) {
		l->buffer = l->small;
	} else {
		void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (map != MAP_FAILED) {
			l->buffer = map;
			l->mapped = len;
		} else {
			ckptfs_touch(p, len);
		}
	}
	if (keep && is_borrowed(l))
		memcpy(l->buffer, p, len);
	errno = saved;
}

void loan_end(struct loan *l)
{
	int saved = errno;

	if (l->mapped > 0)
		munmap(l->buffer, l->mapped);
	l->mapped = 0;
	errno = saved;
}

void loan_return(struct loan *l, size_t len)
{
	if (is_borrowed(l) && len > 0)
		memcpy(l->p, l->buffer, len);
	loan_end(l);
}

/* --- reading --- */

ssize_t read(int fd, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(read)(fd, at, len));
}

ssize_t pread(int fd, void *p, size_t len, off_t off)
{
	return BUFFER(p, len, at, NEXT(pread)(fd, at, len, off));
}

ssize_t pread64(int fd, void *p, size_t len, off64_t off)
{
	return BUFFER(p, len, at, NEXT(pread64)(fd, at, len, off));
}

ssize_t getrandom(void *p, size_t len, unsigned flags)
{
	return BUFFER(p, len, at, NEXT(getrandom)(at, len, flags));
}

int getentropy(void *p, size_t len)
{
	return RESULTS(p, len, at, NEXT(getentropy)(at, len));
}

void arc4random_buf(void *p, size_t len)
{
	RESULTS(p, len, at, ({ NEXT(arc4random_buf)(at, len); 0; }));
}

int eventfd_read(int fd, eventfd_t *value)
{
	return RESULT(value, at, NEXT(eventfd_read)(fd, at));
}

ssize_t mq_receive(mqd_t queue, char *p, size_t len, unsigned *priority)
{
	return BUFFER(p, len, at, RESULT(priority, priority_at, NEXT(mq_receive)(queue, at, len, priority_at)));
}

ssize_t mq_timedreceive(mqd_t queue, char *p, size_t len, unsigned *priority, const struct timespec *timeout)
{
	return BUFFER(p, len, at,
		      RESULT(priority, priority_at, NEXT(mq_timedreceive)(queue, at, len, priority_at, timeout)));
}

/* A message begins with its type. */
ssize_t msgrcv(int queue, void *p, size_t len, long type, int flags)
{
	return RESULTS(p, sizeof(long) + len, at, NEXT(msgrcv)(queue, at, len, type, flags));
}

/* Threads of the C library write to the buffer later: no checkpoint may be taken until then. */
int aio_read(struct aiocb *a)
{
	return OPENED((ckptfs_touch(a, sizeof(*a)), ckptfs_touch((void *)a->aio_buf, a->aio_nbytes)), NEXT(aio_read)(a));
}

int aio_read64(struct aiocb64 *a)
{
	return OPENED((ckptfs_touch(a, sizeof(*a)), ckptfs_touch((void *)a->aio_buf, a->aio_nbytes)),
		      NEXT(aio_read64)(a));
}

/* --- scattered reads --- */

static size_t iov_bytes(const struct iovec *iov, size_t nr)
{
	size_t sum = 0;

	for (size_t i = 0; i < nr; i++)
		sum = __builtin_add_overflow(sum, iov[i].iov_len, &sum) ? SIZE_MAX : sum;
	return sum;
}

static bool iov_may_be_closed(const struct iovec *iov, size_t nr)
{
	for (size_t i = 0; track_mprotect_used() && i < nr; i++)
		if (track_mprotect_may_close(iov[i].iov_base, iov[i].iov_len))
			return true;
	return false;
}

static void open_iov(const struct iovec *iov, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		ckptfs_touch(iov[i].iov_base, iov[i].iov_len);
}

/* Copies a contiguous buffer to the pieces of an iovec. */
static void scatter(const struct iovec *iov, size_t nr, const uint8_t *from, size_t len)
{
	for (size_t i = 0; i < nr && len > 0; i++) {
		size_t n = MIN(len, iov[i].iov_len);

		memcpy(iov[i].iov_base, from, n);
		from += n;
		len -= n;
	}
}

/* As BUFFER: in `call`, `at` stands for `iov`, and `at_nr` for its length. Without memory for a loan the pieces are
 * opened, as large ones are. */
#define PIECES(iov, nr, at, at_nr, call)						\
	({										\
		_cleanup_(loan_end) struct loan _loan_##at;			\
		size_t _bytes_##at = iov_may_be_closed(iov, (size_t)(nr)) ? iov_bytes(iov, (size_t)(nr)) : 0;	\
		struct iovec _one_##at;							\
		__typeof__(iov) at = (iov);						\
		__typeof__(nr) at_nr = (nr);						\
		__typeof__(call) _r_##at;						\
		_loan_##at.p = _loan_##at.buffer = NULL;					\
		_loan_##at.mapped = 0;							\
		if (_bytes_##at > 0 && _bytes_##at <= LOAN_MAX)				\
			loan_take(&_loan_##at, NULL, _bytes_##at, false);		\
		if (is_borrowed(&_loan_##at)) {						\
			_one_##at = (struct iovec){ _loan_##at.buffer, _bytes_##at };	\
			at = &_one_##at;						\
			at_nr = 1;							\
			_r_##at = (call);						\
			scatter(iov, (size_t)(nr), _loan_##at.buffer,			\
				_r_##at > 0 ? MIN((size_t)_r_##at, _bytes_##at) : 0);	\
		} else {								\
			_r_##at = OPENED(open_iov(iov, _bytes_##at > 0 ? (size_t)(nr) : 0), call);	\
		}									\
		_r_##at;								\
	})

ssize_t readv(int fd, const struct iovec *iov, int nr)
{
	return PIECES(iov, nr, at, at_nr, NEXT(readv)(fd, at, at_nr));
}

ssize_t preadv(int fd, const struct iovec *iov, int nr, off_t off)
{
	return PIECES(iov, nr, at, at_nr, NEXT(preadv)(fd, at, at_nr, off));
}

ssize_t preadv64(int fd, const struct iovec *iov, int nr, off64_t off)
{
	return PIECES(iov, nr, at, at_nr, NEXT(preadv64)(fd, at, at_nr, off));
}

ssize_t preadv2(int fd, const struct iovec *iov, int nr, off_t off, int flags)
{
	return PIECES(iov, nr, at, at_nr, NEXT(preadv2)(fd, at, at_nr, off, flags));
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int nr, off64_t off, int flags)
{
	return PIECES(iov, nr, at, at_nr, NEXT(preadv64v2)(fd, at, at_nr, off, flags));
}

/* Of any size, and repeatable; MPI libraries use it between processes of a node. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nr_local, const struct iovec *remote,
			 unsigned long nr_remote, unsigned long flags)
{
	return OPENED(open_iov(local, nr_local), NEXT(process_vm_readv)(pid, local, nr_local, remote, nr_remote, flags));
}

/* On failure the data stays in the pipe. */
ssize_t vmsplice(int fd, const struct iovec *iov, size_t nr, unsigned flags)
{
	return OPENED(open_iov(iov, nr), NEXT(vmsplice)(fd, iov, nr, flags));
}

/* Pages of another process cannot be opened here. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long nr_local, const struct iovec *remote,
			  unsigned long nr_remote, unsigned long flags)
{
	if (pid != getpid())
		return NEXT(process_vm_writev)(pid, local, nr_local, remote, nr_remote, flags);
	return OPENED(open_iov(remote, nr_remote),
		      NEXT(process_vm_writev)(pid, local, nr_local, remote, nr_remote, flags));
}

/* --- receiving --- */

ssize_t recv(int fd, void *p, size_t len, int flags)
{
	return BUFFER(p, len, at, NEXT(recv)(fd, at, len, flags));
}

ssize_t recvfrom(int fd, void *p, size_t len, int flags, __SOCKADDR_ARG from, socklen_t *from_len)
{
	struct sockaddr *address = from.__sockaddr__;

	return BUFFER(p, len, at, ADDRESS(address, from_len, to, to_len, NEXT(recvfrom)(fd, at, len, flags, to, to_len)));
}

/* Receives a message with loans for all that the kernel fills in. */
static ssize_t receive_message(int fd, struct msghdr *m, struct msghdr *to, int flags)
{
	return RESULTS(m->msg_name, m->msg_namelen, name, RESULTS(m->msg_control, m->msg_controllen, control, ({
			       to->msg_name = name;
			       to->msg_control = control;
			       PIECES(m->msg_iov, m->msg_iovlen, at, at_nr, ({
					      to->msg_iov = at;
					      to->msg_iovlen = at_nr;
					      NEXT(recvmsg)(fd, to, flags);
				      }));
		       })));
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	struct msghdr to;
	ssize_t r;

	if (!track_mprotect_used())
		return NEXT(recvmsg)(fd, m, flags);
	to = *m;
	r = receive_message(fd, m, &to, flags);
	if (r >= 0) {
		m->msg_namelen = to.msg_namelen;
		m->msg_controllen = to.msg_controllen;
		m->msg_flags = to.msg_flags;
	}
	return r;
}

/* Like the kernel, checks the timeout only after each message. */
static int receive_several(int fd, struct mmsghdr *m, unsigned nr, int flags, const struct timespec *timeout)
{
	uint64_t end = timeout ? monotonic_ns() + (uint64_t)timeout->tv_sec * 1000000000 + (uint64_t)timeout->tv_nsec :
				 UINT64_MAX;
	unsigned i;

	for (i = 0; i < nr && (i == 0 || monotonic_ns() < end); i++) {
		ssize_t n = recvmsg(fd, &m[i].msg_hdr, flags & ~MSG_WAITFORONE);

		if (n < 0)
			return i > 0 ? (int)i : -1;
		m[i].msg_len = (unsigned)n;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
	}
	return (int)i;
}

int recvmmsg(int fd, struct mmsghdr *m, unsigned nr, int flags, struct timespec *timeout)
{
	if (!track_mprotect_used())
		return NEXT(recvmmsg)(fd, m, nr, flags, timeout);
	return receive_several(fd, m, nr, flags, timeout);
}

#undef fread_unlocked /* a macro in the C library's headers */

/* --- streams: the C library reads large pieces directly into the caller's buffer --- */

typedef size_t stream_reader(void *p, size_t size, size_t nr, FILE *f);

static size_t read_stream(void *p, size_t size, size_t nr, FILE *f, stream_reader *next)
{
	size_t len, done = 0, n;

	if (__builtin_mul_overflow(size, nr, &len) || !track_mprotect_may_close(p, len))
		return next(p, size, nr, f);
	do {
		_cleanup_(loan_end) struct loan loan = { .mapped = 0 };
		size_t wanted = MIN(len - done, (size_t)LOAN_MAX);

		loan_take(&loan, (uint8_t *)p + done, wanted, false);
		n = next(loan.buffer, 1, wanted, f);
		loan_return(&loan, n);
		done += n;
		if (n < wanted)
			break;
	} while (done < len);
	return done / size;
}

static void funlockfilep(FILE **f)
{
	if (*f)
		funlockfile(*f);
}

size_t fread(void *p, size_t size, size_t nr, FILE *f)
{
	_cleanup_(funlockfilep) FILE *locked = f;

	if (!track_mprotect_used()) {
		locked = NULL;
		return NEXT(fread)(p, size, nr, f);
	}
	flockfile(locked); /* one fread() may be several reads */
	return read_stream(p, size, nr, f, NEXT(fread));
}

size_t fread_unlocked(void *p, size_t size, size_t nr, FILE *f)
{
	return read_stream(p, size, nr, f, NEXT(fread_unlocked));
}

/* The C library reads into this buffer: it allocates its own instead if it may be closed. */
int setvbuf(FILE *f, char *p, int mode, size_t len)
{
	return NEXT(setvbuf)(f, track_mprotect_may_close(p, len) ? NULL : p, mode, len);
}

void setbuffer(FILE *f, char *p, size_t len)
{
	setvbuf(f, p, p ? _IOFBF : _IONBF, len);
}

void setbuf(FILE *f, char *p)
{
	setbuffer(f, p, BUFSIZ);
}

/* --- variants for programs compiled with -D_FORTIFY_SOURCE --- */

ssize_t __read_chk(int fd, void *p, size_t len, size_t room);
ssize_t __pread_chk(int fd, void *p, size_t len, off_t off, size_t room);
ssize_t __pread64_chk(int fd, void *p, size_t len, off64_t off, size_t room);
ssize_t __recv_chk(int fd, void *p, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *p, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len);
size_t __fread_chk(void *p, size_t room, size_t size, size_t nr, FILE *f);
size_t __fread_unlocked_chk(void *p, size_t room, size_t size, size_t nr, FILE *f);

/* The C library's functions abort the program if the buffer is too small. */
ssize_t __read_chk(int fd, void *p, size_t len, size_t room)
{
	return len > room ? NEXT(__read_chk)(fd, p, len, room) : read(fd, p, len);
}

ssize_t __pread_chk(int fd, void *p, size_t len, off_t off, size_t room)
{
	return len > room ? NEXT(__pread_chk)(fd, p, len, off, room) : pread(fd, p, len, off);
}

ssize_t __pread64_chk(int fd, void *p, size_t len, off64_t off, size_t room)
{
	return len > room ? NEXT(__pread64_chk)(fd, p, len, off, room) : pread64(fd, p, len, off);
}

ssize_t __recv_chk(int fd, void *p, size_t len, size_t room, int flags)
{
	return len > room ? NEXT(__recv_chk)(fd, p, len, room, flags) : recv(fd, p, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *p, size_t len, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *from_len)
{
	return len > room ? NEXT(__recvfrom_chk)(fd, p, len, room, flags, from, from_len) :
			    recvfrom(fd, p, len, flags, from, from_len);
}

static bool fits(size_t room, size_t size, size_t nr)
{
	size_t len;

	return !__builtin_mul_overflow(size, nr, &len) && len <= room;
}

size_t __fread_chk(void *p, size_t room, size_t size, size_t nr, FILE *f)
{
	return fits(room, size, nr) ? fread(p, size, nr, f) : NEXT(__fread_chk)(p, room, size, nr, f);
}

size_t __fread_unlocked_chk(void *p, size_t room, size_t size, size_t nr, FILE *f)
{
	return fits(room, size, nr) ? fread_unlocked(p, size, nr, f) : NEXT(__fread_unlocked_chk)(p, room, size, nr, f);
}
