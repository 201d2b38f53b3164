/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "tools/run/run_process.h"
#include "tools/run/run_say.h"

#define READY "ckptfs-run: ready "
#define READY_MEMBER READY "in a cluster\n"
#define READY_ALONE READY "alone\n"
#define FLUSHED "ckptfs-run: copied out\n"
#define DIED "ckptfs-run: daemon died\n"
#define FAILED "ckptfs-run: failed\n"
#define LOOK_MS 200
#define LINES_MAX 64 /* shown before other events are looked at */
#define NR_WORDS 64 /* in a launcher command */

#define SRUN_AGENTS "srun --overlap --nodes=%d --ntasks=%d --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=1"

/*
 * %d is the number of nodes. Each command starts one process per node, beside those of the program. When a holder is
 * killed, the others continue. When an agent is killed, the launcher ends the others: they cannot continue without it,
 * and would detect its death only after a minute.
 */
static const struct {
	const char *name, *holders, *agents;
} launchers[] = {
	{ "srun",
	  "srun --overlap --mpi=none --nodes=%d --ntasks=%d --ntasks-per-node=1 --cpus-per-task=1 --kill-on-bad-exit=0",
	  SRUN_AGENTS },
	{ "flux", "flux exec --rank=all", "flux run --nodes=%d --tasks-per-node=1" },
	{ "mpirun", "mpirun -n %d --map-by ppr:1:node --mca orte_abort_on_non_zero_status 0",
	  "mpirun -n %d --map-by ppr:1:node" },
};

static const char *of_scheduler(enum run_scheduler s)
{
	return s == RUN_SLURM ? "srun" : s == RUN_FLUX ? "flux" : "mpirun";
}

/* mpirun, mpiexec, mpirun.openmpi, prterun: commands are signals. */
static bool is_mpirun(const char *program)
{
	_cleanup_(freep) char *copy = strdup(program);
	const char *name = copy ? basename(copy) : program;

	return strncmp(name, "mpirun", 6) == 0 || strncmp(name, "mpiexec", 7) == 0 || strncmp(name, "prterun", 7) == 0;
}

struct command {
	char *text; /* holds the words of the launcher */
	char self[PATH_MAX];
	char *word[NR_WORDS + 2]; /* ends with NULL */
	size_t nr;
};

static void command_release(struct command *c)
{
	free(c->text);
}

static int add_word(struct command *c, char *word)
{
	if (c->nr == NR_WORDS)
		return run_complain_errno(-E2BIG, "--launcher and options");
	c->word[c->nr++] = word;
	return 0;
}

static int split_launcher(struct command *c, const char *launcher, uint64_t nodes)
{
	char number[24], *save = NULL, *word, *to;
	int r = 0;

	snprintf(number, sizeof(number), "%" PRIu64, nodes);
	c->text = malloc(strlen(launcher) * sizeof(number) + 1);
	if (!c->text)
		return -ENOMEM;
	to = c->text;
	for (const char *p = launcher; *p; p++) {
		if (p[0] == '%' && p[1] == 'd') {
			to = stpcpy(to, number);
			p++;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
	for (word = strtok_r(c->text, " ", &save); r == 0 && word; word = strtok_r(NULL, " ", &save))
		r = add_word(c, word);
	if (r == 0 && c->nr == 0) {
		run_complain("--launcher: is empty");
		r = -EINVAL;
	}
	return r;
}

/* Is the site's default MPI type "none"? Open MPI programs then fail to start. */
static bool slurm_has_no_mpi(void)
{
	FILE *f = getenv("SLURM_MPI_TYPE") ? NULL : popen("scontrol show config 2>/dev/null", "re");
	char line[1024], value[64] = "";

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		(void)sscanf(line, "MpiDefault = %63s", value);
	pclose(f);
	return strcmp(value, "none") == 0;
}

static const char *agents_by(const char *agents)
{
	return strcmp(agents, SRUN_AGENTS) == 0 && slurm_has_no_mpi() ? SRUN_AGENTS " --mpi=pmix" : agents;
}

/* LAUNCHER... SELF HOW ARGUMENT... */
static int make_command(struct command *c, const struct run_job *job, const char *launcher, bool is_agent, char *how,
			char *const *arguments)
{
	const char *given = launcher ? launcher : of_scheduler(job->scheduler);
	ssize_t len = readlink("/proc/self/exe", c->self, sizeof(c->self) - 1);
	int r;

	if (len < 0)
		return run_complain_errno(-errno, "/proc/self/exe");
	c->self[len] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
		if (strcmp(given, launchers[i].name) == 0) {
			given = is_agent ? agents_by(launchers[i].agents) : launchers[i].holders;
			break;
		}
	r = split_launcher(c, given, job->nodes);
	if (r == 0)
		r = add_word(c, c->self);
	if (r == 0)
		r = add_word(c, how);
	for (; r == 0 && *arguments; arguments++)
		r = add_word(c, *arguments);
	return r;
}

static int start_launcher(const struct command *c, int in, int out, int death_signal, pid_t *ret)
{
	const struct run_start s = { .argv = c->word, .in = in, .out = out, .death_signal = death_signal };
	int r = run_process_start(&s, ret);

	return r < 0 ? run_complain_errno(r, "%s: cannot start processes on each node", c->word[0]) : 0;
}

static bool has_end_signal(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT) || sigismember(&pending, SIGHUP);
}

enum reading { READ_AVAILABLE, READ_UNLESS_SIGNALLED, READ_TO_END };

/*
 * Reads a line into n->line. 1: a line, 0: end of output, -EAGAIN: no complete line is available, -EINTR: a signal to
 * end is pending; other <0. The next call continues an incomplete line.
 */
static int next_line(struct run_nodes *n, enum reading how)
{
	for (;;) {
		struct pollfd p = { .fd = n->output, .events = POLLIN };
		ssize_t got;

		if (how == READ_UNLESS_SIGNALLED && has_end_signal())
			return -EINTR;
		if (poll(&p, 1, how == READ_AVAILABLE ? 0 : LOOK_MS) <= 0) {
			if (how == READ_AVAILABLE)
				return -EAGAIN;
			continue;
		}
		got = read(n->output, n->line + n->len, 1);
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			return 0;
		if (got > 0 && (n->line[n->len++] == '\n' || n->len == sizeof(n->line) - 1)) {
			n->line[n->len] = '\0';
			n->len = 0;
			return 1;
		}
	}
}

/* Prints a message of a node. */
static void show_line(char *line)
{
	line[strcspn(line, "\n")] = '\0';
	text_printf(stderr, "%s\n", line);
}

/* Waits until each holder has printed a line that begins with `wanted`; prints other lines. `done` is the action, for
 * messages. *ret_members: how many are members of a cluster. <0: not all holders did, reported. */
static int await_said(struct run_nodes *n, const char *wanted, const char *done, uint64_t *ret_members)
{
	uint64_t nr_said = 0, nr_members = 0;
	int r = 1;

	while (nr_said < n->nr && (r = next_line(n, READ_UNLESS_SIGNALLED)) > 0) {
		if (strcmp(n->line, FAILED) == 0) {
			r = -EIO;
			break;
		}
		if (strncmp(n->line, wanted, strlen(wanted)) != 0) {
			show_line(n->line);
			continue;
		}
		nr_said++;
		nr_members += strcmp(n->line, READY_MEMBER) == 0;
	}
	*ret_members = nr_members;
	if (r > 0)
		return 0;
	if (r == -EINTR)
		run_complain("stopped before all nodes had %s", done);
	else
		run_complain("not all nodes have %s: see their messages above", done);
	return MIN(r, -EIO);
}

bool run_nodes_look(struct run_nodes *n)
{
	bool died = false;
	int r = 1;

	for (size_t i = 0; i < LINES_MAX && !n->output_ended && (r = next_line(n, READ_AVAILABLE)) > 0; i++) {
		if (strcmp(n->line, DIED) == 0)
			died = true;
		else if (strcmp(n->line, FAILED) == 0)
			n->failed = true;
		else
			show_line(n->line);
	}
	if (r <= 0 && r != -EAGAIN)
		n->output_ended = true;
	return died;
}

static void send_word(struct run_nodes *n, enum run_word word)
{
	if (n->by_signal)
		kill(n->holders, word == RUN_END ? SIGUSR1 : SIGUSR2);
	else if (word == RUN_FLUSH)
		(void)!write(n->input, "d", 1); /* fails if the node has ended, which is detected elsewhere */
	if (word == RUN_END) {
		closep(&n->input);
		n->input = -1;
	}
}

/* Reads the output of holders to its end. Did one fail? */
static bool has_failed(struct run_nodes *n)
{
	bool failed = n->failed;

	while (next_line(n, READ_TO_END) > 0) {
		if (strcmp(n->line, FAILED) == 0)
			failed = true;
		else if (strcmp(n->line, FLUSHED) != 0 && strcmp(n->line, DIED) != 0)
			show_line(n->line);
	}
	return failed;
}

static int end_holders(struct run_nodes *n)
{
	int status = 0, r = 0;

	if (n->holders > 0) {
		send_word(n, RUN_END);
		if (has_failed(n))
			r = -EIO;
		run_process_wait(n->holders, &status);
	}
	closep(&n->input);
	closep(&n->output);
	n->holders = 0;
	n->input = n->output = -1;
	if (r < 0 || run_process_exit_status(status) != 0) {
		run_complain("not all nodes ended without error: see their messages above");
		r = -EIO;
	}
	return r;
}

int run_nodes_hold(struct run_nodes *n, const struct run_job *job, const char *launcher, char *const *arguments)
{
	_cleanup_(command_release) struct command c = { 0 };
	static char by_input[] = "--hold=input", by_signal[] = "--hold=signal";
	int in[2], out[2] = { -1, -1 }, r;
	uint64_t nr_members;

	n->nr = job->nodes;
	n->by_signal = is_mpirun(launcher ? launcher : of_scheduler(job->scheduler));
	r = make_command(&c, job, launcher, false, n->by_signal ? by_signal : by_input, arguments);
	if (r < 0)
		return r;
	if (pipe2(in, O_CLOEXEC) < 0)
		return run_complain_errno(-errno, "pipe");
	if (pipe2(out, O_CLOEXEC) < 0)
		r = run_complain_errno(-errno, "pipe");
	if (r == 0)
		r = start_launcher(&c, in[0], out[1], n->by_signal ? SIGUSR1 : 0, &n->holders);
	close(in[0]);
	closep(&out[1]);
	n->input = in[1];
	n->output = out[0];
	if (r == 0)
		r = await_said(n, READY, "mounted", &nr_members);
	if (r < 0) {
		end_holders(n);
		return r;
	}
	return nr_members == n->nr;
}

int run_nodes_start_agents(struct run_nodes *n, const struct run_job *job, const char *launcher, char *const *arguments)
{
	_cleanup_(command_release) struct command c = { 0 };
	static char how[] = "--agent";
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC), r;

	if (nothing < 0)
		return run_complain_errno(-errno, "/dev/null");
	r = make_command(&c, job, launcher, true, how, arguments);
	if (r == 0)
		r = start_launcher(&c, nothing, STDERR_FILENO, SIGTERM, &n->agents);
	close(nothing);
	return r;
}

int run_nodes_end(struct run_nodes *n)
{
	uint64_t nr_members;
	int status, r = 0, e;

	if (n->holders > 0) {
		send_word(n, RUN_FLUSH);
		r = await_said(n, FLUSHED, "copied out", &nr_members);
	}
	if (n->agents > 0) {
		kill(n->agents, SIGTERM);
		run_process_wait(n->agents, &status); /* any status: data that was not shared is stored on each node */
		n->agents = 0;
	}
	e = end_holders(n);
	return r < 0 ? r : e;
}

static void say_line(const char *line)
{
	fputs(line, stdout);
	fflush(stdout);
}

void run_nodes_say_ready(bool is_member)
{
	say_line(is_member ? READY_MEMBER : READY_ALONE);
}

void run_nodes_say_failed(void)
{
	say_line(FAILED);
}

void run_nodes_say_died(void)
{
	say_line(DIED);
}

void run_nodes_say_flushed(void)
{
	say_line(FLUSHED);
}

/* Ignores SIGTERM, which a batch system sends to all processes of a job: the program may need the mount for its last
 * checkpoint. */
enum run_word run_nodes_await_word(bool by_signal, int event)
{
	_cleanup_(closep) int signals = -1;
	struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = event, .events = POLLIN } };
	struct signalfd_siginfo signal;
	sigset_t words;
	char byte;

	sigemptyset(&words);
	sigaddset(&words, SIGUSR1);
	sigaddset(&words, SIGUSR2);
	if (by_signal) {
		signals = signalfd(-1, &words, SFD_CLOEXEC);
		if (signals < 0) {
			run_complain_errno(-errno, "signals");
			return RUN_END;
		}
		p[0].fd = signals;
	}
	if (TEMP_FAILURE_RETRY(poll(p, ARRAY_SIZE(p), -1)) > 0 && p[0].revents == 0)
		return RUN_EVENT;
	if (!by_signal)
		return TEMP_FAILURE_RETRY(read(STDIN_FILENO, &byte, 1)) == 1 ? RUN_FLUSH : RUN_END;
	if (TEMP_FAILURE_RETRY(read(signals, &signal, sizeof(signal))) != (ssize_t)sizeof(signal))
		return RUN_END;
	return signal.ssi_signo == SIGUSR2 ? RUN_FLUSH : RUN_END;
}

bool run_nodes_is_end_said(bool by_signal)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	sigset_t pending;

	if (!by_signal)
		return poll(&p, 1, 0) > 0;
	sigpending(&pending);
	return sigismember(&pending, SIGUSR1);
}
