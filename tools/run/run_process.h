/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Starts and ends programs for ckptfs-run. The signals that it waits for are blocked; programs start with the original
 * signal mask. One thread. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct run_start {
	char *const *argv; /* argv[0]: a path, or a name to look up beside ckptfs-run if `ours`, then in PATH */
	bool ours;
	/* for the program: in its own process group, in the foreground of the terminal if there is one, and marked
	 * for run_process_end_left() */
	bool group;
	bool apart; /* in its own session: signals of a terminal or launcher to our process group do not reach it */
	int in, out; /* 0 and 1: inherited */
	int death_signal; /* sent when ckptfs-run dies; 0: none */
};

/* Blocks the signals that ckptfs-run waits for: SIGCHLD, and those that end a job or are passed on. */
void run_process_block(sigset_t *ret);
/* 0 and its pid, or -errno, also if it could not be executed. */
int run_process_start(const struct run_start *s, pid_t *ret);
/* Waits until it has ended; status as of wait(2). */
int run_process_wait(pid_t pid, int *ret_status);
int run_process_call(const struct run_start *s, int *ret_status); /* start and wait */
/* Processes that a program may have left behind: those in its process group, and those that left the group (setsid) and
 * use the mount. The latter are recognized by the environment that they inherited. */
struct run_left {
	pid_t group;
	const char *mount;
};
/* Sends them SIGTERM, and after `grace_ns` SIGKILL. true: there were any. */
bool run_process_end_left(const struct run_left *l, uint64_t grace_ns);
/* As shells report it: the exit status, or 128 plus the signal. */
int run_process_exit_status(int status);
void run_process_foreground(pid_t group); /* of the terminal at standard input, if it is one */
