/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Watches the daemon of a job's mount while the program runs, and reports its death at once. Then, by
 * --on-daemon-death:
 *
 *   remount   detach the dead mount and mount the store in its place, in a child process: recovery may take minutes,
 *             and ckptfs-run forwards signals meanwhile. Open files return errors; reopened, they have their durable
 *             content
 *   end       send the program SIGTERM, as when the job's time is up
 *   report    nothing more
 *
 * If the daemon dies again soon after it was mounted, the store is mounted again at most three times. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct run_mount;

enum run_on_death { RUN_REMOUNT, RUN_END_PROGRAM, RUN_REPORT };

struct run_watch {
	struct run_mount *mount; /* borrowed */
	enum run_on_death action;
	int daemon; /* pidfd: readable when the daemon has ended; -1: none */
	pid_t remounter; /* 0: none */
	uint64_t since_ns; /* monotonic clock: start of watching this daemon */
	unsigned nr_short; /* consecutive deaths soon after mounting */
};

#define RUN_WATCH_NONE          \
	{                       \
		.daemon = -1    \
	}

/* After mounting. Reports a daemon that cannot be watched. */
void run_watch_begin(struct run_watch *w, struct run_mount *m, enum run_on_death action);
/* If the daemon has died, reports it and starts the action. true: the program must end. */
bool run_watch_look(struct run_watch *w);
/* A child has ended, with this status of wait(2). true: it was the remounting child. */
bool run_watch_reap(struct run_watch *w, pid_t pid, int status);
/* Waits for a remount in progress. */
void run_watch_settle(struct run_watch *w);
/* After the program has ended: checks once more, and waits for a remount in progress. */
void run_watch_end(struct run_watch *w);
