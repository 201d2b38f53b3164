/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/arena.h"

#define SOCKET_NAME "agent.sock"

/* --- finding the socket --- */

/* Decodes octal escapes (\040) in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		    s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
			continue;
		}
		*to++ = *s;
	}
	*to = '\0';
}

/* A line of mountinfo: "36 35 98:0 /root /point options optional... - type source options". false: no ckptfs. */
static bool parse_mount(char *line, char **ret_point, char **ret_store)
{
	char *rest = strstr(line, " - "), *save, *type, *store, *point = NULL;

	if (!rest)
		return false;
	*rest = '\0';
	type = strtok_r(rest + 3, " \n", &save);
	store = strtok_r(NULL, " \n", &save);
	if (!store || strcmp(type, "fuse.ckptfs") != 0)
		return false;
	for (int field = 0; field < 5; field++)
		point = strtok_r(field == 0 ? line : NULL, " ", &save);
	if (!point)
		return false;
	unescape(point);
	unescape(store);
	*ret_point = point;
	*ret_store = store;
	return true;
}

/* Of several mounts on one mountpoint the last is visible. 1/0/<0 */
static int store_at(const char *point, char **ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	char *at, *store, *found = NULL;
	size_t size = 0;

	if (!f)
		return log_errno(-errno, "/proc/self/mountinfo: cannot open");
	while (getline(&line, &size, f) > 0) {
		if (!parse_mount(line, &at, &store) || strcmp(at, point) != 0)
			continue;
		free(found);
		found = strdup(store);
	}
	fclose(f);
	*ret = found;
	return found != NULL;
}

static int socket_of_mount(const char *mount, char **ret)
{
	_cleanup_(freep) char *point = realpath(mount, NULL), *store = NULL;
	int r;

	if (!point)
		return log_errno(-errno, "%s", mount);
	r = store_at(point, &store);
	if (r < 0)
		return r;
	if (r == 0) {
		log_error("%s: no ckptfs is mounted there; mount it first", mount);
		return -ENOENT;
	}
	if (asprintf(ret, "%s/" SOCKET_NAME, store) < 0)
		return -ENOMEM;
	return 0;
}

static int check_socket(const char *path, struct stat *ret)
{
	if (stat(path, ret) < 0) {
		if (errno == ENOENT)
			log_error("%s: no such socket; mount a store that was created with cluster= (mount.ckptfs(8))",
				  path);
		else
			log_error("%s: %s", path, strerror(errno));
		return -errno;
	}
	if (!S_ISSOCK(ret->st_mode)) {
		log_error("%s: not a socket", path);
		return -EINVAL;
	}
	return 0;
}

int socket_find(const char *mount, const char *socket, struct socket_path *ret)
{
	_cleanup_(freep) char *path = NULL;
	struct stat st;
	int r;

	if (socket) {
		path = strdup(socket);
		r = path ? 0 : -ENOMEM;
	} else {
		r = socket_of_mount(mount, &path);
	}
	if (r == 0)
		r = check_socket(path, &st);
	if (r < 0)
		return r;
	*ret = (struct socket_path){ .path = TAKE(path), .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

/* --- handshake --- */

/* Connects through /proc/self/fd, since the path may be too long for a socket address. */
static int connect_through(const char *path, int fd)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	_cleanup_(closep) int dir = -1;
	char parent[PATH_MAX];
	const char *name = strrchr(path, '/');

	if (strlen(path) < sizeof(to.sun_path)) {
		strcpy(to.sun_path, path);
		return connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
	}
	if (!name || (size_t)(name - path) >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, (size_t)(name - path));
	parent[name - path] = '\0';
	dir = open(*parent ? parent : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	if (snprintf(to.sun_path, sizeof(to.sun_path), "/proc/self/fd/%d%s", dir, name) >= (int)sizeof(to.sun_path))
		return -ENAMETOOLONG;
	return connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
}

static int log_refused(const char *path, int r)
{
	if (r == -ECONNREFUSED)
		log_error("%s: no daemon listens there: is the store mounted?", path);
	else if (r == -EACCES)
		log_error("%s: belongs to another user: the agent runs as the user of the mount", path);
	else if (r == -EBUSY)
		log_error("%s: another agent is connected: end it first; ckptfs-agent --status shows it", path);
	else if (r == -ECONNRESET)
		log_error("%s: the daemon has closed the connection", path);
	else if (r == -ETIMEDOUT)
		log_error("%s: the daemon does not answer", path);
	else if (r == -EOPNOTSUPP)
		log_error("%s: the daemon has another version", path);
	else if (r == -EBADMSG)
		log_error("%s: peer does not speak the ckptfs protocol", path);
	else
		log_error("%s: %s", path, strerror(-r));
	return r;
}

/* A daemon that passes no arena does not use the agent's either. */
static int open_arenas(struct link *l, struct arenas *shared)
{
	int fd = l->passed;

	l->passed = -1;
	if (fd >= 0)
		return arena_open(fd, &shared->theirs);
	arena_put(TAKE(shared->own));
	return 0;
}

static int greet(struct link *l, uint64_t until_ns, struct link_welcome *ret)
{
	struct link_header h;
	const void *body;
	int r, sent;

	link_encode_hello(&l->out);
	sent = link_flush(l, until_ns); /* the daemon may refuse the connection before HELLO is sent */
	r = link_receive(l, until_ns, &h, &body);
	if (r < 0)
		return sent < 0 && r != -EBADMSG ? sent : r;
	if (h.type == LINK_REFUSED)
		return h.number > 0 && h.number < 4096 ? -(int)h.number : -EBADMSG;
	return h.type == LINK_WELCOME ? link_decode_welcome(body, h.len, ret) : -EBADMSG;
}

int daemon_connect(const struct socket_path *at, uint64_t until_ns, struct arenas *shared, struct link *ret,
		   struct link_welcome *ret_welcome)
{
	struct link l;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return log_errno(-errno, "socket");
	link_init(&l, fd);
	r = connect_through(at->path, fd);
	l.passes = shared->own ? arena_fd(shared->own) : -1;
	if (r == 0)
		r = greet(&l, until_ns, ret_welcome);
	if (r == 0)
		r = open_arenas(&l, shared);
	if (r < 0) {
		link_release(&l);
		return log_refused(at->path, r == -EPIPE ? -ECONNRESET : r);
	}
	*ret = l;
	return 0;
}
