/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/util.h"

#define io_event kernel_io_event /* base/io.h has another */
#include <linux/aio_abi.h>
#undef io_event

#define NS_PER_S 1000000000
#define IOV_BATCH 64 /* vectors in one call where the caller's cannot be passed on as they are */

static struct io_hook hook;
static bool hooked; /* constant while threads run, as all of hook */
static _Atomic uint64_t nr_sync_failures;

void io_set_hook(const struct io_hook *h)
{
	hooked = h != NULL;
	hook = h ? *h : (struct io_hook){ 0 };
}

static int call_before(const struct io_event *ev)
{
	return hooked && hook.before ? hook.before(hook.userdata, ev) : 0;
}

static void call_after(const struct io_event *ev, int64_t result)
{
	if (hooked && hook.after)
		hook.after(hook.userdata, ev, result);
}

/* Report what a system call returned (-1 and errno, or its value), and turn it into our result. */
static int report_result(const struct io_event *ev, int returned)
{
	int r = returned < 0 ? -errno : returned;

	call_after(ev, r);
	return r;
}

int io_open(int dirfd, const char *name, int flags, mode_t mode)
{
	struct io_event ev = { .op = IO_OPEN, .fd = dirfd, .name = name, .new_fd = -1, .flags = flags };
	bool changes = flags & (O_CREAT | O_TRUNC);
	int fd, r;

	r = changes ? call_before(&ev) : 0;
	if (r < 0)
		return r;
	fd = TEMP_FAILURE_RETRY(openat(dirfd, name, flags | O_CLOEXEC, mode));
	if (!changes)
		return fd < 0 ? -errno : fd;
	ev.new_fd = fd;
	return report_result(&ev, fd);
}

int io_close(int fd)
{
	/* After EINTR the descriptor is closed on Linux: closing it again could close one of another thread. */
	return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

static uint64_t iov_len(const struct iovec *iov, int iovcnt)
{
	uint64_t len = 0;

	for (int i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;
	return len;
}

/* What lies in [from, to) of `iov`, or the first part of it; returns the number of vectors. */
static int iov_part(const struct iovec *iov, int iovcnt, uint64_t from, uint64_t to, struct iovec part[IOV_BATCH])
{
	uint64_t start = 0;
	int n = 0;

	for (int i = 0; i < iovcnt && start < to && n < IOV_BATCH; start += iov[i].iov_len, i++) {
		uint64_t end = start + iov[i].iov_len, lo = MAX(start, from), hi = MIN(end, to);

		if (lo < hi)
			part[n++] = (struct iovec){ (char *)iov[i].iov_base + (lo - start), hi - lo };
	}
	return n;
}

/* Moves the first `len` bytes of the event's. *done counts those moved even when it fails. */
static int transfer(const struct io_event *ev, uint64_t len, uint64_t *done)
{
	struct iovec part[IOV_BATCH];

	for (*done = 0; *done < len;) {
		const struct iovec *iov = ev->iov;
		int iovcnt = ev->iovcnt;
		ssize_t n;

		if (*done > 0 || len < ev->len || iovcnt > IOV_MAX) {
			iovcnt = iov_part(ev->iov, ev->iovcnt, *done, len, part);
			iov = part;
		}
		if (ev->op == IO_READ)
			n = preadv(ev->fd, iov, iovcnt, (off_t)(ev->off + *done));
		else
			n = pwritev(ev->fd, iov, iovcnt, (off_t)(ev->off + *done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return ev->op == IO_READ ? 0 : -EIO;
		*done += (uint64_t)n;
	}
	return 0;
}

ssize_t io_preadv(int fd, const struct iovec *iov, int iovcnt, uint64_t off)
{
	struct io_event ev = {
		.op = IO_READ,
		.fd = fd,
		.iov = iov,
		.iovcnt = iovcnt,
		.off = off,
		.len = iov_len(iov, iovcnt),
	};
	uint64_t done;
	int64_t n;
	int r;

	r = call_before(&ev);
	if (r < 0)
		return r;
	r = transfer(&ev, ev.len, &done);
	n = r < 0 ? r : (int64_t)done;
	call_after(&ev, n);
	return n;
}

ssize_t io_pread(int fd, void *p, size_t len, uint64_t off)
{
	struct iovec iov = { p, len };

	return io_preadv(fd, &iov, 1, off);
}

/* --- many reads at once --- */

/* Reads in flight per call. With more, concurrent calls would delay each other until the last read. */
#define QUEUE_DEPTH 16u

struct io_queue {
	aio_context_t context;
	struct iocb slot[QUEUE_DEPTH];
	struct iocb *idle[QUEUE_DEPTH]; /* the first nr_idle: in use by no read */
	struct iocb *ready[QUEUE_DEPTH]; /* to be submitted */
	unsigned nr_idle, nr_ready;
};

int io_queue_new(struct io_queue **ret)
{
	struct io_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	if (syscall(SYS_io_setup, QUEUE_DEPTH, &q->context) < 0) {
		int r = -errno;

		free(q);
		return r;
	}
	while (q->nr_idle < QUEUE_DEPTH) {
		q->idle[q->nr_idle] = &q->slot[q->nr_idle];
		q->nr_idle++;
	}
	*ret = q;
	return 0;
}

void io_queue_free(struct io_queue *q)
{
	if (!q)
		return;
	syscall(SYS_io_destroy, q->context);
	free(q);
}

static struct io_event event_of(const struct io_read *read)
{
	return (struct io_event){
		.op = IO_READ,
		.fd = read->fd,
		.iov = read->iov,
		.iovcnt = read->iovcnt,
		.off = read->off,
		.len = iov_len(read->iov, read->iovcnt),
	};
}

static void queue_put(struct io_queue *q, struct io_read *read)
{
	struct io_event ev = event_of(read);
	struct iocb *slot;

	read->result = call_before(&ev);
	if (read->result < 0)
		return;
	slot = q->idle[--q->nr_idle];
	*slot = (struct iocb){
		.aio_data = (uintptr_t)read,
		.aio_fildes = (uint32_t)read->fd,
		.aio_lio_opcode = IOCB_CMD_PREADV,
		.aio_buf = (uintptr_t)read->iov,
		.aio_nbytes = (uint64_t)read->iovcnt,
		.aio_offset = (int64_t)read->off,
	};
	q->ready[q->nr_ready++] = slot;
}

/* A read has returned `n`. Reads the missing bytes, or all after an error, again as io_preadv() does. */
static void queue_end(struct io_queue *q, struct iocb *slot, int64_t n)
{
	struct io_read *read = (struct io_read *)(uintptr_t)slot->aio_data;
	struct io_event ev = event_of(read);
	uint64_t done;

	q->idle[q->nr_idle++] = slot;
	if (n < 0 || (uint64_t)n < ev.len) {
		int r = transfer(&ev, ev.len, &done);

		n = r < 0 ? r : (int64_t)done;
	}
	read->result = n;
	call_after(&ev, n);
}

/* Submits ready reads, as many as the kernel accepts. If it accepts none and none is in flight, reads one synchronously. */
static void queue_submit(struct io_queue *q)
{
	unsigned nr_waiting = QUEUE_DEPTH - q->nr_idle - q->nr_ready;
	long n = q->nr_ready > 0 ? syscall(SYS_io_submit, q->context, (long)q->nr_ready, q->ready) : 0;

	if (n <= 0 && q->nr_ready > 0 && nr_waiting == 0) {
		queue_end(q, q->ready[0], -EAGAIN);
		n = 1;
	}
	n = MAX(n, 0L);
	q->nr_ready -= (unsigned)n;
	for (unsigned i = 0; i < q->nr_ready; i++)
		q->ready[i] = q->ready[i + (unsigned)n];
}

static void queue_wait(struct io_queue *q)
{
	struct kernel_io_event done[QUEUE_DEPTH];
	long n;

	if (q->nr_idle + q->nr_ready == QUEUE_DEPTH)
		return;
	/* fails only if interrupted; the caller repeats it */
	n = syscall(SYS_io_getevents, q->context, 1L, (long)QUEUE_DEPTH, done, NULL);
	for (long i = 0; i < n; i++)
		queue_end(q, (struct iocb *)(uintptr_t)done[i].obj, done[i].res);
}

void io_queue_read(struct io_queue *q, struct io_read *reads, size_t nr)
{
	size_t next = 0;

	while (next < nr || q->nr_idle < QUEUE_DEPTH) {
		while (next < nr && q->nr_idle > 0)
			queue_put(q, &reads[next++]);
		queue_submit(q);
		queue_wait(q);
	}
}

int io_pwritev(int fd, const struct iovec *iov, int iovcnt, uint64_t off)
{
	struct io_event ev = {
		.op = IO_WRITE,
		.fd = fd,
		.iov = iov,
		.iovcnt = iovcnt,
		.off = off,
		.len = iov_len(iov, iovcnt),
	};
	uint64_t len = ev.len, done;
	int cut, r;

	cut = call_before(&ev);
	if (cut < 0)
		return cut;
	if (cut > 0)
		len = MIN(len, (uint64_t)cut);
	r = transfer(&ev, len, &done);
	if (r == 0 && cut > 0)
		r = -ENOSPC;
	call_after(&ev, r < 0 && done == 0 ? r : (int64_t)done);
	return r;
}

int io_pwrite(int fd, const void *p, size_t len, uint64_t off)
{
	struct iovec iov = { (void *)p, len };

	return io_pwritev(fd, &iov, 1, off);
}

uint64_t io_sync_failures(void)
{
	return atomic_load(&nr_sync_failures);
}

void io_sync_failed(void)
{
	atomic_fetch_add(&nr_sync_failures, 1);
}

static int sync_with(const struct io_event *ev, int (*call)(int))
{
	int r = call_before(ev);

	if (r >= 0)
		r = report_result(ev, TEMP_FAILURE_RETRY(call(ev->fd)));
	if (r < 0)
		io_sync_failed();
	return r;
}

int io_sync(int fd)
{
	return sync_with(&(struct io_event){ .op = IO_SYNC, .fd = fd }, fdatasync);
}

int io_sync_dir(int dirfd)
{
	return sync_with(&(struct io_event){ .op = IO_SYNC_DIR, .fd = dirfd }, fsync);
}

int io_sync_fs(int fd)
{
	struct io_event ev = { .op = IO_SYNC_FS, .fd = fd };
	int r = call_before(&ev);

	if (r >= 0)
		r = report_result(&ev, TEMP_FAILURE_RETRY(syncfs(fd)));
	if (r < 0 && !io_is_full(r)) /* else data of any program that found no space, and no flush has failed */
		io_sync_failed();
	return r;
}

int io_sync_since(int fd, uint64_t failures)
{
	int r = io_sync(fd);

	return r == 0 && io_sync_failures() != failures ? -EIO : r;
}

int io_truncate(int fd, uint64_t len)
{
	struct io_event ev = { .op = IO_TRUNCATE, .fd = fd, .len = len };
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)len)));
}

int io_allocate(int fd, uint64_t off, uint64_t len)
{
	struct io_event ev = { .op = IO_ALLOCATE, .fd = fd, .off = off, .len = len };
	int r;

	r = call_before(&ev);
	if (r < 0)
		return r;
	do
		r = -posix_fallocate(fd, (off_t)off, (off_t)len); /* returns the errno instead of setting it */
	while (r == -EINTR);
	call_after(&ev, r);
	return r;
}

int io_punch(int fd, uint64_t off, uint64_t len)
{
	struct io_event ev = { .op = IO_PUNCH, .fd = fd, .off = off, .len = len };
	int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, TEMP_FAILURE_RETRY(fallocate(fd, mode, (off_t)off, (off_t)len)));
}

void io_disable_cow(int fd)
{
	int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_NOCOW_FL))
		return;
	flags |= FS_NOCOW_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags); /* refused by filesystems that overwrite in place */
}

int io_rename(int olddirfd, const char *old, int newdirfd, const char *name)
{
	struct io_event ev = { .op = IO_RENAME, .fd = olddirfd, .name = old, .new_fd = newdirfd, .new_name = name };
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, renameat(olddirfd, old, newdirfd, name));
}

int io_rename_new(int olddirfd, const char *old, int newdirfd, const char *name)
{
	struct io_event ev = { .op = IO_RENAME, .fd = olddirfd, .name = old, .new_fd = newdirfd, .new_name = name };
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, renameat2(olddirfd, old, newdirfd, name, RENAME_NOREPLACE));
}

int io_link(int olddirfd, const char *old, int newdirfd, const char *name)
{
	struct io_event ev = { .op = IO_LINK, .fd = olddirfd, .name = old, .new_fd = newdirfd, .new_name = name };
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, linkat(olddirfd, old, newdirfd, name, 0));
}

int io_unlink(int dirfd, const char *name)
{
	struct io_event ev = { .op = IO_UNLINK, .fd = dirfd, .name = name };
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, unlinkat(dirfd, name, 0));
}

int io_mkdir(int dirfd, const char *name, mode_t mode)
{
	struct io_event ev = { .op = IO_MKDIR, .fd = dirfd, .name = name };
	int r = call_before(&ev);

	return r < 0 ? r : report_result(&ev, mkdirat(dirfd, name, mode));
}

#define NAP_NS (NS_PER_S / 20) /* between two calls of go_on() */

/*
 * Transfers queue in time: each may begin when those before it, at the given rate, are over. No
 * credit is saved up while idle, so the rate also holds over short spans.
 */
struct io_rate {
	uint64_t bytes_per_s; /* constant */
	struct mutex lock; /* leaf */
	uint64_t free_ns GUARDED_BY(lock); /* monotonic time from which on the queue is empty */
};

int io_rate_new(uint64_t bytes_per_s, struct io_rate **ret)
{
	struct io_rate *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->bytes_per_s = bytes_per_s;
	mutex_init(&r->lock);
	*ret = r;
	return 0;
}

void io_rate_free(struct io_rate *r)
{
	if (!r)
		return;
	mutex_release(&r->lock);
	free(r);
}

/* When `bytes` may begin to pass. */
static uint64_t queue_up(struct io_rate *r, uint64_t bytes)
{
	uint64_t begin_ns;

	mutex_lock(&r->lock);
	begin_ns = MAX(monotonic_ns(), r->free_ns);
	r->free_ns = begin_ns + (uint64_t)((double)bytes * NS_PER_S / (double)r->bytes_per_s);
	mutex_unlock(&r->lock);
	return begin_ns;
}

static void sleep_until(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

void io_rate_wait(struct io_rate *r, uint64_t bytes)
{
	if (r && r->bytes_per_s > 0)
		sleep_until(queue_up(r, bytes));
}

void io_rate_wait_while(struct io_rate *r, uint64_t bytes, bool (*go_on)(void *userdata), void *userdata)
{
	uint64_t begin_ns, now;

	if (!r || r->bytes_per_s == 0)
		return;
	begin_ns = queue_up(r, bytes);
	while ((now = monotonic_ns()) < begin_ns && go_on(userdata))
		sleep_until(MIN(begin_ns, now + NAP_NS));
}
