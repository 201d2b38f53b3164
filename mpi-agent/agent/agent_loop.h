/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The event loop of an agent, in one thread: it handles messages of its daemon and of the other agents, and advances
 * rounds, fetches and answers. It never blocks, except for a nap when it is idle: none at first, up to a millisecond in
 * the end, interrupted by the daemon.
 *
 * All agents end together. An agent with a reason to end (its daemon has ended, a signal, an error) disconnects from
 * the daemon and sends END to all others, which do the same. Rounds in progress are completed without daemons, since
 * collective operations need all nodes. When no message is in transit any more, all agents wait for each other, and
 * then finalise MPI.
 *
 *             a reason, or END received              rounds are over, all is sent             barrier passed
 *   RUNNING ───────────────────────────▶ WINDING_UP ───────────────────────────▶ LEAVING ─────────────────▶ OVER
 *
 * This takes end_ns at most: a dead node does not leave. Then the others exit without finalising MPI.
 */
#pragma once

#include <stdbool.h>

#include "mpi-agent/wire/link.h"

struct arenas;
struct rounds_conf;
struct waits;
struct world;

/* Async-signal-safe: the loop ends as soon as it can. */
void loop_interrupt(int signal);

/*
 * Runs until all agents end. Takes `daemon`. 0: MPI may be finalised; -ECANCELED: likewise, after an error here; else
 * MPI must not be called again: -ETIMEDOUT: not all nodes have left in time, -EIO: MPI has failed. `shared`: arenas
 * shared with the daemon, valid as long as MPI. `status_fd`: socket for status requests, or -1.
 */
int loop_run(const struct world *w, struct link *daemon, const struct arenas *shared, const struct waits *waits,
	     const struct rounds_conf *conf, int status_fd);
