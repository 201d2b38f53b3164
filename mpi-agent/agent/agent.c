/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-agent: one MPI rank for each node of a cluster, between the node's daemon and the agents of its peers.
 *
 * Exit status: 0 ended normally, 1 usage, 2 cannot start or continue, 130 interrupted.
 */
#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/agent/commands.h"
#include "mpi-agent/agent/connect.h"
#include "mpi-agent/agent/agent_loop.h"
#include "mpi-agent/agent/rounds.h"
#include "mpi-agent/agent/status.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_LOST = 3, EXIT_INTERRUPTED = 130 };

#define REMEMBER_MIB "64" /* a million pages with results of rounds, and as many announced ones */
#define REMEMBER_MIB_MAX (1u << 20)
#define FINALIZE_S 10 /* MPI_Finalize() and MPI_Abort() have no timeout */

struct request {
	char *mount, *socket;
	bool status, repair, no_lookup;
	char *forget; /* name of a node */
	uint64_t remember_mib;
	struct rounds_conf rounds;
};

static volatile sig_atomic_t caught;
static char shown_as[2 * LINK_NAME_LEN + 16]; /* prefix of log lines: mpirun mixes those of all ranks */

static void print_line(void *userdata, enum log_level level, const char *line)
{
	(void)userdata;
	(void)level;
	text_printf(stderr, "ckptfs-agent%s", shown_as);
	fprintf(stderr, ": %s\n", line); /* already escaped */
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

/* Ends all agents after MPI has failed. */
static _Noreturn void abort_world(void)
{
	signal(SIGALRM, SIG_DFL);
	alarm(FINALIZE_S);
	MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED);
	_exit(EXIT_FAILED);
}

static enum exit_status finalize(int r)
{
	alarm(FINALIZE_S);
	MPI_Finalize();
	alarm(0);
	return r < 0 ? EXIT_FAILED : caught == SIGINT ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* On error the rank still enters the world, so that no other rank waits for it. */
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
	struct arenas shared = { 0 }; /* never released: MPI may still use messages in it */
	struct link l = { .fd = -1 };
	struct socket_path at = { 0 };
	struct link_welcome welcome;
	int status_fd, r;

	world_host(welcome.name);
	snprintf(shown_as, sizeof(shown_as), "[%s]", welcome.name);
	(void)arena_new(ARENA_LEN, &shared.own); /* optional: without it all data goes through the socket */
	r = connect_to_daemon(q, waits, &at, &shared, &l, &welcome);
	r = world_enter(r == 0 ? &welcome : NULL, r, &w);
	explicit_bzero(welcome.proof_key, sizeof(welcome.proof_key));
	if (r == -EINVAL) {
		link_release(&l);
		free(at.path);
		return finalize(r);
	}
	if (r < 0)
		abort_world();
	catch_signals(); /* not earlier: a signal must end world_enter(), which waits for all ranks */
	if (w.rank == 0)
		log_notice("%s", human_nr(w.nr, "connected node").s);
	status_fd = status_listen(&at);
	r = loop_run(&w, &l, &shared, waits, &q->rounds, status_fd);
	closep(&status_fd);
	free(at.path);
	if (r < 0 && r != -ECANCELED)
		abort_world();
	return finalize(r);
}

static enum exit_status show_status(const struct request *q)
{
	struct socket_path at;
	int r = socket_find(q->mount, q->socket, &at);

	if (r < 0)
		return EXIT_FAILED;
	r = status_ask(&at);
	free(at.path);
	return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "mount", CONF_STRING, OF(mount), .value = "DIR", .help = "mountpoint of the ckptfs" },
	{ "socket", CONF_STRING, OF(socket), .value = "PATH",
	  .help = "the socket of its daemon, if it is not STORE/agent.sock (mount option agent=)" },
	{ "remember", CONF_NUMBER, OF(remember_mib), .fallback = REMEMBER_MIB, .max = REMEMBER_MIB_MAX, .value = "MIB",
	  .must = "not a number of MiB, up to 1048576",
	  .help = "memory for pages that other nodes are known to have; 0: none" },
	{ "no-lookup", CONF_FLAG, OF(no_lookup),
	  .help = "do not look up pages that only one other node has stored, and announce none" },
	{ "status", CONF_FLAG, OF(status), .help = "show the statistics of the agent on this node" },
	{ "repair", CONF_FLAG, OF(repair),
	  .help = "treat nodes without an agent as lost, and re-replicate; run it on each node while agents run; waits until "
		  "it is done" },
	{ "forget", CONF_STRING, OF(forget), .value = "NODE",
	  .help = "NODE is lost for good: ckptfs gc no longer waits for it; run it on each node" },
	COMMAND_END,
};

static const char *check(void *request, int nr _unused_)
{
	const struct request *q = request;

	if (!q->mount && !q->socket)
		return "--mount is needed";
	if (q->status + q->repair + (q->forget != NULL) > 1)
		return "--status, --repair and --forget exclude each other";
	return !q->mount && (q->repair || q->forget) ? "--repair and --forget need --mount" : NULL;
}

static int run(void *request, char *operands[] _unused_, int nr _unused_)
{
	struct request *q = request;
	int r;

	log_to_function(print_line, NULL);
	q->rounds = (struct rounds_conf){ .remember = (size_t)q->remember_mib << 20, .lookup = !q->no_lookup };
	if (q->status)
		return (int)show_status(q);
	if (q->repair || q->forget) {
		r = q->repair ? command_repair(q->mount) : command_forget(q->mount, q->forget);
		return r < 0 ? EXIT_FAILED : r > 0 ? EXIT_LOST : EXIT_DONE;
	}
	if (MPI_Init(NULL, NULL) != MPI_SUCCESS) {
		log_error("MPI: cannot initialise");
		return EXIT_FAILED;
	}
	return (int)take_part(q, waits_of_agent());
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-agent",
		.usage = "mpirun -n NODES --map-by node ckptfs-agent --mount DIR [--socket PATH] [--remember MIB] [--no-lookup]\n"
			 "       ckptfs-agent --mount DIR --status\n"
			 "       mpirun -n NODES --map-by node ckptfs-agent --mount DIR --repair\n"
			 "       mpirun -n NODES --map-by node ckptfs-agent --mount DIR --forget NODE\n",
		.about = "Let the stores of a cluster (mount option cluster=) share common data: one agent for each node, which "
			 "connects to the daemon of the ckptfs mounted at DIR there. Runs until SIGTERM, or until one is unmounted.",
		.options = options,
		.footer = "Exit status: 0 ended, 1 usage, 2 it cannot start or continue, 3 --repair: restored everything except data "
			  "that no node has any more, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.operands = "nothing but options",
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
