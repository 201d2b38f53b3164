/*
 * ckptfs-agent: one MPI rank for each node of a cluster, between the node's daemon and the agents of the others.
 *
 * Exit status: 0 the world has ended, 1 usage, 2 it cannot begin or go on, 130 interrupted.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/arena.h"
#include "mpi-agent/commands.h"
#include "mpi-agent/connect.h"
#include "mpi-agent/loop.h"
#include "mpi-agent/rounds.h"
#include "mpi-agent/status.h"
#include "mpi-agent/waits.h"
#include "mpi-agent/world.h"

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_LOST = 3, EXIT_INTERRUPTED = 130 };

#define REMEMBER_MIB 64 /* a million pages that rounds have settled, and as many that one node has */
#define REMEMBER_MIB_MAX (1u << 20)
#define FINALIZE_S 10 /* MPI's own end has no limit */

struct request {
	const char *mount, *socket;
	bool status, heal;
	const char *forget; /* a node's name */
	struct rounds_conf rounds;
};

static volatile sig_atomic_t caught;
static char shown_as[2 * LINK_NAME_LEN + 16]; /* in front of each line: those of many ranks are mixed */

static void help(FILE *to)
{
	fputs("Usage: mpirun -n NODES --map-by node ckptfs-agent --mount DIR [--socket PATH] [--remember MIB] [--no-lookup]\n"
	      "       ckptfs-agent --mount DIR --status\n"
	      "       mpirun -n NODES --map-by node ckptfs-agent --mount DIR --heal\n"
	      "       mpirun -n NODES --map-by node ckptfs-agent --mount DIR --forget NODE\n"
	      "Let the stores of a cluster (mount option cluster=) share what they have in common: one agent for each node,\n"
	      "which finds the daemon of the ckptfs that is mounted at DIR there. Runs until SIGTERM, or until one is unmounted.\n\n"
	      "  --mount DIR      where the ckptfs is mounted\n"
	      "  --socket PATH    the socket of its daemon, if it is not STORE/agent.sock (mount option agent=)\n"
	      "  --remember MIB   memory for what other nodes are known to have; 64 by default, 0: none\n"
	      "  --no-lookup      do not ask other nodes for pages that one of them alone has stored, and do not tell them\n"
	      "  --status         show what the agent that runs on this node does\n"
	      "  --heal           while agents run: nodes that do not take part are lost, and what they had others are to have again;\n"
	      "                   waits for that, on each node\n"
	      "  --forget NODE    that node will not come back: ckptfs-gc waits for it no more; on each node\n"
	      "  -h, --help       this text\n"
	      "  -V, --version    the version\n\n"
	      "Exit status: 0 ended, 1 usage, 2 it cannot begin or go on, 3 --heal: all is restored but for what no node has\n"
	      "any more, 130 interrupted.\n",
	      to);
}

static void print_line(void *userdata, enum log_level level, const char *line)
{
	(void)userdata;
	(void)level;
	fprintf(stderr, "ckptfs-agent%s: %s\n", shown_as, line);
}

static void on_signal(int signal)
{
	caught = signal;
	loop_interrupt(signal);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

/* MPI cannot go on, and neither can the others: whoever has started them hears of it. */
static _Noreturn void give_up(void)
{
	signal(SIGALRM, SIG_DFL);
	alarm(FINALIZE_S);
	MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED);
	_exit(EXIT_FAILED);
}

static enum exit_status finish(int r)
{
	alarm(FINALIZE_S);
	MPI_Finalize();
	alarm(0);
	return r < 0 ? EXIT_FAILED : caught == SIGINT ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* All ranks come this far, with a daemon or without: none waits for one that is not there. */
static int connect_to_daemon(const struct request *q, const struct waits *waits, struct socket_path *at,
			     struct arenas *shared, struct link *l, struct link_welcome *welcome)
{
	int r = socket_find(q->mount, q->socket, at);

	if (r == 0)
		r = daemon_connect(at, monotonic_ns() + waits->hello_ns, shared, l, welcome);
	if (r == 0)
		snprintf(shown_as, sizeof(shown_as), "[%s]", welcome->name);
	return r;
}

static enum exit_status take_part(const struct request *q, const struct waits *waits)
{
	_cleanup_(world_release) struct world w = { 0 };
	struct arenas shared = { 0 }; /* until the process ends: MPI may have messages there */
	struct link l = { .fd = -1 };
	struct socket_path at = { 0 };
	struct link_welcome welcome;
	int status_fd, r;

	world_host(welcome.name);
	snprintf(shown_as, sizeof(shown_as), "[%s]", welcome.name);
	(void)arena_new(ARENA_LEN, &shared.own); /* without it everything goes through the socket */
	r = connect_to_daemon(q, waits, &at, &shared, &l, &welcome);
	r = world_enter(r == 0 ? &welcome : NULL, r, &w);
	explicit_bzero(welcome.proof_key, sizeof(welcome.proof_key));
	if (r == -EINVAL) {
		link_release(&l);
		free(at.path);
		return finish(r);
	}
	if (r < 0)
		give_up();
	catch_signals(); /* until here they just end the process: MPI waits for all to come, without a limit */
	if (w.rank == 0)
		log_notice("%" PRIu32 " nodes take part", w.nr);
	status_fd = status_listen(&at);
	r = loop_run(&w, &l, &shared, waits, &q->rounds, status_fd);
	closep(&status_fd);
	free(at.path);
	if (r < 0 && r != -ECANCELED)
		give_up();
	return finish(r);
}

static enum exit_status show_status(const struct request *q)
{
	struct socket_path at;
	int r = socket_find(q->mount, q->socket, &at);

	if (r < 0)
		return EXIT_FAILED;
	r = status_ask(&at);
	free(at.path);
	return r < 0 || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_DONE;
}

static int parse_remember(const char *s, struct rounds_conf *ret)
{
	char *end;
	unsigned long mib = strtoul(s, &end, 10);

	if (*s < '0' || *s > '9' || *end != '\0' || mib > REMEMBER_MIB_MAX) {
		fprintf(stderr, "ckptfs-agent: --remember %s: not a number of MiB, up to %u\n", s, REMEMBER_MIB_MAX);
		return -EINVAL;
	}
	ret->remember = (size_t)mib << 20;
	return 0;
}

/* 0: go on; else the exit status + 1 */
static int parse(int argc, char *argv[], struct request *q)
{
	static const struct option options[] = {
		{ "mount", required_argument, NULL, 'm' },    { "socket", required_argument, NULL, 's' },
		{ "remember", required_argument, NULL, 'r' }, { "no-lookup", no_argument, NULL, 'n' },
		{ "status", no_argument, NULL, 'S' },	      { "heal", no_argument, NULL, 'H' },
		{ "forget", required_argument, NULL, 'F' },   { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },	      { 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "hV", options, NULL)) >= 0) {
		switch (c) {
		case 'm':
			q->mount = optarg;
			break;
		case 's':
			q->socket = optarg;
			break;
		case 'r':
			if (parse_remember(optarg, &q->rounds) < 0)
				return EXIT_USAGE + 1;
			break;
		case 'n':
			q->rounds.lookup = false;
			break;
		case 'S':
			q->status = true;
			break;
		case 'H':
			q->heal = true;
			break;
		case 'F':
			q->forget = optarg;
			break;
		case 'h':
			help(stdout);
			return EXIT_DONE + 1;
		case 'V':
			puts("ckptfs-agent " CKPTFS_VERSION);
			return EXIT_DONE + 1;
		default:
			fputs("Try ckptfs-agent --help.\n", stderr);
			return EXIT_USAGE + 1;
		}
	}
	if (optind < argc || (!q->mount && !q->socket)) {
		fputs("ckptfs-agent: --mount must be given, and nothing but options; try ckptfs-agent --help\n", stderr);
		return EXIT_USAGE + 1;
	}
	if (q->status + q->heal + (q->forget != NULL) > 1 || (!q->mount && (q->heal || q->forget))) {
		fputs("ckptfs-agent: --status, --heal and --forget do not go together, and the last two need --mount; try ckptfs-agent --help\n",
		      stderr);
		return EXIT_USAGE + 1;
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct request q = { .rounds = { .remember = (size_t)REMEMBER_MIB << 20, .lookup = true } };
	struct waits waits;
	int r = parse(argc, argv, &q);

	if (r > 0)
		return r - 1;
	log_to_function(print_line, NULL);
	if (q.status)
		return (int)show_status(&q);
	if (q.heal || q.forget) {
		r = q.heal ? command_heal(q.mount) : command_forget(q.mount, q.forget);
		return r < 0 || fflush(stdout) != 0 ? EXIT_FAILED : r > 0 ? EXIT_LOST : EXIT_DONE;
	}
	if (waits_read(&waits) < 0)
		return EXIT_USAGE;
	if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
		log_error("MPI does not start");
		return EXIT_FAILED;
	}
	return (int)take_part(&q, &waits);
}
