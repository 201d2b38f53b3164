/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/classify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/noatime.h"
#include "store/classify/typed_format.h"

#define PIECE 65536 /* bytes read at once */

/* With an empty environment: the helper needs nothing from it. */
static int start_helper(const struct classify_conf *conf, int fd, int dir, const char *name, int out, pid_t *ret)
{
	char *argv[6] = { (char *)"ckptfs-classify" };
	size_t nr = 1;
	char *environment[] = { NULL };
	posix_spawn_file_actions_t actions;
	int r;

	if (conf->names && conf->names[0]) {
		argv[nr++] = (char *)"--names";
		argv[nr++] = (char *)conf->names;
	}
	if (dir >= 0) {
		argv[nr++] = (char *)"--beside";
		argv[nr++] = (char *)name;
	}
	r = posix_spawn_file_actions_init(&actions);
	if (r)
		return -r;
	r = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0 && dir >= 0)
		r = posix_spawn_file_actions_adddup2(&actions, dir, CLASSIFY_DIR_FILENO);
	if (r == 0)
		r = posix_spawn(ret, conf->helper, &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	return r ? log_errno(-r, "%s: cannot be started", conf->helper) : 0;
}

/* Wait until there is something to read, or the process of a pidfd has ended: 0, -ETIMEDOUT. */
static int wait_for(int fd, uint64_t end_ns)
{
	for (;;) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		uint64_t now = monotonic_ns();
		int nr_ready = now < end_ns ? poll(&ready, 1, (int)((end_ns - now) / 1000000) + 1) : 0;

		if (nr_ready == 0)
			return -ETIMEDOUT;
		if (nr_ready > 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

/* Read everything until the helper closes the pipe: 0; -ETIMEDOUT, -EMSGSIZE, ... */
static int listen_to(int in, uint64_t end_ns, struct buf *ret)
{
	while (ret->len <= TYPED_BYTES_MAX) {
		ssize_t n;
		int r;

		r = wait_for(in, end_ns);
		if (r < 0)
			return r;
		if (buf_reserve(ret, PIECE) < 0)
			return -ENOMEM;
		n = read(in, ret->data + ret->len, PIECE);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		ret->len += n > 0 ? (size_t)n : 0;
	}
	return -EMSGSIZE;
}

/* The helper may run on after it has closed the pipe: 0, -ETIMEDOUT, ... It is not reaped, so its pid is not reused. */
static int wait_for_end(pid_t pid, uint64_t end_ns)
{
	_cleanup_(closep) int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? log_errno(-errno, "classifier: no descriptor of process %d", (int)pid) : wait_for(fd, end_ns);
}

/* Reap the helper, and describe how it ended if it failed. */
static bool ended_well(pid_t pid, char *ret_reason, size_t room)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	if (WIFSIGNALED(status))
		snprintf(ret_reason, room, "the classifier was ended by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		snprintf(ret_reason, room, "the classifier failed with status %d", WEXITSTATUS(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int understand(const uint8_t *p, size_t len, uint64_t size, struct typed *ret, char *ret_reason, size_t room)
{
	char reason[TYPED_REASON_MAX + 1] = "";
	int r = typed_decode(p, len, size, ret, reason);

	if (r == -EBADMSG) {
		snprintf(ret_reason, room, "the classifier sent malformed output");
		return 0;
	}
	if (r < 0)
		return r;
	snprintf(ret_reason, room, "%s", reason);
	if (r == TYPED_KNOWN)
		return 1;
	typed_release(ret);
	return 0;
}

/* Open the directory of a path, and return the name in it; -1: no access, so files beside it are not used. */
static int open_directory(const char *path, const char **ret_name)
{
	_cleanup_(freep) char *dir = NULL;
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	dir = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
	return dir ? openat_noatime(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

int classify_file(const struct classify_conf *conf, int fd, const char *path, struct typed *ret, char *ret_reason,
		  size_t reason_room)
{
	_cleanup_(buf_release) struct buf said = BUF_EMPTY;
	_cleanup_(closep) int in = -1, dir = -1;
	uint64_t end_ns = monotonic_ns() + (uint64_t)conf->limit_ms * 1000000;
	const char *name = NULL;
	struct stat st;
	int pipes[2], r;
	bool well;
	pid_t pid;

	*ret_reason = 0;
	if (fstat(fd, &st) < 0 || pipe2(pipes, O_CLOEXEC) < 0)
		return log_errno(-errno, "classifier: no pipe");
	in = pipes[0];
	if (path)
		dir = open_directory(path, &name);
	r = start_helper(conf, fd, dir, name, pipes[1], &pid);
	close(pipes[1]);
	if (r < 0)
		return r;
	r = listen_to(in, end_ns, &said);
	if (r == 0)
		r = wait_for_end(pid, end_ns);
	if (r < 0)
		kill(pid, SIGKILL);
	well = ended_well(pid, ret_reason, reason_room);
	if (r == -ETIMEDOUT)
		snprintf(ret_reason, reason_room, "the classifier timed out after %u ms", conf->limit_ms);
	else if (r == -EMSGSIZE)
		snprintf(ret_reason, reason_room, "the classifier sent too much output");
	else if (r < 0)
		return r;
	if (r < 0 || !well)
		return 0;
	return understand(said.data, said.len, (uint64_t)st.st_size, ret, ret_reason, reason_room);
}
