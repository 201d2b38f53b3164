/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/checks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/medium.h"
#include "base/mounts.h"
#include "base/util.h"
#include "fs/mount_options.h"
#include "index/namespace_table.h"

#define AWAIT_NS UINT64_C(30000000000)
#define AWAIT_SILENT_NS UINT64_C(2000000000) /* longer than a daemon with little to write needs */
#define AWAIT_STEP_NS 50000000

void checks_release(struct checks *c)
{
	free(TAKE(c->store));
	free(TAKE(c->mountpoint));
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int died(const char *mountpoint)
{
	log_error("mountpoint %s: the daemon of an earlier mount has died; umount it first", mountpoint);
	return -ENOTCONN;
}

static void report_wait(const void *point)
{
	log_notice("mountpoint %s: waiting up to 30 s for the daemon of the mount there", (const char *)point);
}

/* The daemon of a mount that is there already may hang, and stat(2) would wait for it. */
static int check_answers(const char *mountpoint)
{
	_cleanup_(freep) char *path = mounts_real_path(mountpoint);
	_cleanup_(mounts_close) struct mounts m = { 0 };

	if (!path || mounts_find_point(&m, path) <= 0 ||
	    mounts_ask(path, monotonic_ns() + AWAIT_NS, report_wait) != -ETIMEDOUT)
		return 0;
	log_error("mountpoint %s: %s is mounted there, and its daemon does not answer; umount.ckptfs -l it first", path,
		  m.store);
	return -EBUSY;
}

/* A second mount on top of the first would hide it, which is never intended. */
static int check_not_mounted(const char *path, const struct stat *st)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	struct statfs fs;

	if (st->st_ino != NS_ROOT_INO || statfs(path, &fs) < 0 || fs.f_type != FUSE_SUPER_MAGIC)
		return 0;
	log_error("mountpoint %s: %s is mounted there already; umount it first", path,
		  mounts_find_point(&m, path) > 0 ? m.store : "a FUSE filesystem");
	return -EBUSY;
}

static int check_empty(const char *path)
{
	_cleanup_(closedirp) DIR *d = opendir(path);
	struct dirent *e;

	if (!d && errno == ENOTCONN)
		return died(path);
	if (!d)
		return log_errno(-errno, "mountpoint %s: cannot list", path);
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			log_error("mountpoint %s: not empty (it has %s); -o nonempty mounts over it", path, e->d_name);
			return -ENOTEMPTY;
		}
	return 0;
}

static int check_mountpoint(const struct options *o, char **ret)
{
	_cleanup_(freep) char *path = NULL;
	struct stat st;
	int r = check_answers(o->mountpoint);

	if (r < 0)
		return r;
	if (stat(o->mountpoint, &st) < 0) {
		r = -errno;
		if (r == -ENOENT)
			log_error("mountpoint %s: does not exist; mkdir it first", o->mountpoint);
		else if (r == -ENOTCONN)
			died(o->mountpoint);
		else
			log_errno(r, "mountpoint %s", o->mountpoint);
		return r;
	}
	if (!S_ISDIR(st.st_mode)) {
		log_error("mountpoint %s: not a directory", o->mountpoint);
		return -ENOTDIR;
	}
	path = realpath(o->mountpoint, NULL);
	if (!path)
		return log_errno(-errno, "mountpoint %s", o->mountpoint);
	if (!o->nonempty) {
		r = check_not_mounted(path, &st);
		if (r == 0)
			r = check_empty(path);
		if (r < 0)
			return r;
	}
	*ret = TAKE(path);
	return 0;
}

/* Absolute path of a store that does not exist yet. */
static int check_new_store(const struct options *o, char **ret)
{
	_cleanup_(freep) char *copy1 = strdup(o->store);
	_cleanup_(freep) char *copy2 = strdup(o->store);
	_cleanup_(freep) char *parent = NULL;

	if (!copy1 || !copy2)
		return -ENOMEM;
	if (o->engine.read_only) {
		log_error("store %s: does not exist, and a read-only mount cannot create it; mount it without ro first",
			  o->store);
		return -ENOENT;
	}
	parent = realpath(dirname(copy1), NULL);
	if (!parent && errno == ENOENT) {
		log_error("store %s: its parent directory does not exist; mkdir it first", o->store);
		return -ENOENT;
	}
	if (!parent)
		return log_errno(-errno, "store %s: its parent directory", o->store);
	if (access(parent, W_OK | X_OK) < 0)
		return log_errno(-errno, "store %s: cannot create in %s", o->store, parent);
	return asprintf(ret, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, basename(copy2)) < 0 ? -ENOMEM : 0;
}

static int check_store(const struct options *o, char **ret)
{
	_cleanup_(freep) char *path = NULL;
	struct stat st;

	if (stat(o->store, &st) < 0)
		return errno == ENOENT ? check_new_store(o, ret) : log_errno(-errno, "store %s", o->store);
	if (!S_ISDIR(st.st_mode)) {
		log_error("store %s: not a directory; a store is a directory of its own", o->store);
		return -ENOTDIR;
	}
	if (access(o->store, R_OK | X_OK | (o->engine.read_only ? 0 : W_OK)) < 0)
		return log_errno(-errno, "store %s: not accessible for this user", o->store);
	path = realpath(o->store, NULL);
	if (!path)
		return log_errno(-errno, "store %s", o->store);
	*ret = TAKE(path);
	return 0;
}

/* A store created without a key would be refused forever once a key is given. An existing store is checked against its
 * superblock when it is opened. */
static int check_cluster(const struct options *o, const struct checks *c)
{
	const char *option = o->protect != PROTECT_NONE ? "protect" :
			     o->compact_group > 0	? "compact_group" :
			     o->agent			? "agent" :
							  NULL;
	_cleanup_(freep) char *superblock = NULL;

	if (o->protect != PROTECT_NONE && o->compact_group > 0)
		return log_cause(
			-EINVAL,
			"options protect= and compact_group=: only one of them; with replicas=2 a group has two gathering nodes, each with all of its data");
	if (!option || o->cluster)
		return 0;
	if (asprintf(&superblock, "%s/superblock", c->store) < 0)
		return -ENOMEM;
	if (access(superblock, F_OK) == 0)
		return 0;
	log_error("option %s=: store %s would be created outside a cluster; a new store joins one only with cluster=KEYFILE",
		  option, c->store);
	return -EINVAL;
}

/* Is `path` the directory `dir` or something below it? */
static bool inside(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int check_apart(const struct checks *c)
{
	if (inside(c->store, c->mountpoint)) {
		log_error("store %s: lies below the mountpoint %s, which would hide it", c->store, c->mountpoint);
		return -ELOOP;
	}
	if (inside(c->mountpoint, c->store)) {
		log_error("mountpoint %s: lies inside the store %s", c->mountpoint, c->store);
		return -ELOOP;
	}
	return 0;
}

/* A log on the mount itself would keep it busy forever, and logging would wait for the daemon, which is the logger. */
static int check_log(const struct options *o, const struct checks *c)
{
	_cleanup_(freep) char *copy = o->log ? strdup(o->log) : NULL;
	_cleanup_(freep) char *path = o->log ? realpath(o->log, NULL) : NULL;

	if (!o->log)
		return 0;
	if (!copy)
		return -ENOMEM;
	if (!path)
		path = realpath(dirname(copy), NULL); /* it does not exist yet */
	if (path && inside(path, c->mountpoint)) {
		log_error("log %s: lies below the mountpoint %s; choose another place", o->log, c->mountpoint);
		return -ELOOP;
	}
	return 0; /* other problems are reported when it is opened */
}

/*
 * With a tier on the mount itself the daemon would wait for its own replies, and the mount would always be busy. The
 * path of the tier is not resolved: a tier that hangs must not delay the mount.
 */
static int check_tier(const struct options *o, const struct checks *c)
{
	static const char scheme[] = "dir:";
	const char *path = o->tier && strncmp(o->tier, scheme, strlen(scheme)) == 0 ? o->tier + strlen(scheme) : NULL;

	if (path && inside(path, c->mountpoint)) {
		log_error("tier %s: lies below the mountpoint %s; choose a directory that outlives this machine", o->tier,
			  c->mountpoint);
		return -ELOOP;
	}
	if (path && inside(path, c->store)) {
		log_error("tier %s: lies inside the store %s; choose a directory that outlives this machine", o->tier,
			  c->store);
		return -ELOOP;
	}
	return 0;
}

/* Its contents are checked by ckptfs-compact. */
static int check_names(const struct options *o)
{
	if (o->compact_names && access(o->compact_names, R_OK) < 0)
		return log_errno(-errno, "option compact_names=%s: cannot read", o->compact_names);
	return 0;
}

static int check_kernel(void)
{
	struct utsname u;

	if (uname(&u) < 0 || kernel_suffices(u.release, KERNEL_MAJOR, KERNEL_MINOR))
		return 0;
	log_error("kernel: ckptfs needs Linux %d.%d or newer, and this is %s; update the kernel", KERNEL_MAJOR,
		  KERNEL_MINOR, u.release);
	return -ENOSYS;
}

static int check_device(void)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int r = fd < 0 ? -errno : 0;

	if (r == -EACCES && geteuid() != 0) /* libfuse opens it before it runs fusermount3 */
		log_error("/dev/fuse: not accessible for ordinary users; chmod 666 it, or mount as root");
	else if (r == -ENOENT || r == -ENODEV) {
		log_error("/dev/fuse: missing; modprobe fuse, and in a container pass this device");
		return -ENODEV;
	} else if (r < 0)
		log_errno(r, "/dev/fuse: cannot open");
	return r;
}

/* A store that does not exist yet will lie where its parent does. */
static void caution(const struct checks *c)
{
	_cleanup_(freep) char *copy = strdup(c->store);
	struct medium m;

	if (!copy || (medium_of(c->store, &m) < 0 && medium_of(dirname(copy), &m) < 0))
		return;
	medium_log_caution(c->store, &m);
}

int checks_run(const struct options *o, struct checks *ret)
{
	_cleanup_(checks_release) struct checks c = { 0 };
	int r;

	r = check_kernel();
	if (r == 0)
		r = check_mountpoint(o, &c.mountpoint);
	if (r == 0)
		r = check_store(o, &c.store);
	if (r == 0)
		r = check_apart(&c);
	if (r == 0)
		r = check_cluster(o, &c);
	if (r == 0)
		r = check_log(o, &c);
	if (r == 0)
		r = check_tier(o, &c);
	if (r == 0)
		r = check_names(o);
	if (r == 0)
		r = check_device();
	if (r < 0)
		return r;
	caution(&c);
	*ret = (struct checks){ TAKE(c.store), TAKE(c.mountpoint) };
	return 0;
}

int checks_run_without_store(const struct options *o, struct checks *ret)
{
	_cleanup_(checks_release) struct checks c = { 0 };
	int r = check_kernel();

	if (r == 0)
		r = check_mountpoint(o, &c.mountpoint);
	if (r == 0)
		r = check_log(o, &c);
	if (r == 0)
		r = check_device();
	if (r == 0)
		ret->mountpoint = TAKE(c.mountpoint);
	return r;
}

static int refuse_mounted(const struct checks *c, const struct mounts *m)
{
	log_error("store %s: in use: mounted on %s already; use that, or umount it first", c->store, m->point);
	return -EBUSY;
}

/* `said`: the beginning of the message. */
static void describe_wait(const struct checks *c, enum log_level level, const char *said)
{
	_cleanup_(buf_release) struct buf users = BUF_EMPTY;

	mounts_describe_users(c->store, 0, &users);
	log_line(level, "store %s: %s%s%.*s%s", c->store, said, users.len > 0 ? " (" : "", (int)users.len,
		 users.len > 0 ? (const char *)users.data : "", users.len > 0 ? ")" : "");
}

/* These signals are blocked, and handled once the store is mounted. */
static bool has_end_signal(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
}

int checks_await_store(const struct checks *c)
{
	uint64_t start = monotonic_ns();
	_cleanup_(freep) char *path = NULL;
	_cleanup_(closep) int fd = -1;
	bool said = false;

	if (asprintf(&path, "%s/superblock", c->store) < 0)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0; /* new, or other problems, which are reported when it is opened */
	while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
		_cleanup_(mounts_close) struct mounts m = { 0 };

		if (mounts_find(&m, c->store) > 0)
			return refuse_mounted(c, &m);
		if (has_end_signal()) {
			log_error("store %s: in use: interrupted while waiting for it to be closed", c->store);
			return -EINTR;
		}
		if (monotonic_ns() - start >= AWAIT_NS) {
			describe_wait(c, LOG_LEVEL_ERROR, "in use, but not mounted in this mount namespace");
			return -EBUSY;
		}
		if (!said && monotonic_ns() - start >= AWAIT_SILENT_NS) {
			describe_wait(c, LOG_LEVEL_NOTICE, "waiting up to 30 s for it to be closed");
			said = true;
		}
		nanosleep(&(struct timespec){ .tv_nsec = AWAIT_STEP_NS }, NULL);
	}
	return 0;
}
