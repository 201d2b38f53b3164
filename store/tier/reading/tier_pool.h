/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A pool of threads that call the back end of a tier, each with one request at a time. Threads that serve programs wait
 * for the pool, with a time limit, and never for the back end. A request to a hung filesystem cannot be ended: its thread
 * is left behind.
 */
#pragma once

#include <stdbool.h>

struct tier_pool;

/* Part of a struct of the caller, which keeps it until `run` is called. */
struct tier_job {
	void (*run)(struct tier_job *j);
	struct tier_job *next;
};

int tier_pool_new(unsigned nr, struct tier_pool **ret);
/* Any thread. `is_urgent`: a program waits for the job. Other jobs run when no urgent one is queued. Jobs submitted after a
 * stop are dropped. */
void tier_pool_submit(struct tier_pool *pool, struct tier_job *j, bool is_urgent);
/* Finishes the running jobs and drops the queued ones. false: a job did not end within two seconds. Its thread continues,
 * and nothing that it uses may be freed. */
bool tier_pool_stop(struct tier_pool *pool);
bool tier_pool_is_stopping(struct tier_pool *pool);
/* Sleeps for this time, or until the pool is stopped. */
void tier_pool_pause(struct tier_pool *pool, unsigned ms);
void tier_pool_free(struct tier_pool *pool); /* after a stop that returned true, or NULL */
