/*
 * What a batch system says of the job in its environment, and names made of it. Pure, but for PBS_NODEFILE, which is
 * read.
 *
 * | | job | nodes | this one | its end |
 * | Slurm | SLURM_JOB_ID | SLURM_JOB_NUM_NODES | SLURM_NODEID | SLURM_JOB_END_TIME, in later versions |
 * | Flux | FLUX_JOB_ID, FLUX_ENCLOSING_ID | FLUX_JOB_NNODES | FLUX_TASK_RANK | |
 * | PBS | PBS_JOBID | lines of PBS_NODEFILE, each once | PBS_NODENUM | |
 *
 * Without any of them there is one node, and the job is called after this process. A rank that an MPI launcher gave,
 * one for each node, counts as the number of the node before all others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum run_scheduler { RUN_NO_SCHEDULER, RUN_SLURM, RUN_FLUX, RUN_PBS };

struct run_job {
	enum run_scheduler scheduler;
	char id[128]; /* fit for a file's name */
	uint64_t nodes, node; /* node: from 0 */
	uint64_t end_s; /* end of its time limit, since 1970; 0: unknown */
};

/* `env` is as getenv(3). -EINVAL: a variable is no number, and *ret_what is its name. */
int run_job_read(const char *(*env)(const char *name), struct run_job *ret, const char **ret_what);
/* What a batch system prints of the time that is left, 90, 12:34, 1:02:03 or 1-02:03:04, in seconds. -EINVAL: something
 * else, as UNLIMITED. */
int run_job_parse_left(const char *text, uint64_t *ret_s);
/* `name` as a job's id: at most so long, and without what a file's name cannot have. */
void run_job_call(struct run_job *job, const char *name);

/* %j the job, %h this host, %n the number of this node, %u the user, %% a %. -EINVAL: another letter. Caller frees. */
int run_job_expand(const struct run_job *job, const char *pattern, char **ret);
/* Does it tell nodes apart? */
bool run_job_is_per_node(const char *pattern);
