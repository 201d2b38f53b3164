/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A job on several nodes: ckptfs-run starts itself on each node (--hold) as a holder, which keeps a mount while the
 * program runs. The agents are a second program of the same launcher: when one dies, the launcher ends all of them, and
 * the mounts remain.
 *
 *   ckptfs-run                      each holder                      agents
 *   start holders                   mount, send "ready"
 *   start agents                                                     run
 *   run the program
 *   send "flush"                    copy out, send "copied out"      needed: pages may be on other nodes only
 *   all copied out: end agents                                       end
 *   send "end"                      unmount
 *
 * A holder also receives "end" when ckptfs-run has died. It then copies out what it can, and unmounts. How commands are
 * sent depends on the launcher:
 *
 *                "flush"     "end"
 *   srun, flux   a byte      end of standard input, which the launcher passes to all holders
 *   mpirun       SIGUSR2     SIGUSR1: mpirun passes on both, but standard input to one rank only
 *
 * One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/run/run_job.h"

struct run_nodes {
	uint64_t nr;
	pid_t holders, agents; /* of the launchers; 0: not running */
	int input, output; /* of the holders; -1: none */
	bool by_signal; /* commands are signals */
	bool output_ended, failed; /* from messages of holders while the program ran */
	char line[4096]; /* of the output: the last one, or the first `len` bytes of one that is incomplete */
	size_t len;
};

#define RUN_NODES_NONE                    \
	{                                 \
		.input = -1, .output = -1 \
	}

/*
 * Mounts on all nodes. `arguments`, which end with NULL, are for ckptfs-run --hold. `launcher`: "srun", "flux",
 * "mpirun", a command that starts one process on each node, or NULL: by batch system. 0: all are ready, 1: and all
 * stores belong to a cluster, <0: failed, reported.
 */
int run_nodes_hold(struct run_nodes *n, const struct run_job *job, const char *launcher, char *const *arguments);
/* Starts the agents; `arguments` are for ckptfs-run --agent. */
int run_nodes_start_agents(struct run_nodes *n, const struct run_job *job, const char *launcher, char *const *arguments);
/* Reads messages of holders while the program runs, as far as they are complete; call it when `output` is readable. true:
 * a daemon has died, and the program must end. */
bool run_nodes_look(struct run_nodes *n);
/* Has all nodes copy out, ends the agents, and has all nodes unmount. Reports errors. 0/<0 */
int run_nodes_end(struct run_nodes *n);

/* In ckptfs-run --hold. */
enum run_word { RUN_FLUSH, RUN_END, RUN_EVENT };
enum run_word run_nodes_await_word(bool by_signal, int event); /* RUN_EVENT: `event`, unless -1, is readable */
bool run_nodes_is_end_said(bool by_signal); /* after RUN_FLUSH */
void run_nodes_say_ready(bool is_member);
/* Instead of ready, or at the end. The holder then exits with 0: on other statuses, launchers end the other holders. */
void run_nodes_say_failed(void);
void run_nodes_say_flushed(void);
void run_nodes_say_died(void); /* the daemon died, and the program must end */
