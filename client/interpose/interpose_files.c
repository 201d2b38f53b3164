/* SPDX-License-Identifier: BSD-3-Clause */
/* Interposed functions (interpose.h): files and their names. */
#include "client/interpose/interpose.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* --- files --- */

int stat(const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(stat)(path, at));
}

int lstat(const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(lstat)(path, at));
}

int fstat(int fd, struct stat *st)
{
	return RESULT(st, at, NEXT(fstat)(fd, at));
}

int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	return RESULT(st, at, NEXT(fstatat)(dir, path, at, flags));
}

int stat64(const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(stat64)(path, at));
}

int lstat64(const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(lstat64)(path, at));
}

int fstat64(int fd, struct stat64 *st)
{
	return RESULT(st, at, NEXT(fstat64)(fd, at));
}

int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
	return RESULT(st, at, NEXT(fstatat64)(dir, path, at, flags));
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	return RESULT(st, at, NEXT(statx)(dir, path, flags, mask, at));
}

int statfs(const char *path, struct statfs *st)
{
	return RESULT(st, at, NEXT(statfs)(path, at));
}

int fstatfs(int fd, struct statfs *st)
{
	return RESULT(st, at, NEXT(fstatfs)(fd, at));
}

int statfs64(const char *path, struct statfs64 *st)
{
	return RESULT(st, at, NEXT(statfs64)(path, at));
}

int fstatfs64(int fd, struct statfs64 *st)
{
	return RESULT(st, at, NEXT(fstatfs64)(fd, at));
}

/* Called by programs that were linked before 2021. */
int __xstat(int version, const char *path, struct stat *st);
int __lxstat(int version, const char *path, struct stat *st);
int __fxstat(int version, int fd, struct stat *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstat64(int version, int fd, struct stat64 *st);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);

int __xstat(int version, const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(__xstat)(version, path, at));
}

int __lxstat(int version, const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(__lxstat)(version, path, at));
}

int __fxstat(int version, int fd, struct stat *st)
{
	return RESULT(st, at, NEXT(__fxstat)(version, fd, at));
}

int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags)
{
	return RESULT(st, at, NEXT(__fxstatat)(version, dir, path, at, flags));
}

int __xstat64(int version, const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(__xstat64)(version, path, at));
}

int __lxstat64(int version, const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(__lxstat64)(version, path, at));
}

int __fxstat64(int version, int fd, struct stat64 *st)
{
	return RESULT(st, at, NEXT(__fxstat64)(version, fd, at));
}

int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags)
{
	return RESULT(st, at, NEXT(__fxstatat64)(version, dir, path, at, flags));
}

/* --- names --- */

ssize_t readlink(const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(readlink)(path, at, len));
}

ssize_t readlinkat(int dir, const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(readlinkat)(dir, path, at, len));
}

char *getcwd(char *p, size_t len)
{
	if (!p)
		return NEXT(getcwd)(p, len); /* it allocates */
	len = MIN(len, (size_t)LOAN_MAX);
	return RESULTS(p, len, at, NEXT(getcwd)(at, len)) ? p : NULL;
}

int ttyname_r(int fd, char *p, size_t len)
{
	len = MIN(len, (size_t)LOAN_MAX);
	return RESULTS(p, len, at, NEXT(ttyname_r)(fd, at, len));
}

ssize_t getdents64(int fd, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(getdents64)(fd, at, len));
}

ssize_t getdirentries(int fd, char *p, size_t len, off_t *base)
{
	return BUFFER(p, len, at, NEXT(getdirentries)(fd, at, len, base));
}

ssize_t getdirentries64(int fd, char *p, size_t len, off64_t *base)
{
	return BUFFER(p, len, at, NEXT(getdirentries64)(fd, at, len, base));
}

ssize_t getxattr(const char *path, const char *name, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(getxattr)(path, name, at, len));
}

ssize_t lgetxattr(const char *path, const char *name, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(lgetxattr)(path, name, at, len));
}

ssize_t fgetxattr(int fd, const char *name, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(fgetxattr)(fd, name, at, len));
}

ssize_t listxattr(const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(listxattr)(path, at, len));
}

ssize_t llistxattr(const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(llistxattr)(path, at, len));
}

ssize_t flistxattr(int fd, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(flistxattr)(fd, at, len));
}

int name_to_handle_at(int dir, const char *path, struct file_handle *handle, int *mount, int flags)
{
	return RESULTS(handle, sizeof(*handle) + handle->handle_bytes, at,
		       RESULT(mount, mount_at, NEXT(name_to_handle_at)(dir, path, at, mount_at, flags)));
}

/* --- offsets that the kernel advances --- */

ssize_t sendfile(int to, int from, off_t *off, size_t len)
{
	return RESULT(off, at, NEXT(sendfile)(to, from, at, len));
}

ssize_t sendfile64(int to, int from, off64_t *off, size_t len)
{
	return RESULT(off, at, NEXT(sendfile64)(to, from, at, len));
}

ssize_t splice(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
	return RESULT(from_off, from_at, RESULT(to_off, to_at, NEXT(splice)(from, from_at, to, to_at, len, flags)));
}

ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
	return RESULT(from_off, from_at,
		      RESULT(to_off, to_at, NEXT(copy_file_range)(from, from_at, to, to_at, len, flags)));
}

/* --- variants for programs compiled with -D_FORTIFY_SOURCE --- */

ssize_t __readlink_chk(const char *path, char *p, size_t len, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *p, size_t len, size_t room);
char *__getcwd_chk(char *p, size_t len, size_t room);
int __ttyname_r_chk(int fd, char *p, size_t len, size_t room);

ssize_t __readlink_chk(const char *path, char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__readlink_chk)(path, p, len, room) : readlink(path, p, len);
}

ssize_t __readlinkat_chk(int dir, const char *path, char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__readlinkat_chk)(dir, path, p, len, room) : readlinkat(dir, path, p, len);
}

char *__getcwd_chk(char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__getcwd_chk)(p, len, room) : getcwd(p, len);
}

int __ttyname_r_chk(int fd, char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__ttyname_r_chk)(fd, p, len, room) : ttyname_r(fd, p, len);
}
