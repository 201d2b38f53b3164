/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every byte the store reads or writes passes here, so that tests can record it, delay it or make
 * it fail, and rates can be limited. Functions return 0 or a byte count, or -errno; they retry
 * EINTR and short transfers. They do not log: the caller has the name of the file.
 *
 * With no hook installed the cost is one predictable branch per call.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum io_op {
	IO_OPEN,     /* recorded only if it may create or truncate */
	IO_READ,
	IO_WRITE,
	IO_SYNC,     /* fdatasync or fsync of a file */
	IO_SYNC_DIR, /* fsync of a directory */
	IO_SYNC_FS,
	IO_TRUNCATE,
	IO_ALLOCATE,
	IO_PUNCH,
	IO_RENAME,
	IO_UNLINK,
	IO_MKDIR,
	IO_LINK,
};

/* The disk is full, or a quota is exceeded: both are handled alike. */
static inline bool io_is_full(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

struct io_event {
	enum io_op op;
	int fd;			/* file, or directory that names are relative to */
	const char *name;	/* OPEN, RENAME and LINK (old), UNLINK, MKDIR */
	int new_fd;		/* RENAME, LINK: directory of new_name; OPEN: the descriptor (after only) */
	const char *new_name;	/* RENAME, LINK */
	int flags;		/* OPEN */
	const struct iovec *iov; /* READ, WRITE */
	int iovcnt;
	uint64_t off, len;
};

/*
 * `before` may return a negative errno, which becomes the call's result without the call being
 * made; for IO_WRITE a positive number n cuts the transfer to n bytes and then fails with ENOSPC.
 * `after` sees what was done, so it is not called where `before` refused; its result for IO_WRITE
 * is the number of bytes that were written (fewer than asked: the call then failed), or -errno if
 * there were none. Either may be NULL. Install before any thread starts.
 */
struct io_hook {
	int (*before)(void *userdata, const struct io_event *ev);
	void (*after)(void *userdata, const struct io_event *ev, int64_t result);
	void *userdata;
};
void io_set_hook(const struct io_hook *hook); /* NULL removes */

int io_open(int dirfd, const char *name, int flags, mode_t mode); /* descriptor; O_CLOEXEC is added */
int io_close(int fd);
/* Bytes read: fewer than asked only at the end of the file. */
ssize_t io_pread(int fd, void *p, size_t len, uint64_t off);
ssize_t io_preadv(int fd, const struct iovec *iov, int iovcnt, uint64_t off);
/*
 * Parallel reads through the kernel's asynchronous I/O (io_submit(2)), which is truly asynchronous for files opened with
 * O_DIRECT. A queue serves one call at a time.
 */
struct io_queue;
struct io_read {
	int fd;
	int iovcnt; /* at most IOV_MAX */
	const struct iovec *iov;
	uint64_t off;
	ssize_t result; /* as of io_preadv() */
};
int io_queue_new(struct io_queue **ret); /* -EAGAIN: the limit fs.aio-max-nr is reached; -ENOSYS: not in this kernel */
void io_queue_free(struct io_queue *q); /* NULL is fine */
void io_queue_read(struct io_queue *q, struct io_read *reads, size_t nr); /* returns when all are done */
/* All or an error; on an error part of it may have been written. */
int io_pwrite(int fd, const void *p, size_t len, uint64_t off);
int io_pwritev(int fd, const struct iovec *iov, int iovcnt, uint64_t off);
int io_sync(int fd); /* fdatasync */
int io_sync_dir(int dirfd);
/*
 * A drive may drop its whole write cache when a flush fails, and report success for the next flush. After a failed sync
 * of any file, unsynced data of every file may therefore be lost.
 * The number of failed syncs of this process; callers of libraries that sync report their failures.
 */
uint64_t io_sync_failures(void);
void io_sync_failed(void);
/* fdatasync of what was written after the caller took io_sync_failures(). -EIO: another sync has failed since. */
int io_sync_since(int fd, uint64_t failures);
/* Everything on the filesystem, so that space freed before it can be allocated again. May take long. */
int io_sync_fs(int fd);
int io_truncate(int fd, uint64_t len);
int io_allocate(int fd, uint64_t off, uint64_t len); /* posix_fallocate, extends the file */
int io_punch(int fd, uint64_t off, uint64_t len);
/* On btrfs: overwrites of this file, empty so far, go in place and need no free space. No effect elsewhere. */
void io_disable_cow(int fd);
int io_rename(int olddirfd, const char *old, int newdirfd, const char *name);
/* -EEXIST: the name is taken. -EINVAL: the filesystem cannot do this atomically. */
int io_rename_new(int olddirfd, const char *old, int newdirfd, const char *name);
int io_link(int olddirfd, const char *old, int newdirfd, const char *name);
int io_unlink(int dirfd, const char *name);
int io_mkdir(int dirfd, const char *name, mode_t mode);

/* A rate in bytes per second shared by several threads; NULL or rate 0 never waits. */
struct io_rate;
int io_rate_new(uint64_t bytes_per_s, struct io_rate **ret);
void io_rate_free(struct io_rate *r);
void io_rate_wait(struct io_rate *r, uint64_t bytes); /* sleeps until `bytes` may pass */
/* Or until go_on(), which is called often, returns false. */
void io_rate_wait_while(struct io_rate *r, uint64_t bytes, bool (*go_on)(void *userdata), void *userdata);
