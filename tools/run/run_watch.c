/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/run/run_mount.h"
#include "tools/run/run_process.h"
#include "tools/run/run_say.h"
#include "tools/stat/stat_ask.h"

#define NS_PER_S UINT64_C(1000000000)
#define LONG_NS (300 * NS_PER_S) /* a daemon that has lived this long did not die from recovery */
#define REMOUNTS 3

/* Opens a pidfd of the daemon, and then checks that it answers: so the pid was not reused. */
static int open_daemon(struct run_mount *m)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	int r = m->hangs ? -ETIMEDOUT : run_mount_figures(m, &a), fd;

	if (r < 0)
		return r;
	fd = (int)syscall(SYS_pidfd_open, (pid_t)json_flat_u64(&a.j, "pid"), 0);
	if (fd < 0)
		return -errno;
	r = run_mount_ask(m);
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

static void watch_daemon(struct run_watch *w)
{
	int fd = open_daemon(w->mount);

	w->daemon = fd < 0 ? -1 : fd;
	w->since_ns = monotonic_ns();
	if (fd < 0)
		run_complain_errno(fd, "%s: cannot watch its daemon", w->mount->point);
}

void run_watch_begin(struct run_watch *w, struct run_mount *m, enum run_on_death action)
{
	*w = (struct run_watch){ .mount = m, .action = action, .daemon = -1 };
	if (!m->mounted && action == RUN_REMOUNT)
		w->action = RUN_REPORT; /* --shared: ckptfs-run did not mount it */
	watch_daemon(w);
}

/* In a child process, which dies with ckptfs-run: the guard then unmounts, and nothing may mount after that. */
static void start_remount(struct run_watch *w)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(run_mount_again(w->mount) < 0);
	}
	if (pid < 0)
		run_complain_errno(-errno, "%s: cannot mount again", w->mount->point);
	else
		w->remounter = pid;
}

/* Chooses the action after a death; returns its description for the message. */
static const char *choose_action(struct run_watch *w, bool *ret_remount)
{
	bool lived_long = monotonic_ns() - w->since_ns >= LONG_NS;

	*ret_remount = false;
	w->nr_short = lived_long ? 1 : w->nr_short + 1;
	if (w->action == RUN_END_PROGRAM)
		return "ending the program";
	if (w->action == RUN_REPORT)
		return "the program continues without it";
	if (w->nr_short > REMOUNTS)
		return "it died repeatedly, not mounting it again";
	*ret_remount = true;
	return "mounting it again";
}

bool run_watch_look(struct run_watch *w)
{
	struct pollfd p = { .fd = w->daemon, .events = POLLIN };
	const char *what;
	bool remount;

	if (w->daemon < 0 || poll(&p, 1, 0) <= 0)
		return false;
	close(w->daemon);
	w->daemon = -1;
	if (!run_mount_is_there(w->mount)) {
		run_complain("%s: unmounted while the program is running", w->mount->point);
		return w->action == RUN_END_PROGRAM;
	}
	w->mount->nr_deaths++;
	what = choose_action(w, &remount);
	run_complain("%s: its daemon died; open files return errors, and %s has all durable data: %s",
		     w->mount->point, w->mount->store, what);
	if (remount)
		start_remount(w);
	return w->action == RUN_END_PROGRAM;
}

bool run_watch_reap(struct run_watch *w, pid_t pid, int status)
{
	if (w->remounter == 0 || pid != w->remounter)
		return false;
	w->remounter = 0;
	if (run_process_exit_status(status) != 0) {
		run_complain("%s: cannot mount again; the program continues without it", w->mount->point);
	} else {
		run_complain("%s: mounted again; files can be reopened", w->mount->point);
		watch_daemon(w);
	}
	return true;
}

void run_watch_settle(struct run_watch *w)
{
	int status;

	if (w->remounter > 0 && run_process_wait(w->remounter, &status) == 0)
		run_watch_reap(w, w->remounter, status);
}

void run_watch_end(struct run_watch *w)
{
	run_watch_look(w);
	run_watch_settle(w);
	closep(&w->daemon);
	w->daemon = -1;
}
