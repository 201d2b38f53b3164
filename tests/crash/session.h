/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The run that is recorded, and what must hold after a crash anywhere in it.
 *
 * Two threads, each with a workload below a directory of its own, in one engine. A sync acknowledges what both had
 * finished when it started; these two numbers are the marks of the log.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/crash/workload.h"

#define SESSION_THREADS 2

struct session {
	struct workload *work[SESSION_THREADS];
};

int session_init(struct session *s, uint64_t seed, size_t nr_ops);
void session_release(struct session *s);
/* Make a store at dir/store and run the workloads on it, recording everything below dir. Saves the log. */
int session_record(const struct session *s, const char *dir, const char *log_path);
/*
 * Open dir/store, which a crash left, and compare. acked: operations that must be there. further: write more, close
 * and open again. false: wrong, and why is written to `to`.
 */
bool session_check(const struct session *s, const char *dir, const uint64_t acked[SESSION_THREADS], bool further,
		   FILE *to);
