/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/status.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

#define ANSWER_MS 5000

static socklen_t address_of(const struct socket_path *at, struct sockaddr_un *ret)
{
	int len;

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	/* The leading zero byte makes it an abstract socket. */
	len = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "ckptfs-agent/%" PRIx64 "/%" PRIx64,
		       (uint64_t)at->dev, (uint64_t)at->ino);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* Abstract sockets have no permissions: each end checks the credentials of the other. Root may query every agent. */
static bool is_trusted(int fd, bool is_asking)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
	       (peer.uid == geteuid() || peer.uid == 0 || (is_asking && geteuid() == 0));
}

int status_listen(const struct socket_path *at)
{
	struct sockaddr_un address;
	socklen_t len = address_of(at, &address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, len) < 0 || listen(fd, 8) < 0) {
		int r = log_errno(-errno, "ckptfs-agent --status: not available");

		closep(&fd);
		return r;
	}
	return fd;
}

void status_answer(int fd, const char *text, size_t len)
{
	_cleanup_(closep) int to = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (to < 0 || !is_trusted(to, false))
		return;
	if (send(to, text, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("status: %s", strerror(errno));
}

/* Prints line by line with escapes: the text contains names of nodes. */
static int print_answer(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char line[4096];
	size_t len = 0;

	for (;;) {
		ssize_t n;

		if (poll(&p, 1, ANSWER_MS) == 0)
			return log_errno(-ETIMEDOUT, "the agent does not answer");
		n = recv(fd, line + len, 1, 0);
		if (n < 0 && errno != EINTR)
			return log_errno(-errno, "the agent does not answer");
		if (n < 0 || (n > 0 && line[len] != '\n' && ++len < sizeof(line) - 1))
			continue;
		line[len] = '\0';
		if (n > 0 || len > 0)
			text_printf(stdout, "%s\n", line);
		if (n == 0)
			return 0;
		len = 0;
	}
}

int status_ask(const struct socket_path *at)
{
	struct sockaddr_un address;
	socklen_t len = address_of(at, &address);
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return log_errno(-errno, "socket");
	if (connect(fd, (const struct sockaddr *)&address, len) < 0) {
		log_error("%s: no agent is connected to it here", at->path);
		return -ENOENT;
	}
	if (!is_trusted(fd, true)) {
		log_error("%s: its agent belongs to another user", at->path);
		return -EACCES;
	}
	return print_answer(fd);
}
