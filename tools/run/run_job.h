/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The job as described by the batch system in the environment, and patterns with its names. Pure, except that it reads
 * PBS_NODEFILE.
 *
 * | | job | nodes | this node | end of the job |
 * | Slurm | SLURM_JOB_ID | SLURM_JOB_NUM_NODES | SLURM_NODEID | SLURM_JOB_END_TIME, in later versions |
 * | Flux | FLUX_JOB_ID, FLUX_ENCLOSING_ID | FLUX_JOB_NNODES | FLUX_TASK_RANK | |
 * | PBS | PBS_JOBID | lines of PBS_NODEFILE, each once | PBS_NODENUM | |
 *
 * Without any of them there is one node, and the job is named after this process. The rank that an MPI launcher sets,
 * with one process per node, takes precedence as the number of the node.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum run_scheduler { RUN_NO_SCHEDULER, RUN_SLURM, RUN_FLUX, RUN_PBS };

struct run_job {
	enum run_scheduler scheduler;
	char id[128]; /* valid as a file name */
	uint64_t nodes, node; /* `node` counts from 0 */
	uint64_t end_s; /* end of its time limit, since 1970; 0: unknown */
};

/* `env` works like getenv(3). -EINVAL: a variable is not a number, and *ret_what is its name. */
int run_job_read(const char *(*env)(const char *name), struct run_job *ret, const char **ret_what);
/* Parses the time left as printed by a batch system: 90, 12:34, 1:02:03 or 1-02:03:04. Returns seconds. -EINVAL:
 * anything else, such as UNLIMITED. */
int run_job_parse_left(const char *text, uint64_t *ret_s);
/* Sets the job's id: truncates `name`, and replaces characters that are not safe in a file name. */
void run_job_call(struct run_job *job, const char *name);

/* %j the job, %h this host, %n the number of this node, %u the user, %% a %. -EINVAL: another letter. Caller frees. */
int run_job_expand(const struct run_job *job, const char *pattern, char **ret);
/* Does it differ between nodes? */
bool run_job_is_per_node(const char *pattern);
