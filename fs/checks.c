#include "fs/checks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/options.h"
#include "fs/protect.h"
#include "index/namespace.h"

#define AWAIT_TRIES 600
#define AWAIT_NS 50000000 /* 30 seconds in all */

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

/* Where `store` is mounted or, if that is NULL, which store lies on top at `point`; caller frees. NULL: none. */
static char *find_mount(const char *store, const char *point)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char *found = NULL, line[8192];
	struct mntent e;

	while (f && getmntent_r(f, &e, line, sizeof(line))) {
		if (strcmp(e.mnt_type, "fuse.ckptfs") != 0)
			continue;
		if (store ? strcmp(e.mnt_fsname, store) != 0 : strcmp(e.mnt_dir, point) != 0)
			continue;
		free(found);
		found = strdup(store ? e.mnt_dir : e.mnt_fsname);
	}
	if (f)
		endmntent(f);
	return found;
}

static int died(const char *mountpoint)
{
	log_error("mountpoint %s: the daemon of an earlier mount has died; umount it first", mountpoint);
	return -ENOTCONN;
}

/* A second mount on top of a first would hide it: nobody means that. */
static int check_not_mounted(const char *path, const struct stat *st)
{
	_cleanup_(freep) char *store = NULL;
	struct statfs fs;

	if (st->st_ino != NS_ROOT_INO || statfs(path, &fs) < 0 || fs.f_type != FUSE_SUPER_MAGIC)
		return 0;
	store = find_mount(NULL, path);
	log_error("mountpoint %s: %s is mounted there already; umount it first", path,
		  store ? store : "a FUSE filesystem");
	return -EBUSY;
}

static int check_empty(const char *path)
{
	_cleanup_(closedirp) DIR *d = opendir(path);
	struct dirent *e;

	if (!d && errno == ENOTCONN)
		return died(path);
	if (!d)
		return log_errno(-errno, "mountpoint %s: cannot look into it", path);
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
	int r;

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

/* The absolute path of a store that is still to be made. */
static int check_new_store(const struct options *o, char **ret)
{
	_cleanup_(freep) char *copy1 = strdup(o->store);
	_cleanup_(freep) char *copy2 = strdup(o->store);
	_cleanup_(freep) char *parent = NULL;

	if (!copy1 || !copy2)
		return -ENOMEM;
	if (o->engine.read_only) {
		log_error("store %s: does not exist, and a read-only mount does not make it", o->store);
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
		return log_errno(-errno, "store %s: cannot be made in %s", o->store, parent);
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

/* A store that is made without a key would be refused for ever once one is given. Of one that is there, the superblock
 * says. */
static int check_cluster(const struct options *o, const struct checks *c)
{
	const char *option = o->protect != PROTECT_NONE ? "protect" :
			     o->compact_group > 0	? "compact_group" :
			     o->agent			? "agent" :
							  NULL;
	_cleanup_(freep) char *superblock = NULL;

	if (o->protect != PROTECT_NONE && o->compact_group > 0)
		return log_errno(
			-EINVAL,
			"options protect= and compact_group=: one of them; with replicas=2 a group has two collectors, and each of them has all of it");
	if (!option || o->cluster)
		return 0;
	if (asprintf(&superblock, "%s/superblock", c->store) < 0)
		return -ENOMEM;
	if (access(superblock, F_OK) == 0)
		return 0;
	log_error("option %s=: store %s is to be made, and is one of a cluster only with cluster=KEYFILE; nothing was made",
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

/* A log on the mount itself would keep it in use for ever, and whoever logs waiting for the daemon, which is itself. */
static int check_log(const struct options *o, const struct checks *c)
{
	_cleanup_(freep) char *copy = o->log ? strdup(o->log) : NULL;
	_cleanup_(freep) char *path = o->log ? realpath(o->log, NULL) : NULL;

	if (!o->log)
		return 0;
	if (!copy)
		return -ENOMEM;
	if (!path)
		path = realpath(dirname(copy), NULL); /* it is still to be made */
	if (path && inside(path, c->mountpoint)) {
		log_error("log %s: lies below the mountpoint %s; choose another place", o->log, c->mountpoint);
		return -ELOOP;
	}
	return 0; /* what else is wrong with it is told when it is opened */
}

/* What is in it is for ckptfs-compact to judge. */
static int check_names(const struct options *o)
{
	if (o->compact_names && access(o->compact_names, R_OK) < 0)
		return log_errno(-errno, "option compact_names=%s: cannot be read", o->compact_names);
	return 0;
}

static int check_device(void)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	if (errno == EACCES && geteuid() != 0) /* libfuse opens it before it calls fusermount3 */
		return log_errno(-errno,
				 "/dev/fuse: not for plain users on this machine; chmod 666 it, or mount as root");
	if (errno == ENOENT || errno == ENODEV)
		return log_errno(-errno, "/dev/fuse: the kernel has no FUSE; modprobe fuse");
	return log_errno(-errno, "/dev/fuse: cannot open");
}

int checks_run(const struct options *o, struct checks *ret)
{
	_cleanup_(checks_release) struct checks c = { 0 };
	int r;

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
		r = check_names(o);
	if (r == 0)
		r = check_device();
	if (r < 0)
		return r;
	*ret = (struct checks){ TAKE(c.store), TAKE(c.mountpoint) };
	return 0;
}

int checks_await_store(const struct checks *c)
{
	_cleanup_(freep) char *path = NULL, *point = NULL;
	_cleanup_(closep) int fd = -1;

	if (asprintf(&path, "%s/superblock", c->store) < 0)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0; /* new, or what is wrong with it will be told when it is opened */
	for (unsigned i = 0; i < AWAIT_TRIES && flock(fd, LOCK_SH | LOCK_NB) < 0; i++) {
		point = find_mount(c->store, NULL);
		if (point) {
			log_error("store %s: in use: mounted on %s already; use that, or umount it first", c->store,
				  point);
			return -EBUSY;
		}
		if (i == 0)
			log_info("store %s: waiting for the daemon of an earlier mount to finish", c->store);
		nanosleep(&(struct timespec){ .tv_nsec = AWAIT_NS }, NULL);
	}
	return 0;
}
