/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/collect.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/util.h"
#include "fs/background/autocompact.h"
#include "fs/fs.h"
#include "fs/seal/reaper.h"

#define LOOK_NS 20000000

struct collect {
	struct fs *fs; /* constant */

	struct task task;
	struct gc_conf conf GUARDED_BY(task.lock); /* constant while it runs */
	bool local_only GUARDED_BY(task.lock); /* likewise */
	struct gc_report report GUARDED_BY(task.lock);
	enum collect_together together GUARDED_BY(task.lock);
	struct cluster_collection cluster_result GUARDED_BY(task.lock);
	uint64_t garbage, garbage_ns GUARDED_BY(task.lock);
};

static bool report_progress(void *userdata, const struct gc_report *so_far)
{
	struct collect *c = userdata;

	mutex_lock(&c->task.lock);
	c->report = *so_far;
	mutex_unlock(&c->task.lock);
	return task_goes_on(&c->task);
}

static bool may_continue(void *userdata)
{
	return task_goes_on(&((struct collect *)userdata)->task);
}

static void report_joint(struct collect *c, enum collect_together together, const struct cluster_collection *result)
{
	mutex_lock(&c->task.lock);
	c->together = together;
	c->cluster_result = *result;
	mutex_unlock(&c->task.lock);
}

/* Collect together with the other nodes. 1: more local data may have become garbage. */
static int collect_together(struct collect *c)
{
	struct cluster_collection result = { 0 };
	enum collect_together how;
	int r;

	report_joint(c, COLLECT_WAITING, &result);
	r = c->fs->hooks->collect(c->fs, may_continue, c, &result);
	if (r == -EOPNOTSUPP)
		how = COLLECT_LOCAL_ONLY;
	else if (r == -ENOTCONN)
		how = COLLECT_NO_AGENT;
	else if (result.missing[0] != '\0')
		how = COLLECT_MISSING;
	else
		how = r < 0 || result.error < 0 ? COLLECT_FAILED : COLLECT_TOGETHER;
	if (r < 0 && how == COLLECT_FAILED)
		result.error = r;
	report_joint(c, how, &result);
	return result.nr_dropped > 0;
}

/* The second collection scanned everything again: add what the first one found. */
static void add_first(struct gc_report *second, const struct gc_report *first)
{
	second->dead_chunks += first->dead_chunks;
	second->dead_bytes += first->dead_bytes;
	second->dead_disk += first->dead_disk;
	second->freed_chunks += first->freed_chunks;
	second->freed_bytes += first->freed_bytes;
	second->nr_removed += first->nr_removed;
	second->nr_moved_packs += first->nr_moved_packs;
	second->moved_bytes += first->moved_bytes;
	second->nr_placed += first->nr_placed;
	second->placed_bytes += first->placed_bytes;
}

/* Automatic recoding yields: a requested collection does not wait for it. */
static int collect_here(struct collect *c, struct gc_report *ret)
{
	struct aggregator *beside = c->fs->aggregator;
	bool was_running = aggregator_step_aside(beside);
	int r = engine_gc(c->fs->engine, &c->conf, ret);

	while (r == -EBUSY && was_running && task_goes_on(&c->task)) {
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
		r = engine_gc(c->fs->engine, &c->conf, ret);
	}
	aggregator_go_on(beside);
	return r;
}

static int run_collection(void *userdata)
{
	struct collect *c = userdata;
	struct gc_report report, first;
	int r;

	if (c->conf.delete && c->fs->hooks) /* replicas that it does not drop are left for the next time */
		c->fs->hooks->trim_replicas(c->fs);
	reaper_wait(c->fs->reaper, may_continue, c); /* so that the space of removed checkpoints is included */
	r = collect_here(c, &report);
	if (r == 0 && c->conf.delete && !c->local_only && c->fs->hooks && report.complete && collect_together(c)) {
		first = report;
		r = collect_here(c, &report);
		if (r == 0)
			add_first(&report, &first);
	}
	if (r < 0)
		return r;
	mutex_lock(&c->task.lock);
	c->report = report;
	if (report.complete) {
		c->garbage = report.dead_bytes - MIN(report.dead_bytes, report.freed_bytes);
		c->garbage_ns = monotonic_ns();
	}
	mutex_unlock(&c->task.lock);
	return 0;
}

int collect_new(struct fs *fs, struct collect **ret)
{
	struct collect *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->fs = fs;
	task_init(&c->task, "ckptfs-gc", run_collection, c);
	*ret = c;
	return 0;
}

static int start_locked(struct collect *c, const struct gc_conf *conf, bool local_only,
			uint64_t holder) REQUIRES(c->task.lock)
{
	if (!task_is_idle(&c->task))
		return -EBUSY;
	c->conf = *conf;
	c->conf.step = report_progress;
	c->conf.userdata = c;
	c->local_only = local_only;
	c->report = (struct gc_report){ 0 };
	c->together = COLLECT_LOCAL_ONLY;
	c->cluster_result = (struct cluster_collection){ 0 };
	return task_start(&c->task, holder);
}

int collect_start(struct collect *c, const struct gc_conf *conf, bool local_only, uint64_t holder)
{
	int r;

	mutex_lock(&c->task.lock);
	r = start_locked(c, conf, local_only, holder);
	mutex_unlock(&c->task.lock);
	return r;
}

void collect_release_holder(struct collect *c, uint64_t holder)
{
	task_release_holder(&c->task, holder);
}

void collect_stop(struct collect *c)
{
	task_stop(&c->task);
}

void collect_status(struct collect *c, struct collect_status *ret)
{
	mutex_lock(&c->task.lock);
	*ret = (struct collect_status){ c->task.status, c->report, c->together, c->cluster_result, c->garbage,
					c->garbage_ns };
	mutex_unlock(&c->task.lock);
}

void collect_free(struct collect *c)
{
	if (!c)
		return;
	task_release(&c->task);
	free(c);
}
