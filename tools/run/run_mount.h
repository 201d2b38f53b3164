/* One mount for one job: made, looked after and taken away by calling mount.ckptfs and umount.ckptfs. One thread. */
#pragma once

#include <stdbool.h>

struct run_mount {
	char *store, *point; /* owned */
	const char *options; /* for -o, or NULL; borrowed */
	bool mounted; /* by us */
	bool made; /* the mountpoint: it is removed afterwards */
	unsigned nr_deaths; /* of its daemon, noticed by ckptfs-run */
	bool hangs; /* its daemon did not answer */
};

/*
 * Mount `store` on `point`, which is made if it is missing. A mount of the same store whose daemon has died is taken
 * away first. `shared`: there is a mount, and it stays. What is wrong is told. 0/<0
 */
int run_mount_begin(struct run_mount *m, bool shared);
/* Asks its daemon. 0: it answers, or nothing is mounted; -ENOTCONN: it has died; -ETIMEDOUT: it does not answer within
 * a minute, told. */
int run_mount_ask(struct run_mount *m);
bool run_mount_is_there(const struct run_mount *m); /* mounted, whether its daemon lives or not */
/* Detach the mount of a daemon that has died, and mount the store in its place. 0/<0, reported. */
int run_mount_again(struct run_mount *m);
/*
 * Unmount, when everything is durable. Whatever happens, nothing is left mounted: one that is in use is detached, and
 * its daemon ends with its last user: -EBUSY. -ENOTCONN: the daemon had died, now or before. -ETIMEDOUT: it does not
 * answer, so the mount is detached. What is wrong is told.
 */
int run_mount_end(struct run_mount *m);
void run_mount_release(struct run_mount *m);
