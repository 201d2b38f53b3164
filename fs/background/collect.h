/*
 * Collecting garbage on request: one collection at a time, in a thread of its own, started, asked about and stopped by
 * ioctl. What it found stays until the next one starts.
 */
#pragma once

#include <stdint.h>

#include "fs/cluster.h"
#include "fs/task.h"
#include "store/engine/engine.h"

struct collect;

/* Of what is shared with other nodes. */
enum collect_together {
	COLLECT_ALONE,
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
	struct cluster_collected cluster;

	/* What the last one that looked at everything left; with later deletions there is more by now. */
	uint64_t garbage, garbage_ns; /* bytes, and when; 0: not known */
};

int collect_new(struct fs *fs, struct collect **ret); /* borrows it */
void collect_free(struct collect *c); /* stops what is running; NULL is fine */

/* -EBUSY: one is running. `alone`: without the other nodes of a cluster, though they are there. */
int collect_start(struct collect *c, const struct gc_conf *conf, bool alone, uint64_t holder);
void collect_let_go(struct collect *c, uint64_t holder); /* as task_let_go() */
void collect_stop(struct collect *c); /* soon; does not wait */
void collect_status(struct collect *c, struct collect_status *ret);
