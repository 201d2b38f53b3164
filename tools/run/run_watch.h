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
	uint64_t since_ns; /* by the monotonic clock: when this daemon was first watched */
	unsigned nr_short; /* deaths in a row of daemons that had not lived long */
};

#define RUN_WATCH_NONE          \
	{                       \
		.daemon = -1    \
	}

/* After mounting. Reports a daemon that cannot be watched. */
void run_watch_begin(struct run_watch *w, struct run_mount *m, enum run_on_death action);
/* If the daemon has died, report it and start the action. true: the program is to end. */
bool run_watch_look(struct run_watch *w);
/* A child has ended, with this status of wait(2). true: it was the child that remounts. */
bool run_watch_reap(struct run_watch *w, pid_t pid, int status);
/* Wait for a remount in progress. */
void run_watch_settle(struct run_watch *w);
/* The program has ended: check once more, and wait for a remount in progress. */
void run_watch_end(struct run_watch *w);
