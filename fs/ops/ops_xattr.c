/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/xattr.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/posix/acl.h"
#include "fs/posix/attr.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/ops/ops.h"
#include "fs/posix/permission.h"

static bool kills_setgid(fuse_req_t req, uint64_t ino, const char *name)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct ns_inode in;

	if (strcmp(name, ACL_ACCESS_NAME) != 0 || attr_load(fs_of(req), ino, &in) <= 0)
		return false;
	return in.mode & S_ISGID && !permission_in_group(&caller, in.gid) && !permission_capable(&caller, CAP_FSETID);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *p, size_t len, int flags)
{
	bool kill = kills_setgid(req, ino, name);
	struct fs *fs = fs_of(req);
	struct inode *i;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = xattr_set(fs, i, fuse_req_ctx(req)->uid, name, p, len, flags, kill);
		names_put(fs, i);
	}
	ops_reply(req, r);
}

/* The two forms of getxattr and listxattr: size 0 requests the length only. */
static void reply_value(fuse_req_t req, int r, const struct buf *value, size_t size, size_t max, int too_long)
{
	if (r == 0 && value->len > max)
		r = -too_long;
	else if (r == 0 && size > 0 && value->len > size)
		r = -ERANGE;
	if (r < 0)
		ops_reply(req, r);
	else if (size == 0)
		fuse_reply_xattr(req, value->len);
	else
		fuse_reply_buf(req, (const char *)value->data, value->len);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct fs *fs = fs_of(req);
	struct inode *i;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = xattr_get(fs, i, name, &value);
		names_put(fs, i);
	}
	reply_value(req, r, &value, size, XATTR_SIZE_MAX, E2BIG);
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct fs *fs = fs_of(req);
	struct inode *i;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = xattr_list(fs, i, &caller, &names);
		names_put(fs, i);
	}
	reply_value(req, r, &names, size, XATTR_LIST_MAX, E2BIG);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs *fs = fs_of(req);
	struct inode *i;
	int r;

	r = inode_get(fs->inodes, ino, &i);
	if (r == 0) {
		r = xattr_remove(fs, i, fuse_req_ctx(req)->uid, name);
		names_put(fs, i);
	}
	ops_reply(req, r);
}
