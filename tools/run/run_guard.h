/*
 * Unmounts when ckptfs-run is killed: a separate process, which detects the end of a pipe. It ends what is left
 * of the program, and unmounts. One thread.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct run_mount;

struct run_guard {
	pid_t pid; /* 0: none */
	int words;
};

/* Once it is mounted. `grace_ns`: as of run_process_end_left(). 0/<0, told. */
int run_guard_start(struct run_guard *k, struct run_mount *m, uint64_t grace_ns);
void run_guard_set_program(const struct run_guard *k, pid_t program); /* its process group */
/* After unmounting: it is not needed any more. */
void run_guard_end(struct run_guard *k);
