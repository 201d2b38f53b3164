/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The mount of a job: mounts, checks and unmounts by calling mount.ckptfs and umount.ckptfs. One thread. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stat_answer;

struct run_mount {
	char *store, *point; /* owned */
	const char *options; /* for -o, or NULL; borrowed */
	bool mounted; /* by this process */
	bool made; /* the mountpoint was created, and is removed afterwards */
	unsigned nr_deaths; /* of its daemon, as detected by ckptfs-run */
	bool hangs; /* its daemon did not answer */
};

/*
 * Mounts `store` on `point`, which is created if it is missing. A mount of the same store whose daemon has died is
 * detached first. `shared`: uses an existing mount, and run_mount_end() leaves it mounted. Reports errors. 0/<0
 */
int run_mount_begin(struct run_mount *m, bool shared);
/* Does its daemon answer? 0: yes, or nothing is mounted; -ENOTCONN: it has died; -ETIMEDOUT: no answer within a minute,
 * reported. */
int run_mount_ask(struct run_mount *m);
/* The figures of its daemon; waits as run_mount_ask(). Other errors are those of stat_ask(), and are not reported. */
int run_mount_figures(struct run_mount *m, struct stat_answer *ret);
/*
 * Work on the mount in a child process, because its daemon, or the other filesystem that it uses, may hang meanwhile.
 * Returns the result of `work`, or -ETIMEDOUT if the daemon does not answer, reported. Once `is_stopped` returns true,
 * in this process, *stop is true in the other. If the work does not end soon after that, or after `until_ns`, it is
 * left behind: -ETIME, reported.
 */
struct run_work {
	int (*work)(void *arg, const atomic_bool *stop);
	bool (*is_stopped)(void *arg);
	uint64_t until_ns; /* by the monotonic clock */
	void *arg;
};
int run_mount_work(struct run_mount *m, const struct run_work *w);
bool run_mount_is_there(const struct run_mount *m); /* mounted, even if its daemon has died */
/* Detaches the mount of a daemon that has died, and mounts the store in its place. Reports errors. 0/<0 */
int run_mount_again(struct run_mount *m);
/*
 * Unmounts when everything is durable. Nothing is left mounted: -EBUSY: the mount is in use, so it is detached, and its
 * daemon ends with its last user. -ENOTCONN: the daemon has died, now or before. -ETIMEDOUT: it does not answer, so the
 * mount is detached. Reports errors.
 */
int run_mount_end(struct run_mount *m);
void run_mount_release(struct run_mount *m);
