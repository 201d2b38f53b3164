/* Programs that ckptfs-run starts and ends. Called with the signals it waits for blocked; what it starts has them as
 * they were. One thread. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct run_start {
	char *const *argv; /* argv[0]: a path, or looked for beside ckptfs-run if `ours`, then in PATH */
	bool ours;
	bool group; /* a process group of its own, in the foreground of the terminal if there is one */
	bool apart; /* a session of its own: what a terminal or a launcher sends to all of ours does not reach it */
	bool silent; /* what it says on standard error is thrown away */
	int in, out; /* 0 and 1 are ours */
	int death_signal; /* that it gets when ckptfs-run dies; 0: none */
};

/* Block the signals that are waited for: SIGCHLD, and those that end a job or are passed on. */
void run_process_block(sigset_t *ret);
/* 0, and its pid; -errno, also where it could not be executed. */
int run_process_start(const struct run_start *s, pid_t *ret);
/* Until it has ended; as in wait(2). */
int run_process_wait(pid_t pid, int *ret_status);
int run_process_call(const struct run_start *s, int *ret_status); /* start and wait */
/* Whoever is left of this group gets SIGTERM, and after that time SIGKILL. true: there was somebody. */
bool run_process_end_group(pid_t group, uint64_t grace_ns);
/* As shells tell it: what it ended with, or 128 and the signal. */
int run_process_exit_status(int status);
void run_process_foreground(pid_t group); /* of the terminal that standard input is, if it is one */
