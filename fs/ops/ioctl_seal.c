/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The ioctls that seal, unseal, remove, list and verify directories, and report their state in the tier. */
#include "fs/ops/ops_ioctl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/away/dropped.h"
#include "fs/background/flusher.h"
#include "fs/cluster_hooks.h"
#include "fs/fuse_loop.h"
#include "fs/ops/notify.h"
#include "fs/seal/seal.h"
#include "store/engine.h"

/*
 * Any caller with a directory of the node directory view open may list it. With a replica open, callers other than
 * operators see only that replica.
 */
static int next_of_node(const struct ioctl_call *c, uint64_t after, struct ckptfs_seal *arg, struct ns_seal *seal,
			struct buf *path)
{
	struct fs *fs = c->fs;
	uint64_t own;
	int r;

	if (!fs->hooks)
		return -ENODATA;
	r = ops_may_command(c->req) ? 0 : fs->hooks->replica_of(fs, c->ino, &own, &seal->sealed_ns);
	if (r < 0 || (r > 0 && after >= own))
		return MIN(r, 0);
	return fs->hooks->next_seal(fs, c->ino, r > 0 ? own - 1 : after, &arg->inode, &seal->sealed_ns, path);
}

/* Its sealed directories are on this node only. -ENODATA: not sealed */
static int not_in_cluster(struct fs *fs, uint64_t dir)
{
	struct ns_seal seal;
	int r = ns_get_seal(fs->db, dir, &seal);

	return r < 0 ? r : r > 0 ? -EOPNOTSUPP : -ENODATA;
}

static int seal_command(const struct ioctl_call *c, struct ckptfs_seal *arg, struct buf *path)
{
	struct cred cred = ops_cred(c->req);
	struct fs *fs = c->fs;
	uint64_t dir = c->ino;
	uint64_t after = arg->inode;
	struct ns_seal seal = { 0 };
	uint32_t facts = 0;
	int r;

	if (arg->flags != 0)
		return -EINVAL;
	if (view_is(dir) && (arg->command == CKPTFS_SEAL_SEAL || arg->command == CKPTFS_SEAL_UNSEAL))
		return -EROFS;
	arg->inode = dir;
	switch (arg->command) {
	case CKPTFS_SEAL_SEAL:
		r = seal_directory(fs, dir, &cred, &seal, path);
		break;
	case CKPTFS_SEAL_UNSEAL:
		r = seal_undo(fs, dir, &cred, path);
		if (r == -EROFS && !fs->read_only && fs->hooks)
			r = fs->hooks->abandon(fs, dir, &cred, path);
		break;
	case CKPTFS_SEAL_NEXT:
		r = seal_next(fs, after, cred.uid, &arg->inode, &seal, path);
		r = r > 0 ? 0 : r == 0 ? -ENOENT : r;
		break;
	case CKPTFS_SEAL_OF_NODE:
		r = next_of_node(c, after, arg, &seal, path);
		facts = CKPTFS_SEAL_REMOTE;
		r = r > 0 ? 0 : r == 0 ? -ENOENT : r;
		break;
	case CKPTFS_SEAL_CHECK:
		r = fs->hooks ? fs->hooks->replica_of(fs, dir, &arg->inode, &seal.sealed_ns) : 0;
		facts = r > 0 ? CKPTFS_SEAL_REMOTE : 0;
		r = r == 0 ? seal_check(fs, dir, cred.uid, &seal, arg->root_now) : MIN(r, 0);
		break;
	case CKPTFS_SEAL_STATE:
		r = fs->hooks ? fs->hooks->protect_state(fs, dir) : not_in_cluster(fs, dir);
		break;
	case CKPTFS_SEAL_GATHERED:
		r = fs->hooks ? fs->hooks->gather_state(fs, dir) : not_in_cluster(fs, dir);
		break;
	case CKPTFS_SEAL_REPLICA:
		r = fs->hooks ? fs->hooks->next_replica(fs, after, &arg->inode, path) : 0;
		r = r > 0 ? 0 : r == 0 ? -ENOENT : r;
		break;
	default:
		return -EINVAL;
	}
	arg->sealed_ns = seal.sealed_ns;
	arg->files = seal.files;
	arg->directories = seal.directories;
	arg->bytes = seal.bytes;
	arg->new_bytes = seal.new_bytes;
	arg->uid = seal.uid;
	arg->facts = facts | (seal.is_complete ? CKPTFS_SEAL_HAS_ROOT : 0);
	memcpy(arg->root, seal.root, sizeof(arg->root));
	if ((arg->command == CKPTFS_SEAL_NEXT || arg->command == CKPTFS_SEAL_CHECK) && r == 0 &&
	    away_is_dropped(fs, arg->inode) > 0)
		arg->facts |= CKPTFS_SEAL_DROPPED;
	if (arg->command == CKPTFS_SEAL_NEXT && r == 0 && fs->hooks && fs->hooks->protect_state(fs, arg->inode) == 0)
		arg->facts |= CKPTFS_SEAL_PROTECTED;
	return r;
}

/* The kernel has the removed name cached; notify it. */
static int remove_sealed(const struct ioctl_call *c, const struct ckptfs_seal *arg)
{
	struct seal_removal how = { .sealed_ns = arg->sealed_ns, .owner = arg->uid };
	struct cred cred = ops_cred(c->req);
	struct seal_removed gone;
	int r;

	if (arg->flags != 0)
		return -EINVAL;
	if (view_is(c->ino))
		return -EROFS;
	gone.dir = 0;
	r = seal_remove(c->fs, c->ino, &cred, &how, &gone);
	if (gone.dir == 0)
		return r;
	notify_attributes_changed(loop_notify(), c->ino);
	ioctl_drop_name_then_reply(c, gone.dir, gone.name, r, NULL, 0);
	return IOCTL_REPLIED;
}

static int drop_sealed(const struct ioctl_call *c, const struct ckptfs_seal *arg)
{
	struct cred cred = ops_cred(c->req);

	if (arg->flags != 0)
		return -EINVAL;
	return view_is(c->ino) ? -EROFS : away_drop(c->fs, c->ino, arg->sealed_ns, &cred);
}

/* The argument is returned on failure too: `path` is what the error is about. */
int ioctl_seal(const struct ioctl_call *c, void *p)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct ckptfs_seal *arg = p;
	int r;

	if (arg->command == CKPTFS_SEAL_REMOVE)
		return remove_sealed(c, arg);
	if (arg->command == CKPTFS_SEAL_DROP)
		return drop_sealed(c, arg);
	r = seal_command(c, arg, &path);
	memset(arg->path, 0, sizeof(arg->path));
	if (path.len > 0)
		memcpy(arg->path, path.data, MIN(path.len, sizeof(arg->path) - 1));
	fuse_reply_ioctl(c->req, r < 0 ? -ops_errno(r) : 0, arg, sizeof(*arg));
	return IOCTL_REPLIED;
}

static int tier_of_directory(const struct ioctl_call *c, struct ckptfs_tier *arg)
{
	struct flusher_checkpoint one;
	struct ns_seal seal;
	bool checking;
	int r = ns_get_seal(c->fs->db, arg->inode, &seal);

	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	if (arg->inode != c->ino && seal.uid != ops_cred(c->req).uid && !ops_may_command(c->req))
		return -EPERM;
	checking = arg->check > 0 && flusher_check(c->fs->flusher, &arg->check);
	r = flusher_find(c->fs->flusher, arg->inode, &one);
	if (r < 0)
		return r;
	arg->facts |= one.is_in_tier ? CKPTFS_TIER_HAS : one.is_removed ? CKPTFS_TIER_REMOVED : 0;
	arg->facts |= checking ? CKPTFS_TIER_CHECKING : 0;
	arg->directory_error = -one.error;
	arg->bytes = one.bytes;
	arg->flushed_bytes = one.flushed_bytes;
	arg->directory_left_ns = one.left_ns;
	return 0;
}

int ioctl_tier(const struct ioctl_call *c, void *p)
{
	struct ckptfs_tier *arg = p;
	struct flusher_status s;

	static_assert((int)FLUSHER_STOPPED == (int)CKPTFS_TIER_STOPPED, "the same states");
	static_assert(sizeof(arg->reason) == sizeof(s.reason), "reasons are not cut");
	if (!c->fs->flusher)
		return -EOPNOTSUPP;
	*arg = (struct ckptfs_tier){ .size = arg->size, .version = arg->version, .inode = arg->inode, .check = arg->check };
	flusher_status(c->fs->flusher, &s);
	arg->state = s.state;
	arg->facts = s.is_known ? CKPTFS_TIER_KNOWN : 0;
	arg->error = -s.error;
	arg->sealed = s.nr_sealed;
	arg->in_tier = s.nr_in_tier;
	arg->waiting_bytes = s.waiting_bytes;
	arg->left_ns = s.left_ns;
	snprintf(arg->where, sizeof(arg->where), "%s", flusher_where(c->fs->flusher));
	memcpy(arg->reason, s.reason, sizeof(arg->reason));
	return arg->inode == 0 ? 0 : tier_of_directory(c, arg);
}
