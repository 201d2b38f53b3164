/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_request.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/text.h"
#include "base/util.h"

#define TOOL "ckptfs-run"
#define NS_PER_S UINT64_C(1000000000)

const char *const run_on_death_names[] = {
	[RUN_REMOUNT] = "remount",
	[RUN_END_PROGRAM] = "end",
	[RUN_REPORT] = "report",
};

static int refuse(const char *what, const char *why)
{
	text_printf(stderr, TOOL ": %s: %s\n", what, why);
	return -EINVAL;
}

static int parse_signal(const struct conf_key *k, void *request, const char *value, const char **ret_why)
{
	static const struct {
		const char *name;
		int signal;
	} known[] = { { "TERM", SIGTERM },
		      { "INT", SIGINT },
		      { "HUP", SIGHUP },
		      { "USR1", SIGUSR1 },
		      { "USR2", SIGUSR2 } };
	int *signal = conf_field(k, request);

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(value, known[i].name) == 0) {
			*signal = known[i].signal;
			return 0;
		}
	*ret_why = "must be TERM, INT, HUP, USR1 or USR2";
	return -EINVAL;
}

#define OF(field) offsetof(struct run_request, field)

static const struct conf_key options[] = {
	{ "store", CONF_STRING, OF(store), .value = "DIR",
	  .help = "the store, on a local disk of each node (or CKPTFS_STORE)" },
	{ "mount", CONF_STRING, OF(mount), .value = "DIR",
	  .help = "the mountpoint (or CKPTFS_MOUNT; otherwise a new directory in XDG_RUNTIME_DIR or /tmp)" },
	{ "", CONF_STRING, OF(options), .letter = 'o', .value = "OPTION,...",
	  .help = "options of mount.ckptfs; with cluster=KEYFILE nodes share common data" },
	{ "shared", CONF_FLAG, OF(shared), .help = "use an existing mount, and leave it mounted" },
	{ "flush-to", CONF_STRING, OF(flush_to), .value = "DIR",
	  .help = "copy sealed checkpoints here afterwards, the newest first; on several nodes with %h or %n" },
	{ "signal-before", CONF_TIME, OF(signal_before_ns),
	  .help = "send SIGTERM to the program this long before the end of the job" },
	{ "signal", CONF_PARSED, OF(signal), .fallback = "TERM", .parse = parse_signal, .value = "NAME",
	  .help = "send INT, HUP, USR1 or USR2 instead; srun passes on USR1 and USR2" },
	{ "time-limit", CONF_TIME, OF(time_limit_ns),
	  .help = "time until the end of the job, if the job's environment does not have it" },
	{ "grace", CONF_TIME, OF(grace_ns), .fallback = "30s",
	  .help = "time for the program after that signal, before SIGKILL" },
	{ "on-daemon-death", CONF_CHOICE, OF(on_death), .fallback = "remount", .choices = "remount|end|report",
	  .value = "ACTION", .help = "when the daemon dies: remount the store, end the program, or report it" },
	{ "job", CONF_STRING, OF(job_name), .value = "NAME", .help = "the job's name" },
	{ "nodes", CONF_NUMBER, OF(nodes), .min = 1, .max = INT_MAX, .must = "not a number of nodes",
	  .help = "the number of nodes" },
	{ "launcher", CONF_STRING, OF(launcher), .value = "COMMAND",
	  .help = "srun, flux, mpirun, or a command that starts a program once on each node" },
	{ "no-agent", CONF_FLAG, OF(no_agent), .help = "start no agents, even for stores of a cluster" },
	{ "hold", CONF_CHOICE, OF(hold), .choices = "no|input|signal", .value = "HOW",
	  .help = "internal: mount on one node, and wait (input, signal)" },
	{ "agent", CONF_FLAG, OF(agent), .help = "internal: run the agent of one node" },
	COMMAND_QUIET(struct run_request, quiet, "print errors only"),
	COMMAND_END,
};

static const char *check(void *request, int nr)
{
	struct run_request *q = request;

	static_assert((int)RUN_REMOUNT == 0 && (int)RUN_END_PROGRAM == 1 && (int)RUN_REPORT == 2, "as in the table");
	q->mode = q->agent ? RUN_AGENT : q->hold == 1 ? RUN_HOLD_BY_INPUT : q->hold == 2 ? RUN_HOLD_BY_SIGNAL : RUN;
	if (q->mode == RUN && nr == 0)
		return "a program must be given";
	return q->mode != RUN && nr > 0 ? "--hold and --agent take no program" : NULL;
}

static const struct command command = {
	.name = TOOL,
	.usage = TOOL " --store DIR [OPTION...] [--] PROGRAM [ARGUMENT...]\n",
	.about = "Run a program of a job with its own ckptfs, mounted on all nodes of the job at the path in CKPTFS_MOUNT. "
		 "When the program has ended, sealed checkpoints are copied out and the ckptfs is unmounted. In names %j is the "
		 "job, %h the host, %n the number of the node, %u the user.",
	.options = options,
	.footer = "Exit status: the program's; 125 ckptfs-run failed, 126 or 127 the program cannot be run, 1 usage.",
	.exit_usage = RUN_EXIT_USAGE,
	.exit_failed = RUN_EXIT_OURS,
	.max_operands = COMMAND_OPERANDS_MAX,
	.is_prefix = true,
	.check = check,
};

/* In a directory that others can write to, a predictable name may belong to another user. */
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
		return refuse(path, "belongs to another user; give another --mount");
	q->mount = q->mountpoint;
	return 0;
}

static int check_pattern(const struct run_request *q, const char *name, const char *pattern)
{
	_cleanup_(freep) char *text = NULL;

	if (!pattern)
		return 0;
	if (run_job_expand(&q->job, pattern, &text) < 0)
		return refuse(name, "% must be followed by j, h, n, u or another %");
	return text[0] ? 0 : refuse(name, "is empty");
}

/* Queries the batch system for the end of the job. 0: unknown. */
static uint64_t ask_end(const struct run_job *job)
{
	char ask[256], line[128];
	uint64_t left = 0;
	bool known;
	FILE *f;

	if (job->scheduler == RUN_SLURM)
		snprintf(ask, sizeof(ask), "squeue --noheader --jobs='%s' --format=%%L", job->id);
	else if (job->scheduler == RUN_FLUX)
		snprintf(ask, sizeof(ask), "flux job timeleft");
	else
		return 0;
	f = popen(ask, "re");
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
	if (q->signal_before_ns > 0 && q->until_ns == RUN_NEVER)
		return refuse("--signal-before", "the end of the job is unknown; give --time-limit");
	return 0;
}

static int complete_request(struct run_request *q)
{
	const char *what = "";
	int r = run_job_read((const char *(*)(const char *))getenv, &q->job, &what);

	if (r < 0)
		return refuse(what, r == -EINVAL ? "is not a number" : strerror(-r));
	if (q->signal_before_ns > 0 && q->time_limit_ns == 0 && q->job.end_s == 0)
		q->job.end_s = ask_end(&q->job); /* before --job replaces its ID */
	if (q->job_name)
		run_job_call(&q->job, q->job_name);
	if (q->nodes > 0)
		q->job.nodes = q->nodes;
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
		r = check_pattern(q, "--flush-to", q->flush_to);
	if (r == 0 && q->mode == RUN && q->job.nodes > 1 && q->flush_to && !run_job_is_per_node(q->flush_to))
		r = refuse("--flush-to", "must differ between nodes; put %h or %n into it");
	return r < 0 ? r : settle_end(q);
}

int run_request_read(int argc, char *argv[], struct run_request *ret, int *ret_status)
{
	int r;

	*ret = (struct run_request){ 0 };
	r = command_parse(&command, ret, argc, argv, ret_status);
	if (r > 0)
		*ret_status = command_finish(&command, *ret_status);
	if (r != 0)
		return r;
	ret->program = argv + optind;
	*ret_status = RUN_EXIT_USAGE;
	return complete_request(ret);
}
