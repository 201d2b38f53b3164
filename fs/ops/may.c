/*
 * What the kernel checks for open(2) and its like, where a request tells of a file without one: as it would, but that a
 * file with an access control list is for its owner alone. That is too strict for those who are on the list, and never
 * too lax.
 */
#include <errno.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/acl.h"
#include "fs/attr.h"
#include "fs/ops/ops.h"

#define GROUPS_MAX 1024

bool ops_in_group(fuse_req_t req, gid_t gid)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	gid_t groups[GROUPS_MAX];
	int n;

	if (ctx->uid == 0 || ctx->gid == gid)
		return true;
	n = fuse_req_getgroups(req, GROUPS_MAX, groups);
	for (int i = 0; i < MIN(n, GROUPS_MAX); i++)
		if (groups[i] == gid)
			return true;
	return false;
}

bool ops_may_command(fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == geteuid();
}

int ops_may(fuse_req_t req, uint64_t ino, unsigned want)
{
	_cleanup_(buf_release) struct buf list = BUF_EMPTY;
	struct fs *fs = fs_of(req);
	struct ns_inode in;
	unsigned has;
	int r;

	if (ops_may_command(req))
		return 0;
	r = attr_load(fs, ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (fuse_req_ctx(req)->uid == in.uid)
		return (in.mode >> 6 & want) == want ? 0 : -EACCES;
	r = in.flags & INODE_HAS_XATTRS ? ns_get_xattr(fs->db, ino, ACL_ACCESS_NAME, &list) : 0;
	if (r != 0)
		return r < 0 ? r : -EACCES;
	has = ops_in_group(req, in.gid) ? in.mode >> 3 : in.mode;
	return (has & want) == want ? 0 : -EACCES;
}
