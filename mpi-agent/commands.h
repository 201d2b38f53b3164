/* ckptfs-agent --heal and --forget: what the daemon of this node is to do about nodes that are lost. Without MPI:
 * mpirun may start one on each node, beside the agents that run. */
#pragma once

/* `mount`: where the ckptfs is mounted. What comes of it is printed, what is wrong told. 0/<0; --heal, 1: all is done
 * that can be, and something is lost. */
int command_heal(const char *mount);
int command_forget(const char *mount, const char *node);
