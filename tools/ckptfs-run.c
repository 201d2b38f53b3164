/*
 * ckptfs-run: a program with a mount of its own. Mount, on all nodes of the job; start agents if they are a cluster; run the program; when it has ended, or
 * time is up and it was told to: bring what is sealed elsewhere, the newest first; unmount; tell what was stored.
 *
 * Whatever happens, nothing is left mounted:
 *
 *   the program is killed      as if it had ended
 *   its daemon dies            told at the end; the dead mount is taken away
 *   processes of it are left   SIGTERM, after --grace SIGKILL; who is in another session and uses the mount still: it is detached
 *   ckptfs-run is killed       the program gets SIGTERM. On several nodes: who holds the mounts hears of it, and ends. On one: the mount
 *                              stays, and the next ckptfs-run with this store takes it away if its daemon has ended
 *
 * Exit status: the program's, or 128 and the signal that ended it; 125 ckptfs-run itself has failed, 126 the program cannot be run,
 * 127 there is no such program; 1 usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/output.h"
#include "tools/run_drain.h"
#include "tools/run_job.h"
#include "tools/run_mount.h"
#include "tools/run_nodes.h"
#include "tools/run_process.h"
#include "tools/run_say.h"
#include "tools/stat_ask.h"

#define TOOL "ckptfs-run"
#define NS_PER_S UINT64_C(1000000000)
#define GRACE_NS (30 * NS_PER_S)
#define UNMOUNT_NS (10 * NS_PER_S) /* of the time for draining, kept for unmounting; at most half of it */
#define NEVER UINT64_MAX

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_OURS = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NO_PROGRAM = 127 };
enum mode { RUN, HOLD_BY_INPUT, HOLD_BY_SIGNAL, AGENT };

struct request {
	enum mode mode;
	const char *store, *mount, *options, *drain_to, *launcher; /* patterns, but for the options and the launcher */
	bool shared, no_agent, quiet;
	uint64_t drain_before_ns, time_limit_ns, grace_ns; /* time_limit_ns: 0: as the job says */
	char **program;

	struct run_job job;
	uint64_t until_ns; /* by the monotonic clock: the job's end, or NEVER */
};

/* What happens to one mount, from before the program to after it. */
struct session {
	struct run_mount mount;
	uint64_t start_ns; /* since 1970 */
	uint64_t written, new; /* bytes, before the program */
	uint64_t drain_until_ns;
	bool (*is_stopped)(const struct request *q); /* draining: somebody cannot wait for it any more */
	const struct request *q;
};

static void help(FILE *to)
{
	fputs("Usage: ckptfs-run --store DIR [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
	      "Run a program of a job with a ckptfs of its own: mounted before it, on all nodes of the job, and afterwards drained\n"
	      "and unmounted. The program finds it in CKPTFS_MOUNT. In names %j is the job, %h the host, %n the number of the\n"
	      "node, %u the user.\n\n"
	      "  --store DIR          where it stores, on a local disk of each node (or CKPTFS_STORE)\n"
	      "  --mount DIR          where it is mounted (or CKPTFS_MOUNT; else a new directory in XDG_RUNTIME_DIR or /tmp)\n"
	      "  -o OPTION,...        as of mount.ckptfs; cluster=KEYFILE lets nodes share what they have in common\n"
	      "  --shared             it is mounted already, and stays so\n"
	      "  --drain-to DIR       bring what is sealed here afterwards, the newest first; with several nodes with %h or %n\n"
	      "  --drain-before TIME  so long before the job's time is up, send SIGTERM to the program\n"
	      "  --time-limit TIME    when it is up, from now, if the job's environment does not say\n"
	      "  --grace TIME         for the program after SIGTERM, before SIGKILL (30s)\n"
	      "  --job NAME           how the job is called\n"
	      "  --nodes N            on how many nodes it runs\n"
	      "  --launcher COMMAND   srun, flux, mpirun, or a command that starts a program once on each node\n"
	      "  --no-agent           no agents, though the stores are of a cluster\n"
	      "  --hold HOW           for itself: mount on one node, and wait (input, signal)\n"
	      "  --agent              for itself: be the agent of one node\n"
	      "  -q, --quiet          say nothing but what is wrong\n"
	      "  -h, --help           this text\n"
	      "  -V, --version        the version\n\n"
	      "Exit status: the program's; 125 ckptfs-run has failed, 126 or 127 the program cannot be run, 1 usage.\n",
	      to);
}

/* --- the mount and what becomes of it --- */

static void read_figures(const char *path, uint64_t *written, uint64_t *new)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };

	*written = *new = 0;
	if (stat_ask(path, &a) < 0)
		return;
	*written = json_flat_u64(&a.j, "written_bytes");
	*new = json_flat_u64(&a.j, "written_by_cause.new_bytes");
}

static int begin(const struct request *q, struct session *s)
{
	int r = run_job_expand(&q->job, q->store, &s->mount.store);

	if (r == 0)
		r = run_job_expand(&q->job, q->mount, &s->mount.point);
	if (r == 0)
		r = run_mount_begin(&s->mount, q->options, q->shared);
	if (r < 0)
		return r;
	s->start_ns = now_ns();
	s->drain_until_ns = q->until_ns == NEVER ? NEVER : q->until_ns - MIN(UNMOUNT_NS, q->drain_before_ns / 2);
	read_figures(s->mount.point, &s->written, &s->new);
	return 0;
}

static bool may_drain(void *userdata)
{
	const struct session *s = userdata;

	return monotonic_ns() < s->drain_until_ns && !(s->is_stopped && s->is_stopped(s->q));
}

static int drain(const struct request *q, struct session *s, const struct run_epochs *epochs)
{
	_cleanup_(freep) char *to = NULL;
	struct run_drain d = { .mountpoint = s->mount.point, .go_on = may_drain, .userdata = s };
	int r = run_job_expand(&q->job, q->drain_to, &to);

	if (r < 0)
		return r;
	if (mkdir(to, 0777) < 0 && errno != EEXIST)
		return run_complain_errno(-errno, "--drain-to %s", to);
	d.to = to;
	return run_drain_epochs(&d, epochs);
}

static void report(const struct session *s, const struct run_epochs *epochs)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	uint64_t written, new;
	size_t sealed = 0;

	while (sealed < epochs->nr && (uint64_t)epochs->v[sealed].sealed_ns >= s->start_ns)
		sealed++;
	read_figures(s->mount.point, &written, &new);
	written -= MIN(written, s->written);
	new -= MIN(new, s->new);
	new = MIN(new, written); /* it is counted in whole pages */
	run_say("written %s, of it new %s (%.1f %%)", human_size(written).s, human_size(new).s,
		written > 0 ? 100.0 * (double)new / (double)written : 0.0);
	if (stat_ask(s->mount.point, &a) == 0)
		run_say("%s has %s of files in %s", s->mount.store, human_size(json_flat_u64(&a.j, "logical_bytes")).s,
			human_size(json_flat_u64(&a.j, "disk_bytes")).s);
	if (epochs->nr == 0)
		run_say("nothing is sealed");
	else
		run_say("%zu epochs, %zu of them sealed now; the newest is %s", epochs->nr, sealed,
			epochs->v[0].path[0] ? epochs->v[0].path : "all of it");
}

/* While agents are there: what is read for it may be on other nodes. */
static int drain_and_report(const struct request *q, struct session *s)
{
	_cleanup_(run_epochs_release) struct run_epochs epochs = { 0 };
	int r = run_epochs_read(s->mount.point, &epochs);

	if (!run_mount_is_alive(&s->mount))
		return -ENOTCONN; /* told when it is unmounted */
	if (r < 0)
		run_complain_errno(r, "%s: what is sealed is not known", s->mount.point);
	if (r == 0 && q->drain_to)
		r = drain(q, s, &epochs);
	report(s, &epochs);
	return r;
}

/* --- the program --- */

static bool is_end(int signal)
{
	return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

static struct timespec until(uint64_t when_ns)
{
	uint64_t now = monotonic_ns(), left = when_ns <= now ? 0 : MIN(when_ns - now, 3600 * NS_PER_S);

	return (struct timespec){ .tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S) };
}

/* 1: it has ended. Launchers that end before it are told of; they are not waited for again. */
static int reap(pid_t program, struct run_nodes *n, int *ret_status)
{
	int status, result = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == program) {
			*ret_status = status;
			result = 1;
		} else if (pid == n->agents) {
			run_complain("the agents have ended; each node stores everything itself from now on");
			n->agents = 0;
		} else if (pid == n->holders) {
			run_complain("the mounts of the nodes have ended before the program");
			n->holders = 0;
		}
	}
	return result;
}

/* Until it has ended, or was made to: the status, as in wait(2). */
static int supervise(const struct request *q, struct run_nodes *n, const sigset_t *signals, pid_t program)
{
	uint64_t warn_ns = q->until_ns == NEVER ? NEVER : q->until_ns - MIN(q->drain_before_ns, q->until_ns), kill_ns = NEVER;
	int status = 0, signal;

	if (q->drain_before_ns == 0)
		warn_ns = NEVER;
	while (!reap(program, n, &status)) {
		struct timespec wait = until(MIN(warn_ns, kill_ns));

		signal = sigtimedwait(signals, NULL, &wait);
		if (signal < 0 && errno == EAGAIN && monotonic_ns() >= warn_ns) {
			run_say("time is nearly up: ending the program");
			signal = SIGTERM;
		}
		if (signal > 0 && signal != SIGCHLD)
			kill(-program, signal);
		if (signal > 0 && is_end(signal)) {
			kill_ns = MIN(kill_ns, monotonic_ns() + q->grace_ns);
			warn_ns = NEVER;
		}
		if (monotonic_ns() >= kill_ns) {
			run_complain("the program goes on, %" PRIu64 " s after it was told to end: killing it", q->grace_ns / NS_PER_S);
			kill(-program, SIGKILL);
			kill_ns = NEVER;
		}
	}
	return status;
}

static int run_program(const struct request *q, struct run_nodes *n, const sigset_t *signals, const char *store, const char *mount)
{
	const struct run_start s = { .argv = q->program, .group = true, .in = 0, .out = 1, .death_signal = SIGTERM };
	pid_t program;
	int r, status;

	setenv("CKPTFS_STORE", store, 1);
	setenv("CKPTFS_MOUNT", mount, 1);
	r = run_process_start(&s, &program);
	if (r < 0) {
		run_complain_errno(r, "%s", q->program[0]);
		return r == -ENOENT ? EXIT_NO_PROGRAM : EXIT_NOT_EXECUTABLE;
	}
	status = supervise(q, n, signals, program);
	if (run_process_end_group(program, q->grace_ns))
		run_say("processes that the program left behind were ended");
	run_process_foreground(getpgrp());
	if (WIFSIGNALED(status))
		run_complain("%s: ended by signal %d (%s)", q->program[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
	return run_process_exit_status(status);
}

/* The first signal has ended the program; this is one more. */
static bool is_signalled(const struct request *q)
{
	sigset_t pending;

	(void)q;
	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
}

static int run_here(const struct request *q, const sigset_t *signals)
{
	struct run_nodes nobody = RUN_NODES_NONE;
	struct session s = { .is_stopped = is_signalled, .q = q };
	int status = EXIT_OURS, r, e;

	if (begin(q, &s) == 0) {
		status = run_program(q, &nobody, signals, s.mount.store, s.mount.point);
		r = drain_and_report(q, &s);
		e = run_mount_end(&s.mount);
		if ((r < 0 || e < 0) && status == 0)
			status = EXIT_OURS;
	}
	run_mount_release(&s.mount);
	return status;
}

/* --- on several nodes --- */

#define NR_ARGUMENTS 16

struct arguments {
	char *v[NR_ARGUMENTS + 1];
	size_t nr;
};

static void arguments_release(struct arguments *a)
{
	for (size_t i = 0; i < a->nr; i++)
		free(a->v[i]);
}

static void pass(struct arguments *a, const char *name, const char *value)
{
	if (value && a->nr < NR_ARGUMENTS && asprintf(&a->v[a->nr], "%s%s", name, value) >= 0)
		a->nr++;
}

static void pass_time(struct arguments *a, const char *name, uint64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 "s", ns / NS_PER_S);
	pass(a, name, ns >= NS_PER_S ? text : NULL);
}

static int run_on_nodes(const struct request *q, const sigset_t *signals)
{
	_cleanup_(arguments_release) struct arguments agent = { 0 };
	_cleanup_(arguments_release) struct arguments hold = { 0 };
	_cleanup_(freep) char *store = NULL;
	_cleanup_(freep) char *mount = NULL;
	struct run_nodes n = RUN_NODES_NONE;
	int r, status = EXIT_OURS;

	pass(&agent, "--job=", q->job.id);
	pass(&agent, "--mount=", q->mount);
	pass(&agent, "--store=", q->store);
	pass(&hold, "--job=", q->job.id);
	pass(&hold, "--mount=", q->mount);
	pass(&hold, "--store=", q->store);
	pass(&hold, "-o", q->options);
	pass(&hold, "--drain-to=", q->drain_to);
	pass(&hold, "--shared", q->shared ? "" : NULL);
	pass(&hold, "--quiet", q->quiet ? "" : NULL);
	pass_time(&hold, "--drain-before=", q->drain_before_ns);
	pass_time(&hold, "--time-limit=", q->until_ns == NEVER ? 0 : q->until_ns - monotonic_ns());
	if (run_job_expand(&q->job, q->store, &store) < 0 || run_job_expand(&q->job, q->mount, &mount) < 0)
		return EXIT_OURS;

	r = run_nodes_hold(&n, &q->job, q->launcher, hold.v);
	if (r < 0)
		return EXIT_OURS;
	if (r > 0 && !q->no_agent)
		r = run_nodes_start_agents(&n, &q->job, q->launcher, agent.v);
	if (r >= 0)
		status = run_program(q, &n, signals, store, mount);
	r = n.holders > 0 ? 0 : -EIO;
	if ((run_nodes_end(&n) < 0 || r < 0) && status == 0)
		status = EXIT_OURS;
	return status;
}

static bool is_member(const char *mount)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };

	return stat_ask(mount, &a) == 0 && strcmp(json_flat_get(&a.j, "cluster.member"), "true") == 0;
}

static bool is_end_said(const struct request *q)
{
	return run_nodes_is_end_said(q->mode == HOLD_BY_SIGNAL);
}

static int hold(const struct request *q)
{
	bool by_signal = q->mode == HOLD_BY_SIGNAL;
	struct session s = { .q = q };
	int r = begin(q, &s), e = 0;

	if (r == 0) {
		run_nodes_say_ready(is_member(s.mount.point));
		if (run_nodes_await_word(by_signal) == RUN_DRAIN)
			s.is_stopped = is_end_said;
		r = drain_and_report(q, &s);
		if (s.is_stopped) {
			run_nodes_say_drained();
			run_nodes_await_word(by_signal);
		}
		e = run_mount_end(&s.mount);
	} else {
		run_nodes_say_failed();
	}
	run_mount_release(&s.mount);
	return r < 0 || e < 0 ? EXIT_OURS : EXIT_DONE;
}

static int be_agent(const struct request *q)
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

/* --- what is asked for --- */

static int refuse(const char *what, const char *why)
{
	fprintf(stderr, TOOL ": %s: %s\n", what, why);
	return -EINVAL;
}

static int take_time(const char *name, uint64_t *ret_ns)
{
	return parse_time(optarg, ret_ns) < 0 ? refuse(name, "not a time; 90s, 10m and 2h are") : 0;
}

static int take_nodes(uint64_t *ret)
{
	char *end;

	*ret = strtoul(optarg, &end, 10);
	return *end != '\0' || *ret == 0 || *ret > INT_MAX ? refuse("--nodes", "not a number of nodes") : 0;
}

static int take_hold(enum mode *ret)
{
	if (strcmp(optarg, "input") != 0 && strcmp(optarg, "signal") != 0)
		return refuse("--hold", "input or signal");
	*ret = optarg[0] == 'i' ? HOLD_BY_INPUT : HOLD_BY_SIGNAL;
	return 0;
}

static int take_option(struct request *q, int c, const char **job, uint64_t *nodes)
{
	switch (c) {
	case 's':
		q->store = optarg;
		return 0;
	case 'm':
		q->mount = optarg;
		return 0;
	case 'o':
		q->options = optarg;
		return 0;
	case 'S':
		q->shared = true;
		return 0;
	case 'd':
		q->drain_to = optarg;
		return 0;
	case 'b':
		return take_time("--drain-before", &q->drain_before_ns);
	case 't':
		return take_time("--time-limit", &q->time_limit_ns);
	case 'g':
		return take_time("--grace", &q->grace_ns);
	case 'j':
		*job = optarg;
		return 0;
	case 'n':
		return take_nodes(nodes);
	case 'l':
		q->launcher = optarg;
		return 0;
	case 'A':
		q->no_agent = true;
		return 0;
	case 'H':
		return take_hold(&q->mode);
	case 'a':
		q->mode = AGENT;
		return 0;
	case 'q':
		q->quiet = true;
		return 0;
	default:
		fputs(TOOL " --help tells the usage\n", stderr);
		return -EINVAL;
	}
}

/* 0: go on, 1: done. */
static int parse(int argc, char *argv[], struct request *q, const char **job, uint64_t *nodes)
{
	static const struct option longs[] = {
		{ "store", required_argument, NULL, 's' },	  { "mount", required_argument, NULL, 'm' },
		{ "shared", no_argument, NULL, 'S' },		  { "drain-to", required_argument, NULL, 'd' },
		{ "drain-before", required_argument, NULL, 'b' }, { "time-limit", required_argument, NULL, 't' },
		{ "grace", required_argument, NULL, 'g' },	  { "job", required_argument, NULL, 'j' },
		{ "nodes", required_argument, NULL, 'n' },	  { "launcher", required_argument, NULL, 'l' },
		{ "no-agent", no_argument, NULL, 'A' },		  { "hold", required_argument, NULL, 'H' },
		{ "agent", no_argument, NULL, 'a' },		  { "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },		  { "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "+o:qhV", longs, NULL)) != -1) {
		if (c == 'h' || c == 'V') {
			if (c == 'h')
				help(stdout);
			else
				puts(TOOL " " CKPTFS_VERSION);
			return 1;
		}
		r = take_option(q, c, job, nodes);
	}
	q->program = argv + optind;
	if (r == 0 && (q->mode == RUN) != (optind < argc))
		r = refuse(q->mode == RUN ? "no program" : argv[optind], TOOL " --help tells the usage");
	return r;
}

/* In a place where others can write, a name that is foreseen may be somebody else's. */
static int choose_mountpoint(struct request *q, char ret[PATH_MAX])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	_cleanup_(freep) char *path = NULL;
	struct stat st;

	snprintf(ret, PATH_MAX, "%s/ckptfs-%%u-%%j", runtime && runtime[0] == '/' ? runtime : "/tmp");
	if (run_job_expand(&q->job, ret, &path) < 0)
		return -ENOMEM;
	if (lstat(path, &st) == 0 && (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0)))
		return refuse(path, "belongs to somebody else; give another --mount");
	q->mount = ret;
	return 0;
}

static int check_pattern(const struct request *q, const char *name, const char *pattern)
{
	_cleanup_(freep) char *text = NULL;

	if (!pattern)
		return 0;
	if (run_job_expand(&q->job, pattern, &text) < 0)
		return refuse(name, "after % come j, h, n, u or another %");
	return text[0] ? 0 : refuse(name, "is empty");
}

static int settle_end(struct request *q)
{
	uint64_t now = now_ns() / NS_PER_S;

	q->until_ns = NEVER;
	if (q->time_limit_ns > 0)
		q->until_ns = monotonic_ns() + q->time_limit_ns;
	else if (q->job.end_s > 0)
		q->until_ns = monotonic_ns() + (q->job.end_s > now ? q->job.end_s - now : 0) * NS_PER_S;
	if (q->drain_before_ns > 0 && q->until_ns == NEVER)
		return refuse("--drain-before", "the job's environment does not say when its time is up; give --time-limit");
	return 0;
}

static int settle(struct request *q, const char *job, uint64_t nodes, char mountpoint[PATH_MAX])
{
	const char *what = "";
	int r = run_job_read((const char *(*)(const char *))getenv, &q->job, &what);

	if (r < 0)
		return refuse(what, r == -EINVAL ? "is no number" : strerror(-r));
	if (job)
		run_job_call(&q->job, job);
	if (nodes > 0)
		q->job.nodes = nodes;
	if (!q->store)
		q->store = getenv("CKPTFS_STORE");
	if (!q->mount)
		q->mount = getenv("CKPTFS_MOUNT");
	if (!q->store && !q->shared)
		return refuse("no store", "give --store, or CKPTFS_STORE in the environment");
	if (!q->store)
		q->store = "shared";
	if (!q->mount)
		r = choose_mountpoint(q, mountpoint);
	if (r == 0)
		r = check_pattern(q, "--store", q->store);
	if (r == 0)
		r = check_pattern(q, "--mount", q->mount);
	if (r == 0)
		r = check_pattern(q, "--drain-to", q->drain_to);
	if (r == 0 && q->mode == RUN && q->job.nodes > 1 && q->drain_to && !run_job_is_per_node(q->drain_to))
		r = refuse("--drain-to", "is the same on all nodes, but each has its own files; put %h or %n into it");
	return r < 0 ? r : settle_end(q);
}

int main(int argc, char *argv[])
{
	struct request q = { .grace_ns = GRACE_NS };
	char mountpoint[PATH_MAX], host[256] = "";
	const char *job = NULL;
	uint64_t nodes = 0;
	sigset_t signals;
	int r = parse(argc, argv, &q, &job, &nodes);

	if (r > 0)
		return output_finish(TOOL, EXIT_DONE, EXIT_OURS);
	if (r == 0)
		r = settle(&q, job, nodes, mountpoint);
	if (r < 0)
		return EXIT_USAGE;
	gethostname(host, sizeof(host) - 1);
	run_say_init(q.mode == RUN ? NULL : host, q.quiet);
	if (q.mode == AGENT)
		return be_agent(&q);
	run_process_block(&signals);
	if (q.mode != RUN)
		return hold(&q);
	return q.job.nodes > 1 ? run_on_nodes(&q, &signals) : run_here(&q, &signals);
}
