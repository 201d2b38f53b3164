/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ioctls that start, stop and report on a garbage collection or a scrub. */
#include "fs/ops/ops_ioctl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ioctl.h"
#include "fs/background/collect.h"
#include "fs/background/scrubber.h"
#include "store/engine.h"

static int gc_command(const struct ioctl_call *c, const struct ckptfs_gc *arg)
{
	struct gc_conf conf = {
		.delete = arg->flags & CKPTFS_GC_DELETE,
		.place = arg->flags & CKPTFS_GC_PLACE,
		.move_below = arg->move_below,
		.budget_ns = arg->budget_ns,
		.rate = arg->rate,
	};

	if (arg->flags & ~(CKPTFS_GC_DELETE | CKPTFS_GC_PLACE | CKPTFS_GC_LOCAL) || arg->move_below > 100)
		return -EINVAL;
	switch (arg->command) {
	case CKPTFS_GC_STATUS:
		return 0;
	case CKPTFS_GC_START:
		if (c->fs->read_only && conf.delete)
			return -EROFS;
		return collect_start(c->fs->collect, &conf, arg->flags & CKPTFS_GC_LOCAL, c->holder);
	case CKPTFS_GC_STOP:
		collect_stop(c->fs->collect);
		return 0;
	default:
		return -EINVAL;
	}
}

static void fill_gc(struct fs *fs, struct ckptfs_gc *arg)
{
	struct collect_status s;

	collect_status(fs->collect, &s);
	arg->running = s.task.running;
	arg->error = -s.task.error;
	arg->complete = s.report.complete;
	arg->run = s.task.run;
	arg->packs = s.report.nr_packs;
	arg->packs_total = s.report.nr_packs_total;
	arg->frames = s.report.nr_frames;
	arg->recipes = s.report.nr_recipes;
	arg->live_bytes = s.report.live_bytes;
	arg->live_chunks = s.report.live_chunks;
	arg->dead_bytes = s.report.dead_bytes;
	arg->dead_chunks = s.report.dead_chunks;
	arg->dead_disk = s.report.dead_disk;
	arg->freed_bytes = s.report.freed_bytes;
	arg->freed_chunks = s.report.freed_chunks;
	arg->removed_packs = s.report.nr_removed;
	arg->moved_packs = s.report.nr_moved_packs;
	arg->moved_bytes = s.report.moved_bytes;
	arg->placed_files = s.report.nr_placed;
	arg->placed_bytes = s.report.placed_bytes;
	static_assert((int)COLLECT_LOCAL_ONLY == CKPTFS_GC_LOCAL_ONLY && (int)COLLECT_WAITING == CKPTFS_GC_WAITING &&
			      (int)COLLECT_NO_AGENT == CKPTFS_GC_NO_AGENT && (int)COLLECT_MISSING == CKPTFS_GC_MISSING &&
			      (int)COLLECT_FAILED == CKPTFS_GC_FAILED && (int)COLLECT_TOGETHER == CKPTFS_GC_TOGETHER,
		      "copied without conversion");
	arg->cluster = s.together;
	arg->cluster_error = -s.cluster.error;
	arg->cluster_pinned_bytes = s.cluster.kept_bytes;
	arg->cluster_pinned_chunks = s.cluster.nr_kept;
	arg->cluster_unpinned_bytes = s.cluster.dropped_bytes;
	arg->cluster_unpinned_chunks = s.cluster.nr_dropped;
	memcpy(arg->cluster_missing, s.cluster.missing, sizeof(arg->cluster_missing));
}

int ioctl_gc(const struct ioctl_call *c, void *p)
{
	int r = gc_command(c, p);

	if (r == 0)
		fill_gc(c->fs, p);
	return r;
}

static int scrub_command(const struct ioctl_call *c, const struct ckptfs_scrub *arg)
{
	struct scrub_conf conf = {
		.restart = arg->flags & CKPTFS_SCRUB_RESTART,
		.budget_ns = arg->budget_ns,
		.rate = arg->rate,
	};

	if (arg->flags & ~CKPTFS_SCRUB_RESTART)
		return -EINVAL;
	switch (arg->command) {
	case CKPTFS_SCRUB_STATUS:
		return 0;
	case CKPTFS_SCRUB_START:
		return scrubber_start(c->fs->scrubber, &conf, c->holder);
	case CKPTFS_SCRUB_STOP:
		scrubber_stop(c->fs->scrubber);
		return 0;
	default:
		return -EINVAL;
	}
}

static void fill_scrub(struct fs *fs, struct ckptfs_scrub *arg)
{
	struct scrubber_status s;

	scrubber_status(fs->scrubber, &s);
	arg->running = s.task.running;
	arg->error = -s.task.error;
	arg->complete = s.report.complete;
	arg->named = s.report.is_named;
	arg->run = s.task.run;
	arg->frames = s.report.nr_frames;
	arg->chunks = s.report.nr_chunks;
	arg->bytes = s.report.bytes;
	arg->read_bytes = s.report.read_bytes;
	arg->round_bytes = s.report.round_bytes;
	arg->total_bytes = s.report.total_bytes;
	arg->damaged = s.report.nr_damaged;
	arg->tables = s.report.nr_tables;
	arg->repaired = s.report.nr_repaired;
	arg->unused = s.report.nr_unused;
	arg->left = s.report.nr_left;
	arg->files = s.report.nr_files;
	arg->lost_bytes = s.report.lost_bytes;
	arg->hits = s.nr_hits;
	memset(arg->doing, 0, sizeof(arg->doing));
	snprintf(arg->doing, sizeof(arg->doing), "%s", s.report.doing ? s.report.doing : "");
}

int ioctl_scrub(const struct ioctl_call *c, void *p)
{
	int r = scrub_command(c, p);

	if (r == 0)
		fill_scrub(c->fs, p);
	return r;
}

int ioctl_scrub_hit(const struct ioctl_call *c, void *p)
{
	struct ckptfs_scrub_hit *arg = p;
	struct scrubber_hit hit;
	int r = scrubber_hit(c->fs->scrubber, arg->run, arg->number, &hit);

	if (r < 0)
		return r;
	arg->inode = hit.ino;
	arg->off = hit.off;
	arg->len = hit.len;
	memset(arg->path, 0, sizeof(arg->path));
	snprintf(arg->path, sizeof(arg->path), "%s", hit.path ? hit.path : "");
	free(hit.path);
	return 0;
}
