#include "tools/run_mount.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/mounts.h"
#include "tools/run_process.h"
#include "tools/run_say.h"

#define TRIES 10 /* whoever has just ended may hold the mount for a moment */
#define TRY_AGAIN_NS 200000000

/* The store that is mounted on this path, of several the last; NULL: no ckptfs is. Caller frees. */
static char *find_mounted(const char *point)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	char *store = NULL;

	if (mounts_open(&m) < 0)
		return NULL;
	while (mounts_next(&m) > 0)
		if (strcmp(m.point, point) == 0) {
			free(store);
			store = strdup(m.store);
		}
	return store;
}

/* Interrupted half-way it would leave a mount that nobody knows of. */
static int call(const char *const argv[], bool silent, int *ret_status)
{
	const struct run_start s = {
		.argv = (char *const *)argv, .ours = true, .apart = true, .silent = silent, .in = 0, .out = 2
	};
	int r = run_process_call(&s, ret_status);

	return r < 0 ? run_complain_errno(r, "%s", argv[0]) : 0;
}

static int unmount(const struct run_mount *m, const char *flag, bool silent)
{
	const char *const argv[] = { "umount.ckptfs", flag, m->point, NULL };
	int status, r = call(argv, silent, &status);

	if (r < 0)
		return r;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

/* As it is in the list of mounts, without links and dots. Below a daemon that has died nothing can be looked up, so its
 * directory must do. */
static char *find_real(const char *path)
{
	char *real = realpath(path, NULL), *result = NULL;
	_cleanup_(freep) char *above = NULL, *copy = NULL, *other = NULL;

	if (real || errno != ENOTCONN)
		return real;
	copy = strdup(path);
	other = strdup(path);
	above = copy && other ? realpath(dirname(copy), NULL) : NULL;
	if (above && asprintf(&result, "%s/%s", above, basename(other)) < 0)
		return NULL;
	return result;
}

static int settle_point(struct run_mount *m)
{
	char *real;

	if (mkdir(m->point, 0700) == 0)
		m->made = true;
	else if (errno != EEXIST)
		return run_complain_errno(-errno, "mountpoint %s", m->point);
	real = find_real(m->point);
	if (!real)
		return run_complain_errno(-errno, "mountpoint %s", m->point);
	free(m->point);
	m->point = real;
	return 0;
}

static bool is_same_store(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* One that was there before: 1 use it, 0 none any more, <0 it is in the way. */
static int look_at_existing(struct run_mount *m, bool shared)
{
	_cleanup_(freep) char *store = find_mounted(m->point);

	if (!store)
		return shared ? run_complain_errno(-ENOENT, "%s: no ckptfs is mounted there, though --shared says so",
						   m->point) :
				0;
	if (run_mount_is_alive(m)) {
		if (shared) {
			free(m->store);
			m->store = TAKE(store);
			return 1;
		}
		run_complain("%s: %s is mounted there already; another job's? (--shared uses it, and leaves it)",
			     m->point, store);
		return -EBUSY;
	}
	if (shared || !is_same_store(store, m->store)) {
		run_complain("%s: the daemon of %s, mounted there, has died; umount.ckptfs %s", m->point, store,
			     m->point);
		return -ENOTCONN;
	}
	run_say("%s: was left mounted by a daemon that has died; unmounting it", m->point);
	return unmount(m, "-l", false);
}

static int mount_it(struct run_mount *m, const char *options)
{
	const char *const argv[] = { "mount.ckptfs", m->store, m->point, options ? "-o" : NULL, options, NULL };
	int status, r = call(argv, false, &status);

	if (r < 0)
		return r;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		run_complain("%s: could not be mounted on %s", m->store, m->point);
		return -EIO;
	}
	m->mounted = true;
	return 0;
}

int run_mount_begin(struct run_mount *m, const char *options, bool shared)
{
	int r = settle_point(m);

	if (r == 0)
		r = look_at_existing(m, shared);
	if (r == 0)
		r = mount_it(m, options);
	if (r < 0 && m->made)
		rmdir(m->point);
	return MIN(r, 0);
}

bool run_mount_is_alive(const struct run_mount *m)
{
	struct statfs s;

	return statfs(m->point, &s) == 0;
}

static bool is_mounted(const struct run_mount *m)
{
	_cleanup_(freep) char *store = find_mounted(m->point);

	return store;
}

/* Whoever is killed while he does so has started somebody else who goes on. */
static int unmount_alive(struct run_mount *m)
{
	const struct timespec again = { .tv_nsec = TRY_AGAIN_NS };

	for (int i = 1; unmount(m, "-n", i < TRIES) < 0 && is_mounted(m); i++) {
		if (i == TRIES) {
			run_complain("%s: detached; what uses it keeps its daemon, and the store, until it ends",
				     m->point);
			unmount(m, "-l", false);
			return -EBUSY;
		}
		nanosleep(&again, NULL);
	}
	return 0;
}

int run_mount_end(struct run_mount *m)
{
	int r = 0;

	if (!m->mounted)
		return 0;
	m->mounted = false;
	if (run_mount_is_alive(m)) {
		r = is_mounted(m) ? unmount_alive(m) : 0;
	} else {
		run_complain("%s: its daemon has died; %s has what was durable, and is sound at the next mount",
			     m->point, m->store);
		unmount(m, "-l", false);
		r = -ENOTCONN;
	}
	if (m->made && rmdir(m->point) < 0 && errno != ENOENT)
		run_complain_errno(-errno, "mountpoint %s", m->point);
	return r;
}

void run_mount_release(struct run_mount *m)
{
	free(TAKE(m->store));
	free(TAKE(m->point));
}
