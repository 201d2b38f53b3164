/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ckptfs-agent --repair and --forget: requests to the daemon of this node about lost nodes. They do not use MPI: mpirun
 * may start one on each node while agents run. */
#pragma once

/* `mount`: the mountpoint. Prints the result, logs errors. 0/<0; --repair: 1: done as far as possible, some data is
 * lost. */
int command_repair(const char *mount);
int command_forget(const char *mount, const char *node);
