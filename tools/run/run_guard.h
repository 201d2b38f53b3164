/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A separate process that unmounts when ckptfs-run is killed, which it detects by the end of a pipe. It first ends what
 * is left of the program. One thread.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct run_mount;

struct run_guard {
	pid_t pid; /* 0: none */
	int words;
};

/* After mounting. `grace_ns`: as for run_process_end_left(). 0/<0; reports errors. */
int run_guard_start(struct run_guard *k, struct run_mount *m, uint64_t grace_ns);
void run_guard_set_program(const struct run_guard *k, pid_t program); /* its process group */
/* After unmounting. */
void run_guard_end(struct run_guard *k);
