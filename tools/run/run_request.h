/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Parses the options of ckptfs-run, with defaults from the environment of the job. */
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
	const char *store, *mount, *options, *flush_to, *launcher; /* patterns, except options and launcher */
	bool shared, no_agent, quiet;
	bool agent;
	int hold; /* 0: no, 1: by input, 2: by signal */
	const char *job_name; /* NULL: from the environment */
	uint64_t nodes; /* 0: likewise */
	uint64_t signal_before_ns, time_limit_ns, grace_ns; /* time_limit_ns = 0: from the environment */
	int signal; /* asks the program to end */
	enum run_on_death on_death;
	char **program;

	struct run_job job;
	uint64_t until_ns; /* monotonic clock: end of the job, or RUN_NEVER */
	char mountpoint[PATH_MAX]; /* room for `mount` if none is given */
};

extern const char *const run_on_death_names[RUN_REPORT + 1];

#define RUN_EXIT_USAGE 1
#define RUN_EXIT_OURS 125 /* ckptfs-run itself failed */

/* 0: *ret is set; 1: --help or --version was given; -EINVAL: an error was printed; the last two with an exit status.
 * Borrows argv and the environment; strings live as long as the process. */
int run_request_read(int argc, char *argv[], struct run_request *ret, int *ret_status);
