/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define BACKLOG 4
#define LOCK_NS UINT64_C(2000000000) /* to wait for the lock of the directory */
#define LOCK_STEP_NS 5000000

/* Open the directory of a path, and return the name after it. */
static int open_parent(const char *path, int *ret_dir, char *ret_name, size_t size)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_(freep) char *dir = !slash	   ? strdup(".") :
				     slash == path ? strdup("/") :
						     strndup(path, (size_t)(slash - path));

	if (!dir)
		return -ENOMEM;
	if (*name == '\0' || strlen(name) >= size)
		return *name == '\0' ? -EISDIR : -ENAMETOOLONG;
	*ret_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return -errno;
	strcpy(ret_name, name);
	return 0;
}

/*
 * A socket address holds at most 107 bytes. For a longer path, address the socket through a descriptor of its
 * directory.
 */
static int address(const char *path, int dir, const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) < sizeof(ret->sun_path)) {
		strcpy(ret->sun_path, path);
		return 0;
	}
	if (snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dir, name) >= (int)sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	return 0;
}

static int connect_at(const char *path, int dir, const char *name)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
	struct sockaddr_un a;

	if (fd < 0)
		return -errno;
	r = address(path, dir, name, &a);
	if (r == 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* Removes an existing socket if no daemon listens on it. */
static int remove_dead_socket(struct listener *l, const char *path)
{
	struct stat st;
	int r;

	if (fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : log_errno(-errno, "agent socket %s", path);
	if (!S_ISSOCK(st.st_mode))
		return log_cause(-EEXIST, "agent socket %s: exists, and is not a socket", path);
	r = connect_at(path, l->dir, l->name);
	if (r >= 0)
		close(r);
	if (r != -ECONNREFUSED)
		return log_cause(-EADDRINUSE, "agent socket %s: another daemon listens there", path);
	if (unlinkat(l->dir, l->name, 0) < 0)
		return log_errno(-errno, "agent socket %s: cannot remove the socket of a dead daemon", path);
	log_info("agent socket %s: replaced the socket of a dead daemon", path);
	return 0;
}

/* No process can connect before listen(2), so the mode is set in time. */
static int bind_and_listen(struct listener *l, const char *path)
{
	struct sockaddr_un a;
	struct stat st;
	int r;

	r = remove_dead_socket(l, path);
	if (r < 0)
		return r;
	r = address(path, l->dir, l->name, &a);
	if (r < 0)
		return log_errno(r, "agent socket %s", path);
	if (bind(l->fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return log_errno(-errno, "agent socket %s: cannot create", path);
	if (fchmodat(l->dir, l->name, 0600, 0) < 0 || fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    listen(l->fd, BACKLOG) < 0) {
		r = -errno;
		unlinkat(l->dir, l->name, 0);
		return log_errno(r, "agent socket %s: cannot listen", path);
	}
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	return 0;
}

/* Two daemons may find the same stale socket. Without the lock the slower one would remove the new socket of the other.
 * Any user with read permission can hold the lock, so the wait is limited. */
static int lock_directory(const struct listener *l, const char *path)
{
	uint64_t until = monotonic_ns() + LOCK_NS;

	while (flock(l->dir, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return log_errno(-errno, "agent socket %s: cannot lock its directory", path);
		if (monotonic_ns() >= until) {
			log_warning("agent socket %s: another process keeps its directory locked; continuing without the lock",
				    path);
			return 0;
		}
		nanosleep(&(struct timespec){ .tv_nsec = LOCK_STEP_NS }, NULL);
	}
	return 0;
}

int listener_open(struct listener *ret, const char *path)
{
	struct listener l = LISTENER_NONE;
	int r;

	r = open_parent(path, &l.dir, l.name, sizeof(l.name));
	if (r < 0)
		return log_errno(r, "agent socket %s: cannot open its directory", path);
	l.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l.fd < 0)
		r = log_errno(-errno, "agent socket");
	if (r == 0)
		r = lock_directory(&l, path);
	if (r == 0) {
		r = bind_and_listen(&l, path);
		flock(l.dir, LOCK_UN);
	}
	if (r < 0) {
		closep(&l.fd);
		closep(&l.dir);
		return r;
	}
	*ret = l;
	return 0;
}

void listener_close(struct listener *l)
{
	struct stat st;

	if (l->fd >= 0 && fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == l->dev &&
	    st.st_ino == l->ino)
		unlinkat(l->dir, l->name, 0);
	closep(&l->fd);
	closep(&l->dir);
	*l = LISTENER_NONE;
}
