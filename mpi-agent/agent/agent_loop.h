/*
 * What an agent does all day, in one thread: it hears its daemon and the other agents, and lets rounds, fetches and
 * answers go on. Nothing in it blocks, but a nap when there is nothing to do: none at first, a millisecond in the end,
 * cut short by the daemon.
 *
 * A world ends together. Who has a reason to end it (its daemon is gone, a signal, an error) lets go of the daemon and
 * tells all others, who do the same; rounds that are under way are gone through without daemons, since all nodes must
 * take part in what is collective; when nothing is on its way any more, all wait for each other, and only then for
 * MPI's end.
 *
 *             a reason, or END of another            rounds are over, all is sent             all are here
 *   RUNNING ───────────────────────────▶ WINDING_UP ───────────────────────────▶ LEAVING ─────────────────▶ OVER
 *
 * This takes end_ns at most: a node that is dead does not leave. Then the others go without saying good-bye to MPI.
 */
#pragma once

#include <stdbool.h>

#include "mpi-agent/link.h"

struct arenas;
struct rounds_conf;
struct waits;
struct world;

/* Called from a handler of signals: the loop ends as soon as it can. */
void loop_interrupt(int signal);

/*
 * Until the world ends. Takes `daemon`. 0: it has ended, and MPI may be finalized; -ECANCELED: likewise, because of an
 * error here; else MPI is not to be called again: -ETIMEDOUT not all could be waited for, -EIO it has failed. `shared`:
 * with the daemon, and as long as MPI. `status_fd`, or -1, is where others ask for the state of things.
 */
int loop_run(const struct world *w, struct link *daemon, const struct arenas *shared, const struct waits *waits,
	     const struct rounds_conf *conf, int status_fd);
