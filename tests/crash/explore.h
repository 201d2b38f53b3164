/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Look at the crash states of one log with several processes.
 *
 * Workers take crash points in order, make variants of each (states.h), skip trees that any of them has seen, write the
 * rest into a directory in memory, open the engine on it and compare (session.h). Some states are written to and opened
 * again. For a few, the recovery itself is recorded and crashed in turn. The first failure ends it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/crash/oplog.h"
#include "tests/crash/session.h"

struct explore {
	const struct session *session;
	const struct oplog *log;
	const char *log_path; /* of *log, for the report */
	const char *keep; /* directory for logs of failed runs */
	const char *scratch; /* directory in memory */
	uint64_t seed, nr_states;
	size_t nr_ops; /* for the report */
	int jobs;
};

struct explore_result {
	uint64_t nr_checked, nr_further, nr_nested, nr_same;
};

/* false: a state is wrong, or a worker died; told on stdout with the command that shows it again. */
bool explore_all(const struct explore *x, struct explore_result *ret);
/* One state, with the engine's log on stderr. */
bool explore_one(const struct explore *x, size_t point, unsigned variant);
