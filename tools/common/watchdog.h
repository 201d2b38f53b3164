/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Bounded waits for a daemon that hangs: stopped, deadlocked, or with a dead disk. A process that waits for a FUSE
 * daemon cannot be interrupted, and not always be killed, so the command works in a child process. The first process
 * asks the daemon every two seconds whether it answers, however long the work takes, passes signals on, and ends as the
 * child does.
 */
#pragma once

/*
 * Returns in the child process, or in the only one if there can be no second. Call it first: before output, signal
 * handlers, threads and any access to `path`. If the daemon of the mount of `path` does not answer, the command prints
 * after two seconds what it waits for, and after a minute, or on a signal, it fails with `exit_failed`.
 */
void watchdog_begin(const char *tool, const char *path, int exit_failed);
/* The command accesses this path from now on. */
void watchdog_set_path(const char *path);
