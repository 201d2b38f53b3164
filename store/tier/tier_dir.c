/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Putting a new object. Only the order makes it safe:
 *   1. make missing directories                 crash: empty directories
 *   2. write a temporary file, fsync            crash: a stray temporary, which lists skip
 *   3. link it to its name                      fails if the name is taken: exactly one of several racing writers
 *                                               succeeds, and a reader finds the whole object or none
 *   4. fsync the directory, and those above it  COMMIT POINT. Another machine may have made a directory and not synced
 *                                               its name yet, so all of them are synced each time: also when the
 *                                               name is taken, because the caller may rely on that object
 *   5. unlink the temporary
 * A put that may replace an object renames in step 3.
 *
 * A writer that ends in between leaves the temporary, which may be another name of the object: its space would never be
 * free. A sweep marks each temporary that it finds by making it read-only, and removes those that the previous sweep
 * marked, in use or not: a writer whose temporary is gone fails in step 3, and the object does not exist.
 *
 * The temporary is in the directory of the object: some parallel filesystems link within a directory only, or
 * within one metadata server. Its name is random and begins with a dot, which no object's does.
 *
 * A network filesystem repeats a link if the answer was lost, and then reports that the name is taken. The link
 * count of the temporary decides: nothing but this link increases it. Where there are no hard links, a rename that
 * replaces nothing takes their place. Where there is neither, put new fails: a test and a rename are not atomic.
 *
 * Files are readable by their owner only: checkpoints may be, and the key is among them.
 *
 * A client may cache that a name does not exist. Opening a directory makes NFS compare its attributes with the
 * server's, so each request opens the directories on its way.
 */
#include "store/tier/tier_dir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir_write.h"

#define THREADS 8u
#define PAGE 10000u

struct tier_dir {
	struct tier tier;
	int fd; /* constant, like the next two */
	size_t page;
	unsigned nr_threads_max;
	struct log_limit limit;
	struct mutex lock; /* leaf */
	struct cond posted;
	struct tier_request *first GUARDED_BY(lock), **end GUARDED_BY(lock); /* not begun, oldest first */
	pthread_t *threads GUARDED_BY(lock);
	unsigned nr_threads GUARDED_BY(lock), nr_idle GUARDED_BY(lock);
	size_t nr_waiting GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
};

/* A failure of the filesystem; `what` is the action. */
static int fail_request(struct tier_dir *d, const struct tier_request *q, const char *what, int r)
{
	log_limited(&d->limit, LOG_LEVEL_ERROR, "tier %s: object %s: cannot %s: %s", d->tier.where, q->name, what,
		    strerror(-r));
	return r == -ESTALE ? -EIO : r; /* an NFS server has restarted; ESTALE is about collections (tier_flush.h) */
}

/* --- directories on the way --- */

struct path {
	int fds[TIER_NAME_MAX / 2 + 1]; /* the tier's directory, which is borrowed, and those below it */
	unsigned nr;
	const char *last; /* the part of the name behind them */
};

static void path_close(struct path *p)
{
	for (unsigned i = 1; i < p->nr; i++)
		io_close(p->fds[i]);
	p->nr = 0;
}

static int open_dir(int at, const char *name)
{
	return io_open(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
}

/* Open the directories of `name`, which may end in a slash. -ENOENT: one is missing and is not to be made. */
static int path_open(struct tier_dir *d, const char *name, bool make, struct path *ret)
{
	char part[TIER_PART_MAX + 1];
	const char *slash;
	int fd;

	*ret = (struct path){ .fds = { d->fd }, .nr = 1, .last = name };
	while ((slash = strchr(ret->last, '/'))) {
		int at = ret->fds[ret->nr - 1];

		memcpy(part, ret->last, (size_t)(slash - ret->last));
		part[slash - ret->last] = '\0';
		fd = open_dir(at, part);
		if (fd == -ENOENT && make) {
			int r = io_mkdir(at, part, 0700);

			fd = r < 0 && r != -EEXIST ? r : open_dir(at, part);
		}
		if (fd < 0) {
			path_close(ret);
			return fd;
		}
		ret->fds[ret->nr++] = fd;
		ret->last = slash + 1;
	}
	return 0;
}

static int path_sync(const struct path *p)
{
	int r = 0;

	for (unsigned i = p->nr; i-- > 0 && r == 0;)
		r = io_sync_dir(p->fds[i]);
	return r;
}

/* --- put --- */

#define TEMPORARY ".new-"
#define TEMPORARY_DIGITS 16u
#define SWEPT_MODE 0400u

struct temporary {
	char name[32];
};

static int write_temporary(int at, const struct tier_request *q, struct temporary *ret)
{
	uint64_t random;
	int fd, r;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(ret->name, sizeof(ret->name), TEMPORARY "%0*" PRIx64, (int)TEMPORARY_DIGITS, random);
	fd = io_open(at, ret->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fd;
	r = tier_dir_write(fd, q->data, q->len);
	if (r == 0)
		r = io_sync(fd);
	if (r == 0)
		r = io_close(fd); /* some filesystems report a full disk only now */
	else
		io_close(fd);
	if (r < 0)
		io_unlink(at, ret->name);
	return r;
}

static bool has_two_links(int at, const char *name)
{
	struct stat st;

	return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 2;
}

/* The temporary is gone or has a second name afterwards. */
static int give_name(int at, const char *temporary, const char *name, bool is_new)
{
	int r;

	if (!is_new)
		return io_rename(at, temporary, at, name);
	r = io_link(at, temporary, at, name);
	if (r < 0 && has_two_links(at, temporary))
		return 0;
	if (r == -EPERM || r == -EOPNOTSUPP || r == -ENOSYS || r == -EMLINK)
		r = io_rename_new(at, temporary, at, name);
	return r;
}

static int put_at(struct path *p, const struct tier_request *q)
{
	int at = p->fds[p->nr - 1], r;
	struct temporary t;

	r = write_temporary(at, q, &t);
	if (r < 0)
		return r;
	r = give_name(at, t.name, p->last, q->op == TIER_PUT_NEW);
	if (r == 0 || r == -EEXIST) {
		int error = path_sync(p);

		r = error < 0 ? error : r;
	}
	io_unlink(at, t.name); /* no longer there after a rename; otherwise a sweep removes a stray one */
	return r;
}

static int put_object(struct tier_dir *d, const struct tier_request *q)
{
	struct path p;
	int r = path_open(d, q->name, true, &p);

	if (r == 0) {
		r = put_at(&p, q);
		path_close(&p);
	}
	if (r == -EINVAL)
		return fail_request(d, q, "put it without replacing: no hard links and no RENAME_NOREPLACE here", r);
	if (r == -ENOENT)
		r = -EIO; /* a directory or the temporary was removed by others */
	return r < 0 && r != -EEXIST ? fail_request(d, q, "write", r) : r;
}

/* --- get --- */

static int get_at(int at, const char *name, struct tier_request *q)
{
	/* what is no file is no object, and opening a pipe would wait for its writer */
	_cleanup_(closep) int fd = io_open(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return fd == -ENXIO ? -ENOENT : fd; /* a socket */
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	n = io_pread(fd, q->buf, q->len, q->off);
	if (n < 0)
		return (int)n;
	q->got = (size_t)n;
	q->size = (uint64_t)st.st_size;
	return 0;
}

static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

static int try_get_object(struct tier_dir *d, struct tier_request *q)
{
	struct path p;
	int r = path_open(d, q->name, false, &p);

	if (r == 0) {
		r = get_at(p.fds[p.nr - 1], p.last, q);
		path_close(&p);
	}
	return r;
}

static int get_object(struct tier_dir *d, struct tier_request *q)
{
	int r = try_get_object(d, q);

	if (r == -ESTALE) /* deleted while it was open: the second time it is absent */
		r = try_get_object(d, q);
	return is_absent(r) ? -ENOENT : r < 0 ? fail_request(d, q, "read", r) : 0;
}

/* --- delete --- */

static int remove_object(struct tier_dir *d, const struct tier_request *q)
{
	struct path p;
	int r = path_open(d, q->name, false, &p);

	if (r == 0) {
		r = io_unlink(p.fds[p.nr - 1], p.last);
		if (r == 0)
			r = io_sync_dir(p.fds[p.nr - 1]);
		path_close(&p);
	}
	return is_absent(r) ? 0 : r < 0 ? fail_request(d, q, "delete", r) : 0;
}

/* --- list --- */

struct entries {
	struct entry {
		char name[TIER_PART_MAX + 2]; /* of a directory with a slash: so they sort as whole names do */
	} * v;
	size_t nr, room;
};

static void entries_release(struct entries *l)
{
	free(l->v);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* 1 a directory, 0 a file, -ENOENT neither. */
static int type_of(int at, const struct dirent *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR ? 1 : e->d_type == DT_REG ? 0 : -ENOENT;
	if (fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 1 : S_ISREG(st.st_mode) ? 0 : -ENOENT;
}

/* Entries are read through a descriptor of their own: that of `at` keeps its offset. */
static int open_entries(int at, DIR **ret)
{
	int fd = open_dir(at, "."), r;

	if (fd < 0)
		return fd;
	*ret = fdopendir(fd);
	if (*ret)
		return 0;
	r = -errno;
	io_close(fd);
	return r;
}

static int read_entries(int at, struct entries *ret)
{
	const struct dirent *e;
	DIR *dir;
	int r = open_entries(at, &dir);

	if (r < 0)
		return r;
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		size_t len = strlen(e->d_name);
		struct entry *into;
		int type;

		if (strchr(e->d_name, '/') || !tier_name_is_valid(e->d_name))
			continue; /* `.` and `..`, temporaries, and what is not ours */
		type = type_of(dirfd(dir), e);
		if (type == -ENOENT)
			continue;
		r = type < 0 ? type : list_grow(&ret->v, ret->nr, &ret->room, sizeof(*ret->v));
		if (r < 0)
			break;
		into = &ret->v[ret->nr++];
		memcpy(into->name, e->d_name, len + 1); /* a valid part of a name */
		if (type == 1)
			strcpy(into->name + len, "/");
	}
	if (r == 0 && !e)
		r = -errno;
	closedir(dir);
	if (r == 0 && ret->nr > 0)
		qsort(ret->v, ret->nr, sizeof(*ret->v), by_name);
	return r;
}

/*
 * Add the names in the directory `at`. `name` is that of the directory with a slash, or empty; it is changed meanwhile.
 * 1: the answer is full. Recursion is no deeper than a name has parts.
 */
static int list_below(struct tier_dir *d, struct tier_request *q, int at, char name[TIER_NAME_MAX + 2], size_t *nr)
{
	_cleanup_(entries_release) struct entries l = { 0 };
	size_t len = strlen(name);
	int r = read_entries(at, &l);

	for (size_t i = 0; i < l.nr && r == 0; i++) {
		size_t end = len + strlen(l.v[i].name);
		bool is_dir = l.v[i].name[end - len - 1] == '/';

		if (end > TIER_NAME_MAX)
			continue;
		memcpy(name + len, l.v[i].name, end - len + 1);
		/* a directory in which `after` is has names on both sides of it */
		if (q->after && strcmp(name, q->after) <= 0 && !(is_dir && strncmp(name, q->after, end) == 0))
			continue;
		if (is_dir) {
			_cleanup_(closep) int fd = open_dir(at, l.v[i].name);

			r = fd < 0 ? fd : list_below(d, q, fd, name, nr);
			r = is_absent(r) ? 0 : r;
		} else if (*nr == d->page) {
			q->more = true;
			r = 1;
		} else {
			buf_add(&q->names, name, end + 1);
			++*nr;
			r = buf_error(&q->names);
		}
	}
	name[len] = '\0';
	return r;
}

static int list_objects(struct tier_dir *d, struct tier_request *q)
{
	char name[TIER_NAME_MAX + 2];
	struct path p;
	size_t nr = 0;
	int r = path_open(d, q->name, false, &p);

	if (r == 0) {
		memcpy(name, q->name, strlen(q->name) + 1);
		r = list_below(d, q, p.fds[p.nr - 1], name, &nr);
		path_close(&p);
	}
	return r > 0 || is_absent(r) ? 0 : r < 0 ? fail_request(d, q, "list", r) : 0;
}

/* --- sweep --- */

static bool is_temporary(const char *name)
{
	size_t prefix = strlen(TEMPORARY);

	return strncmp(name, TEMPORARY, prefix) == 0 && strlen(name) == prefix + TEMPORARY_DIGITS &&
	       strspn(name + prefix, "0123456789abcdef") == TEMPORARY_DIGITS;
}

/* Another user's, for example, stays. */
static void sweep_temporary(int at, const char *name)
{
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	if ((st.st_mode & 07777) == SWEPT_MODE)
		io_unlink(at, name);
	else
		(void)!fchmodat(at, name, SWEPT_MODE, 0);
}

static int sweep_below(int at, unsigned depth)
{
	const struct dirent *e;
	DIR *dir;
	int r = open_entries(at, &dir);

	if (r < 0)
		return r;
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		if (is_temporary(e->d_name)) {
			sweep_temporary(at, e->d_name);
		} else if (depth > 0 && tier_name_is_valid(e->d_name) && type_of(at, e) == 1) {
			_cleanup_(closep) int below = open_dir(at, e->d_name);

			r = below < 0 ? below : sweep_below(below, depth - 1);
			r = is_absent(r) ? 0 : r;
		}
	}
	if (r == 0 && !e)
		r = -errno;
	closedir(dir);
	return r;
}

static int dir_sweep(struct tier *t, const char *prefix)
{
	struct tier_dir *d = container_of(t, struct tier_dir, tier);
	struct path p;
	int r = path_open(d, prefix, false, &p);

	if (r == 0) {
		r = sweep_below(p.fds[p.nr - 1], TIER_NAME_MAX / 2);
		path_close(&p);
	}
	return is_absent(r) ? 0 :
	       r < 0	    ? log_errno(r, "tier %s: %s: cannot remove temporary files", d->tier.where, prefix) :
			      0;
}

/* --- threads --- */

static int run_request(struct tier_dir *d, struct tier_request *q)
{
	switch (q->op) {
	case TIER_PUT_NEW:
	case TIER_PUT:
		return put_object(d, q);
	case TIER_GET:
		return get_object(d, q);
	case TIER_LIST:
		return list_objects(d, q);
	case TIER_DELETE:
		return remove_object(d, q);
	}
	return -EINVAL;
}

static void *work(void *userdata)
{
	struct tier_dir *d = userdata;

	mutex_lock(&d->lock);
	while (!d->stop) {
		struct tier_request *q = d->first;

		if (!q) {
			d->nr_idle++;
			cond_wait(&d->posted, &d->lock);
			d->nr_idle--;
			continue;
		}
		d->first = q->next;
		if (!d->first)
			d->end = &d->first;
		d->nr_waiting--;
		mutex_unlock(&d->lock);
		tier_done(q, run_request(d, q));
		mutex_lock(&d->lock);
	}
	mutex_unlock(&d->lock);
	return NULL;
}

static void dir_start(struct tier *t, struct tier_request *q)
{
	struct tier_dir *d = container_of(t, struct tier_dir, tier);
	bool refused;

	mutex_lock(&d->lock);
	*d->end = q;
	d->end = &q->next;
	d->nr_waiting++;
	if (d->nr_waiting > d->nr_idle && d->nr_threads < d->nr_threads_max &&
	    pthread_create(&d->threads[d->nr_threads], NULL, work, d) == 0)
		d->nr_threads++;
	refused = d->nr_threads == 0;
	if (refused) { /* nothing else is queued: every start() without a thread ends here */
		d->first = NULL;
		d->end = &d->first;
		d->nr_waiting = 0;
	}
	cond_signal(&d->posted);
	mutex_unlock(&d->lock);
	if (refused)
		tier_done(q, fail_request(d, q, "start a thread for it", -EAGAIN));
}

static void dir_close(struct tier *t)
{
	struct tier_dir *d = container_of(t, struct tier_dir, tier);

	mutex_lock(&d->lock);
	assert(!d->first);
	d->stop = true;
	cond_broadcast(&d->posted);
	mutex_unlock(&d->lock);
	for (unsigned i = 0; i < d->nr_threads; i++)
		pthread_join(d->threads[i], NULL);
	cond_release(&d->posted);
	mutex_release(&d->lock);
	closep(&d->fd);
	free(d->threads);
	free(d->tier.where);
	free(d);
}

static const struct tier_backend backend = { .start = dir_start, .sweep = dir_sweep, .close = dir_close };

int tier_dir_open(const char *path, const struct tier_dir_conf *conf, struct tier **ret)
{
	_cleanup_(tier_closep) struct tier *made = NULL;
	struct tier_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	made = &d->tier;
	d->tier.backend = &backend;
	d->page = conf->page > 0 ? conf->page : PAGE;
	d->nr_threads_max = conf->nr_threads > 0 ? conf->nr_threads : THREADS;
	d->end = &d->first;
	mutex_init(&d->lock);
	cond_init(&d->posted);
	d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->fd < 0)
		return log_errno(-errno, "tier dir:%s: cannot open the directory", path);
	d->threads = calloc(d->nr_threads_max, sizeof(*d->threads));
	if (!d->threads || asprintf(&d->tier.where, "dir:%s", path) < 0) {
		d->tier.where = NULL;
		return -ENOMEM;
	}
	*ret = TAKE(made);
	return 0;
}
