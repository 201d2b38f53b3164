/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-run: runs a program with its own mount. It mounts a store on each node of the job, starts agents if the stores
 * form a cluster, and runs the program. When the program has ended, by itself or because the time is up, it copies out
 * sealed checkpoints, the newest first, unmounts, and reports what was stored.
 *
 * Nothing is left mounted:
 *
 *   program killed            as if it had ended
 *   daemon dies               reported at once; by default the store is mounted again (--on-daemon-death, run_watch.h)
 *   daemon hangs              reported; after a minute the mount is detached, and nothing is copied out
 *   processes of the program  SIGTERM, and after --grace SIGKILL; in another session only those that use the mount
 *   are left                  (run_process.h). If other processes use the mount, it is detached.
 *   ckptfs-run killed         the program gets SIGTERM; the guard process (run_guard.h), or the holder on each node
 *                             (run_nodes.h), unmounts
 *   all of these killed       a mount is left; if its daemon has died, too, the next ckptfs-run with this store
 *                             detaches it
 *
 * Exit status: that of the program, or 128 plus the signal that ended it; 125 ckptfs-run itself failed, 126 the program
 * cannot be run, 127 no such program, 1 usage.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/conf.h"
#include "base/util.h"
#include "tools/run/run_flush.h"
#include "tools/run/run_guard.h"
#include "tools/run/run_job.h"
#include "tools/run/run_mount.h"
#include "tools/run/run_nodes.h"
#include "tools/run/run_process.h"
#include "tools/run/run_request.h"
#include "tools/run/run_say.h"
#include "tools/run/run_watch.h"
#include "tools/seal/seals.h"
#include "tools/stat/stat_ask.h"

#define TOOL "ckptfs-run"
#define NS_PER_S UINT64_C(1000000000)
#define UNMOUNT_NS (10 * NS_PER_S) /* reserved for unmounting; at most half of --signal-before */
#define AGENTS_WAIT_NS (30 * NS_PER_S)
#define AGENTS_STEP_NS 20000000

enum exit_status { EXIT_DONE = 0, EXIT_OURS = RUN_EXIT_OURS, EXIT_NOT_EXECUTABLE = 126, EXIT_NO_PROGRAM = 127 };

/* One mount, from before the program starts until after it has ended. */
struct session {
	struct run_mount mount;
	char *flush_to; /* NULL: do not copy out */
	uint64_t start_ns; /* since 1970 */
	uint64_t written, new; /* bytes, before the program started */
	uint64_t flush_until_ns;
	bool (*is_stopped)(const struct run_request *q); /* true: stop copying out */
	const atomic_bool *stop; /* likewise, in the process that copies out */
	const struct run_request *q;
};

/* --- requests to end --- */

/* Is a signal to end pending? While copying out, it is the second one: the first ended the program. */
static bool is_signalled(_unused_ const struct run_request *q)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
}

static bool is_end_said(const struct run_request *q)
{
	return run_nodes_is_end_said(q->mode == RUN_HOLD_BY_SIGNAL);
}

/* --- the mount --- */

static void read_figures(struct run_mount *m, uint64_t *written, uint64_t *new)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };

	*written = *new = 0;
	if (run_mount_figures(m, &a) < 0)
		return;
	*written = json_flat_u64(&a.j, "written_bytes");
	*new = json_flat_u64(&a.j, "written_by_cause.new_bytes");
}

/* Creates the last directory of the path only: if its parent is missing, the parallel filesystem may not be mounted.
 * 1: created, 0: existed. */
static int make_flush_to(const char *to)
{
	_cleanup_(closep) int fd = -1;
	int r = mkdir(to, 0777) < 0 ? -errno : 0;

	if (r == -ENOENT) {
		run_complain("--flush-to %s: its parent directory does not exist; mkdir it first", to);
		return r;
	}
	if (r < 0 && r != -EEXIST)
		return run_complain_errno(r, "--flush-to %s", to);
	fd = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || faccessat(fd, ".", W_OK | X_OK, 0) < 0)
		return run_complain_errno(-errno, "--flush-to %s", to);
	return r == 0;
}

/* Is a directory `in`, or below it? False if `in` does not exist. */
static bool lies_in(const char *path, const char *in)
{
	_cleanup_(closep) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat here, last = { 0 };
	struct statx want;

	/* The daemon of `in` may hang: use the attributes that the kernel has cached. */
	if (fd < 0 || !in || statx(AT_FDCWD, in, AT_STATX_DONT_SYNC, STATX_INO, &want) < 0)
		return false;
	while (fstat(fd, &here) == 0 && (here.st_dev != last.st_dev || here.st_ino != last.st_ino)) {
		int above = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		close(fd);
		fd = above;
		if (here.st_dev == makedev(want.stx_dev_major, want.stx_dev_minor) && here.st_ino == want.stx_ino)
			return true;
		last = here;
	}
	return false;
}

/* Refuses a destination inside the mount or the store. Removes it if it was created: a mountpoint must be empty. */
static int check_flush_to(const struct session *s, bool made)
{
	const char *what = lies_in(s->flush_to, s->mount.point) ? "the mount" :
			   lies_in(s->flush_to, s->mount.store) ? "the store" :
								  NULL;

	if (!what)
		return 0;
	if (made)
		rmdir(s->flush_to);
	run_complain("--flush-to %s: is in %s; choose a directory of another filesystem", s->flush_to, what);
	return -EINVAL;
}

static void prepare_flush_to(const void *session, void *ret)
{
	const struct session *s = session;
	int r = make_flush_to(s->flush_to);

	*(int *)ret = r < 0 ? r : check_flush_to(s, r > 0);
}

static void report_wait(const void *session)
{
	const struct session *s = session;

	run_complain("--flush-to %s: waiting for its filesystem to answer", s->flush_to);
}

static bool may_wait(const void *session)
{
	const struct session *s = session;

	return monotonic_ns() < s->q->until_ns && !(s->q->mode == RUN ? is_signalled(s->q) : is_end_said(s->q));
}

/* In a child process, because the filesystem of the destination may hang. */
static int await_flush_to(const struct session *s)
{
	const struct apart a = { .call = prepare_flush_to, .report = report_wait, .arg = s, .go_on = may_wait };
	int result, r = apart_call(&a, &result, sizeof(result));

	if (r == 0)
		return run_complain_cause(-ETIMEDOUT, "--flush-to %s: stopped: its filesystem does not answer",
					  s->flush_to);
	return r < 0 ? run_complain_errno(r, "--flush-to %s", s->flush_to) : result;
}

/* Fails before the program runs if copying out cannot work, as far as that can be checked. */
static int session_begin(const struct run_request *q, struct session *s)
{
	int r = run_job_expand(&q->job, q->store, &s->mount.store);

	s->mount.options = q->options;
	if (r == 0)
		r = run_job_expand(&q->job, q->mount, &s->mount.point);
	if (r == 0 && q->flush_to)
		r = run_job_expand(&q->job, q->flush_to, &s->flush_to);
	if (r == 0 && s->flush_to)
		r = await_flush_to(s);
	if (r == 0)
		r = run_mount_begin(&s->mount, q->shared);
	if (r < 0)
		return r;
	s->start_ns = now_ns();
	s->flush_until_ns = q->until_ns == RUN_NEVER ? RUN_NEVER : q->until_ns - MIN(UNMOUNT_NS, q->signal_before_ns / 2);
	read_figures(&s->mount, &s->written, &s->new);
	return 0;
}

static void session_end(struct session *s)
{
	run_mount_release(&s->mount);
	free(s->flush_to);
}

static bool may_flush(void *userdata)
{
	const struct session *s = userdata;

	return monotonic_ns() < s->flush_until_ns && !*s->stop;
}

static int flush(struct session *s, const struct seals *seals)
{
	const struct run_flush d = { .mountpoint = s->mount.point, .to = s->flush_to, .go_on = may_flush, .userdata = s };
	int r = make_flush_to(s->flush_to);

	return r < 0 ? r : run_flush_seals(&d, seals);
}

static void report(struct session *s, const struct seals *seals)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	const struct sealed *newest = seals->nr > 0 ? &seals->v[seals->nr - 1] : NULL;
	uint64_t written, new;
	size_t sealed = 0;

	while (sealed < seals->nr && (uint64_t)seals->v[seals->nr - 1 - sealed].sealed_ns >= s->start_ns)
		sealed++;
	read_figures(&s->mount, &written, &new);
	if (s->mount.nr_deaths == 0) { /* a new daemon counts from 0 */
		written -= MIN(written, s->written);
		new -= MIN(new, s->new);
	}
	new = MIN(new, written); /* new bytes are counted in whole pages */
	run_say("written%s: %s, new: %s (%.1f %%)", s->mount.nr_deaths > 0 ? " since it was mounted again" : "",
		human_size(written).s, human_size(new).s, written > 0 ? 100.0 * (double)new / (double)written : 0.0);
	if (run_mount_figures(&s->mount, &a) == 0)
		run_say("%s stores %s of files in %s", s->mount.store, human_size(json_flat_u64(&a.j, "logical_bytes")).s,
			human_size(json_flat_u64(&a.j, "disk_bytes")).s);
	if (!newest)
		run_say("no sealed checkpoints");
	else
		run_say("%s, %zu of them new; the newest is %s", human_nr(seals->nr, "sealed checkpoint").s, sealed,
			newest->path[0] ? newest->path : "the whole mount");
}

static int flush_and_report(void *session, const atomic_bool *stop)
{
	struct session *s = session;
	_cleanup_(closep) int fd = open(s->mount.point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(seals_release) struct seals seals = { 0 };
	int r = fd < 0 ? -errno : seals_ask(fd, &seals);

	s->stop = stop;
	if (r < 0 && run_mount_ask(&s->mount) < 0)
		return r; /* run_mount_end() reports the death */
	if (r < 0)
		run_complain_errno(r, "%s: cannot list sealed checkpoints", s->mount.point);
	if (r == 0 && s->flush_to)
		r = flush(s, &seals);
	report(s, &seals);
	return r;
}

static bool is_stopped(void *session)
{
	const struct session *s = session;

	return s->is_stopped && s->is_stopped(s->q);
}

/* Called while agents run: data to copy out may be on other nodes. */
static int end_work(struct session *s)
{
	const struct run_work w = { flush_and_report, is_stopped, s->flush_until_ns, s };
	int r = run_mount_ask(&s->mount);

	return r < 0 ? r : run_mount_work(&s->mount, &w);
}

/* --- the program --- */

static bool is_end(int signal)
{
	return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

/* A timeout for poll(2). */
static int ms_until(uint64_t when_ns)
{
	uint64_t now = monotonic_ns(), left = when_ns <= now ? 0 : MIN(when_ns - now, 3600 * NS_PER_S);

	return (int)((left + 999999) / 1000000);
}

/* Reaps ended children. Reports launchers that end before the program. 1: the program has ended. */
static int reap(pid_t program, struct run_nodes *n, struct run_watch *w, int *ret_status)
{
	int status, result = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == program) {
			*ret_status = status;
			result = 1;
		} else if (pid == n->agents) {
			run_complain("the agents have ended; from now on each node stores all of its data itself");
			n->agents = 0;
		} else if (pid == n->holders) {
			run_complain("the mounts on the nodes ended before the program");
			n->holders = 0;
		} else {
			run_watch_reap(w, pid, status);
		}
	}
	return result;
}

/* Waits until `until_ns` for a signal, the end of the daemon, or output of other nodes. Returns the signal, or 0. */
static int await_event(int signals, const struct run_nodes *n, const struct run_watch *w, uint64_t until_ns)
{
	struct pollfd p[] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = w->daemon, .events = POLLIN },
		{ .fd = n->output_ended ? -1 : n->output, .events = POLLIN },
	};
	struct signalfd_siginfo info;

	if (poll(p, ARRAY_SIZE(p), ms_until(until_ns)) <= 0 || !(p[0].revents & POLLIN))
		return 0;
	return read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

/* Waits until the program has ended, and ends it if necessary. Returns its status of wait(2). */
static int supervise(const struct run_request *q, struct run_nodes *n, struct run_watch *w, int signals, pid_t program)
{
	uint64_t warn_ns = q->until_ns == RUN_NEVER ? RUN_NEVER : q->until_ns - MIN(q->signal_before_ns, q->until_ns),
		 kill_ns = RUN_NEVER;
	int status = 0, signal;

	if (q->signal_before_ns == 0)
		warn_ns = RUN_NEVER;
	while (!reap(program, n, w, &status)) {
		signal = await_event(signals, n, w, MIN(warn_ns, kill_ns));
		if (run_watch_look(w) || run_nodes_look(n))
			signal = signal == 0 || signal == SIGCHLD ? SIGTERM : signal;
		if (signal == 0 && monotonic_ns() >= warn_ns) {
			run_say("time is nearly up: ending the program");
			signal = SIGTERM;
		}
		if (signal > 0 && signal != SIGCHLD)
			kill(-program, signal == SIGTERM ? q->signal : signal);
		if (signal > 0 && is_end(signal)) {
			kill_ns = MIN(kill_ns, monotonic_ns() + q->grace_ns);
			warn_ns = RUN_NEVER;
		}
		if (monotonic_ns() >= kill_ns) {
			run_complain("the program still runs, %" PRIu64 " s after the signal to end: killing it",
				     q->grace_ns / NS_PER_S);
			kill(-program, SIGKILL);
			kill_ns = RUN_NEVER;
		}
	}
	return status;
}

/* `k` may be NULL. */
static int run_program(const struct run_request *q, struct run_nodes *n, const struct run_guard *k, struct run_watch *w,
		       const sigset_t *signals, const char *store, const char *mount)
{
	_cleanup_(closep) int signal_fd = signalfd(-1, signals, SFD_CLOEXEC);
	const struct run_start s = { .argv = q->program, .group = true, .in = 0, .out = 1, .death_signal = SIGTERM };
	pid_t program;
	int r, status;

	if (signal_fd < 0) {
		run_complain_errno(-errno, "signals");
		return EXIT_OURS;
	}
	setenv("CKPTFS_STORE", store, 1);
	setenv("CKPTFS_MOUNT", mount, 1);
	r = run_process_start(&s, &program);
	if (r < 0) {
		run_say_no_more(); /* figures would hide the reason */
		if (r == -ENOENT && !strchr(q->program[0], '/'))
			run_complain("%s: not found in PATH; give its path", q->program[0]);
		else
			run_complain_errno(r, "%s", q->program[0]);
		return r == -ENOENT ? EXIT_NO_PROGRAM : EXIT_NOT_EXECUTABLE;
	}
	if (k)
		run_guard_set_program(k, program);
	status = supervise(q, n, w, signal_fd, program);
	if (run_process_end_left(&(struct run_left){ program, mount }, q->grace_ns))
		run_say("terminated processes that the program left behind");
	run_process_foreground(getpgrp());
	if (WIFSIGNALED(status))
		run_complain("%s: ended by signal %d (%s)", q->program[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
	return run_process_exit_status(status);
}

static int run_here(const struct run_request *q, const sigset_t *signals)
{
	struct run_nodes no_nodes = RUN_NODES_NONE;
	struct session s = { .is_stopped = is_signalled, .q = q };
	struct run_guard guard = { 0 };
	struct run_watch watch = RUN_WATCH_NONE;
	int status = EXIT_OURS, r, e;

	if (session_begin(q, &s) == 0) {
		r = run_guard_start(&guard, &s.mount, q->grace_ns);
		run_watch_begin(&watch, &s.mount, q->on_death);
		if (r == 0)
			status = run_program(q, &no_nodes, &guard, &watch, signals, s.mount.store, s.mount.point);
		run_watch_end(&watch);
		r = end_work(&s);
		e = run_mount_end(&s.mount);
		run_guard_end(&guard);
		if ((r < 0 || e < 0) && status == 0)
			status = EXIT_OURS;
	}
	session_end(&s);
	return status;
}

/* --- on several nodes --- */

#define NR_ARGUMENTS 16

struct arguments {
	char *v[NR_ARGUMENTS + 1]; /* ends with NULL */
	size_t nr;
	bool is_short; /* out of memory: an argument is missing */
};

static void arguments_release(struct arguments *a)
{
	for (size_t i = 0; i < a->nr; i++)
		free(a->v[i]);
}

static void pass(struct arguments *a, const char *name, const char *value)
{
	if (!value)
		return;
	assert(a->nr < NR_ARGUMENTS);
	if (asprintf(&a->v[a->nr], "%s%s", name, value) < 0) {
		a->v[a->nr] = NULL;
		a->is_short = true;
	} else {
		a->nr++;
	}
}

static void pass_time(struct arguments *a, const char *name, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 "s", ns / NS_PER_S);
	pass(a, name, ns >= NS_PER_S ? text : NULL);
}

static bool is_member(struct run_mount *m)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };

	return run_mount_figures(m, &a) == 0 && strcmp(json_flat_get(&a.j, "cluster.member"), "true") == 0;
}

/* Waits until all agents are connected, so that a restarted program finds checkpoints of other nodes. If they do not
 * connect in time, or this node has no mount of the cluster, the program starts nevertheless. */
static void await_agents(const struct run_request *q, const struct run_nodes *n, const char *mount)
{
	uint64_t until_ns = monotonic_ns() + AGENTS_WAIT_NS;
	siginfo_t ended = { 0 };

	if (!is_member(&(struct run_mount){ .point = (char *)mount })) /* this node has no mount of the cluster */
		return;
	while (monotonic_ns() < until_ns && !is_signalled(q)) {
		_cleanup_(stat_answer_release) struct stat_answer a = { 0 };

		if (stat_ask_until(mount, until_ns, &a) == 0 && json_flat_u64(&a.j, "cluster.nodes") >= n->nr)
			return;
		if (waitid(P_PID, (id_t)n->agents, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 || ended.si_pid != 0)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = AGENTS_STEP_NS }, NULL);
	}
	run_complain("not all agents are connected; the program starts without data of other nodes");
}

static int run_on_nodes(const struct run_request *q, const sigset_t *signals)
{
	_cleanup_(arguments_release) struct arguments agent = { 0 };
	_cleanup_(arguments_release) struct arguments hold = { 0 };
	_cleanup_(freep) char *store = NULL;
	_cleanup_(freep) char *mount = NULL;
	struct run_nodes n = RUN_NODES_NONE;
	struct run_watch none = RUN_WATCH_NONE; /* each node watches its own daemon */
	int r, status = EXIT_OURS;

	pass(&agent, "--job=", q->job.id);
	pass(&agent, "--mount=", q->mount);
	pass(&agent, "--store=", q->store);
	pass(&hold, "--job=", q->job.id);
	pass(&hold, "--mount=", q->mount);
	pass(&hold, "--store=", q->store);
	pass(&hold, "-o", q->options);
	pass(&hold, "--flush-to=", q->flush_to);
	pass(&hold, "--on-daemon-death=", run_on_death_names[q->on_death]);
	pass(&hold, "--shared", q->shared ? "" : NULL);
	pass(&hold, "--quiet", q->quiet ? "" : NULL);
	pass_time(&hold, "--signal-before=", q->signal_before_ns);
	pass_time(&hold, "--time-limit=", q->until_ns == RUN_NEVER ? 0 : q->until_ns - monotonic_ns());
	if (run_job_expand(&q->job, q->store, &store) < 0 || run_job_expand(&q->job, q->mount, &mount) < 0 ||
	    agent.is_short || hold.is_short) {
		run_complain_errno(-ENOMEM, "cannot start");
		return EXIT_OURS;
	}

	r = run_nodes_hold(&n, &q->job, q->launcher, hold.v);
	if (r < 0)
		return EXIT_OURS;
	if (r > 0 && !q->no_agent)
		r = run_nodes_start_agents(&n, &q->job, q->launcher, agent.v);
	if (r >= 0 && n.agents > 0)
		await_agents(q, &n, mount);
	if (r >= 0)
		status = run_program(q, &n, NULL, &none, signals, store, mount);
	r = n.holders > 0 ? 0 : -EIO;
	if ((run_nodes_end(&n) < 0 || r < 0) && status == 0)
		status = EXIT_OURS;
	return status;
}

static int hold_mount(const struct run_request *q)
{
	bool by_signal = q->mode == RUN_HOLD_BY_SIGNAL;
	struct run_watch watch = RUN_WATCH_NONE;
	struct session s = { .q = q };
	int r = session_begin(q, &s), e = 0;
	enum run_word word;

	if (r == 0) {
		run_nodes_say_ready(is_member(&s.mount));
		run_watch_begin(&watch, &s.mount, q->on_death);
		while ((word = run_nodes_await_word(by_signal, watch.daemon)) == RUN_EVENT) {
			if (run_watch_look(&watch))
				run_nodes_say_died();
			run_watch_settle(&watch);
		}
		run_watch_end(&watch);
		if (word == RUN_FLUSH)
			s.is_stopped = is_end_said;
		r = end_work(&s);
		if (s.is_stopped) {
			run_nodes_say_flushed();
			run_nodes_await_word(by_signal, -1);
		}
		e = run_mount_end(&s.mount);
	}
	if (r < 0 || e < 0)
		run_nodes_say_failed();
	session_end(&s);
	return EXIT_DONE;
}

static int be_agent(const struct run_request *q)
{
	_cleanup_(freep) char *mount = NULL;
	char *argv[] = { "ckptfs-agent", "--mount", NULL, NULL };
	const struct run_start s = { .argv = argv, .ours = true, .in = 0, .out = 1, .death_signal = SIGTERM };
	sigset_t signals;
	int r = run_job_expand(&q->job, q->mount, &mount), status = 0, signal;
	pid_t agent;

	if (r < 0)
		return EXIT_OURS;
	argv[2] = mount;
	run_process_block(&signals);
	r = run_process_start(&s, &agent);
	if (r < 0) {
		run_complain_errno(r, "ckptfs-agent");
		return EXIT_OURS;
	}
	while (waitpid(agent, &status, WNOHANG) == 0)
		if (sigwait(&signals, &signal) == 0 && is_end(signal))
			kill(agent, SIGTERM);
	return run_process_exit_status(status);
}

int main(int argc, char *argv[])
{
	static struct run_request q;
	char host[256] = "";
	sigset_t signals;
	int status;

	if (run_request_read(argc, argv, &q, &status) != 0)
		return status;
	gethostname(host, sizeof(host) - 1);
	run_say_init(q.mode == RUN ? NULL : host, q.quiet);
	if (q.mode == RUN_AGENT)
		return be_agent(&q);
	run_process_block(&signals);
	if (q.mode != RUN)
		return hold_mount(&q);
	return q.job.nodes > 1 ? run_on_nodes(&q, &signals) : run_here(&q, &signals);
}
