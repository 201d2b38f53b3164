/*
 * umount.ckptfs: unmount, and come back when everything is durable.
 *
 * umount(2) returns when the kernel has let go; the daemon then still writes, commits and closes its store. So: sync
 * first, so that an error is told while the mount is still there and nothing is lost; unmount; wait until the lock on
 * the store's superblock is free, which is the last thing the daemon lets go of.
 *
 * umount(8) finds this program as umount.fuse.ckptfs (the type in /proc/self/mounts), hence a link of that name.
 * Exit status as of umount(8): 0 done, 1 usage or permission, 2 system error, 32 failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/mounts.h"

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_SYSTEM = 2, EXIT_FAILED = 32 };

struct request {
	const char *path;
	bool lazy, force, verbose;
};

static void help(FILE *to)
{
	fputs("Usage: umount.ckptfs [-flnrv] MOUNTPOINT\n"
	      "Unmount a ckptfs and wait until everything written to it is durable.\n\n"
	      "  -l             detach now, end when the last user is gone; does not wait\n"
	      "  -f             unmount even if the data cannot be made durable first\n"
	      "  -v             say what is done\n"
	      "  -n, -r         accepted and without effect\n"
	      "  -h, --help     this text\n"
	      "  -V, --version  the version\n\n"
	      "Exit status: 0 unmounted and durable, 1 usage or permission, 2 system error, 32 failed.\n",
	      to);
}

static int refuse_not_mounted(const char *path)
{
	struct mounts m;

	if (mounts_find(&m, path) > 0)
		log_error("%s: a store, mounted on %s: umount.ckptfs %s", path, m.point, m.point);
	else
		log_error("%s: no ckptfs is mounted there; /proc/mounts lists what is", path);
	return -ENOENT;
}

/* The store mounted on `path`; of several the last, which lies on top. */
static int find_store(const char *path, char **ret)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	_cleanup_(freep) char *store = NULL;
	bool found = false;
	int r;

	r = mounts_open(&m);
	if (r < 0)
		return log_errno(r, "/proc/self/mounts");
	while (mounts_next(&m) > 0)
		if (strcmp(m.point, path) == 0) {
			found = true;
			free(store);
			store = strdup(m.store);
		}
	if (!found)
		return refuse_not_mounted(path);
	if (!store)
		return -ENOMEM;
	*ret = TAKE(store);
	return 0;
}

static int sync_mount(const struct request *req, const char *path)
{
	struct ckptfs_sync arg = { sizeof(arg), CKPTFS_IOC_VERSION };
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		/* A daemon that has died, or another user's mount: nothing to sync, or nobody to ask. */
		if (req->verbose)
			log_info("%s: cannot be synced first: %s", path, strerror(errno));
		return 0;
	}
	if (ioctl(fd, CKPTFS_IOC_SYNC, &arg) == 0)
		return 0;
	if (req->force) {
		log_warning("%s: not everything could be made durable (%s); unmounting as told", path, strerror(errno));
		return 0;
	}
	return log_errno(-errno, "%s: not unmounted, as not everything could be made durable (-f unmounts anyway)", path);
}

static int call_fusermount(const struct request *req, const char *path)
{
	const char *argv[] = { "fusermount3", "-u", req->lazy ? "-z" : "-q", "--", path, NULL };
	int status;
	pid_t child = fork();

	if (child < 0)
		return log_errno(-errno, "fork");
	if (child == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) < 0)
		return log_errno(-errno, "fusermount3");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	log_error("%s: fusermount3 could not unmount it; is it in use, or another user's?", path);
	return -EBUSY;
}

static int unmount(const struct request *req, const char *path)
{
	int flags = UMOUNT_NOFOLLOW | (req->lazy ? MNT_DETACH : 0) | (req->force ? MNT_FORCE : 0);

	if (geteuid() != 0)
		return call_fusermount(req, path);
	if (umount2(path, flags) == 0)
		return 0;
	if (errno == EBUSY) {
		log_error("%s: in use (fuser -vm %s tells by whom)", path, path);
		return -EBUSY;
	}
	return log_errno(-errno, "%s: cannot unmount", path);
}

/* Until the daemon has let go of its store. */
static int await_daemon(const struct request *req, const char *store)
{
	_cleanup_(freep) char *path = NULL;
	_cleanup_(closep) int fd = -1;

	if (asprintf(&path, "%s/superblock", store) < 0)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return log_errno(-errno, "%s: cannot wait for the daemon", path);
	if (req->verbose)
		log_info("%s: waiting until the daemon has closed it", store);
	if (TEMP_FAILURE_RETRY(flock(fd, LOCK_SH)) < 0)
		return log_errno(-errno, "%s: cannot wait for the daemon", path);
	return 0;
}

static int run(const struct request *req)
{
	_cleanup_(freep) char *path = realpath(req->path, NULL);
	_cleanup_(freep) char *store = NULL;
	int r;

	if (!path && errno == ENOTCONN)
		path = strdup(req->path); /* the daemon has died; the name as given must do */
	if (!path)
		return log_errno(-errno, "%s", req->path);
	r = find_store(path, &store);
	if (r == 0 && !req->lazy)
		r = sync_mount(req, path);
	if (r == 0)
		r = unmount(req, path);
	if (r < 0 || req->lazy)
		return r;
	return await_daemon(req, store);
}

/* 0: go on, 1: done. */
static int parse(int argc, char *argv[], struct request *ret)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "flnrvhVN:t:", longs, NULL)) != -1) {
		switch (c) {
		case 'f':
			ret->force = true;
			break;
		case 'l':
			ret->lazy = true;
			break;
		case 'v':
			ret->verbose = true;
			break;
		case 'h':
			help(stdout);
			return 1;
		case 'V':
			puts("umount.ckptfs " CKPTFS_VERSION);
			return 1;
		case 'n':
		case 'r':
		case 'N':
		case 't':
			break; /* umount(8) passes them on */
		default:
			fputs("umount.ckptfs --help tells the usage\n", stderr);
			return -EINVAL;
		}
	}
	if (optind != argc - 1) {
		help(stderr);
		return -EINVAL;
	}
	ret->path = argv[optind];
	return 0;
}

int main(int argc, char *argv[])
{
	struct request req = { 0 };
	int r;

	log_to_caller("umount.ckptfs");
	r = parse(argc, argv, &req);
	if (r == 0)
		r = run(&req);
	switch (r) {
	case 0:
	case 1:
		return EXIT_DONE;
	case -EINVAL:
	case -EPERM:
	case -EACCES:
		return EXIT_USAGE;
	case -ENOMEM:
		return EXIT_SYSTEM;
	default:
		return EXIT_FAILED;
	}
}
