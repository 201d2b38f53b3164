/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"
#include "tools/run/run_walk.h"

#define BLOCK MiB(1)
#define XATTR_MAX 65536 /* the kernel's limit for all names, and for one value */

/* A file with several names. `path`: the first copied name, relative to the top of the copy. */
struct linked {
	ino_t inode;
	char *path;
};

struct state {
	struct run_copy *c;
	int top; /* of the copy; borrowed */
	struct linked *linked;
	size_t nr_linked;
	uint8_t *a, *b; /* one block each */
};

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT) && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int report_progress(struct state *s)
{
	return s->c->go_on && !s->c->go_on(s->c->userdata, s->c->bytes) ? -ETIME : 0;
}

/* Copies the data from `off` to `end`, which contains no hole. */
static int copy_extent(struct state *s, int from, int to, off_t off, off_t end)
{
	int r = 0;

	while (r == 0 && off < end) {
		ssize_t n = io_pread(from, s->a, (size_t)MIN((uint64_t)(end - off), BLOCK), (uint64_t)off);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO; /* shorter than before: no longer sealed */
		r = io_pwrite(to, s->a, (size_t)n, (uint64_t)off);
		off += n;
		s->c->bytes += (uint64_t)n;
		if (r == 0)
			r = report_progress(s);
	}
	return r;
}

/* Finds the next data at or after *end. 1: found, 0: no more, <0 */
static int next_extent(int fd, off_t size, off_t *off, off_t *end)
{
	off_t data = lseek(fd, *end, SEEK_DATA), hole;

	if (data < 0)
		return errno == ENXIO ? 0 : -errno;
	if (data >= size)
		return 0;
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole < 0)
		return -errno;
	*off = data;
	*end = MIN(hole, size);
	return 1;
}

static int copy_bytes(struct state *s, int from, int to, off_t size)
{
	off_t off = 0, end = 0;
	int r = io_truncate(to, (uint64_t)size);

	while (r == 0 && (r = next_extent(from, size, &off, &end)) > 0)
		r = copy_extent(s, from, to, off, end);
	return r < 0 ? r : io_sync(to);
}

static int compare_extent(struct state *s, int from, int to, off_t off, off_t end)
{
	int r = 0;

	while (r == 0 && off < end) {
		size_t len = (size_t)MIN((uint64_t)(end - off), BLOCK);
		ssize_t n = io_pread(from, s->a, len, (uint64_t)off), m = io_pread(to, s->b, len, (uint64_t)off);

		if (n < 0 || m < 0)
			return n < 0 ? (int)n : (int)m;
		if (n == 0 || n != m || memcmp(s->a, s->b, (size_t)n) != 0)
			return -EBADMSG;
		off += n;
		r = report_progress(s);
	}
	return r;
}

/* Compares with the bytes on the disk, not in the page cache. */
static int compare_bytes(struct state *s, int from, int to, off_t size)
{
	off_t off = 0, end = 0;
	int r = 0;

	posix_fadvise(to, 0, 0, POSIX_FADV_DONTNEED);
	while (r == 0 && (r = next_extent(from, size, &off, &end)) > 0)
		r = compare_extent(s, from, to, off, end);
	return r;
}

/* Copies user attributes if both filesystems support them. */
static int copy_xattrs(int from, int to)
{
	_cleanup_(freep) char *names = malloc(XATTR_MAX);
	_cleanup_(freep) char *value = malloc(XATTR_MAX);
	ssize_t len = names ? flistxattr(from, names, XATTR_MAX) : -1;

	if (!names || !value)
		return -ENOMEM;
	for (const char *name = names; len > 0 && name < names + len; name += strlen(name) + 1) {
		ssize_t n;

		if (strncmp(name, "user.", 5) != 0)
			continue;
		n = fgetxattr(from, name, value, XATTR_MAX);
		if (n >= 0 && fsetxattr(to, name, value, (size_t)n, 0) < 0 && errno != EOPNOTSUPP)
			return -errno;
	}
	return 0;
}

/* Sets the time last: it marks the file as complete. */
static int copy_attributes(int from, int to, const struct stat *st)
{
	const struct timespec times[] = { st->st_atim, st->st_mtim };
	int r = copy_xattrs(from, to);

	if (r < 0)
		return r;
	if (geteuid() == 0 && fchown(to, st->st_uid, st->st_gid) < 0)
		return -errno;
	if (fchmod(to, st->st_mode & 07777) < 0 || futimens(to, times) < 0)
		return -errno;
	return 0;
}

/*
 * Removes what an interrupted copy has left. Nothing is written to an existing name: it may be a link to a file
 * elsewhere.
 */
static int remove_old(int to_dir, const char *name)
{
	return unlinkat(to_dir, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* The owner may unseal the tree meanwhile, and replace the file, as by a FIFO: opening one would block. */
static int copy_file(struct state *s, int from_dir, int to_dir, const char *name, const struct stat *st)
{
	_cleanup_(closep) int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(closep) int to = -1;
	struct stat done;
	int r;

	if (from < 0 || fstat(from, &done) < 0)
		return -errno;
	if (done.st_ino != st->st_ino || !S_ISREG(done.st_mode))
		return -ESTALE;
	if (fstatat(to_dir, name, &done, AT_SYMLINK_NOFOLLOW) == 0 && is_same_file(st, &done)) {
		s->c->bytes += (uint64_t)st->st_size;
		return report_progress(s);
	}
	r = remove_old(to_dir, name);
	if (r < 0)
		return r;
	to = openat(to_dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	r = copy_bytes(s, from, to, st->st_size);
	if (r == 0)
		r = compare_bytes(s, from, to, st->st_size);
	return r < 0 ? r : copy_attributes(from, to, st);
}

/* 1: another name was copied before, and this one is linked to it; 0: this is the first name */
static int copy_link(struct state *s, int to_dir, const char *name, const char *path, const struct stat *st)
{
	struct linked *more;
	int r;

	for (size_t i = 0; i < s->nr_linked; i++) {
		if (s->linked[i].inode != st->st_ino)
			continue;
		r = remove_old(to_dir, name);
		if (r == 0 && linkat(s->top, s->linked[i].path, to_dir, name, 0) < 0)
			r = -errno;
		return r < 0 ? r : 1;
	}
	more = reallocarray(s->linked, s->nr_linked + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->linked = more;
	s->linked[s->nr_linked] = (struct linked){ st->st_ino, strdup(path) };
	return s->linked[s->nr_linked++].path ? 0 : -ENOMEM;
}

/* For files that cannot be opened. */
static int copy_owner_and_times(int to_dir, const char *name, const struct stat *st)
{
	const struct timespec times[] = { st->st_atim, st->st_mtim };

	if (geteuid() == 0 && fchownat(to_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int copy_fifo(int to_dir, const char *name, const struct stat *st)
{
	int r = remove_old(to_dir, name);

	if (r < 0)
		return r;
	if (mkfifoat(to_dir, name, 0600) < 0)
		return -errno;
	if (fchmodat(to_dir, name, st->st_mode & 07777, 0) < 0)
		return -errno;
	return copy_owner_and_times(to_dir, name, st);
}

static int copy_symlink(int from_dir, int to_dir, const char *name, const struct stat *st)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(from_dir, name, target, PATH_MAX);
	int r = n < 0 ? -errno : remove_old(to_dir, name);

	if (r < 0)
		return r;
	target[n] = '\0';
	if (symlinkat(target, to_dir, name) < 0)
		return -errno;
	return copy_owner_and_times(to_dir, name, st);
}

static int enter_copy(_unused_ void *userdata, const struct run_walk_name *n, int *ret_to)
{
	int to;

	if (mkdirat(n->to, n->name, 0700) < 0 && errno != EEXIST)
		return -errno;
	to = openat(n->to, n->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (to < 0)
		return -errno;
	*ret_to = to;
	return fchmod(to, 0700) < 0 ? -errno : 0; /* may be complete from an earlier run, without write permission */
}

static int copy_name(void *userdata, const struct run_walk_name *n)
{
	struct state *s = userdata;
	const struct stat *st = &n->st;
	int r;

	if (S_ISLNK(st->st_mode))
		return copy_symlink(n->from, n->to, n->name, st);
	r = st->st_nlink > 1 ? copy_link(s, n->to, n->name, n->path, st) : 0;
	if (r != 0)
		return MIN(r, 0);
	if (S_ISREG(st->st_mode))
		return copy_file(s, n->from, n->to, n->name, st);
	if (S_ISFIFO(st->st_mode))
		return copy_fifo(n->to, n->name, st);
	return -EOPNOTSUPP;
}

static int leave_copy(_unused_ void *userdata, int from, int to, const struct stat *st)
{
	int r = io_sync_dir(to);

	return r < 0 ? r : copy_attributes(from, to, st);
}

int run_copy_tree(struct run_copy *c, int from, int to)
{
	struct state s = { .c = c, .top = to, .a = malloc(BLOCK), .b = malloc(BLOCK) };
	struct run_walk w = { enter_copy, copy_name, leave_copy, &s, "" };
	int r = s.a && s.b ? run_walk(&w, from, to) : -ENOMEM;

	snprintf(c->path, sizeof(c->path), "%s", w.path);
	for (size_t i = 0; i < s.nr_linked; i++)
		free(s.linked[i].path);
	free(s.linked);
	free(s.a);
	free(s.b);
	return r;
}

#define DIFFERS 1 /* result of the walk */

/* leave_same() detects names that only the second directory has. */
static int enter_same(_unused_ void *userdata, const struct run_walk_name *n, int *ret_to)
{
	*ret_to = openat(n->to, n->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_to < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? DIFFERS : -errno;
	return 0;
}

static int compare_name(_unused_ void *userdata, const struct run_walk_name *n)
{
	struct stat to;

	if (fstatat(n->to, n->name, &to, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? DIFFERS : -errno;
	if ((n->st.st_mode & S_IFMT) != (to.st_mode & S_IFMT))
		return DIFFERS;
	return !S_ISREG(to.st_mode) || is_same_file(&n->st, &to) ? 0 : DIFFERS;
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int count_names(int fd, size_t *ret)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *d = own < 0 ? NULL : fdopendir(own);
	size_t nr = 0;
	int r = -errno;

	if (!d) {
		closep(&own);
		return r;
	}
	while ((errno = 0, readdir(d)))
		nr++;
	*ret = nr;
	return -errno;
}

static int leave_same(_unused_ void *userdata, int from, int to, _unused_ const struct stat *st)
{
	size_t nr = 0, theirs = 0;
	int r = count_names(from, &nr);

	if (r == 0)
		r = count_names(to, &theirs);
	return r < 0 ? r : nr == theirs ? 0 : DIFFERS;
}

int run_copy_is_same(int from, int to)
{
	struct run_walk w = { enter_same, compare_name, leave_same, NULL, "" };
	int r = run_walk(&w, from, to);

	return r < 0 ? r : r != DIFFERS;
}
