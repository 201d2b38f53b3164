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
	/* the program: a process group of its own, in the foreground of the terminal if there is one, and marked
	 * for run_process_end_left() */
	bool group;
	bool apart; /* a session of its own: what a terminal or a launcher sends to all of ours does not reach it */
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
/* Processes that a program may have left: those of its group, and those that left it (setsid) and use the mount. The
 * latter are recognized by the environment that they have inherited. */
struct run_left {
	pid_t group;
	const char *mount;
};
/* Sends SIGTERM to them, and after that time SIGKILL. true: there were any. */
bool run_process_end_left(const struct run_left *l, uint64_t grace_ns);
/* As shells tell it: what it ended with, or 128 and the signal. */
int run_process_exit_status(int status);
void run_process_foreground(pid_t group); /* of the terminal that standard input is, if it is one */
