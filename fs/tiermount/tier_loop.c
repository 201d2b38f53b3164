/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/tiermount/tier_loop.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fuse_lowlevel.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/long_requests.h"

#define MAX_THREADS 256u /* more than there are places */
#define QUEUED_MAX 16384u /* requests of a user: a few hundred bytes each */

/* Requests of a user that wait at a time. Reads keep all threads of the pool busy. */
static const struct long_requests_conf places[TIER_NR_WAITS] = {
	[TIER_WAITS_FOR_LIST] = { .per_user = 8, .queued = QUEUED_MAX },
	[TIER_WAITS_FOR_TREE] = { .per_user = 16, .queued = QUEUED_MAX },
	[TIER_WAITS_FOR_DATA] = { .per_user = 32, .queued = QUEUED_MAX },
};

struct worker {
	struct tier_loop *loop; /* constant, as the next one */
	pthread_t thread;
	/* Of the request that it serves without a place, guarded by the lock of the loop. */
	uint64_t unique; /* 0: none */
	bool is_interrupted;
	/* Used by the thread itself. */
	bool has_place, serve_again;
	enum tier_wait waits_for;
};

struct tier_loop {
	struct fuse_session *se; /* constant, like the descriptors and queues */
	int fd, stop_fd, event_fd;
	struct long_requests *queues[TIER_NR_WAITS];
	struct mutex receiving; /* held by the thread that waits for a request; taken before `lock` */
	struct mutex lock; /* leaf */
	struct worker workers[MAX_THREADS];
	unsigned nr GUARDED_BY(lock), nr_idle GUARDED_BY(lock);
	bool stop GUARDED_BY(lock), ended GUARDED_BY(lock);
};

static _Thread_local struct worker *self;

static void *serve_requests(void *userdata);

static int add_thread(struct tier_loop *l) REQUIRES(l->lock)
{
	struct worker *w = &l->workers[l->nr];
	int r;

	w->loop = l;
	r = -pthread_create(&w->thread, NULL, serve_requests, w);
	if (r == 0) {
		l->nr++;
		l->nr_idle++;
	}
	return r;
}

static void loop_end(struct tier_loop *l)
{
	uint64_t one = 1;
	ssize_t n _unused_;

	mutex_lock(&l->lock);
	l->ended = true;
	l->stop = true;
	mutex_unlock(&l->lock);
	n = write(l->stop_fd, &one, sizeof(one));
	n = write(l->event_fd, &one, sizeof(one));
}

static bool is_stopped(struct tier_loop *l)
{
	bool stop;

	mutex_lock(&l->lock);
	stop = l->stop;
	mutex_unlock(&l->lock);
	return stop;
}

/* Receives the next request. false: the loop has ended. */
static bool receive_request(struct tier_loop *l, struct fuse_buf *buf)
{
	struct pollfd fds[] = { { .fd = l->fd, .events = POLLIN }, { .fd = l->stop_fd, .events = POLLIN } };

	while (!is_stopped(l)) {
		int r = poll(fds, ARRAY_SIZE(fds), -1);

		if (r < 0 && errno != EINTR) {
			log_errno(-errno, "requests: cannot poll");
			loop_end(l);
			return false;
		}
		if (r <= 0 || fds[1].revents)
			continue;
		r = fuse_session_receive_buf(l->se, buf);
		if (r > 0)
			return true;
		if (r == -EAGAIN || r == -EINTR)
			continue;
		if (r < 0)
			log_errno(r, "requests: cannot receive");
		loop_end(l);
	}
	return false;
}

/* Interrupts are received after their requests, so the request is found here or in a queue, or has ended. */
static void begin_request(struct worker *w, const struct fuse_in_header *in)
{
	struct tier_loop *l = w->loop;

	mutex_lock(&l->lock);
	w->unique = in->unique;
	w->is_interrupted = false;
	if (--l->nr_idle == 0 && l->nr < MAX_THREADS && !l->stop)
		add_thread(l); /* on failure requests wait for a thread */
	mutex_unlock(&l->lock);
}

/* The request has been answered, or is in a queue. true: it was interrupted before that. */
static bool end_request(struct worker *w)
{
	bool is_interrupted;

	mutex_lock(&w->loop->lock);
	w->unique = 0;
	is_interrupted = w->is_interrupted;
	mutex_unlock(&w->loop->lock);
	return is_interrupted;
}

static void interrupt_request(struct tier_loop *l, const struct fuse_in_header *in, size_t len)
{
	const struct fuse_interrupt_in *which = (const struct fuse_interrupt_in *)(in + 1);

	if (len < sizeof(*in) + sizeof(*which))
		return;
	mutex_lock(&l->lock);
	for (unsigned i = 0; i < l->nr; i++)
		if (l->workers[i].unique == which->unique)
			l->workers[i].is_interrupted = true;
	mutex_unlock(&l->lock);
	for (unsigned i = 0; i < TIER_NR_WAITS; i++)
		long_requests_interrupt(l->queues[i], which->unique);
}

static void process_request(struct worker *w, const void *p, size_t len)
{
	const struct fuse_buf buf = { .size = len, .mem = (void *)(uintptr_t)p };

	w->serve_again = false;
	fuse_session_process_buf(w->loop->se, &buf);
}

/* Serves it, if it may run now, and then those that were waiting for its place. */
static void serve_in_place(struct worker *w, const struct fuse_in_header *in, size_t len)
{
	struct long_requests *all = w->loop->queues[w->waits_for];
	struct long_request *r = NULL;

	long_request_begin(all, in, len, &r);
	if (end_request(w))
		long_requests_interrupt(all, in->unique);
	w->has_place = true;
	while (r) {
		cancel_set(&r->cancel);
		process_request(w, r->bytes, r->len);
		cancel_set(NULL);
		r = long_request_end(all, r);
	}
	w->has_place = false;
}

bool tier_loop_may_wait(enum tier_wait what)
{
	self->waits_for = what;
	return self->has_place;
}

void tier_loop_serve_again(void)
{
	self->serve_again = true;
}

static void *serve_requests(void *userdata)
{
	struct worker *w = userdata;
	struct tier_loop *l = w->loop;
	struct fuse_buf buf = { 0 };
	bool more = true;

	self = w;
	while (more) {
		const struct fuse_in_header *in;

		mutex_lock(&l->receiving);
		more = receive_request(l, &buf);
		in = buf.mem;
		if (more)
			begin_request(w, in);
		mutex_unlock(&l->receiving);
		if (!more)
			break;
		if (in->opcode == FUSE_INTERRUPT)
			interrupt_request(l, in, buf.size);
		else
			process_request(w, in, buf.size);
		if (w->serve_again)
			serve_in_place(w, in, buf.size);
		else
			end_request(w);
		w->serve_again = false;
		mutex_lock(&l->lock);
		l->nr_idle++;
		mutex_unlock(&l->lock);
	}
	free(buf.mem);
	return NULL;
}

int tier_loop_start(struct fuse_session *se, struct tier_loop **ret)
{
	struct tier_loop *l = calloc(1, sizeof(*l));
	unsigned nr_places = 0;
	int r = 0, flags;

	if (!l)
		return -ENOMEM;
	l->se = se;
	l->fd = fuse_session_fd(se);
	mutex_init(&l->receiving);
	mutex_init(&l->lock);
	l->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	flags = fcntl(l->fd, F_GETFL);
	if (l->stop_fd < 0 || l->event_fd < 0 || flags < 0 || fcntl(l->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		r = -errno;
	for (unsigned i = 0; i < TIER_NR_WAITS && r == 0; i++)
		r = long_requests_new(l->fd, &places[i], &l->queues[i]);
	for (unsigned i = 0; i < TIER_NR_WAITS && r == 0; i++)
		nr_places += long_requests_nr_places(l->queues[i]);
	assert(nr_places < MAX_THREADS);
	if (r == 0) {
		mutex_lock(&l->lock);
		r = add_thread(l);
		mutex_unlock(&l->lock);
	}
	if (r == 0)
		*ret = l;
	else
		tier_loop_free(l);
	return r;
}

int tier_loop_event_fd(const struct tier_loop *l)
{
	return l->event_fd;
}

bool tier_loop_ended(struct tier_loop *l)
{
	bool ended;

	mutex_lock(&l->lock);
	ended = l->ended;
	mutex_unlock(&l->lock);
	return ended;
}

void tier_loop_free(struct tier_loop *l)
{
	uint64_t one = 1;
	ssize_t n _unused_;
	unsigned nr;

	if (!l)
		return;
	mutex_lock(&l->lock);
	l->stop = true; /* no more threads are added */
	nr = l->nr;
	mutex_unlock(&l->lock);
	if (l->stop_fd >= 0)
		n = write(l->stop_fd, &one, sizeof(one));
	for (unsigned i = 0; i < TIER_NR_WAITS; i++)
		if (l->queues[i])
			long_requests_stop(l->queues[i]);
	for (unsigned i = 0; i < nr; i++)
		pthread_join(l->workers[i].thread, NULL);
	for (unsigned i = 0; i < TIER_NR_WAITS; i++)
		long_requests_free(l->queues[i]);
	closep(&l->stop_fd);
	closep(&l->event_fd);
	mutex_release(&l->receiving);
	mutex_release(&l->lock);
	free(l);
}
