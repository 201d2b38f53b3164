/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/attr.h"

#include <errno.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/fuse_loop.h"
#include "fs/posix/namespace.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"
#include "fs/posix/permission.h"

#define NS_PER_S INT64_C(1000000000)
#define TIME_MAX_S (INT64_MAX / NS_PER_S)

/*
 * With a write-back cache the kernel sends GETATTR for a descriptor only before a write(2), and only if its attributes
 * were invalidated (op_write()). That write returns an error replied here. Otherwise a program that writes until the
 * disk is full would never end: the kernel accepts data as fast as it drops what could not be stored.
 */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct inode *i;
	struct stat st;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = attr_stat(fs, i, &st);
		names_put(fs, i);
	}
	if (r == 0 && fi && fs->writeback && S_ISREG(st.st_mode))
		r = file_take_next_write_error(file_of(fi));
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_attr(req, &st, OPS_FOREVER);
}

/* Nanoseconds in 64 bits cover 1677 to 2262; other times are clamped. */
static int64_t ns_of(struct timespec ts)
{
	if (ts.tv_sec >= TIME_MAX_S)
		return INT64_MAX;
	if (ts.tv_sec <= -TIME_MAX_S)
		return INT64_MIN;
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static struct attr_change change_of(const struct stat *st, int to_set, struct caller *caller)
{
	int64_t now = (int64_t)now_ns();
	struct attr_change c = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ? now : ns_of(st->st_atim),
		.mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? now : ns_of(st->st_mtim),
		.ctime_ns = to_set & FUSE_SET_ATTR_CTIME ? ns_of(st->st_ctim) : now,
		.caller = caller,
		.kill_setid = loop_kills_setid(),
	};
	static const struct {
		int from;
		enum attr_what to;
	} map[] = {
		{ FUSE_SET_ATTR_MODE, ATTR_MODE },	 { FUSE_SET_ATTR_UID, ATTR_UID },
		{ FUSE_SET_ATTR_GID, ATTR_GID },	 { FUSE_SET_ATTR_SIZE, ATTR_SIZE },
		{ FUSE_SET_ATTR_ATIME, ATTR_ATIME },	 { FUSE_SET_ATTR_MTIME, ATTR_MTIME },
		{ FUSE_SET_ATTR_ATIME_NOW, ATTR_ATIME }, { FUSE_SET_ATTR_MTIME_NOW, ATTR_MTIME },
	};

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		if (to_set & map[i].from)
			c.what |= map[i].to;
	return c;
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct attr_change c = change_of(st, to_set, &caller);
	struct fs *fs = fs_of(req);
	struct stat now;
	struct inode *i;
	int r;

	(void)fi;
	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = attr_change(fs, i, &c, &now);
		names_put(fs, i);
	}
	if (r < 0 && c.what & ATTR_SIZE)
		notify_attributes_changed(loop_notify(), ino); /* it may have been truncated in part */
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_attr(req, &now, OPS_FOREVER);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	_cleanup_(buf_release) struct buf target = BUF_EMPTY;
	struct fs *fs = fs_of(req);
	struct inode *i;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = attr_readlink(fs, i, &target);
		names_put(fs, i);
	}
	if (r == 0) {
		buf_add_u8(&target, 0);
		r = buf_error(&target);
	}
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_readlink(req, (const char *)target.data);
}
