#include "tools/run_request.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/util.h"

#define TOOL "ckptfs-run"
#define NS_PER_S UINT64_C(1000000000)
#define GRACE_NS (30 * NS_PER_S)

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
	      "  --signal NAME        instead of SIGTERM: INT, HUP, USR1 or USR2; srun passes on USR1 and USR2\n"
	      "  --time-limit TIME    when it is up, from now, if the job's environment does not say\n"
	      "  --grace TIME         for the program after that signal, before SIGKILL (30s)\n"
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

static int take_signal(int *ret)
{
	static const struct {
		const char *name;
		int signal;
	} known[] = { { "TERM", SIGTERM },
		      { "INT", SIGINT },
		      { "HUP", SIGHUP },
		      { "USR1", SIGUSR1 },
		      { "USR2", SIGUSR2 } };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(optarg, known[i].name) == 0) {
			*ret = known[i].signal;
			return 0;
		}
	return refuse("--signal", "TERM, INT, HUP, USR1 or USR2");
}

static int take_hold(enum run_mode *ret)
{
	if (strcmp(optarg, "input") != 0 && strcmp(optarg, "signal") != 0)
		return refuse("--hold", "input or signal");
	*ret = optarg[0] == 'i' ? RUN_HOLD_BY_INPUT : RUN_HOLD_BY_SIGNAL;
	return 0;
}

static int take_option(struct run_request *q, int c, const char **job, uint64_t *nodes)
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
	case 'x':
		return take_signal(&q->signal);
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
		q->mode = RUN_AGENT;
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
static int parse(int argc, char *argv[], struct run_request *q, const char **job, uint64_t *nodes)
{
	static const struct option longs[] = {
		{ "store", required_argument, NULL, 's' },
		{ "mount", required_argument, NULL, 'm' },
		{ "shared", no_argument, NULL, 'S' },
		{ "drain-to", required_argument, NULL, 'd' },
		{ "drain-before", required_argument, NULL, 'b' },
		{ "time-limit", required_argument, NULL, 't' },
		{ "grace", required_argument, NULL, 'g' },
		{ "signal", required_argument, NULL, 'x' },
		{ "job", required_argument, NULL, 'j' },
		{ "nodes", required_argument, NULL, 'n' },
		{ "launcher", required_argument, NULL, 'l' },
		{ "no-agent", no_argument, NULL, 'A' },
		{ "hold", required_argument, NULL, 'H' },
		{ "agent", no_argument, NULL, 'a' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
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
static int choose_mountpoint(struct run_request *q)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	_cleanup_(freep) char *path = NULL;
	struct stat st;

	snprintf(q->mountpoint, sizeof(q->mountpoint), "%s/ckptfs-%%u-%%j",
		 runtime && runtime[0] == '/' ? runtime : "/tmp");
	if (run_job_expand(&q->job, q->mountpoint, &path) < 0)
		return -ENOMEM;
	if (lstat(path, &st) == 0 && (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0)))
		return refuse(path, "belongs to somebody else; give another --mount");
	q->mount = q->mountpoint;
	return 0;
}

static int check_pattern(const struct run_request *q, const char *name, const char *pattern)
{
	_cleanup_(freep) char *text = NULL;

	if (!pattern)
		return 0;
	if (run_job_expand(&q->job, pattern, &text) < 0)
		return refuse(name, "after % come j, h, n, u or another %");
	return text[0] ? 0 : refuse(name, "is empty");
}

/* Where the environment does not tell the end of the job, its batch system is asked. 0: it does not know. */
static uint64_t ask_end(const struct run_job *job)
{
	char command[256], line[128];
	uint64_t left = 0;
	bool known;
	FILE *f;

	if (job->scheduler == RUN_SLURM)
		snprintf(command, sizeof(command), "squeue --noheader --jobs='%s' --format=%%L", job->id);
	else if (job->scheduler == RUN_FLUX)
		snprintf(command, sizeof(command), "flux job timeleft");
	else
		return 0;
	f = popen(command, "re");
	if (!f)
		return 0;
	known = fgets(line, sizeof(line), f) && run_job_parse_left(line, &left) == 0;
	pclose(f);
	return known ? now_ns() / NS_PER_S + left : 0;
}

static int settle_end(struct run_request *q)
{
	uint64_t now = now_ns() / NS_PER_S;

	q->until_ns = RUN_NEVER;
	if (q->time_limit_ns > 0)
		q->until_ns = monotonic_ns() + q->time_limit_ns;
	else if (q->job.end_s > 0)
		q->until_ns = monotonic_ns() + (q->job.end_s > now ? q->job.end_s - now : 0) * NS_PER_S;
	if (q->drain_before_ns > 0 && q->until_ns == RUN_NEVER)
		return refuse(
			"--drain-before",
			"neither the job's environment nor its batch system says when its time is up; give --time-limit");
	return 0;
}

static int settle(struct run_request *q, const char *job, uint64_t nodes)
{
	const char *what = "";
	int r = run_job_read((const char *(*)(const char *))getenv, &q->job, &what);

	if (r < 0)
		return refuse(what, r == -EINVAL ? "is no number" : strerror(-r));
	if (q->drain_before_ns > 0 && q->time_limit_ns == 0 && q->job.end_s == 0)
		q->job.end_s = ask_end(&q->job); /* by its own name */
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
		r = choose_mountpoint(q);
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

int run_request_read(int argc, char *argv[], struct run_request *ret)
{
	const char *job = NULL;
	uint64_t nodes = 0;
	int r;

	*ret = (struct run_request){ .grace_ns = GRACE_NS, .signal = SIGTERM };
	r = parse(argc, argv, ret, &job, &nodes);
	return r != 0 ? r : settle(ret, job, nodes);
}
