/*
 * Compacting on request: one plan at a time is begun, filled, and run in a thread of its own; asked about and stopped
 * by ioctl. What became of it stays until the next one is begun. A plan that nobody has touched for half a minute gives
 * way to another.
 */
#pragma once

#include "fs/compact_plan.h"
#include "fs/task.h"

struct compactor;

struct compactor_status {
	struct task_status task;
	struct compact_report report;
};

int compactor_new(struct engine *e, struct compactor **ret);
void compactor_free(struct compactor *c); /* stops what is running; NULL is fine */

/* A new plan: its number, from 1. -EBUSY: another one is filled or running. It is stopped, or given up, when its holder
 * is gone (fs/task.h). */
int compactor_begin(struct compactor *c, uint64_t holder, uint64_t *ret);
void compactor_let_go(struct compactor *c, uint64_t holder);
/* To the plan of this number. -ESTALE: it is not the one that is being filled. Else as compact_plan.h has it. */
int compactor_add_file(struct compactor *c, uint64_t plan, uint64_t ino, uint32_t *ret);
int compactor_add(struct compactor *c, const struct ckptfs_compact_add *a);
/* Of `conf` all counts but the plan, results and callbacks. -ESTALE. */
int compactor_start(struct compactor *c, uint64_t plan, const struct compact_conf *conf);
/* Soon; does not wait. One that is being filled is given up. -ESTALE. */
int compactor_stop(struct compactor *c, uint64_t plan);
bool compactor_is_running(struct compactor *c);
/* -ESTALE: another one has begun since. */
int compactor_status(struct compactor *c, uint64_t plan, struct compactor_status *ret);
/* Of a variable of the plan, once it has been run. -ENOENT: there is none, or it is still running. */
int compactor_result(struct compactor *c, uint64_t plan, uint64_t variable, struct compact_result *ret);
