/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Automatic recoding (compact=auto): recodes sealed directories one by one while there are no writes.
 *
 * A thread looks for sealed directories that have not been recoded yet. Once nothing has been written for a second, it
 * runs ckptfs-compact to plan one of them: a separate process at a low priority, since it parses users' files. The
 * daemon does the work itself, as for any recoding: it yields to writers before each frame, memory is bounded, and a
 * crash at any point leaves every file intact. Finished directories are recorded (fs/background/compacted.h), so the
 * next mount continues after them. If a directory was interrupted, the parts already recoded are not recoded again.
 *
 *	IDLE ── a directory is sealed ──▶ WAITING ── no writes ──▶ RUNNING ── done, failed ──▶ IDLE
 *	                                     ▲                         │
 *	                                     └── paused, or a ─────────┘
 *	                                         collection starts: it is killed
 *
 * The process reads files through the mount, but from a mount namespace of its own where permitted, so the mount can be
 * unmounted meanwhile. The thread sees this in /proc/self/mountinfo and kills the process. This closes its descriptor,
 * which ends the recoding (fs/background/task.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct aggregator;
struct fs;

enum aggregator_mode { AGGREGATOR_OFF, AGGREGATOR_AUTO }; /* as in the option table */
enum aggregator_state { AGGREGATOR_IDLE, AGGREGATOR_WAITING, AGGREGATOR_RUNNING, AGGREGATOR_PAUSED };

struct aggregator_status {
	enum aggregator_state state;
	uint64_t nr_waiting; /* sealed directories, at the last check */
	uint64_t nr_done, nr_failed; /* since the mount */
};

/* budget: CPU seconds per GB; names: a file of rules for names of variables (ckptfs-compact --names), NULL: none. Does
 * not start yet. */
int aggregator_new(struct fs *fs, uint64_t budget, const char *names, struct aggregator **ret);
/* Call when the mount answers. Borrows the path. dev: of the mount, 0: it is unmounted already. */
int aggregator_start(struct aggregator *a, const char *mountpoint, dev_t dev);
/* Stop the running process, and wait for it; call while requests are still answered. NULL is fine, here and below:
 * automatic recoding is off. */
void aggregator_stop(struct aggregator *a);
void aggregator_free(struct aggregator *a);

void aggregator_wake(struct aggregator *a); /* a directory was sealed. Returns at once */
/* Stop the running process soon, and start none until resumed. -EOPNOTSUPP: NULL. */
int aggregator_pause(struct aggregator *a, bool pause);
/* The same for work that cannot run at the same time, such as a collection; calls nest. false: it was not running. */
bool aggregator_step_aside(struct aggregator *a);
void aggregator_go_on(struct aggregator *a);
void aggregator_status(struct aggregator *a, struct aggregator_status *ret); /* all zeros for NULL */
