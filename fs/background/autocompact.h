/*
 * Compacting by itself (compact=auto): what is sealed is compacted, one directory after the other, while nobody writes.
 *
 * A thread looks for sealed directories that have not been compacted yet and, once nothing has been written for a
 * second, has ckptfs-compact plan one: a process of its own, at a low priority, since it has users' files parsed. The
 * work itself is the daemon's and as any compaction's: it waits for writers before each frame, memory is bounded, and a
 * crash at any point leaves every file whole. What is done is noted (fs/compacted.h), so the next mount goes on behind
 * it; of a directory that was cut short what is coded is not coded again.
 *
 *	IDLE ── something is sealed ──▶ WAITING ── nobody writes ──▶ RUNNING ── done, failed ──▶ IDLE
 *	                                  ▲                             │
 *	                                  └── paused, or others want ───┘
 *	                                      to collect: it is ended
 *
 * The process reads files through the mount, but from a mount namespace of its own where it may have one, so the mount
 * can be unmounted meanwhile. The thread sees that in /proc/self/mountinfo and ends it; its descriptor goes, and with
 * that the compaction (fs/task.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct aggregator;
struct fs;

enum aggregator_mode { AGGREGATOR_OFF, AGGREGATOR_AUTO }; /* as in the table of options */
enum aggregator_state { AGGREGATOR_IDLE, AGGREGATOR_WAITING, AGGREGATOR_RUNNING, AGGREGATOR_PAUSED };

struct aggregator_status {
	enum aggregator_state state;
	uint64_t nr_waiting; /* sealed directories, when it was last looked */
	uint64_t nr_done, nr_failed; /* since the mount */
};

/* budget: CPU seconds for each GB; names: a file of rules for names of variables (ckptfs-compact --names), NULL: none.
 * Does nothing yet. */
int aggregator_new(struct fs *fs, uint64_t budget, const char *names, struct aggregator **ret);
/* Once the mount answers. Borrows the path. */
int aggregator_start(struct aggregator *a, const char *mountpoint);
/* Ends what is running, and waits for it; while requests are still answered. NULL is fine, as below: nothing happens by
 * itself. */
void aggregator_stop(struct aggregator *a);
void aggregator_free(struct aggregator *a);

void aggregator_wake(struct aggregator *a); /* something was sealed. Returns at once */
/* Ends what is running, soon, and nothing is begun until it is let on again. -EOPNOTSUPP: NULL. */
int aggregator_pause(struct aggregator *a, bool pause);
/* The same for somebody who cannot work beside it, a collection; calls nest. false: nothing of it is left running. */
bool aggregator_step_aside(struct aggregator *a);
void aggregator_go_on(struct aggregator *a);
void aggregator_status(struct aggregator *a, struct aggregator_status *ret); /* of NULL zeros */
