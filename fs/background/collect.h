/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Garbage collection on request: one collection at a time, in a thread of its own, started, polled and stopped by
 * ioctl. The result stays available until the next one starts.
 */
#pragma once

#include <stdint.h>

#include "fs/cluster_hooks.h"
#include "fs/background/task.h"
#include "store/engine.h"

struct collect;

/* State of the collection of data shared with other nodes. */
enum collect_together {
	COLLECT_LOCAL_ONLY,
	COLLECT_WAITING,
	COLLECT_NO_AGENT,
	COLLECT_MISSING,
	COLLECT_FAILED,
	COLLECT_TOGETHER
};

struct collect_status {
	struct task_status task;
	struct gc_report report;
	enum collect_together together;
	struct cluster_collection cluster;

	/* Garbage left by the last complete collection; later deletions have added to it. */
	uint64_t garbage, garbage_ns; /* bytes, and when; 0: unknown */
};

int collect_new(struct fs *fs, struct collect **ret); /* borrows `fs` */
void collect_free(struct collect *c); /* stops a running collection; NULL is fine */

/* -EBUSY: one is running. `local_only`: without the other nodes of the cluster. */
int collect_start(struct collect *c, const struct gc_conf *conf, bool local_only, uint64_t holder);
void collect_release_holder(struct collect *c, uint64_t holder); /* as task_release_holder() */
void collect_stop(struct collect *c); /* soon; does not wait */
void collect_status(struct collect *c, struct collect_status *ret);
