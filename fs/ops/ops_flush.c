/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/ops/ops_flush.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/posix/file.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"

#define FREE_THREADS 4u /* besides those that long requests may occupy */

struct queued_request {
	struct queued_request *next;
	uint64_t *inos; /* to be flushed */
	size_t nr_inos, len;
	struct fuse_in_header request[]; /* the whole request; typed for its alignment */
};

struct flush_thread {
	struct flush *flush;
	struct notify_thread thread;
};

struct flush {
	/* Constant. */
	struct fuse_session *se;
	struct fs *fs;
	flush_serve serve;
	void *userdata;
	struct flush_thread *threads;
	unsigned nr_threads;

	struct mutex lock; /* leaf */
	struct cond work;
	struct queued_request *first, **last GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
};

static struct queued_request *next_request(struct flush *f)
{
	struct queued_request *h;

	mutex_lock(&f->lock);
	while (!f->first && !f->stop)
		cond_wait(&f->work, &f->lock);
	h = f->first;
	if (h) {
		f->first = h->next;
		if (!f->first)
			f->last = &f->first;
	}
	mutex_unlock(&f->lock);
	return h;
}

static void *run(void *userdata)
{
	struct flush_thread *t = userdata;
	struct flush *f = t->flush;
	struct queued_request *h;

	while ((h = next_request(f))) {
		notify_thread_enter(&t->thread);
		for (size_t i = 0; i < h->nr_inos; i++)
			fuse_lowlevel_notify_inval_inode(f->se, h->inos[i], 0, 0);
		notify_thread_leave(&t->thread);
		f->serve(f->userdata, h->request, h->len);
		free(h->inos);
		free(h);
	}
	notify_thread_end(&t->thread);
	return NULL;
}

int flush_new(struct fuse_session *se, struct fs *fs, flush_serve serve, void *userdata, unsigned nr_long,
	      struct flush **ret)
{
	struct flush *f = calloc(1, sizeof(*f));
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->se = se;
	f->fs = fs;
	f->serve = serve;
	f->userdata = userdata;
	f->last = &f->first;
	mutex_init(&f->lock);
	cond_init(&f->work);
	f->threads = calloc(nr_long + FREE_THREADS, sizeof(*f->threads));
	if (!f->threads)
		r = -ENOMEM;
	for (; r == 0 && f->nr_threads < nr_long + FREE_THREADS; f->nr_threads += r == 0) {
		struct flush_thread *t = &f->threads[f->nr_threads];

		t->flush = f;
		r = -pthread_create(&t->thread.thread, NULL, run, t);
	}
	if (r < 0) {
		flush_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

bool flush_stop(struct flush *f, uint64_t until_ns)
{
	bool all = true;

	mutex_lock(&f->lock);
	f->stop = true;
	cond_broadcast(&f->work);
	mutex_unlock(&f->lock);
	for (; f->nr_threads > 0; f->nr_threads--)
		all &= notify_thread_join(&f->threads[f->nr_threads - 1].thread, 0, until_ns);
	return all;
}

void flush_free(struct flush *f)
{
	if (!f)
		return;
	flush_stop(f, UINT64_MAX);
	cond_release(&f->work);
	mutex_release(&f->lock);
	free(f->threads);
	free(f);
}

/* What an ioctl is about, besides the file that it is for. */
struct question {
	bool all; /* it is for all files */
	uint64_t other; /* the handle of another file, 0: none */
};

static struct question question_of(const struct fuse_in_header *in, size_t len)
{
	struct ckptfs_compare compare;
	struct ckptfs_clone clone;
	struct fuse_ioctl_in arg;
	size_t front = sizeof(*in) + sizeof(arg);
	const uint8_t *p = (const uint8_t *)in;

	if (in->opcode != FUSE_IOCTL || len < front)
		return (struct question){ 0 };
	memcpy(&arg, in + 1, sizeof(arg));
	if (arg.cmd == CKPTFS_IOC_CLONE && len >= front + sizeof(clone)) {
		memcpy(&clone, p + front, sizeof(clone));
		return (struct question){ .other = clone.from };
	}
	if (arg.cmd == CKPTFS_IOC_COMPARE && len >= front + sizeof(compare)) {
		memcpy(&compare, p + front, sizeof(compare));
		return (struct question){ .other = compare.with };
	}
	return (struct question){ .all = arg.cmd == CKPTFS_IOC_SYNC };
}

/* Which files have to be flushed: those that are open for writing. */
static int choose_inodes(struct fs *fs, const struct fuse_in_header *in, size_t len, uint64_t **ret, size_t *ret_nr)
{
	struct question q = question_of(in, len);
	uint64_t inos[2] = { in->nodeid, q.other != 0 ? file_of_handle(fs, q.other) : 0 };

	if (q.all)
		return inodes_with_writers(fs->inodes, ret, ret_nr);
	*ret_nr = 0;
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++)
		if (inos[i] != 0 && inodes_has_writers(fs->inodes, inos[i]))
			inos[(*ret_nr)++] = inos[i];
	*ret = *ret_nr > 0 ? malloc(sizeof(inos)) : NULL;
	if (*ret)
		memcpy(*ret, inos, sizeof(inos));
	return *ret_nr > 0 && !*ret ? -ENOMEM : 0;
}

static int copy_request(struct flush *f, const void *request, size_t len, struct queued_request **ret)
{
	struct queued_request *h = malloc(sizeof(*h) + len);
	int r;

	if (!h)
		return -ENOMEM;
	*h = (struct queued_request){ .len = len };
	r = choose_inodes(f->fs, request, len, &h->inos, &h->nr_inos);
	if (r < 0 || h->nr_inos == 0) {
		free(h->inos);
		free(h);
		*ret = NULL;
		return r;
	}
	memcpy(h->request, request, len);
	*ret = h;
	return 0;
}

bool flush_take(struct flush *f, const void *request, size_t len)
{
	const struct fuse_in_header *in = request;
	struct queued_request *h;
	int r;

	if (in->opcode != FUSE_IOCTL && in->opcode != FUSE_LSEEK)
		return false;
	r = copy_request(f, request, len, &h);
	if (r < 0) {
		ops_answer_error(fuse_session_fd(f->se), in->unique, -r);
		return true;
	}
	if (!h)
		return false;
	mutex_lock(&f->lock);
	if (!f->stop) {
		*f->last = h;
		f->last = &h->next;
		cond_signal(&f->work);
		h = NULL;
	}
	mutex_unlock(&f->lock);
	if (!h)
		return true;
	free(h->inos); /* the mount is going away */
	free(h);
	return false;
}
