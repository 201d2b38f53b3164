/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ioctls of ckptfs-compact, and queries about its results. */
#include "fs/ops/ops_ioctl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ioctl.h"
#include "fs/background/autocompact.h"
#include "fs/background/compactor.h"
#include "store/engine.h"

#define BLOCK_MIN 4096u

static int start_recoding(struct fs *fs, const struct ckptfs_compact *arg)
{
	struct compact_conf conf = {
		.order = (enum compact_order)arg->order,
		.block = arg->block,
		.chain = arg->chain,
		.chain_forced = arg->flags & CKPTFS_COMPACT_CHAIN_FORCED,
		.budget = arg->cpu_ms / 1e3,
		.dry_run = arg->flags & CKPTFS_COMPACT_DRY_RUN,
		.yields = true,
		.rate = arg->rate,
	};

	static_assert((int)COMPACT_WHOLE == CKPTFS_COMPACT_WHOLE && (int)COMPACT_TURNS == CKPTFS_COMPACT_TURNS &&
			      (int)COMPACT_BEST == CKPTFS_COMPACT_BEST,
		      "copied without conversion");
	if (arg->flags & ~(CKPTFS_COMPACT_DRY_RUN | CKPTFS_COMPACT_CHAIN_FORCED) || arg->order > CKPTFS_COMPACT_BEST ||
	    (arg->order != CKPTFS_COMPACT_WHOLE && arg->block < BLOCK_MIN) || arg->chain > COMPACT_CHAIN_MAX)
		return -EINVAL;
	if (fs->read_only && !conf.dry_run)
		return -EROFS;
	return compactor_start(fs->compactor, arg->plan, &conf);
}

static int command(const struct ioctl_call *c, struct ckptfs_compact *arg)
{
	struct fs *fs = c->fs;

	switch (arg->command) {
	case CKPTFS_COMPACT_STATUS:
		return 0;
	case CKPTFS_COMPACT_BEGIN:
		return compactor_begin(fs->compactor, c->holder, &arg->plan);
	case CKPTFS_COMPACT_START:
		return start_recoding(fs, arg);
	case CKPTFS_COMPACT_STOP:
		return compactor_stop(fs->compactor, arg->plan);
	case CKPTFS_COMPACT_PAUSE:
	case CKPTFS_COMPACT_RESUME:
		return aggregator_pause(fs->aggregator, arg->command == CKPTFS_COMPACT_PAUSE);
	default:
		return -EINVAL;
	}
}

static int fill_status(struct fs *fs, struct ckptfs_compact *arg)
{
	struct compactor_status s;
	int r = compactor_status(fs->compactor, arg->plan, &s);

	if (r < 0)
		return r;
	arg->running = s.task.running;
	arg->error = -s.task.error;
	arg->complete = s.report.complete;
	arg->chain = 0;
	arg->variables = s.report.nr_variables;
	arg->plain = s.report.sum.plain;
	arg->coded = s.report.sum.coded;
	arg->before = s.report.sum.before;
	arg->after = s.report.sum.after;
	arg->kept = s.report.sum.kept;
	arg->known = s.report.sum.known;
	arg->code_ns = s.report.sum.code_ns;
	arg->freed = s.report.freed;
	arg->written = s.report.written;
	return 0;
}

int ioctl_compact(const struct ioctl_call *c, void *p)
{
	struct ckptfs_compact *arg = p;
	int r = command(c, arg);

	return r == 0 && arg->command <= CKPTFS_COMPACT_STOP ? fill_status(c->fs, arg) : r;
}

int ioctl_compact_file(const struct ioctl_call *c, void *p)
{
	struct ckptfs_compact_file *arg = p;

	arg->reserved = 0;
	return compactor_add_file(c->fs->compactor, arg->plan, c->ino, &arg->file);
}

int ioctl_compact_add(const struct ioctl_call *c, void *p)
{
	return compactor_add(c->fs->compactor, p);
}

int ioctl_compact_result(const struct ioctl_call *c, void *p)
{
	struct ckptfs_compact_result *arg = p;
	struct compact_result res;
	int r = compactor_result(c->fs->compactor, arg->plan, arg->variable, &res);

	if (r < 0)
		return r;
	arg->plain = res.plain;
	arg->coded = res.coded;
	arg->before = res.before;
	arg->after = res.after;
	arg->kept = res.kept;
	arg->known = res.known;
	arg->code_ns = res.code_ns;
	arg->turns = res.turns;
	arg->reserved = 0;
	memset(arg->coder, 0, sizeof(arg->coder));
	if (res.coded > 0)
		snprintf(arg->coder, sizeof(arg->coder), "%s", code_name(&res.coder).s);
	return 0;
}

static void fill_variable(const struct variable_note *v, struct ckptfs_variable *arg)
{
	*arg = (struct ckptfs_variable){
		.size = arg->size,
		.version = arg->version,
		.number = arg->number + 1,
		.coded = v->coded,
		.before = v->before,
		.after = v->after,
		.code_ns = v->code_ns,
		.last_ns = v->last_ns,
		.turns = v->turns,
	};
	snprintf(arg->type, sizeof(arg->type), "%s", code_type_name(v->coder.steps.type).s);
	snprintf(arg->coder, sizeof(arg->coder), "%s", code_name(&v->coder).s);
	snprintf(arg->key, sizeof(arg->key), "%s", v->key);
}

int ioctl_variable(const struct ioctl_call *c, void *p)
{
	struct ckptfs_variable *arg = p;
	struct variable_note v;
	int r;

	if (!memchr(arg->key, '\0', sizeof(arg->key)))
		return -EINVAL;
	r = engine_variable_next(c->fs->engine, arg->number > 0 ? arg->key : NULL, &v);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	fill_variable(&v, arg);
	free(v.key);
	return 0;
}
