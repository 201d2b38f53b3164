/* What ckptfs-run is asked to do: its options, and what they leave to the environment of the job. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/run_job.h"

enum run_mode { RUN, RUN_HOLD_BY_INPUT, RUN_HOLD_BY_SIGNAL, RUN_AGENT };

#define RUN_NEVER UINT64_MAX

struct run_request {
	enum run_mode mode;
	const char *store, *mount, *options, *drain_to, *launcher; /* patterns, but for the options and the launcher */
	bool shared, no_agent, quiet;
	uint64_t drain_before_ns, time_limit_ns, grace_ns; /* time_limit_ns: 0: as the job says */
	int signal; /* what tells the program to end */
	char **program;

	struct run_job job;
	uint64_t until_ns; /* by the monotonic clock: the job's end, or RUN_NEVER */
	char mountpoint[PATH_MAX]; /* room for `mount` where nobody gives one */
};

/* 0: that is to be done, 1: it was --help or --version, -EINVAL: what is wrong was told. Borrows argv and the
 * environment. */
int run_request_read(int argc, char *argv[], struct run_request *ret);
