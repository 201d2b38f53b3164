/* ckptfs-agent --repair and --forget: requests to the daemon of this node about lost nodes. Without MPI: mpirun may start
 * one on each node, beside the running agents. */
#pragma once

/* `mount`: the mountpoint. Prints the result, logs errors. 0/<0; --repair: 1: done as far as possible, some data is
 * lost. */
int command_repair(const char *mount);
int command_forget(const char *mount, const char *node);
