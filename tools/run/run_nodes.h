/*
 * A job on several nodes: ckptfs-run starts itself on each of them (--hold), which holds a mount for as long as the
 * program runs. The agents are a second program of the same launcher: when one dies, the launcher ends them all, and
 * the mounts go on.
 *
 *   ckptfs-run                          each holder                       agents
 *   start holders                       mount, say "ready"
 *   start agents                                                          run
 *   the program runs
 *   "drain"                             drain, say "drained"              needed: pages of a file may be on other nodes only
 *   all have drained: end agents                                          end
 *   "end"                               unmount
 *
 * A holder hears "end" too when ckptfs-run has died, then drains as far as it gets, and unmounts. How it hears depends
 * on the launcher:
 *
 *                "drain"     "end"
 *   srun, flux   a byte      the end of its standard input, which the launcher passes to all
 *   mpirun       SIGUSR2     SIGUSR1: it passes these on, but standard input to one rank only
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
	pid_t holders, agents; /* their launchers; 0: not running */
	int input, output; /* of the holders; -1: none */
	bool by_signal; /* how they hear */
	bool output_ended, failed; /* messages of holders while the program ran */
};

#define RUN_NODES_NONE                    \
	{                                 \
		.input = -1, .output = -1 \
	}

/*
 * Mount on all nodes: `arguments`, which end with NULL, are for ckptfs-run --hold. `launcher`: "srun", "flux",
 * "mpirun", a command that starts one process on each node, or NULL: what fits the job. 0 when all are ready, 1 and all
 * are stores of a cluster, <0 and it was told why.
 */
int run_nodes_hold(struct run_nodes *n, const struct run_job *job, const char *launcher, char *const *arguments);
/* The agents; `arguments` for ckptfs-run --agent. */
int run_nodes_start_agents(struct run_nodes *n, const struct run_job *job, const char *launcher, char *const *arguments);
/* Reads messages of holders while the program runs; call it when `output` is readable. true: a daemon has died, and the
 * program is to end. */
bool run_nodes_look(struct run_nodes *n);
/* All nodes drain; agents end; all nodes unmount. 0/<0, told. */
int run_nodes_end(struct run_nodes *n);

/* In ckptfs-run --hold. */
enum run_word { RUN_FLUSH, RUN_END, RUN_EVENT };
enum run_word run_nodes_await_word(bool by_signal, int event); /* RUN_EVENT: `event`, if it is one, is readable */
bool run_nodes_is_end_said(bool by_signal); /* after RUN_FLUSH */
void run_nodes_say_ready(bool is_member);
/* instead, or at its end; its status is 0, since launchers end others over another one */
void run_nodes_say_failed(void);
void run_nodes_say_flushed(void);
void run_nodes_say_died(void); /* the daemon died, and the program is to end */
