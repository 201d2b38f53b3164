/* One mount for one job: made, looked after and taken away by calling mount.ckptfs and umount.ckptfs. One thread. */
#pragma once

#include <stdbool.h>

struct run_mount {
	char *store, *point; /* owned */
	bool mounted; /* by us */
	bool made; /* the mountpoint: it is removed afterwards */
};

/*
 * Mount `store` on `point`, which is made if it is missing. A mount of the same store whose daemon has died is taken
 * away first. `shared`: there is a mount, and it stays. `options`: for -o, or NULL. What is wrong is told. 0/<0
 */
int run_mount_begin(struct run_mount *m, const char *options, bool shared);
bool run_mount_is_alive(const struct run_mount *m);
/*
 * Unmount, when everything is durable. Whatever happens, nothing is left mounted: one that is in use is detached, and
 * its daemon ends with its last user: -EBUSY. -ENOTCONN: the daemon had died. What is wrong is told.
 */
int run_mount_end(struct run_mount *m);
void run_mount_release(struct run_mount *m);
