/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Threads that call the back end of a tier, one request at a time each, so that threads which serve programs never wait
 * for it longer than they want. A request to a hung filesystem cannot be ended: such a thread is left behind.
 */
#pragma once

#include <stdbool.h>

struct tier_workers;

/* Part of a struct of the caller, which keeps it until `run` is called. */
struct tier_job {
	void (*run)(struct tier_job *j);
	struct tier_job *next;
};

int tier_workers_new(unsigned nr, struct tier_workers **ret);
/* Any thread. `is_urgent`: a program waits for it; others are done when there is nothing urgent. After a stop jobs are
 * not run. */
void tier_workers_add(struct tier_workers *w, struct tier_job *j, bool is_urgent);
/* Finish the jobs that are being run, and drop the others. false: some did not end within two seconds: their threads
 * continue, and nothing that they use may be freed. */
bool tier_workers_stop(struct tier_workers *w);
bool tier_workers_stopping(struct tier_workers *w);
/* Wait for this time, or less if they are being stopped. */
void tier_workers_pause(struct tier_workers *w, unsigned ms);
void tier_workers_free(struct tier_workers *w); /* after a stop that returned true, or NULL */
