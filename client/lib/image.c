/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "client/ioctl.h"
#include "client/lib/own_fd.h"

#define NUMBER_LEN 16 /* at least six digits, and a NUL */
#define NAME_LEN (NUMBER_LEN + IMAGE_NAME_MAX + 16)
#define IMAGE_MODE 0400 /* memory may contain secrets; read-only because later checkpoints are clones of it */

struct image_dir {
	char *path, *member;
	int fd;
	int lock; /* the locked file; -1: none */
	unsigned clone_kind; /* enum ckptfs_clone_kind */
	bool warned; /* that files are copied */
};

static void number_name(uint32_t number, char ret[NUMBER_LEN])
{
	snprintf(ret, NUMBER_LEN, "%06" PRIu32, number);
}

/* The checkpoint number of a file name, or 0. */
static uint32_t number_of(const char *name)
{
	char again[NUMBER_LEN], *end;
	unsigned long n;

	if (*name < '0' || *name > '9')
		return 0;
	n = strtoul(name, &end, 10);
	if (*end != '\0' || n == 0 || n > UINT32_MAX)
		return 0;
	number_name((uint32_t)n, again);
	return strcmp(again, name) == 0 ? (uint32_t)n : 0;
}

/* The names in the directory of a checkpoint, and of the same while it is incomplete. */
static void names_of(const struct image_dir *d, uint32_t number, char name[NAME_LEN], char part[NAME_LEN])
{
	char n[NUMBER_LEN];

	number_name(number, n);
	if (d->member) {
		snprintf(name, NAME_LEN, "%s/%s", n, d->member);
		snprintf(part, NAME_LEN, "%s/.%s.part", n, d->member);
	} else {
		snprintf(name, NAME_LEN, "%s", n);
		snprintf(part, NAME_LEN, ".%s.part", n);
	}
}

/* --- the directory --- */

/* The sealed directory with the next higher inode number. */
static int seal_next(int fd, uint64_t after, struct ckptfs_seal *ret)
{
	*ret = (struct ckptfs_seal){
		.size = sizeof(*ret), .version = CKPTFS_IOC_VERSION, .command = CKPTFS_SEAL_NEXT, .inode = after
	};
	return ioctl(fd, CKPTFS_IOC_SEAL, ret) < 0 ? -errno : 0;
}

/* Only a ckptfs mount supports this request. */
static bool on_ckptfs(int fd)
{
	struct ckptfs_seal seal;
	int r = seal_next(fd, UINT64_MAX, &seal);

	return r != -ENOTTY && r != -ENOSYS && r != -EOPNOTSUPP;
}

static bool is_sealed(const struct image_dir *d, uint32_t number)
{
	struct ckptfs_seal seal;
	char name[NUMBER_LEN];
	struct stat st;

	number_name(number, name);
	return fstatat(d->fd, name, &st, 0) == 0 && seal_next(d->fd, st.st_ino - 1, &seal) == 0 &&
	       seal.inode == st.st_ino;
}

static int open_listing(const struct image_dir *d, DIR **ret)
{
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*ret = fd < 0 ? NULL : fdopendir(fd);
	if (!*ret) {
		int r = log_errno(-errno, "checkpoints %s: cannot list", d->path);

		closep(&fd);
		return r;
	}
	return 0;
}

/* Removes the incomplete checkpoints of processes that died. */
static int remove_parts(const struct image_dir *d)
{
	struct dirent *e;
	DIR *dir;
	int r = open_listing(d, &dir);

	if (r < 0)
		return r;
	while ((e = readdir(dir))) {
		char name[NAME_LEN], part[NAME_LEN], number[NUMBER_LEN];
		size_t len = strlen(e->d_name);
		uint32_t n;

		if (d->member) {
			n = number_of(e->d_name);
		} else {
			if (e->d_name[0] != '.' || len < 7 || len - 6 >= sizeof(number) ||
			    strcmp(e->d_name + len - 5, ".part") != 0)
				continue;
			memcpy(number, e->d_name + 1, len - 6);
			number[len - 6] = '\0';
			n = number_of(number);
		}
		if (n == 0)
			continue;
		names_of(d, n, name, part);
		if (unlinkat(d->fd, part, 0) == 0)
			log_notice("checkpoints %s: removed incomplete checkpoint %s", d->path, part);
	}
	closedir(dir);
	return 0;
}

/*
 * If two processes wrote files of the same names, one could clone a file of the other and mix both memories. The lock
 * belongs to the process: it is released however the process ends, and a child that outlives it does not inherit it.
 * A process without write permission can do no harm, and some filesystems have no locks.
 */
static int lock_dir(struct image_dir *d)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char name[NAME_LEN];

	snprintf(name, sizeof(name), ".%s%slock", d->member ? d->member : "", d->member ? "." : "");
	/* own_fd() must duplicate the descriptor before it is locked: closing any descriptor of the file unlocks it */
	d->lock = own_fd(openat(d->fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
	if (d->lock < 0 &&
	    (errno == EROFS || errno == EPERM || (errno == EACCES && faccessat(d->fd, ".", W_OK, AT_EACCESS) < 0)))
		return 0;
	if (d->lock < 0)
		return log_errno(-errno, "checkpoints %s: cannot open %s", d->path, name);
	if (fcntl(d->lock, F_SETLK, &lock) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return log_errno(
			-EBUSY,
			"checkpoints %s: in use by another process: give each process its own directory or member name",
			d->path);
	log_notice("checkpoints %s: cannot lock, use by several processes is not detected: %s", d->path,
		   strerror(errno));
	return 0;
}

int image_dir_open(const char *path, const char *member, bool require, struct image_dir **ret)
{
	struct image_dir *d = calloc(1, sizeof(*d));
	int r = 0;

	if (!d)
		return -ENOMEM;
	d->fd = d->lock = -1;
	d->path = strdup(path);
	d->member = member ? strdup(member) : NULL;
	if (!d->path || (member && !d->member))
		r = -ENOMEM;
	if (r == 0 && mkdir(path, 0777) < 0 && errno != EEXIST)
		r = log_errno(-errno, "checkpoints %s: cannot make the directory", path);
	if (r == 0) {
		d->fd = own_fd(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		if (d->fd < 0)
			r = log_errno(-errno, "checkpoints %s: cannot open", path);
	}
	if (r == 0) {
		free(d->path);
		d->path = realpath(path, NULL); /* the program may change its directory */
		if (!d->path)
			r = log_errno(-errno, "checkpoints %s: cannot open", path);
	}
	if (r == 0) {
		d->clone_kind = on_ckptfs(d->fd) ? CKPTFS_CLONE_MOUNT : CKPTFS_CLONE_REFLINK;
		if (require && d->clone_kind != CKPTFS_CLONE_MOUNT)
			r = log_errno(-ENOTTY, "checkpoints %s: not on a ckptfs mount", path);
	}
	if (r == 0)
		r = lock_dir(d);
	if (r == 0)
		r = remove_parts(d);
	if (r < 0) {
		image_dir_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void image_dir_close(struct image_dir *d)
{
	if (!d)
		return;
	own_fd_closep(&d->fd);
	own_fd_closep(&d->lock);
	free(d->member);
	free(d->path);
	free(d);
}

const char *image_dir_path(const struct image_dir *d)
{
	return d->path;
}

unsigned image_dir_clone_kind(const struct image_dir *d)
{
	return d->clone_kind;
}

int image_dir_next_below(struct image_dir *d, uint32_t below, bool sealed, uint32_t *ret)
{
	uint32_t highest = 0;
	struct dirent *e;
	DIR *dir;
	int r = open_listing(d, &dir);

	if (r < 0)
		return r;
	while ((e = readdir(dir))) {
		uint32_t n = number_of(e->d_name);

		if (n > highest && n < below && (!sealed || is_sealed(d, n)))
			highest = n;
	}
	closedir(dir);
	*ret = highest;
	return 0;
}

int image_dir_highest(struct image_dir *d, uint32_t *ret)
{
	return image_dir_next_below(d, UINT32_MAX, false, ret);
}

void image_dir_prune(struct image_dir *d, uint32_t keep)
{
	uint32_t below = UINT32_MAX, n;
	char name[NAME_LEN], part[NAME_LEN], number[NUMBER_LEN];

	for (uint32_t i = 0; image_dir_next_below(d, below, false, &n) == 0 && n > 0; i++) {
		below = n;
		if (i < keep)
			continue;
		names_of(d, n, name, part);
		/* EPERM: sealed checkpoints are kept */
		if (unlinkat(d->fd, name, 0) < 0 && errno != ENOENT && errno != EPERM)
			log_warning("checkpoints %s: cannot remove %s: %s", d->path, name, strerror(errno));
		number_name(n, number);
		if (d->member)
			unlinkat(d->fd, number, AT_REMOVEDIR); /* succeeds for the last member */
	}
}

/* --- reading --- */

static int read_image(int fd, struct image_header *ret, struct buf *ret_table)
{
	_cleanup_(buf_release) struct buf table = BUF_EMPTY;
	struct image_header_disk disk;
	struct image_iter it;
	struct stat st;
	ssize_t n;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	n = io_pread(fd, &disk, sizeof(disk), 0);
	if (n < 0)
		return (int)n;
	r = image_header_decode(&disk, (size_t)n, (uint64_t)st.st_size, ret);
	if (r == 0)
		r = buf_reserve(&table, ret->table_len);
	if (r < 0)
		return r;
	n = io_pread(fd, table.data, ret->table_len, ret->table_off);
	if (n < 0)
		return (int)n;
	table.len = (size_t)n;
	r = image_table_decode(ret, table.data, table.len, &it);
	if (r == 0)
		buf_move(ret_table, &table);
	return r;
}

int image_open(struct image_dir *d, uint32_t number, bool quiet, struct image_header *ret, struct buf *ret_table)
{
	char name[NAME_LEN], part[NAME_LEN];
	int fd, r;

	names_of(d, number, name, part);
	fd = own_fd(openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)); /* opening a pipe would block */
	r = fd < 0 ? -errno : read_image(fd, ret, ret_table);
	if (r == 0)
		return fd;
	own_fd_closep(&fd);
	if (quiet)
		log_warning("checkpoint %s/%s: not usable: %s", d->path, name, strerror(-r));
	return quiet ? r : log_errno(r, "checkpoint %s/%s: not usable", d->path, name);
}

/* --- writing --- */

static int clone_on_ckptfs(int from, int to)
{
	struct ckptfs_handle handle = { .size = sizeof(handle), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_clone clone = { .size = sizeof(clone), .version = CKPTFS_IOC_VERSION };

	if (ioctl(from, CKPTFS_IOC_HANDLE, &handle) < 0)
		return -errno;
	clone.from = handle.handle;
	return ioctl(to, CKPTFS_IOC_CLONE, &clone) < 0 ? -errno : 0;
}

static int copy_image(struct image_dir *d, int from, int to)
{
	struct stat st;

	if (!d->warned)
		log_warning("checkpoints %s: the filesystem cannot clone files, each checkpoint copies the last one: use a ckptfs mount",
			    d->path);
	d->warned = true;
	d->clone_kind = CKPTFS_CLONE_COPY;
	if (fstat(from, &st) < 0)
		return -errno;
	for (uint64_t left = (uint64_t)st.st_size; left > 0;) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, left, 0);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		left -= (uint64_t)n;
	}
	return 0;
}

static int clone_parent(struct image_dir *d, uint32_t parent, int to)
{
	_cleanup_(own_fd_closep) int from = -1;
	char name[NAME_LEN], part[NAME_LEN];
	int r;

	names_of(d, parent, name, part);
	from = own_fd(openat(d->fd, name, O_RDONLY | O_CLOEXEC));
	if (from < 0 && errno == ENOENT)
		return log_errno(-ESTALE, "checkpoint %s/%s: removed, the next one cannot be its clone", d->path, name);
	if (from < 0)
		return log_errno(-errno, "checkpoint %s/%s: cannot open for cloning", d->path, name);
	if (d->clone_kind == CKPTFS_CLONE_MOUNT)
		r = clone_on_ckptfs(from, to);
	else
		r = d->clone_kind == CKPTFS_CLONE_REFLINK && ioctl(to, FICLONE, from) == 0 ? 0 :
											     copy_image(d, from, to);
	return r < 0 ? log_errno(r, "checkpoint %s/%s: cannot clone", d->path, name) : 0;
}

/* After a remount the path leads to another filesystem: reopen it. */
static int reopen_after_remount(struct image_dir *d)
{
	struct image_dir reopened = *d;
	struct statfs st;
	int r;

	if (fstatfs(d->fd, &st) == 0 || errno != ENOTCONN)
		return 0;
	reopened.fd = own_fd(open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (reopened.fd < 0)
		return 0; /* operations on the old descriptor will fail with the cause */
	r = lock_dir(&reopened);
	own_fd_closep(r < 0 ? &reopened.fd : &d->fd);
	own_fd_closep(r < 0 ? &reopened.lock : &d->lock);
	if (r < 0)
		return r;
	*d = reopened;
	log_notice("checkpoints %s: reopened after a remount", d->path);
	return 0;
}

int image_stage(struct image_dir *d, uint32_t number, uint32_t parent)
{
	char name[NAME_LEN], part[NAME_LEN], directory[NUMBER_LEN];
	int fd, r = reopen_after_remount(d);

	if (r < 0)
		return r;
	names_of(d, number, name, part);
	number_name(number, directory);
	if (d->member && mkdirat(d->fd, directory, 0777) < 0 && errno != EEXIST)
		return log_errno(-errno, "checkpoints %s: cannot create %s", d->path, directory);
	unlinkat(d->fd, part, 0); /* left by a failed image_abandon() */
	/* A mount writes files fastest that are open write-only. */
	fd = own_fd(openat(d->fd, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, IMAGE_MODE));
	if (fd < 0)
		return log_errno(-errno, "checkpoint %s/%s: cannot create", d->path, part);
	if (ftruncate(fd, 0) < 0) /* the program may have printed to the low number that openat() returned */
		r = log_errno(-errno, "checkpoint %s/%s: cannot create", d->path, part);
	if (r == 0 && parent != 0)
		r = clone_parent(d, parent, fd);
	if (r < 0) {
		image_abandon(d, number, fd);
		return r;
	}
	return fd;
}

static int sync_parent(const struct image_dir *d, uint32_t number)
{
	_cleanup_(own_fd_closep) int fd = -1;
	char name[NUMBER_LEN];
	int r;

	if (!d->member)
		return io_sync_dir(d->fd);
	number_name(number, name);
	fd = own_fd(openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	r = fd < 0 ? -errno : io_sync_dir(fd);
	return r < 0 ? r : io_sync_dir(d->fd);
}

int image_commit(struct image_dir *d, uint32_t number, int fd)
{
	char name[NAME_LEN], part[NAME_LEN];
	int r;

	names_of(d, number, name, part);
	r = fsync(fd) < 0 ? -errno : 0;
	if (r == 0 && renameat(d->fd, part, d->fd, name) < 0)
		r = -errno;
	if (r == 0)
		r = sync_parent(d, number);
	if (r < 0) {
		log_errno(r, "checkpoint %s/%s: cannot commit", d->path, name);
		image_abandon(d, number, fd);
		return r;
	}
	own_fd_closep(&fd);
	return 0;
}

void image_abandon(struct image_dir *d, uint32_t number, int fd)
{
	char name[NAME_LEN], part[NAME_LEN], directory[NUMBER_LEN];

	names_of(d, number, name, part);
	own_fd_closep(&fd);
	unlinkat(d->fd, part, 0); /* if this fails, the next image_dir_open() does it */
	number_name(number, directory);
	if (d->member)
		unlinkat(d->fd, directory, AT_REMOVEDIR); /* fails if other members have files in it */
}
