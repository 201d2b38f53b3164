/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A pool of threads that call the back end of a tier, each with one request at a time. Threads that serve programs wait
 * for the pool, with a time limit, and never for the back end. A request to a hung filesystem cannot be ended: its
 * thread is left behind.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct tier_pool;

/*
 * Part of a struct of the caller, which keeps it until `run` is called. The other fields are zero, and used by the
 * pool.
 */
struct tier_job {
	void (*run)(struct tier_job *j);
	struct tier_job *next, *prev;
	uint64_t due_ns;
};

int tier_pool_new(unsigned nr, struct tier_pool **ret);
enum tier_urgency {
	TIER_FIRST, /* few jobs, for which many programs may wait: before those of each program */
	TIER_URGENT, /* a program waits for it */
	TIER_AHEAD, /* no program waits */
};
/* Any thread. Jobs of an urgency run in order, after all more urgent ones. Jobs submitted after a stop are dropped. */
void tier_pool_submit(struct tier_pool *pool, struct tier_job *j, enum tier_urgency urgency);
/* Submits the job after this time. Meanwhile it occupies no thread. */
void tier_pool_submit_later(struct tier_pool *pool, struct tier_job *j, unsigned ms);
/* true: the job is no longer submitted, and does not run. false: it runs, or has run. */
bool tier_pool_withdraw(struct tier_pool *pool, struct tier_job *j);
/* Finishes the running jobs and drops the queued ones. false: a job did not end within two seconds. Its thread continues,
 * and nothing that it uses may be freed. */
bool tier_pool_stop(struct tier_pool *pool);
bool tier_pool_is_stopping(struct tier_pool *pool);
void tier_pool_free(struct tier_pool *pool); /* after a stop that returned true, or NULL */
