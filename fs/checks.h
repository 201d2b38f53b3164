/* What can be known to be wrong before anything is changed or mounted, each with a message of its own. */
#pragma once

struct options;

struct checks {
	char *store,
		*mountpoint; /* absolute, without links; of a store that is not there yet, the parent's and its name */
};

void checks_release(struct checks *c);
/* Fills *ret. The reason of a failure has been logged. */
int checks_run(const struct options *o, struct checks *ret);
/* A daemon whose mount is gone still has the store for a moment, to make everything durable: wait for it. A store
 * that is mounted is not waited for: -EBUSY, logged. */
int checks_await_store(const struct checks *c);
