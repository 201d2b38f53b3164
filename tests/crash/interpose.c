/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * libc's file calls as every library in this process sees them: told to record.c, then made as before.
 *
 * The names with 64 are what RocksDB and we really call; on 64-bit machines both are the same function, so both
 * stand here. The headers must not turn one into the other, hence no _FILE_OFFSET_BITS and no fortification.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/crash/record.h"

static_assert(sizeof(off_t) == 8, "64-bit machines only");

/* The function that would have been called without us. */
#define NEXT(f)                                                  \
	({                                                       \
		static __typeof__(&f) _next;                     \
		if (!_next)                                      \
			*(void **)&_next = dlsym(RTLD_NEXT, #f); \
		_next;                                           \
	})

static int failed(int error)
{
	errno = error;
	return -1;
}

/* Names: the call unless a fault was put in, then tell how it went, with errno kept. */
#define NAMED(c, call)                                           \
	({                                                       \
		int _r = (c).error ? failed((c).error) : (call); \
		int _errno = errno;                              \
		record_end(&(c), _r == 0, 0, 0);                 \
		errno = _errno;                                  \
		_r;                                              \
	})

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
	struct record_call c;
	int fd, saved;

	if (!record_begin_name(&c, OP_CREATE, dirfd, path))
		return NEXT(openat)(dirfd, path, flags, mode);
	fd = c.error ? failed(c.error) : NEXT(openat)(dirfd, path, flags, mode);
	saved = errno;
	record_end_open(&c, fd, flags);
	errno = saved;
	return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

#define DEFINE_OPEN(name)                                    \
	int name(const char *path, int flags, ...)           \
	{                                                    \
		va_list ap;                                  \
		mode_t mode;                                 \
                                                             \
		va_start(ap, flags);                         \
		mode = mode_of(flags, ap);                   \
		va_end(ap);                                  \
		return open_at(AT_FDCWD, path, flags, mode); \
	}
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                   \
	int name(int dirfd, const char *path, int flags, ...) \
	{                                                     \
		va_list ap;                                   \
		mode_t mode;                                  \
                                                              \
		va_start(ap, flags);                          \
		mode = mode_of(flags, ap);                    \
		va_end(ap);                                   \
		return open_at(dirfd, path, flags, mode);     \
	}
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

/* What fortified callers call when the flags are not known at compile time. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
	return open_at(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags);
int __open64_2(const char *path, int flags)
{
	return open_at(AT_FDCWD, path, flags, 0);
}

int __openat_2(int dirfd, const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags)
{
	return open_at(dirfd, path, flags, 0);
}

int __openat64_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags)
{
	return open_at(dirfd, path, flags, 0);
}

int creat(const char *path, mode_t mode)
{
	return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int creat64(const char *path, mode_t mode)
{
	return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int close(int fd)
{
	record_forget(fd);
	return NEXT(close)(fd);
}

static ssize_t write_at(int fd, const struct iovec *iov, int iovcnt, off_t off)
{
	struct record_call c;
	ssize_t n;
	int saved;

	if (!record_begin(&c, OP_WRITE, fd))
		return NEXT(pwritev)(fd, iov, iovcnt, off);
	n = c.error ? failed(c.error) : NEXT(pwritev)(fd, iov, iovcnt, off);
	saved = errno;
	record_end_write(&c, n, (uint64_t)off, iov, iovcnt);
	errno = saved;
	return n;
}

static ssize_t write_here(int fd, const struct iovec *iov, int iovcnt)
{
	struct record_call c;
	uint64_t off;
	ssize_t n;
	int saved;

	if (!record_begin(&c, OP_WRITE, fd))
		return NEXT(writev)(fd, iov, iovcnt);
	off = (uint64_t)lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
	n = c.error ? failed(c.error) : NEXT(writev)(fd, iov, iovcnt);
	saved = errno;
	record_end_write(&c, n, off, iov, iovcnt);
	errno = saved;
	return n;
}

#define IOV(p, len) (&(struct iovec){ (void *)(p), len })

ssize_t write(int fd, const void *p, size_t len)
{
	return write_here(fd, IOV(p, len), 1);
}

ssize_t writev(int fd, const struct iovec *iov, int iovcnt)
{
	return write_here(fd, iov, iovcnt);
}

ssize_t pwrite(int fd, const void *p, size_t len, off_t off)
{
	return write_at(fd, IOV(p, len), 1, off);
}

ssize_t pwrite64(int fd, const void *p, size_t len, off64_t off)
{
	return write_at(fd, IOV(p, len), 1, off);
}

ssize_t pwritev(int fd, const struct iovec *iov, int iovcnt, off_t off)
{
	return write_at(fd, iov, iovcnt, off);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int iovcnt, off64_t off)
{
	return write_at(fd, iov, iovcnt, off);
}

/* Reads are not recorded, but may be told to fail. */
static int read_fault(int fd)
{
	struct record_call c;

	if (!record_begin(&c, OP_READ, fd))
		return 0;
	record_end(&c, true, 0, 0);
	return c.error;
}

#define DEFINE_READ(name, args, ...)                                    \
	ssize_t name args                                               \
	{                                                               \
		int error = read_fault(fd);                             \
                                                                        \
		return error ? failed(error) : NEXT(name)(__VA_ARGS__); \
	}
DEFINE_READ(read, (int fd, void *p, size_t len), fd, p, len)
DEFINE_READ(pread, (int fd, void *p, size_t len, off_t off), fd, p, len, off)
DEFINE_READ(pread64, (int fd, void *p, size_t len, off64_t off), fd, p, len, off)
DEFINE_READ(preadv, (int fd, const struct iovec *iov, int iovcnt, off_t off), fd, iov, iovcnt, off)
DEFINE_READ(preadv64, (int fd, const struct iovec *iov, int iovcnt, off64_t off), fd, iov, iovcnt, off)

#define DEFINE_FD_CALL(name, kind, args, off, len, ...)                  \
	int name args                                                    \
	{                                                                \
		struct record_call c;                                    \
		int r, saved;                                            \
                                                                         \
		if (!record_begin(&c, kind, fd))                         \
			return NEXT(name)(__VA_ARGS__);                  \
		r = c.error ? failed(c.error) : NEXT(name)(__VA_ARGS__); \
		saved = errno;                                           \
		record_end(&c, r == 0, off, len);                        \
		errno = saved;                                           \
		return r;                                                \
	}
DEFINE_FD_CALL(fdatasync, OP_SYNC, (int fd), 0, 0, fd)
DEFINE_FD_CALL(fsync, OP_SYNC, (int fd), 0, 0, fd)
DEFINE_FD_CALL(ftruncate, OP_TRUNCATE, (int fd, off_t len), 0, (uint64_t)len, fd, len)
DEFINE_FD_CALL(ftruncate64, OP_TRUNCATE, (int fd, off64_t len), 0, (uint64_t)len, fd, len)

static int allocate(int (*next)(int, off64_t, off64_t), int fd, off64_t off, off64_t len)
{
	struct stat st;

	if (!record_is_sparse())
		return next(fd, off, len);
	if (fstat(fd, &st) < 0 || (st.st_size < off + len && NEXT(ftruncate)(fd, off + len) < 0))
		return errno;
	return 0;
}

/* Returns the errno instead of setting it. */
#define DEFINE_POSIX_FALLOCATE(name, off_type)                              \
	int name(int fd, off_type off, off_type len)                        \
	{                                                                   \
		struct record_call c;                                       \
		int r;                                                      \
                                                                            \
		if (!record_begin(&c, OP_ALLOCATE, fd))                     \
			return allocate(NEXT(name), fd, off, len);          \
		r = c.error ? c.error : allocate(NEXT(name), fd, off, len); \
		record_end(&c, r == 0, (uint64_t)off, (uint64_t)len);       \
		return r;                                                   \
	}
DEFINE_POSIX_FALLOCATE(posix_fallocate, off_t)
DEFINE_POSIX_FALLOCATE(posix_fallocate64, off64_t)

/* With KEEP_SIZE and no punch nothing that a reader could see changes: passed through as a read is. */
static enum op_kind fallocate_kind(int mode)
{
	if (mode & FALLOC_FL_PUNCH_HOLE)
		return OP_PUNCH;
	return mode & FALLOC_FL_KEEP_SIZE ? OP_READ : OP_ALLOCATE;
}
DEFINE_FD_CALL(fallocate, fallocate_kind(mode), (int fd, int mode, off_t off, off_t len), (uint64_t)off, (uint64_t)len,
	       fd, mode, off, len)
DEFINE_FD_CALL(fallocate64, fallocate_kind(mode), (int fd, int mode, off64_t off, off64_t len), (uint64_t)off,
	       (uint64_t)len, fd, mode, off, len)

int mkdirat(int dirfd, const char *path, mode_t mode)
{
	struct record_call c;

	if (!record_begin_name(&c, OP_MKDIR, dirfd, path))
		return NEXT(mkdirat)(dirfd, path, mode);
	return NAMED(c, NEXT(mkdirat)(dirfd, path, mode));
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int dirfd, const char *path, int flags)
{
	struct record_call c;

	if (!record_begin_name(&c, OP_UNLINK, dirfd, path))
		return NEXT(unlinkat)(dirfd, path, flags);
	return NAMED(c, NEXT(unlinkat)(dirfd, path, flags));
}

int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char *path)
{
	int r = unlink(path);

	return r < 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : r;
}

int renameat(int dirfd, const char *path, int new_dirfd, const char *new_path)
{
	struct record_call c;

	if (!record_begin_names(&c, OP_RENAME, dirfd, path, new_dirfd, new_path))
		return NEXT(renameat)(dirfd, path, new_dirfd, new_path);
	return NAMED(c, NEXT(renameat)(dirfd, path, new_dirfd, new_path));
}

int renameat2(int dirfd, const char *path, int new_dirfd, const char *new_path, unsigned flags)
{
	struct record_call c;

	if (!record_begin_names(&c, OP_RENAME, dirfd, path, new_dirfd, new_path))
		return NEXT(renameat2)(dirfd, path, new_dirfd, new_path, flags);
	return NAMED(c, flags & RENAME_EXCHANGE ? failed(EINVAL) :
						  NEXT(renameat2)(dirfd, path, new_dirfd, new_path, flags));
}

int rename(const char *path, const char *new_path)
{
	return renameat(AT_FDCWD, path, AT_FDCWD, new_path);
}

int linkat(int dirfd, const char *path, int new_dirfd, const char *new_path, int flags)
{
	struct record_call c;

	if (!record_begin_names(&c, OP_LINK, dirfd, path, new_dirfd, new_path))
		return NEXT(linkat)(dirfd, path, new_dirfd, new_path, flags);
	return NAMED(c, NEXT(linkat)(dirfd, path, new_dirfd, new_path, flags));
}

int link(const char *path, const char *new_path)
{
	return linkat(AT_FDCWD, path, AT_FDCWD, new_path, 0);
}

#define DEFINE_STATVFS(name, of, type)                  \
	int name(of, struct type *st)                   \
	{                                               \
		int r = NEXT(name)(where, st);          \
                                                        \
		if (r == 0 && record_is_full())         \
			st->f_bfree = st->f_bavail = 0; \
		return r;                               \
	}
DEFINE_STATVFS(fstatvfs, int where, statvfs)
DEFINE_STATVFS(fstatvfs64, int where, statvfs64)
DEFINE_STATVFS(statvfs, const char *where, statvfs)
DEFINE_STATVFS(statvfs64, const char *where, statvfs64)
