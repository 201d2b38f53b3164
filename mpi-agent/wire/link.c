/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/wire/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#define READ_LEN ((size_t)256 << 10) /* least room for one recv(2) */
#define READS_MAX 16 /* per link_read(), for fairness to other sources */
#define KEPT_MAX ((size_t)4 << 20) /* an empty buffer keeps at most this: new memory is costly */
#define NS_PER_MS UINT64_C(1000000)

union control {
	struct cmsghdr first;
	uint8_t room[CMSG_SPACE(sizeof(int))];
};

/* CMSG_SPACE() may have room for two descriptors: keeps the last. */
static void take_descriptors(const struct cmsghdr *c, int *passed)
{
	size_t len = c->cmsg_len - CMSG_LEN(0);

	for (size_t at = 0; at + sizeof(int) <= len; at += sizeof(int)) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
		closep(passed);
		*passed = fd;
	}
}

ssize_t link_recv(int fd, void *p, size_t len, int *passed)
{
	union control control;
	struct iovec iov = { p, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL; c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			take_descriptors(c, passed);
	return n;
}

ssize_t link_send(int fd, const void *p, size_t len, int passes)
{
	union control control = {
		.first = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS }
	};
	struct iovec iov = { (void *)p, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (passes >= 0) {
		memcpy(CMSG_DATA(&control.first), &passes, sizeof(passes));
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
	}
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void link_init(struct link *l, int fd)
{
	*l = (struct link){ .fd = fd, .passes = -1, .passed = -1 };
}

void link_release(struct link *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = l->passes = -1;
	closep(&l->passed);
	l->passed = -1;
	buf_release(&l->in);
	buf_release(&l->out);
	l->in_at = l->out_at = 0;
}

/* Removes the first *at bytes. */
static void remove_front(struct buf *b, size_t *at)
{
	memmove(b->data, b->data + *at, b->len - *at);
	b->len -= *at;
	*at = 0;
	if (b->len == 0 && b->size > KEPT_MAX)
		buf_release(b);
}

/* --- receiving --- */

/* Missing bytes of the message at in_at; 0 if it is complete, or its length is not known yet. */
static size_t wanted(const struct link *l)
{
	size_t have = l->in.len - l->in_at;
	struct link_header h;

	if (have < sizeof(struct link_header_wire) ||
	    link_decode_header(l->in.data + l->in_at, sizeof(struct link_header_wire), &h) < 0 ||
	    have - sizeof(struct link_header_wire) >= h.len)
		return 0;
	return h.len - (have - sizeof(struct link_header_wire));
}

/* 1: data; 2: data, and the socket is empty now; 0: no data; <0 */
static int read_some(struct link *l)
{
	size_t len = MAX(wanted(l), READ_LEN);
	ssize_t n;

	if (buf_reserve(&l->in, len) < 0)
		return -ENOMEM;
	do
		n = link_recv(l->fd, l->in.data + l->in.len, len, &l->passed);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	l->in.len += (size_t)n;
	return (size_t)n < len ? 2 : 1;
}

/* A short read has emptied the socket. An error after some data is returned by the next call. */
int link_read(struct link *l)
{
	int r = 1, has_come = 0;

	if (l->in_at > 0)
		remove_front(&l->in, &l->in_at);
	for (int i = 0; i < READS_MAX && r == 1; i++) {
		r = read_some(l);
		has_come |= r > 0;
	}
	return has_come ? 1 : r;
}

int link_next(struct link *l, struct link_header *ret, const void **ret_body)
{
	size_t have = l->in.len - l->in_at;
	struct link_header h;
	int r;

	if (have < sizeof(struct link_header_wire))
		return 0;
	r = link_decode_header(l->in.data + l->in_at, sizeof(struct link_header_wire), &h);
	if (r < 0)
		return r;
	if (have - sizeof(struct link_header_wire) < h.len)
		return 0;
	*ret = h;
	*ret_body = l->in.data + l->in_at + sizeof(struct link_header_wire);
	l->in_at += sizeof(struct link_header_wire) + h.len;
	return 1;
}

/* 0: ready, or interrupted */
static int wait_for(const struct link *l, short events, uint64_t until_ns)
{
	struct pollfd p = { .fd = l->fd, .events = events };
	uint64_t now = monotonic_ns();

	if (now >= until_ns)
		return -ETIMEDOUT;
	if (poll(&p, 1, (int)MIN((until_ns - now) / NS_PER_MS + 1, UINT64_C(1000))) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

int link_receive(struct link *l, uint64_t until_ns, struct link_header *ret, const void **ret_body)
{
	for (;;) {
		int r = link_next(l, ret, ret_body);

		if (r != 0)
			return r;
		r = link_read(l);
		if (r == 0)
			r = wait_for(l, POLLIN, until_ns);
		if (r < 0)
			return r;
	}
}

/* --- sending --- */

int link_write(struct link *l)
{
	if (buf_error(&l->out) < 0)
		return -ENOMEM;
	while (link_unsent(l) > 0) {
		ssize_t n = link_send(l->fd, l->out.data + l->out_at, link_unsent(l), l->passes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n < 0)
			return -errno;
		l->out_at += (size_t)n;
		l->passes = -1;
	}
	/* Move the unsent rest only if it is smaller than the part that was sent. */
	if (l->out_at > 0 && l->out_at >= link_unsent(l))
		remove_front(&l->out, &l->out_at);
	return link_unsent(l) == 0;
}

int link_flush(struct link *l, uint64_t until_ns)
{
	int r;

	while ((r = link_write(l)) == 0) {
		r = wait_for(l, POLLOUT, until_ns);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : 0;
}
