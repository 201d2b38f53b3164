/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/lib/lineage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
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
#include "client/ioctl.h"

#define PARTS_MAX ((size_t)64) /* per write */
#define NAME_LEN 16 /* at least six digits, and a NUL */
#define VERSION_MODE 0444 /* read-only: later versions may refer to it */

/* A version as it was when it was committed: a change shows in its size or time. */
struct version {
	uint32_t number;
	uint64_t inode, size;
	struct timespec changed;
};

struct versions {
	struct version *p; /* by number */
	size_t nr, room;
};

struct lineage {
	char *path; /* absolute */
	int dirfd;
	struct versions made; /* here, and not known to be lost */
};

static void name_of(uint32_t number, char ret[NAME_LEN])
{
	snprintf(ret, NAME_LEN, "%06" PRIu32, number);
}

/* Parses the name of a version, exactly as written by name_of(). */
static int number_of(const char *name, uint32_t *ret)
{
	char again[NAME_LEN], *end;
	unsigned long n;

	if (*name < '0' || *name > '9')
		return 0;
	errno = 0;
	n = strtoul(name, &end, 10);
	if (*end != '\0' || errno != 0 || n == 0 || n > UINT32_MAX)
		return 0;
	name_of((uint32_t)n, again);
	*ret = (uint32_t)n;
	return strcmp(again, name) == 0;
}

/* Creates an unnamed staging file. */
static int stage_open(const struct lineage *l)
{
	int fd = openat(l->dirfd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, VERSION_MODE);
	char name[64];

	if (fd >= 0)
		return fd;
	/* errors of kernels without O_TMPFILE on FUSE */
	if (errno != EOPNOTSUPP && errno != EISDIR)
		return log_errno(-errno, "lineage %s: cannot make a file", l->path);
	snprintf(name, sizeof(name), ".delta.%d.%p", getpid(), (const void *)l);
	fd = openat(l->dirfd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, VERSION_MODE);
	if (fd < 0 || unlinkat(l->dirfd, name, 0) < 0) {
		int r = log_errno(-errno, "lineage %s: cannot make a file", l->path);

		closep(&fd);
		return r;
	}
	return fd;
}

static int stage_begin(int fd, uint32_t number, uint32_t parent)
{
	struct ckptfs_delta_begin begin = {
		.size = sizeof(begin), .version = CKPTFS_IOC_VERSION, .number = number, .parent = parent
	};

	return ioctl(fd, CKPTFS_IOC_DELTA_BEGIN, &begin) < 0 ? -errno : 0;
}

/* A ckptfs mount supports the request but refuses it on a directory; other filesystems return another error. */
static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (fd < 0)
		return log_errno(-errno, "lineage %s: cannot open", path);
	r = stage_begin(fd, UINT32_MAX, DELTA_NO_PARENT);
	if (r == -EISDIR)
		return fd;
	closep(&fd);
	return log_errno(r < 0 ? r : -ENOTTY, "lineage %s: the filesystem does not support deltas", path);
}

int lineage_open(const char *dir, struct lineage **ret)
{
	_cleanup_(lineage_closep) struct lineage *l = calloc(1, sizeof(*l));
	bool made;

	if (!l)
		return -ENOMEM;
	l->dirfd = -1;
	made = mkdir(dir, 0777) == 0;
	if (!made && errno != EEXIST)
		return log_errno(-errno, "lineage %s: cannot make the directory", dir);
	l->dirfd = open_dir(dir);
	if (l->dirfd < 0) {
		if (made)
			rmdir(dir);
		return l->dirfd;
	}
	l->path = realpath(dir, NULL);
	if (!l->path)
		return log_errno(-errno, "lineage %s: cannot open", dir);
	/* Restoring needs read permission only. */
	if (faccessat(l->dirfd, ".", W_OK, AT_EACCESS) < 0)
		log_warning("lineage %s: read-only: %s", dir, strerror(errno));
	*ret = TAKE(l);
	return 0;
}

int lineage_reconnect(struct lineage *l)
{
	struct statfs st;
	int fd;

	if (fstatfs(l->dirfd, &st) == 0 || errno != ENOTCONN)
		return 0;
	fd = open_dir(l->path);
	if (fd < 0)
		return -ENOTCONN;
	closep(&l->dirfd);
	l->dirfd = fd;
	log_notice("lineage %s: reopened after a remount", l->path);
	return 0;
}

void lineage_close(struct lineage *l)
{
	if (!l)
		return;
	closep(&l->dirfd);
	free(l->made.p);
	free(l->path);
	free(l);
}

/* The current state of a version: 1/0/<0. */
static int version_stat(const struct lineage *l, uint32_t number, struct version *ret)
{
	char name[NAME_LEN];
	struct stat st;

	name_of(number, name);
	if (fstatat(l->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ?
			       0 :
			       log_errno(-errno, "lineage %s: version %" PRIu32 ": cannot stat", l->path, number);
	*ret = (struct version){ number, st.st_ino, (uint64_t)st.st_size, st.st_mtim };
	return 1;
}

/* --- committing --- */

static int write_parts(int fd, const struct iovec *parts, size_t nr)
{
	uint64_t off = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < nr; i += PARTS_MAX) {
		size_t n = MIN(nr - i, PARTS_MAX);

		r = io_pwritev(fd, parts + i, (int)n, off);
		for (size_t k = i; k < i + n; k++)
			off += parts[k].iov_len;
	}
	return r;
}

static int add_version(struct versions *v, struct version version)
{
	if (v->nr == v->room) {
		size_t room = MAX(2 * v->room, (size_t)16);
		struct version *p = realloc(v->p, room * sizeof(*p));

		if (!p)
			return -ENOMEM;
		v->p = p;
		v->room = room;
	}
	v->p[v->nr++] = version;
	return 0;
}

int lineage_commit(struct lineage *l, struct lineage_commit *c)
{
	struct ckptfs_delta_commit commit = { .size = sizeof(commit), .version = CKPTFS_IOC_VERSION, .flags = c->flags };
	_cleanup_(closep) int fd = stage_open(l);
	uint64_t start = monotonic_ns(), written;
	struct version version = { 0 };
	int r;

	if (fd < 0)
		return fd;
	/* Allocate the entry first: nothing may fail after the commit. */
	r = add_version(&l->made, (struct version){ 0 });
	if (r < 0)
		return r;
	l->made.nr--;
	r = stage_begin(fd, c->header->number, c->header->parent);
	if (r == 0)
		r = write_parts(fd, c->parts, c->nr_parts);
	written = monotonic_ns();
	memcpy(commit.key, c->key, sizeof(commit.key));
	if (r == 0 && ioctl(fd, CKPTFS_IOC_DELTA_COMMIT, &commit) < 0)
		r = -errno;
	explicit_bzero(commit.key, sizeof(commit.key));
	if (r < 0)
		return log_errno(r, "lineage %s: version %" PRIu32 ": cannot commit", l->path, c->header->number);
	c->write_ns = written - start;
	c->commit_ns = monotonic_ns() - written;
	if (version_stat(l, c->header->number, &version) > 0 && version.inode == commit.inode &&
	    version.size == commit.file_size)
		l->made.p[l->made.nr++] = version;
	else /* deleted already: lineage_lost() will report it */
		l->made.p[l->made.nr++] = (struct version){ .number = c->header->number };
	return 0;
}

/* --- looking --- */

static int by_number(const void *a, const void *b)
{
	const struct version *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Their numbers alone. */
static int read_versions(const struct lineage *l, struct versions *ret)
{
	int fd = openat(l->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct versions v = { 0 };
	struct dirent *e;

	if (!d) {
		r = log_errno(-errno, "lineage %s: cannot read", l->path);
		closep(&fd);
		return r;
	}
	while (r == 0 && (errno = 0, e = readdir(d)) != NULL) {
		struct version version = { 0 };

		if (number_of(e->d_name, &version.number))
			r = add_version(&v, version);
	}
	if (r == 0 && errno != 0)
		r = log_errno(-errno, "lineage %s: cannot read", l->path);
	closedir(d);
	if (r < 0) {
		free(v.p);
		return r;
	}
	if (v.nr > 0)
		qsort(v.p, v.nr, sizeof(*v.p), by_number);
	*ret = v;
	return 0;
}

int lineage_has(const struct lineage *l, uint32_t number)
{
	struct version version = { 0 };

	return version_stat(l, number, &version);
}

int lineage_versions(const struct lineage *l, uint32_t **ret, size_t *ret_nr)
{
	struct versions v = { 0 };
	uint32_t *numbers;
	int r = read_versions(l, &v);

	if (r < 0)
		return r;
	numbers = malloc(MAX(v.nr, (size_t)1) * sizeof(*numbers));
	for (size_t i = 0; numbers && i < v.nr; i++)
		numbers[i] = v.p[i].number;
	free(v.p);
	if (!numbers)
		return -ENOMEM;
	*ret = numbers;
	*ret_nr = v.nr;
	return 0;
}

int lineage_delete(struct lineage *l, uint32_t number)
{
	char name[NAME_LEN];

	name_of(number, name);
	if (unlinkat(l->dirfd, name, 0) < 0)
		return log_errno(-errno, "lineage %s: version %" PRIu32 ": cannot delete", l->path, number);
	return 0;
}

static bool same(const struct version *a, const struct version *b)
{
	return a->inode == b->inode && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
	       a->changed.tv_nsec == b->changed.tv_nsec;
}

int lineage_lost(struct lineage *l, uint32_t **ret, size_t *ret_nr)
{
	uint32_t *lost = malloc(MAX(l->made.nr, (size_t)1) * sizeof(*lost));
	size_t kept = 0, nr = 0;

	if (!lost)
		return -ENOMEM;
	for (size_t i = 0; i < l->made.nr; i++) {
		struct version now = { 0 };

		/* A version that cannot be examined counts as lost, too. */
		if (version_stat(l, l->made.p[i].number, &now) > 0 && same(&now, &l->made.p[i]))
			l->made.p[kept++] = l->made.p[i];
		else
			lost[nr++] = l->made.p[i].number;
	}
	l->made.nr = kept;
	*ret = lost;
	*ret_nr = nr;
	return 0;
}

int lineage_open_version(const struct lineage *l, uint32_t number)
{
	char name[NAME_LEN];
	struct stat st;
	int fd, r;

	name_of(number, name);
	/* O_NONBLOCK: opening a FIFO would block */
	fd = openat(l->dirfd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		r = log_errno(-errno, "lineage %s: version %" PRIu32, l->path, number);
	else if (!S_ISREG(st.st_mode))
		r = log_errno(-EBADMSG, "lineage %s: version %" PRIu32 ": not a regular file", l->path, number);
	else
		return fd;
	closep(&fd);
	return r;
}

int lineage_read(int fd, void *p, size_t len, uint64_t off)
{
	ssize_t n = io_pread(fd, p, len, off);

	if (n < 0)
		return log_errno((int)n, "version: cannot read %zu bytes at %" PRIu64, len, off);
	return (size_t)n == len ? 0 : log_errno(-EBADMSG, "version: ends before %" PRIu64, off + len);
}
