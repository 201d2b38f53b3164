#include "fs/ops/notify.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/ops/ops.h"

#define ANSWER_MAX 128 /* bytes of an ioctl's answer */

struct job {
	struct job *next;
	fuse_req_t req; /* NULL: nobody waits for it */
	uint64_t ino, off, len;
	struct notify_growth growth;
	char name[NOTIFY_NAME_MAX]; /* not empty: of directory `ino`, and nothing else has changed */
	size_t out_len;
	uint8_t out[ANSWER_MAX];
	int r; /* of an ioctl */
	bool is_ioctl;
};

struct notify {
	struct fuse_session *se; /* constant */
	pthread_t thread;

	struct mutex lock; /* leaf */
	struct cond work;
	struct job *first, **last GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
};

/* An inode that the kernel has dropped has no pages: errors are of no interest. */
static void drop(struct notify *n, const struct job *j)
{
	struct fuse_bufvec last = FUSE_BUFVEC_INIT(1);
	uint8_t byte = j->growth.last;

	if (j->name[0]) {
		fuse_lowlevel_notify_inval_entry(n->se, j->ino, j->name, strlen(j->name));
		return;
	}
	fuse_lowlevel_notify_inval_inode(n->se, j->ino, (off_t)j->off, (off_t)j->len);
	if (j->growth.size == 0)
		return;
	last.buf[0].mem = &byte;
	fuse_lowlevel_notify_store(n->se, j->ino, (off_t)j->growth.size - 1, &last, 0);
}

static void answer(struct job *j)
{
	if (!j->req) {
		free(j);
		return;
	}
	if (j->r < 0)
		ops_reply(j->req, j->r);
	else if (j->is_ioctl)
		fuse_reply_ioctl(j->req, 0, j->out, j->out_len);
	else
		fuse_reply_write(j->req, j->len);
	free(j);
}

static struct job *take(struct notify *n)
{
	struct job *j;

	mutex_lock(&n->lock);
	while (!n->first && !n->stop)
		cond_wait(&n->work, &n->lock);
	j = n->first;
	if (j) {
		n->first = j->next;
		if (!n->first)
			n->last = &n->first;
	}
	mutex_unlock(&n->lock);
	return j;
}

static void *run(void *userdata)
{
	struct notify *n = userdata;
	struct job *j;

	while ((j = take(n))) {
		drop(n, j);
		answer(j);
	}
	return NULL;
}

int notify_new(struct fuse_session *se, struct notify **ret)
{
	struct notify *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	n->se = se;
	n->last = &n->first;
	mutex_init(&n->lock);
	cond_init(&n->work);
	r = pthread_create(&n->thread, NULL, run, n);
	if (r != 0) {
		free(n);
		return -r;
	}
	*ret = n;
	return 0;
}

void notify_stop(struct notify *n)
{
	bool first;

	mutex_lock(&n->lock);
	first = !n->stop;
	n->stop = true;
	cond_signal(&n->work);
	mutex_unlock(&n->lock);
	if (first)
		pthread_join(n->thread, NULL);
}

void notify_free(struct notify *n)
{
	if (!n)
		return;
	notify_stop(n);
	cond_release(&n->work);
	mutex_release(&n->lock);
	free(n);
}

static void add(struct notify *n, const struct job *job)
{
	struct job *j = malloc(sizeof(*j));
	bool stopped;

	if (!j) {
		if (job->req)
			fuse_reply_err(job->req, ENOMEM);
		return;
	}
	*j = *job;
	mutex_lock(&n->lock);
	stopped = n->stop;
	if (!stopped) {
		*n->last = j;
		n->last = &j->next;
		cond_signal(&n->work);
	}
	mutex_unlock(&n->lock);
	if (stopped)
		answer(j); /* the mount is going away, and its page cache with it */
}

void notify_mode_changed(struct notify *n, uint64_t ino)
{
	fuse_lowlevel_notify_inval_inode(n->se, ino, -1, 0);
}

static void set_name(struct job *j, const char *name)
{
	assert(strlen(name) < sizeof(j->name));
	strcpy(j->name, name);
}

void notify_drop_name(struct notify *n, uint64_t dir, const char *name)
{
	struct job j = { .ino = dir };

	set_name(&j, name);
	add(n, &j);
}

void notify_then_reply_write(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, size_t len)
{
	add(n, &(struct job){ .req = req, .ino = ino, .off = off, .len = len });
}

static void set_answer(struct job *j, const void *out, size_t out_len)
{
	assert(out_len <= sizeof(j->out));
	j->out_len = out_len;
	if (out_len > 0)
		memcpy(j->out, out, out_len);
}

void notify_then_reply_ioctl(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, uint64_t len,
			     struct notify_growth growth, const void *out, size_t out_len)
{
	struct job j = { .req = req, .ino = ino, .off = off, .len = len, .growth = growth, .is_ioctl = true };

	set_answer(&j, out, out_len);
	add(n, &j);
}

void notify_name_then_reply_ioctl(struct notify *n, fuse_req_t req, uint64_t dir, const char *name, int r,
				  const void *out, size_t out_len)
{
	struct job j = { .req = req, .ino = dir, .r = r, .is_ioctl = true };

	set_name(&j, name);
	set_answer(&j, out, out_len);
	add(n, &j);
}
