/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Checks before anything is changed or mounted, each with its own message. */
#pragma once

struct options;

struct checks {
	char *store,
		*mountpoint; /* absolute, without links; for a store that does not exist yet, parent and name */
};

void checks_release(struct checks *c);
/* Fills *ret. The reason of a failure has been logged. */
int checks_run(const struct options *o, struct checks *ret);
/* The same for a mount that has no store: `ret->store` is NULL. */
int checks_run_without_store(const struct options *o, struct checks *ret);
/* A daemon still holds the store after its mount is gone, while it makes everything durable: wait up to 30 seconds for
 * it, and log the users of the store after two. -EBUSY, logged: the store is mounted, or the time is over. -EINTR:
 * SIGTERM or SIGINT is pending. */
int checks_await_store(const struct checks *c);
