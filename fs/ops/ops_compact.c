/* Requests of ckptfs-compact, and queries about its results. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ioctl.h"
#include "fs/background/autocompact.h"
#include "fs/background/compactor.h"
#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/ops/ops.h"

#define BLOCK_MIN 4096u

static int start(struct fs *fs, const struct ckptfs_compact *arg)
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
		      "as it is told");
	if (arg->flags & ~(CKPTFS_COMPACT_DRY_RUN | CKPTFS_COMPACT_CHAIN_FORCED) || arg->order > CKPTFS_COMPACT_BEST ||
	    (arg->order != CKPTFS_COMPACT_WHOLE && arg->block < BLOCK_MIN) || arg->chain > COMPACT_CHAIN_MAX)
		return -EINVAL;
	if (fs->read_only && !conf.dry_run)
		return -EROFS;
	return compactor_start(fs->compactor, arg->plan, &conf);
}

static int command(fuse_req_t req, uint64_t holder, struct ckptfs_compact *arg)
{
	struct fs *fs = fs_of(req);

	if (!ops_may_command(req))
		return -EPERM;
	switch (arg->command) {
	case CKPTFS_COMPACT_STATUS:
		return 0;
	case CKPTFS_COMPACT_BEGIN:
		return compactor_begin(fs->compactor, holder, &arg->plan);
	case CKPTFS_COMPACT_START:
		return start(fs, arg);
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

void ioctl_compact(fuse_req_t req, uint64_t holder, const void *in)
{
	struct ckptfs_compact arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = command(req, holder, &arg);
	if (r == 0 && arg.command <= CKPTFS_COMPACT_STOP)
		r = fill_status(fs_of(req), &arg);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

void ioctl_compact_file(fuse_req_t req, struct file *f, const void *in)
{
	struct ckptfs_compact_file arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = !ops_may_command(req) ? -EPERM :
				     compactor_add_file(fs_of(req)->compactor, arg.plan, f->inode->ino, &arg.file);
	arg.reserved = 0;
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

void ioctl_compact_add(fuse_req_t req, const void *in)
{
	struct ckptfs_compact_add arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = ops_may_command(req) ? compactor_add(fs_of(req)->compactor, &arg) : -EPERM;
	ops_reply_ioctl(req, r, NULL, 0);
}

void ioctl_compact_result(fuse_req_t req, const void *in)
{
	struct ckptfs_compact_result arg;
	struct compact_result res;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = ops_may_command(req) ? compactor_result(fs_of(req)->compactor, arg.plan, arg.variable, &res) : -EPERM;
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	arg.plain = res.plain;
	arg.coded = res.coded;
	arg.before = res.before;
	arg.after = res.after;
	arg.kept = res.kept;
	arg.known = res.known;
	arg.code_ns = res.code_ns;
	arg.turns = res.turns;
	arg.reserved = 0;
	memset(arg.coder, 0, sizeof(arg.coder));
	if (res.coded > 0)
		snprintf(arg.coder, sizeof(arg.coder), "%s", code_name(&res.coder).s);
	fuse_reply_ioctl(req, 0, &arg, sizeof(arg));
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

static int find_variable(fuse_req_t req, struct ckptfs_variable *arg)
{
	struct variable_note v;
	int r;

	if (!ops_may_command(req))
		return -EPERM;
	if (!memchr(arg->key, '\0', sizeof(arg->key)))
		return -EINVAL;
	r = engine_variable_next(fs_of(req)->engine, arg->number > 0 ? arg->key : NULL, &v);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	fill_variable(&v, arg);
	free(v.key);
	return 0;
}

void ioctl_variable(fuse_req_t req, const void *in)
{
	struct ckptfs_variable arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = find_variable(req, &arg);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}
