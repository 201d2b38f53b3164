/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The daemon compares each byte that is read past the caches (O_DIRECT) with its fingerprint, and fails the read on a
 * mismatch. The root is computed from the fingerprints. So if everything can be read and the root equals that of the
 * seal, the content is what was sealed, provided that it stayed sealed meanwhile; that is checked at the end. A
 * replica of another node's checkpoint has no root: it has all names and fingerprints that the node sent, or none.
 *
 * One thread walks the tree and queues stretches of files; a few threads read them. Holes are not read: the root covers
 * where data is, and the rest of a file reads as zeros without being stored. So the work grows with stored data, not
 * with file sizes.
 */
#include "tools/seal/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/common/daemon.h"
#include "tools/common/interrupt.h"
#include "tools/common/place.h"
#include "tools/common/progress.h"
#include "tools/stat/stat_ask.h"

#define NR_READERS 4u
#define NR_STRETCHES 64u
#define STRETCH_BYTES MiB(64)
#define READ_BYTES MiB(1)
#define READ_ALIGN 4096u

struct stretch {
	char *path; /* below the top; freed by the reader */
	uint64_t off, end;
	bool has_holes;
};

struct reading {
	int top; /* constant; borrowed. Everything is opened relative to it, without crossing mountpoints */
	struct mutex lock; /* leaf; not held during I/O */
	struct cond changed;
	struct stretch queue[NR_STRETCHES] GUARDED_BY(lock);
	size_t first, nr GUARDED_BY(lock);
	bool ended GUARDED_BY(lock); /* no more stretches will be queued */
	uint64_t bytes GUARDED_BY(lock); /* read */
	uint64_t passed GUARDED_BY(lock); /* read or skipped as holes */
	int error GUARDED_BY(lock); /* the first one */
	char *culprit GUARDED_BY(lock); /* below the top */
};

/* Sets ret->why, escaped for a terminal. Returns r. */
_printf_(3, 4) static int because(struct verify_result *ret, int r, const char *format, ...)
{
	_cleanup_(freep) char *text = NULL;
	char raw[sizeof(ret->why)];
	size_t len;
	FILE *to;
	va_list args;

	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	to = open_memstream(&text, &len);
	if (!to)
		return r;
	text_print(to, raw);
	if (fclose(to) == 0)
		snprintf(ret->why, sizeof(ret->why), "%s", text);
	return r;
}

/* --- reading --- */

static void fail(struct reading *w, const char *path, int r)
{
	mutex_lock(&w->lock);
	if (w->error == 0) {
		w->error = r;
		w->culprit = strdup(path);
	}
	cond_broadcast(&w->changed);
	mutex_unlock(&w->lock);
}

static void count_bytes(struct reading *w, uint64_t read, uint64_t passed)
{
	mutex_lock(&w->lock);
	w->bytes += read;
	w->passed += passed;
	mutex_unlock(&w->lock);
}

/* Advance *off to the next data, at most to `end`. */
static int skip_hole(struct reading *w, int fd, uint64_t *off, uint64_t end)
{
	off_t data = lseek(fd, (off_t)*off, SEEK_DATA);
	uint64_t to;

	if (data < 0 && errno != ENXIO)
		return -errno;
	to = data < 0 ? end : MIN((uint64_t)data, end);
	if (to < end)
		to = MAX(round_down(to, READ_ALIGN), *off);
	count_bytes(w, 0, to - *off);
	*off = to;
	return 0;
}

static int read_stretch(struct reading *w, const struct stretch *s, void *buf)
{
	_cleanup_(closep) int fd = place_open(w->top, s->path, O_RDONLY | O_DIRECT | O_NONBLOCK | O_CLOEXEC, false);
	uint64_t off = s->off;
	ssize_t n;
	int r;

	if (fd < 0)
		return fd;
	while (off < s->end) {
		n = pread(fd, buf, READ_BYTES, (off_t)off);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EBADMSG; /* shorter than at fstat(), although it is immutable */
		if (interrupted())
			return -ECANCELED;
		n = MAX(n, 0);
		off += (uint64_t)n;
		count_bytes(w, (uint64_t)n, (uint64_t)n);
		r = s->has_holes && off < s->end ? skip_hole(w, fd, &off, s->end) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

/* Waits for a stretch to read. false: no more. */
static bool next_stretch(struct reading *w, struct stretch *ret)
{
	bool has;

	mutex_lock(&w->lock);
	while (w->nr == 0 && !w->ended && w->error == 0)
		cond_wait(&w->changed, &w->lock);
	has = w->nr > 0 && w->error == 0;
	if (has) {
		*ret = w->queue[w->first];
		w->first = (w->first + 1) % NR_STRETCHES;
		w->nr--;
		cond_broadcast(&w->changed);
	}
	mutex_unlock(&w->lock);
	return has;
}

static void *reader(void *userdata)
{
	struct reading *w = userdata;
	void *buf = aligned_alloc(READ_ALIGN, READ_BYTES);
	struct stretch s;
	int r;

	if (!buf)
		fail(w, "", -ENOMEM);
	while (buf && next_stretch(w, &s)) {
		r = read_stretch(w, &s, buf);
		if (r < 0)
			fail(w, s.path, r);
		free(s.path);
	}
	free(buf);
	return NULL;
}

/* Returns the first error of the walk or of a reader. */
static int queue_stretch(struct reading *w, const char *path, uint64_t off, uint64_t end, bool has_holes)
{
	struct stretch s = { strdup(path), off, end, has_holes };
	int r;

	if (!s.path)
		return -ENOMEM;
	mutex_lock(&w->lock);
	while (w->nr == NR_STRETCHES && w->error == 0)
		cond_wait(&w->changed, &w->lock);
	r = w->error;
	if (r == 0) {
		w->queue[(w->first + w->nr++) % NR_STRETCHES] = s;
		cond_broadcast(&w->changed);
	}
	mutex_unlock(&w->lock);
	if (r < 0)
		free(s.path);
	return r;
}

/* --- walking --- */

/* Does not look for holes in a file that has none: each lseek costs a request per MiB. */
static int give_file(struct reading *w, const char *path, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;
	bool has_holes = (uint64_t)st->st_blocks < size / 512;
	_cleanup_(closep) int fd = has_holes ? place_open(w->top, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, false) : -1;
	int r = has_holes ? MIN(fd, 0) : 0;

	for (uint64_t off = 0; off < size && r == 0; off += STRETCH_BYTES) {
		if (has_holes)
			r = interrupted() ? -ECANCELED : skip_hole(w, fd, &off, size);
		if (r == 0 && off < size)
			r = queue_stretch(w, path, off, MIN(off + STRETCH_BYTES, size), has_holes);
	}
	return r;
}

/* Directories that are still to be walked. */
struct unread {
	char **v;
	size_t nr, room;
};

static void unread_release(struct unread *u)
{
	while (u->nr > 0)
		free(u->v[--u->nr]);
	free(u->v);
}

static int unread_add(struct unread *u, const char *path)
{
	if (u->nr == u->room) {
		size_t room = MAX(2 * u->room, (size_t)16);
		char **more = reallocarray(u->v, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		u->v = more;
		u->room = room;
	}
	u->v[u->nr] = strdup(path);
	return u->v[u->nr] ? (u->nr++, 0) : -ENOMEM;
}

static int walk_entry(struct reading *w, struct unread *u, const char *path)
{
	_cleanup_(closep) int fd = place_open(w->top, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, false);
	struct stat st;
	int r = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : 0;

	if (r == 0 && S_ISDIR(st.st_mode))
		r = unread_add(u, path);
	else if (r == 0 && S_ISREG(st.st_mode))
		r = give_file(w, path, &st);
	if (r < 0)
		fail(w, path, r);
	return r;
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int walk_directory(struct reading *w, struct unread *u, const char *path, uint64_t *all, struct progress *p)
{
	int fd = place_open(w->top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, false);
	_cleanup_(closedirp) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int r = dir ? 0 : fd < 0 ? fd : -errno;

	if (!dir)
		closep(&fd);
	while (r == 0 && (errno = 0, e = readdir(dir))) {
		_cleanup_(freep) char *below = NULL;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (interrupted())
			return -ECANCELED;
		if (asprintf(&below, "%s/%s", path, e->d_name) < 0)
			return -ENOMEM;
		r = walk_entry(w, u, below);
		if (p) {
			mutex_lock(&w->lock);
			*all = MAX(*all, w->passed);
			progress_show(p, "verifying", w->passed, *all, true);
			mutex_unlock(&w->lock);
		}
	}
	if (r == 0)
		r = -errno;
	if (r < 0)
		fail(w, path, r); /* no effect if walk_entry() failed already */
	return r;
}

static int walk(struct reading *w, uint64_t all, struct progress *p)
{
	_cleanup_(unread_release) struct unread u = { .nr = 0 };
	int r = unread_add(&u, ".");

	while (r == 0 && u.nr > 0) {
		_cleanup_(freep) char *path = u.v[--u.nr];

		r = walk_directory(w, &u, path, &all, p);
	}
	return r;
}

/* Without an agent, pages on other nodes are unreachable: unreadable data is not necessarily damaged. */
static bool is_cut_off(int fd)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	struct place place;

	if (place_find(fd, &place) < 0 || stat_ask(place.point, &a) < 0)
		return false;
	return strcmp(json_flat_get(&a.j, "cluster.member"), "true") == 0 &&
	       strcmp(json_flat_get(&a.j, "cluster.agent"), "true") != 0;
}

static int read_all(int fd, const char *path, struct progress *p, struct verify_result *ret)
{
	struct reading w = { .top = fd };
	const char *culprit;
	pthread_t threads[NR_READERS];
	unsigned nr = 0;
	int r = 0;

	mutex_init(&w.lock);
	cond_init(&w.changed);
	while (nr < NR_READERS && r == 0) {
		r = -pthread_create(&threads[nr], NULL, reader, &w);
		nr += r == 0;
	}
	if (r == 0)
		r = walk(&w, ret->seal.bytes, p);
	if (r < 0)
		fail(&w, ".", r);
	mutex_lock(&w.lock);
	w.ended = true;
	cond_broadcast(&w.changed);
	mutex_unlock(&w.lock);
	while (nr > 0)
		pthread_join(threads[--nr], NULL);
	for (; w.nr > 0; w.nr--, w.first = (w.first + 1) % NR_STRETCHES)
		free(w.queue[w.first].path);
	if (p)
		progress_clear(p);
	ret->bytes = w.bytes;
	r = w.error == -EIO || w.error == -EBADMSG ? 0 : w.error < 0 ? w.error : 1;
	if (r == 0 && is_cut_off(fd))
		r = -ENOLINK;
	culprit = w.culprit && strncmp(w.culprit, "./", 2) == 0 ? w.culprit + 1 : ""; /* keep the slash */
	if (r == -ECANCELED)
		because(ret, r, "interrupted");
	else if (r == -ENOLINK)
		because(ret, r, "%s%s cannot be read; it may be on other nodes, and no ckptfs-agent runs here", path,
			culprit);
	else if (r == 0)
		because(ret, r, "damaged: %s%s cannot be read", path, culprit);
	else if (r < 0)
		because(ret, r, "cannot read %s%s: %s", path, culprit, path_error_text(r));
	free(w.culprit);
	mutex_release(&w.lock);
	cond_release(&w.changed);
	return r;
}

/* --- the root --- */

static int seal_command(int fd, uint32_t command, uint64_t inode, struct ckptfs_seal *ret)
{
	*ret = (struct ckptfs_seal){
		.size = sizeof(*ret), .version = CKPTFS_IOC_VERSION, .command = command, .inode = inode
	};
	return ioctl(fd, CKPTFS_IOC_SEAL, ret) < 0 ? -errno : 0;
}

static int compare_root(int fd, struct verify_result *ret)
{
	int r = seal_command(fd, CKPTFS_SEAL_CHECK, 0, &ret->seal);

	if (r == -ENODATA || r == -ESTALE)
		return because(ret, 0, "not sealed");
	ret->is_sealed = r == 0 || r == -EIO;
	if (r == -ENOTTY)
		return because(ret, r, "not on a mounted ckptfs; ckptfs stat lists those that are");
	if (r == -EPERM)
		return because(ret, r, "only its owner, root and the mounting user may verify it");
	if (r == -EIO)
		return because(ret, 0, "damaged: cannot look up its content; see the daemon's log");
	if (r < 0)
		return because(ret, r, "%s", path_error_text(r));
	if (ret->seal.facts & CKPTFS_SEAL_HAS_ROOT &&
	    memcmp(ret->seal.root, ret->seal.root_now, sizeof(ret->seal.root)) != 0)
		return because(ret, 0, "damaged: its root differs from the sealed root");
	return 1;
}

int verify_seal(const char *path, bool reads, struct progress *p, struct verify_result *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return verify_opened(fd < 0 ? -errno : fd, path, reads, p, ret);
}

int verify_opened(int fd, const char *path, bool reads, struct progress *p, struct verify_result *ret)
{
	struct ckptfs_seal end;
	int r;

	*ret = (struct verify_result){ 0 };
	if (fd < 0)
		return because(ret, fd, "%s%s", path_error_text(fd),
			       fd == -ENOTDIR || fd == -ENOENT ? "; give a sealed directory" : "");
	r = compare_root(fd, ret);
	if (r <= 0 || !reads)
		return r;
	r = read_all(fd, path, p, ret);
	if (r <= 0)
		return r;
	if (ret->seal.facts & CKPTFS_SEAL_REMOTE)
		r = seal_command(fd, CKPTFS_SEAL_CHECK, 0, &end);
	else
		r = seal_command(fd, CKPTFS_SEAL_NEXT, ret->seal.inode - 1, &end);
	if (r < 0 || end.inode != ret->seal.inode || end.sealed_ns != ret->seal.sealed_ns)
		return because(ret, 0, "no longer sealed");
	return 1;
}

bool verify_is_no_answer(int r)
{
	return r == -ENOLINK || r == -ENOTCONN || r == -ECONNABORTED || r == -ENOMEM || r == -EMFILE || r == -ENFILE;
}
