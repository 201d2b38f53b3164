/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/tiermount/tier_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fuse_lowlevel.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"

#define MAX_THREADS 128u

struct tier_loop {
	struct fuse_session *se; /* constant, like the descriptors */
	int fd, stop_fd, event_fd;
	struct mutex receiving; /* held by the thread that waits for a request; taken before `lock` */
	struct mutex lock; /* leaf */
	pthread_t threads[MAX_THREADS] GUARDED_BY(lock);
	unsigned nr GUARDED_BY(lock), nr_idle GUARDED_BY(lock);
	bool stop GUARDED_BY(lock), ended GUARDED_BY(lock);
};

static void *serve_requests(void *userdata);

static int add_thread(struct tier_loop *l) REQUIRES(l->lock)
{
	int r = -pthread_create(&l->threads[l->nr], NULL, serve_requests, l);

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
static bool receive(struct tier_loop *l, struct fuse_buf *buf)
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

static void *serve_requests(void *userdata)
{
	struct tier_loop *l = userdata;
	struct fuse_buf buf = { 0 };
	bool more = true;

	while (more) {
		mutex_lock(&l->receiving);
		more = receive(l, &buf);
		mutex_unlock(&l->receiving);
		if (!more)
			break;
		mutex_lock(&l->lock);
		if (--l->nr_idle == 0 && l->nr < MAX_THREADS && !l->stop)
			add_thread(l); /* on failure requests wait for a thread */
		mutex_unlock(&l->lock);
		fuse_session_process_buf(l->se, &buf);
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
	for (unsigned i = 0; i < nr; i++)
		pthread_join(l->threads[i], NULL);
	closep(&l->stop_fd);
	closep(&l->event_fd);
	mutex_release(&l->receiving);
	mutex_release(&l->lock);
	free(l);
}
