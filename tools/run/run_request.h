/* What ckptfs-run is asked to do: its options, and what they leave to the environment of the job. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/run/run_job.h"
#include "tools/run/run_watch.h"

enum run_mode { RUN, RUN_HOLD_BY_INPUT, RUN_HOLD_BY_SIGNAL, RUN_AGENT };

#define RUN_NEVER UINT64_MAX

struct run_request {
	enum run_mode mode;
	const char *store, *mount, *options, *flush_to, *launcher; /* patterns, but for the options and the launcher */
	bool shared, no_agent, quiet;
	bool agent;
	int hold; /* 0: no, 1: by input, 2: by signal */
	const char *job_name; /* NULL: as the environment says */
	uint64_t nodes; /* 0: likewise */
	uint64_t signal_before_ns, time_limit_ns, grace_ns; /* time_limit_ns: 0: as the job says */
	int signal; /* what tells the program to end */
	enum run_on_death on_death;
	char **program;

	struct run_job job;
	uint64_t until_ns; /* by the monotonic clock: the job's end, or RUN_NEVER */
	char mountpoint[PATH_MAX]; /* room for `mount` if none is given */
};

extern const char *const run_on_death_names[RUN_REPORT + 1];

#define RUN_EXIT_USAGE 1
#define RUN_EXIT_OURS 125 /* ckptfs-run itself has failed */

/* 0: that is to be done; 1 after --help or --version, -EINVAL after a message, both with an exit status. Borrows argv
 * and the environment; strings live as long as the process. */
int run_request_read(int argc, char *argv[], struct run_request *ret, int *ret_status);
