/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ioctls on one file: shared bytes, statistics, and deltas. */
#include "fs/ops/ops_ioctl.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "fs/cluster_hooks.h"
#include "fs/control/delta.h"
#include "fs/fuse_loop.h"
#include "fs/ops/notify.h"
#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/posix/permission.h"
#include "fs/seal/freeze.h"
#include "store/engine.h"

int ioctl_handle(const struct ioctl_call *c, void *p)
{
	struct ckptfs_handle *arg = p;

	return file_handle(c->fs, c->file, &arg->handle);
}

/* Size after an ioctl that may have extended the file, which the kernel does not notice by itself. */
static struct notify_growth growth_since(struct file *f, const struct ns_content *before)
{
	struct notify_growth g = { 0 };
	struct ns_content now;

	content_stat(f->content, &now);
	if (now.size > before->size && content_read(f->content, &g.last, 1, now.size - 1) == 1)
		g.size = now.size;
	return g;
}

int ioctl_clone(const struct ioctl_call *c, void *p)
{
	struct cred cred = ops_cred(c->req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct ckptfs_clone *arg = p;
	struct notify_growth growth;
	struct ns_content before;
	int r;

	content_stat(c->file->content, &before);
	r = file_clone_handle(c->fs, arg->from, arg->from_off, c->file, arg->to_off, arg->len, &caller, &arg->done);
	if (r == -EINPROGRESS || (r < 0 && !file_is_for_writing(c->file->flags)))
		return r;
	if (r > 0)
		notify_attributes_changed(loop_notify(), c->ino);
	growth = growth_since(c->file, &before);
	/* On an error some of the range may have changed. */
	notify_then_reply_ioctl(loop_notify(), c->req, c->ino, arg->to_off, r < 0 ? arg->len : arg->done, growth,
				MIN(r, 0), arg, sizeof(*arg));
	return IOCTL_REPLIED;
}

int ioctl_compare(const struct ioctl_call *c, void *p)
{
	struct ckptfs_compare *arg = p;
	struct content_sameness same;
	int r = file_compare_handle(c->fs, c->file, arg->with, arg->off, arg->len, &same);

	if (r < 0)
		return r;
	arg->equal_end = same.equal_end;
	arg->differ_end = same.differ_end;
	return 0;
}

int ioctl_stat(const struct ioctl_call *c, void *p)
{
	struct ckptfs_stat *arg = p;
	struct content_info info;
	int r = content_info(c->file->content, &info);

	if (r < 0)
		return r;
	arg->file_size = info.size;
	arg->mapped = info.mapped;
	arg->extents = info.extents;
	arg->frames = info.frames;
	arg->durable = info.durable;
	arg->reserved = 0;
	memset(arg->fingerprint, 0, sizeof(arg->fingerprint));
	fp_encode(info.fingerprint, arg->fingerprint);
	return 0;
}

/* Flags as shown by lsattr(1). */
int ioctl_getflags(const struct ioctl_call *c, void *p)
{
	struct ns_inode in = { 0 };
	unsigned *flags = p;
	int r = view_is(c->ino) ? 1 : attr_load(c->fs, c->ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*flags = in.flags & INODE_SEALED && !freezes_has(c->fs->freezes, c->ino, NULL) ? FS_IMMUTABLE_FL : 0;
	return 0;
}

int ioctl_delta_begin(const struct ioctl_call *c, void *p)
{
	struct cred cred = ops_cred(c->req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	const struct ckptfs_delta_begin *arg = p;

	return delta_begin(c->fs, c->file, arg->number, arg->parent, &caller);
}

int ioctl_delta_commit(const struct ioctl_call *c, void *p)
{
	struct cred cred = ops_cred(c->req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct ckptfs_delta_commit *arg = p;
	struct delta_commit how;
	struct delta_made made;
	int r;

	if (arg->flags & ~(CKPTFS_DELTA_SYNC | CKPTFS_DELTA_VERIFY))
		return -EINVAL;
	how = (struct delta_commit){
		.sync = arg->flags & CKPTFS_DELTA_SYNC,
		.verify = arg->flags & CKPTFS_DELTA_VERIFY,
	};
	memcpy(how.key, arg->key, sizeof(how.key));
	r = delta_commit(c->fs, c->file, &how, &caller, &made);
	if (r == -EBADMSG) {
		/* Elsewhere this is damage in the store and becomes EIO; here the caller's delta object is malformed. */
		fuse_reply_err(c->req, EBADMSG);
		return IOCTL_REPLIED;
	}
	if (r < 0)
		return r;
	arg->inode = made.ino;
	arg->file_size = made.size;
	memset(arg->key, 0, sizeof(arg->key));
	r = arg->flags & CKPTFS_DELTA_SYNC ? engine_sync(c->fs->engine) : 0;
	ioctl_drop_name_then_reply(c, made.dir, made.name, r, arg, sizeof(*arg));
	delta_tidy(c->fs, &made);
	return IOCTL_REPLIED;
}

int ioctl_delta_abort(const struct ioctl_call *c, _unused_ void *p)
{
	struct ns_content before;
	int r;

	content_stat(c->file->content, &before);
	r = delta_abort(c->file);
	if (r < 0)
		return r;
	notify_then_reply_ioctl(loop_notify(), c->req, c->ino, 0, before.size, (struct notify_growth){ 0 }, 0,
				NULL, 0);
	return IOCTL_REPLIED;
}
