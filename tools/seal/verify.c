/*
 * Each byte that is read past the caches (O_DIRECT) is compared by the daemon with its fingerprint, or the read fails.
 * The root is made of the fingerprints. So what has been read, and has the root of the seal, is what was sealed, as
 * long as it has been sealed all the while: that is looked at in the end. A copy of what another node has sealed has no
 * root: its names and fingerprints are there as that node told them, all of them or none.
 *
 * One thread walks, a few read stretches of files that it hands to them. Holes are not read: the root covers where data
 * is, and the rest of a file reads as zeros without being stored. So the work grows with what is stored, not with sizes.
 */
#include "tools/seal/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
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
	char *path; /* freed by the reader */
	uint64_t off, end;
	bool has_holes;
};

struct reading {
	struct mutex lock; /* leaf; not held while something is read */
	struct cond changed;
	struct stretch queue[NR_STRETCHES] GUARDED_BY(lock);
	size_t first, nr GUARDED_BY(lock);
	bool ended GUARDED_BY(lock); /* nothing is to come any more */
	uint64_t bytes GUARDED_BY(lock); /* read */
	uint64_t passed GUARDED_BY(lock); /* read, or holes */
	int error GUARDED_BY(lock); /* the first one */
	char *culprit GUARDED_BY(lock);
};

/* A cause, as text that a terminal can be given. */
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
	_cleanup_(closep) int fd = open(s->path, O_RDONLY | O_NOFOLLOW | O_DIRECT | O_CLOEXEC);
	uint64_t off = s->off;
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	while (off < s->end) {
		n = pread(fd, buf, READ_BYTES, (off_t)off);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EBADMSG; /* it has had that size, and nothing changes in it */
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

/* true: one to be read, false: no more. */
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

/* Of the readers, or of the producer. */
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

/* A file without holes is not asked for them: that costs a request per MiB. */
static int give_file(struct reading *w, const FTSENT *e)
{
	uint64_t size = (uint64_t)e->fts_statp->st_size;
	bool has_holes = (uint64_t)e->fts_statp->st_blocks < size / 512;
	_cleanup_(closep) int fd = has_holes ? open(e->fts_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	int r = has_holes && fd < 0 ? -errno : 0;

	for (uint64_t off = 0; off < size && r == 0; off += STRETCH_BYTES) {
		if (has_holes)
			r = interrupted() ? -ECANCELED : skip_hole(w, fd, &off, size);
		if (r == 0 && off < size)
			r = queue_stretch(w, e->fts_path, off, MIN(off + STRETCH_BYTES, size), has_holes);
	}
	if (r < 0)
		fail(w, e->fts_path, r);
	return r;
}

static int walk(struct reading *w, const char *path, uint64_t all, struct progress *p)
{
	char *paths[] = { (char *)path, NULL };
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	FTSENT *e;
	int r = fts ? 0 : -errno;

	while (r == 0 && (errno = 0, e = fts_read(fts))) {
		if (interrupted())
			r = -ECANCELED;
		else if (e->fts_info == FTS_F)
			r = S_ISREG(e->fts_statp->st_mode) ? give_file(w, e) : 0;
		else if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)
			fail(w, e->fts_path, r = -e->fts_errno);
		if (p) {
			mutex_lock(&w->lock);
			all = MAX(all, w->passed);
			progress_show(p, "verifying", w->passed, all, true);
			mutex_unlock(&w->lock);
		}
	}
	if (r == 0 && errno != 0)
		r = -errno;
	if (fts)
		fts_close(fts);
	return r;
}

/* Pages may be on other nodes, and there is no way to them. Then what cannot be read need not be damaged. */
static bool is_cut_off(const char *path)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct place place;

	if (fd < 0 || place_find(fd, &place) < 0 || stat_ask(place.point, &a) < 0)
		return false;
	return strcmp(json_flat_get(&a.j, "cluster.member"), "true") == 0 &&
	       strcmp(json_flat_get(&a.j, "cluster.agent"), "true") != 0;
}

static int read_all(const char *path, struct progress *p, struct verify_result *ret)
{
	struct reading w = { .bytes = 0 };
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
		r = walk(&w, path, ret->seal.bytes, p);
	if (r < 0)
		fail(&w, path, r);
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
	if (r == 0 && is_cut_off(path))
		r = -ENOLINK;
	if (r == -ECANCELED)
		because(ret, r, "interrupted");
	else if (r == -ENOLINK)
		because(ret, r, "%s cannot be read; it may be on other nodes, and no ckptfs-agent runs here",
			w.culprit ? w.culprit : path);
	else if (r == 0)
		because(ret, r, "damaged: %s cannot be read", w.culprit ? w.culprit : path);
	else if (r < 0)
		because(ret, r, "cannot read %s: %s", w.culprit ? w.culprit : path, strerror(-r));
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
		return because(ret, r, "not on a ckptfs");
	if (r == -EPERM)
		return because(ret, r, "only its owner, root and the mounting user may ask");
	if (r == -EIO)
		return because(ret, 0, "damaged: cannot look up its content; see the daemon's log");
	if (r < 0)
		return because(ret, r, "%s", strerror(-r));
	if (ret->seal.facts & CKPTFS_SEAL_HAS_ROOT &&
	    memcmp(ret->seal.root, ret->seal.root_now, sizeof(ret->seal.root)) != 0)
		return because(ret, 0, "damaged: its root differs from the sealed root");
	return 1;
}

int verify_seal(const char *path, bool reads, struct progress *p, struct verify_result *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_seal end;
	int r;

	*ret = (struct verify_result){ 0 };
	if (fd < 0)
		return because(ret, -errno, "%s", strerror(errno));
	r = compare_root(fd, ret);
	if (r <= 0 || !reads)
		return r;
	r = read_all(path, p, ret);
	if (r <= 0)
		return r;
	if (ret->seal.facts & CKPTFS_SEAL_REMOTE)
		r = seal_command(fd, CKPTFS_SEAL_CHECK, 0, &end);
	else
		r = seal_command(fd, CKPTFS_SEAL_NEXT, ret->seal.inode - 1, &end);
	if (r < 0 || end.inode != ret->seal.inode || end.sealed_ns != ret->seal.sealed_ns)
		return because(ret, 0, "not sealed any more");
	return 1;
}

bool verify_is_no_answer(int r)
{
	return r == -ENOLINK || r == -ENOTCONN || r == -ECONNABORTED || r == -ENOMEM || r == -EMFILE || r == -ENFILE;
}
