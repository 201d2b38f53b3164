/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What makes a daemon of mount.ckptfs, whatever it serves: exit status, fork, signals, the terminal. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct fuse_session;
struct options;

/* As of mount(8); see main.c. */
enum exit_status { EXIT_MOUNTED = 0, EXIT_USAGE = 1, EXIT_SYSTEM = 2, EXIT_FAILED = 32 };
enum exit_status exit_status_of(int r);

struct daemon {
	int parent_fd; /* reports the result of the mount to the parent; -1: no parent, or already reported */
};
#define DAEMON_NONE ((struct daemon){ .parent_fd = -1 })

/* 0: in the child; 1: in the parent, with its exit status in *ret. */
int daemon_fork(struct daemon *d, enum exit_status *ret);
/* Detach from the terminal, then let the parent exit. In the foreground: only sets the log level. */
void daemon_detach(struct daemon *d, const struct options *o);
/* SIGTERM, SIGINT, SIGHUP and SIGUSR1 are read from *ret_fd; SIGUSR2 is blocked, for the daemon's own use. */
int daemon_block_signals(int *ret_fd);
/* Increase read-ahead from FUSE's 128 KiB; only possible as root, and only after the mount. */
bool daemon_raise_readahead(dev_t dev, unsigned kib);

/*
 * false: another mount than ours, which has this device, is at our mountpoint, or none, so an unmount by path is wrong.
 * `dev` 0: ours has not answered yet. Sends no request to a filesystem: ours no longer answers.
 */
bool daemon_is_on_top(const char *mountpoint, dev_t dev);
/*
 * End a session whose mountpoint has another mount by now, or none. libfuse would unmount whatever is mounted there,
 * unless poll(2) reports an error on the device, as it does after an unmount. The write end of a pipe without a reader
 * reports one, too. Closing the device ends the session wherever else it is mounted.
 */
void daemon_end_session(struct fuse_session *se);
