/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Recoding on request: one plan at a time is begun, filled, and run in a thread of its own; polled and stopped by
 * ioctl. The result stays available until the next plan is begun. A plan that is not touched for half a minute is
 * replaced when another one is begun.
 */
#pragma once

#include "fs/background/compact_plan.h"
#include "fs/background/task.h"

struct compactor;

struct compactor_status {
	struct task_status task;
	struct compact_report report;
};

int compactor_new(struct engine *e, struct compactor **ret);
void compactor_free(struct compactor *c); /* stops a running plan; NULL is fine */

/* Begin a plan: its number, from 1. -EBUSY: another one is being filled or running. It is stopped, or discarded, when
 * its holder is gone (fs/background/task.h). */
int compactor_begin(struct compactor *c, uint64_t holder, uint64_t *ret);
void compactor_release_holder(struct compactor *c, uint64_t holder);
/* Add to the plan of this number. -ESTALE: it is not the one being filled. Otherwise as in compact_plan.h. */
int compactor_add_file(struct compactor *c, uint64_t plan, uint64_t ino, uint32_t *ret);
int compactor_add(struct compactor *c, const struct ckptfs_compact_add *a);
/* Uses all of `conf` except the plan, results and callbacks. -ESTALE. */
int compactor_start(struct compactor *c, uint64_t plan, const struct compact_conf *conf);
/* Stops soon; does not wait. A plan being filled is discarded. -ESTALE. */
int compactor_stop(struct compactor *c, uint64_t plan);
bool compactor_is_running(struct compactor *c);
/* -ESTALE: another plan was begun since. */
int compactor_status(struct compactor *c, uint64_t plan, struct compactor_status *ret);
/* Result of a variable of the plan, after it was run. -ENOENT: there is none, or it is still running. */
int compactor_result(struct compactor *c, uint64_t plan, uint64_t variable, struct compact_result *ret);
