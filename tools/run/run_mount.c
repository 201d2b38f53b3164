/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_mount.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/mounts.h"
#include "base/util.h"
#include "tools/run/run_process.h"
#include "tools/run/run_say.h"
#include "tools/stat/stat_ask.h"

#define ANSWER_NS UINT64_C(60000000000) /* the default of umount.ckptfs --timeout */
#define STOP_NS UINT64_C(5000000000) /* for work that has been told to stop */

/* Signals to the process group of ckptfs-run do not interrupt it. `death_signal`: as in struct run_start. */
static int call(const char *const argv[], int death_signal, int *ret_status)
{
	const struct run_start s = { .argv = (char *const *)argv,
				     .ours = true,
				     .apart = true,
				     .in = 0,
				     .out = 2,
				     .death_signal = death_signal };
	int r = run_process_call(&s, ret_status);

	return r < 0 ? run_complain_errno(r, "%s", argv[0]) : 0;
}

static int unmount(const struct run_mount *m, const char *flag)
{
	const char *const argv[] = { "umount.ckptfs", flag, m->point, NULL };
	int status, r = call(argv, 0, &status);

	if (r < 0)
		return r;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

/*
 * Such as a link in /tmp, on any node of a job. The kernel's protection does not cover it: realpath(3) only reads
 * links.
 */
static bool is_link_of_other(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != geteuid() && st.st_uid != 0;
}

static int settle_point(struct run_mount *m)
{
	char *real;

	if (mkdir(m->point, 0700) == 0)
		m->made = true;
	else if (errno != EEXIST)
		return run_complain_errno(-errno, "mountpoint %s", m->point);
	if (!m->made && is_link_of_other(m->point))
		return run_complain_cause(
			-EPERM, "mountpoint %s: is a symbolic link of another user; give another --mount", m->point);
	real = mounts_real_path(m->point);
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

/* An existing mount on the mountpoint: 1: use it, 0: none, or unmounted, <0: it is in the way. */
static int look_at_existing(struct run_mount *m, bool shared)
{
	_cleanup_(mounts_close) struct mounts there = { 0 };
	int r;

	if (mounts_find_point(&there, m->point) <= 0)
		return shared ? run_complain_cause(-ENOENT, "%s: --shared, but no ckptfs is mounted there; mount it first",
						   m->point) :
				0;
	r = run_mount_ask(m);
	if (r == -ETIMEDOUT) {
		run_complain("%s: %s is mounted there; umount.ckptfs -l %s detaches it", m->point, there.store, m->point);
		return r;
	}
	if (r == 0) {
		if (shared) {
			free(m->store);
			m->store = strdup(there.store);
			return m->store ? 1 : -ENOMEM;
		}
		run_complain("%s: %s is mounted there already, perhaps by another job (--shared uses it and leaves it mounted)",
			     m->point, there.store);
		return -EBUSY;
	}
	if (shared || !is_same_store(there.store, m->store)) {
		run_complain("%s: the daemon of %s, mounted there, has died; umount.ckptfs %s", m->point, there.store,
			     m->point);
		return -ENOTCONN;
	}
	run_say("%s: unmounting the mount of a dead daemon", m->point);
	return unmount(m, "-l");
}

static int mount_it(struct run_mount *m)
{
	const char *const argv[] = { "mount.ckptfs", m->store, m->point, m->options ? "-o" : NULL, m->options, NULL };
	int status, r = call(argv, SIGTERM, &status); /* leaves no mount if this process is killed meanwhile */

	if (r < 0)
		return r;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		if (!WIFEXITED(status) || run_say_is_of_several()) /* mount.ckptfs has said why, but not where */
			run_complain("%s: cannot mount on %s", m->store, m->point);
		return -EIO;
	}
	m->mounted = true;
	return 0;
}

/*
 * Nothing is mounted there. The owner of a directory can move it away with what is mounted on it, from a mount
 * namespace of its own, and have the program use another directory in its place. In a directory with the sticky bit,
 * such as /tmp, any user may have made it; elsewhere the path was prepared for the caller.
 */
static int check_point(const struct run_mount *m)
{
	_cleanup_(freep) char *above = NULL;
	struct stat st, top;

	if (m->made)
		return 0;
	if (asprintf(&above, "%s/..", m->point) < 0) {
		above = NULL;
		return -ENOMEM;
	}
	if (lstat(m->point, &st) < 0 || lstat(above, &top) < 0)
		return run_complain_errno(-errno, "mountpoint %s", m->point);
	if (top.st_mode & S_ISVTX && st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != top.st_uid)
		return run_complain_cause(-EPERM, "mountpoint %s: belongs to another user; give another --mount",
					  m->point);
	return 0;
}

int run_mount_begin(struct run_mount *m, bool shared)
{
	int r = settle_point(m);

	if (r == 0)
		r = look_at_existing(m, shared);
	if (r == 0)
		r = check_point(m);
	if (r == 0)
		r = mount_it(m);
	if (r < 0 && m->made)
		rmdir(m->point);
	return MIN(r, 0);
}

static void report_wait(const void *point)
{
	run_complain("%s: waiting for its daemon to answer", (const char *)point);
}

int run_mount_ask(struct run_mount *m)
{
	int r = mounts_ask(m->point, monotonic_ns() + ANSWER_NS, report_wait);

	m->hangs = r == -ETIMEDOUT;
	if (m->hangs)
		run_complain("%s: its daemon does not answer", m->point);
	return r == 0 || m->hangs ? r : -ENOTCONN;
}

int run_mount_figures(struct run_mount *m, struct stat_answer *ret)
{
	int r = stat_ask_until(m->point, monotonic_ns() + ANSWER_NS, ret);

	m->hangs = r == -ETIMEDOUT;
	if (m->hangs)
		run_complain("%s: its daemon does not answer", m->point);
	return r;
}

struct worker {
	const struct run_work *work;
	atomic_bool *stop; /* shared */
	uint64_t *end_ns; /* in this process; UINT64_MAX: the work may go on */
	struct mounts_patience *patience;
};

static void do_work(const void *arg, void *ret)
{
	const struct worker *k = arg;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	*(int *)ret = k->work->work(k->work->arg, k->stop);
}

static bool may_wait(const void *arg)
{
	const struct worker *k = arg;
	uint64_t now = monotonic_ns();

	if (!*k->stop && k->work->is_stopped(k->work->arg))
		*k->stop = true;
	if (*k->end_ns == UINT64_MAX && (*k->stop || now >= k->work->until_ns))
		*k->end_ns = now + STOP_NS;
	return now < *k->end_ns && mounts_answers(k->patience);
}

int run_mount_work(struct run_mount *m, const struct run_work *w)
{
	struct mounts_patience patience = { .point = m->point, .wait_ns = ANSWER_NS, .report = report_wait };
	atomic_bool *stop = mmap(NULL, sizeof(*stop), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t end_ns = UINT64_MAX;
	const struct worker k = { w, stop, &end_ns, &patience };
	const struct apart a = { .call = do_work, .arg = &k, .go_on = may_wait };
	int result, r;

	if (stop == MAP_FAILED)
		return run_complain_errno(-errno, "%s", m->point);
	r = apart_call(&a, &result, sizeof(result));
	munmap(stop, sizeof(*stop));
	if (r == 0 && monotonic_ns() >= end_ns)
		return run_complain_cause(-ETIME, "copying out does not end: the destination does not answer");
	m->hangs = r == 0;
	if (m->hangs)
		run_complain("%s: its daemon does not answer any more", m->point);
	else if (r < 0)
		run_complain_errno(r, "%s", m->point);
	return r > 0 ? result : r == 0 ? -ETIMEDOUT : r;
}

bool run_mount_is_there(const struct run_mount *m)
{
	_cleanup_(mounts_close) struct mounts there = { 0 };

	return mounts_find_point(&there, m->point) > 0;
}

/* umount.ckptfs continues if this process is killed meanwhile. */
static int unmount_alive(struct run_mount *m)
{
	int r = unmount(m, "-n");

	if (r < 0 && run_mount_is_there(m)) {
		run_complain("%s: cannot unmount: detached; its daemon keeps the store open until the last user ends",
			     m->point);
		unmount(m, "-l");
	}
	return r;
}

int run_mount_again(struct run_mount *m)
{
	if (run_mount_is_there(m) && unmount(m, "-l") < 0)
		return -EBUSY;
	return mount_it(m);
}

int run_mount_end(struct run_mount *m)
{
	int r;

	if (!m->mounted)
		return 0;
	m->mounted = false;
	r = m->hangs ? -ETIMEDOUT : run_mount_ask(m);
	if (r == 0) {
		r = run_mount_is_there(m) ? unmount_alive(m) : 0;
	} else if (r == -ETIMEDOUT) {
		run_complain("%s: detached; if its daemon resumes, it makes all accepted data durable", m->point);
		unmount(m, "-l");
	} else {
		run_complain("%s: its daemon died; %s has all durable data, and the next mount recovers it",
			     m->point, m->store);
		unmount(m, "-l");
	}
	if (r == 0 && m->nr_deaths > 0) {
		run_complain("%s: its daemon died: data that was not durable is lost", m->point);
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
