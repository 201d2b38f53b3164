/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/watchdog.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/text.h"
#include "base/util.h"

#define FIRST_ASK_NS UINT64_C(200000000) /* most commands have ended by then */
#define ASK_AGAIN_NS UINT64_C(2000000000)
#define SILENT_NS UINT64_C(2000000000)
#define LIMIT_NS UINT64_C(60000000000) /* the default of umount.ckptfs --timeout */
#define STEP_MAX_NS UINT64_C(100000000) /* what one step counts at most: processes may be stopped meanwhile (Ctrl-Z) */

struct watchdog {
	const char *tool;
	pid_t worker;
	sigset_t passed_on; /* and SIGCHLD; blocked */
	int caught; /* the last signal for the command since the daemon answered; 0: none */
	uint64_t last_ns, waited_ns; /* of one question */
	bool reported;
	char other[PATH_MAX]; /* the path that is not on a FUSE filesystem: patience with others is not ours to limit */
};

static char (*shared_path)[PATH_MAX]; /* the child process writes it; NULL: there is none */

void watchdog_set_path(const char *path)
{
	if (shared_path)
		snprintf(*shared_path, sizeof(*shared_path), "%s", path);
}

static bool worker_has_ended(const struct watchdog *w)
{
	siginfo_t info = { .si_pid = 0 };

	return waitid(P_PID, (id_t)w->worker, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0;
}

/* Passes on one signal, if there is one in this time. The kernel sends those of a terminal to both processes. */
static void pass_signal_on(struct watchdog *w, uint64_t ns)
{
	const struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
	siginfo_t info;
	int signal = sigtimedwait(&w->passed_on, &info, &ts);

	if (signal <= 0 || signal == SIGCHLD)
		return;
	w->caught = signal;
	if (info.si_code <= 0)
		kill(w->worker, signal);
}

/* As mounts_ask(), of a path that changes. */
static void ask(const void *arg _unused_, void *ret)
{
	struct statfs s;

	*(bool *)ret = statfs(*shared_path, &s) == 0 && s.f_type != FUSE_SUPER_MAGIC;
}

static bool may_wait(const void *arg)
{
	struct watchdog *w = *(struct watchdog *const *)arg;
	uint64_t now = monotonic_ns();

	w->waited_ns += MIN(now - w->last_ns, STEP_MAX_NS);
	w->last_ns = now;
	pass_signal_on(w, 0);
	if (w->waited_ns >= SILENT_NS && !w->reported) {
		text_printf(stderr, "%s: %s: waiting for its daemon to answer\n", w->tool, *shared_path);
		w->reported = true;
	}
	return !worker_has_ended(w) && w->waited_ns < (w->caught ? SILENT_NS : LIMIT_NS);
}

/* false: it has not answered in time, although the command needs it. */
static bool daemon_answers(struct watchdog *w)
{
	const struct apart a = { .call = ask, .arg = &w, .go_on = may_wait };
	bool is_other = false;
	int r;

	if (strcmp(w->other, *shared_path) == 0)
		return true;
	w->last_ns = monotonic_ns();
	w->waited_ns = 0;
	w->reported = false;
	r = apart_call(&a, &is_other, sizeof(is_other));
	if (r > 0)
		w->caught = 0; /* the command itself ends then, or not */
	if (r > 0 && is_other)
		snprintf(w->other, sizeof(w->other), "%s", *shared_path);
	return r != 0 || worker_has_ended(w);
}

static _Noreturn void end_by_signal(int number)
{
	sigset_t only;

	signal(number, SIG_DFL);
	sigemptyset(&only);
	sigaddset(&only, number);
	raise(number);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	_exit(128 + number);
}

static _Noreturn void end_as_worker(const struct watchdog *w)
{
	int status;

	if (TEMP_FAILURE_RETRY(waitpid(w->worker, &status, 0)) < 0)
		_exit(EXIT_FAILURE);
	if (WIFSIGNALED(status)) {
		prctl(PR_SET_DUMPABLE, 0); /* one core file will do */
		end_by_signal(WTERMSIG(status));
	}
	_exit(WEXITSTATUS(status));
}

static _Noreturn void watch(struct watchdog *w, int exit_failed)
{
	uint64_t next_ns = monotonic_ns() + FIRST_ASK_NS, now;

	while (!worker_has_ended(w)) {
		now = monotonic_ns();
		if (now < next_ns) {
			pass_signal_on(w, next_ns - now);
			continue;
		}
		if (!daemon_answers(w)) {
			text_printf(stderr,
				    "%s: %s: its daemon does not answer; kill it and mount again, or umount.ckptfs -l\n",
				    w->tool, *shared_path);
			kill(w->worker, SIGKILL); /* not waited for: it may not end before the daemon answers */
			if (w->caught)
				end_by_signal(w->caught);
			_exit(exit_failed);
		}
		next_ns = monotonic_ns() + ASK_AGAIN_NS;
	}
	end_as_worker(w);
}

/* Also those that are ignored here, as SIGINT by a shell's background jobs: the command may catch them. */
static void choose_signals(sigset_t *ret)
{
	static const int numbers[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM };

	sigemptyset(ret);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		sigaddset(ret, numbers[i]);
}

void watchdog_begin(const char *tool, const char *path, int exit_failed)
{
	struct watchdog w = { .tool = tool };
	pid_t first = getpid();
	sigset_t before;

	shared_path = mmap(NULL, sizeof(*shared_path), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_path == MAP_FAILED)
		shared_path = NULL;
	if (!shared_path)
		return;
	watchdog_set_path(path);
	fflush(NULL);
	choose_signals(&w.passed_on);
	sigprocmask(SIG_BLOCK, &w.passed_on, &before);
	w.worker = fork();
	if (w.worker > 0) {
		signal(SIGCHLD, SIG_DFL);
		watch(&w, exit_failed);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (w.worker == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != first)
			_exit(exit_failed);
	}
}
