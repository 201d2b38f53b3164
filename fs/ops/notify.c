/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/ops/notify.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/ops/ops.h"
#include "fs/posix/file.h"

#define STEP_NS 5000000
#define ANSWER_MAX 128 /* bytes of an ioctl reply */

struct job {
	struct job *next;
	fuse_req_t req;
	uint64_t ino, off, len; /* len 0: to the end */
	ssize_t result; /* bytes of the write to reply to, or an error of either */
	struct file *file; /* set for a write after which all pages are dropped */
	uint32_t opens;
	struct notify_growth growth;
	size_t out_len;
	uint8_t out[ANSWER_MAX];
	bool is_ioctl;
};

enum thread_state {
	THREAD_RUNS,
	THREAD_IN_KERNEL,
	THREAD_ABANDONED, /* in the kernel, or paused after returning from it */
	THREAD_ENDED,
};

struct notify {
	struct fuse_session *se; /* constant */
	struct notify_thread thread;

	struct mutex lock; /* leaf */
	struct cond work;
	struct job *first, **last GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
};

void notify_thread_enter(struct notify_thread *t)
{
	atomic_store(&t->state, THREAD_IN_KERNEL);
}

void notify_thread_leave(struct notify_thread *t)
{
	int state = THREAD_IN_KERNEL;

	if (!atomic_compare_exchange_strong(&t->state, &state, THREAD_RUNS))
		for (;;)
			pause(); /* until the process exits */
}

void notify_thread_end(struct notify_thread *t)
{
	atomic_store(&t->state, THREAD_ENDED);
}

bool notify_thread_join(struct notify_thread *t, int signal, uint64_t until_ns)
{
	while (atomic_load(&t->state) != THREAD_ENDED) {
		int state = THREAD_IN_KERNEL;

		if (monotonic_ns() >= until_ns && atomic_compare_exchange_strong(&t->state, &state, THREAD_ABANDONED))
			return false;
		if (signal != 0)
			pthread_kill(t->thread, signal);
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
	}
	pthread_join(t->thread, NULL);
	return true;
}

/* Errors are ignored: an inode that the kernel has dropped has no pages. */
static void drop_pages(struct notify *n, const struct job *j)
{
	struct fuse_bufvec last = FUSE_BUFVEC_INIT(1);
	uint8_t byte = j->growth.last;

	fuse_lowlevel_notify_inval_inode(n->se, j->ino, (off_t)j->off, (off_t)j->len);
	if (j->file)
		file_pages_dropped(j->file, j->opens);
	if (j->growth.size == 0)
		return;
	last.buf[0].mem = &byte;
	fuse_lowlevel_notify_store(n->se, j->ino, (off_t)j->growth.size - 1, &last, 0);
}

static void reply_to_request(struct job *j)
{
	if (j->result < 0)
		fuse_reply_err(j->req, ops_errno((int)j->result));
	else if (j->is_ioctl)
		fuse_reply_ioctl(j->req, 0, j->out, j->out_len);
	else
		fuse_reply_write(j->req, (size_t)j->result);
	free(j);
}

static struct job *take_job(struct notify *n)
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

	while ((j = take_job(n))) {
		notify_thread_enter(&n->thread);
		drop_pages(n, j);
		notify_thread_leave(&n->thread);
		reply_to_request(j);
	}
	notify_thread_end(&n->thread);
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
	r = pthread_create(&n->thread.thread, NULL, run, n);
	if (r != 0) {
		cond_release(&n->work);
		mutex_release(&n->lock);
		free(n);
		return -r;
	}
	*ret = n;
	return 0;
}

bool notify_stop(struct notify *n, uint64_t until_ns)
{
	bool first;

	mutex_lock(&n->lock);
	first = !n->stop;
	n->stop = true;
	cond_signal(&n->work);
	mutex_unlock(&n->lock);
	return !first || notify_thread_join(&n->thread, 0, until_ns);
}

void notify_free(struct notify *n)
{
	if (!n)
		return;
	notify_stop(n, UINT64_MAX);
	cond_release(&n->work);
	mutex_release(&n->lock);
	free(n);
}

static void add_job(struct notify *n, const struct job *job)
{
	struct job *j = malloc(sizeof(*j));
	bool stopped;

	if (!j) {
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
		reply_to_request(j); /* the mount is going away, with its page cache */
}

void notify_attributes_changed(struct notify *n, uint64_t ino)
{
	fuse_lowlevel_notify_inval_inode(n->se, ino, -1, 0);
}

void notify_range_then_reply_write(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, size_t len,
				   ssize_t result)
{
	if (len == 0) /* drop_pages() would take it for all of the file */
		fuse_reply_write(req, 0);
	else
		add_job(n, &(struct job){ .req = req, .ino = ino, .off = off, .len = len, .result = result });
}

void notify_all_then_reply_write(struct notify *n, fuse_req_t req, uint64_t ino, struct file *f, uint32_t opens,
				 ssize_t result)
{
	add_job(n, &(struct job){ .req = req, .ino = ino, .result = result, .file = f, .opens = opens });
}

static void set_answer(struct job *j, const void *out, size_t out_len)
{
	assert(out_len <= sizeof(j->out));
	j->out_len = out_len;
	if (out_len > 0)
		memcpy(j->out, out, out_len);
}

void notify_then_reply_ioctl(struct notify *n, fuse_req_t req, uint64_t ino, uint64_t off, uint64_t len,
			     struct notify_growth growth, int error, const void *out, size_t out_len)
{
	struct job j = {
		.req = req, .ino = ino, .off = off, .len = len, .growth = growth, .result = error, .is_ioctl = true
	};

	set_answer(&j, out, out_len);
	add_job(n, &j);
}
