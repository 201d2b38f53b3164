/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The ioctls of a mounted tier: list and verify checkpoints, and end the mount. Ioctls that change data fail with EROFS,
 * and those about a store with EOPNOTSUPP.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json/json_write.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/tiermount/tier_ops.h"
#include "fs/tiermount/tier_view.h"
#include "store/tier/seals/tier_root.h"
#include "store/tier/tier.h"

#define SCHEMA_VERSION 1

static struct tier_fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static bool is_operator(fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == geteuid();
}

/* --- sealed checkpoints --- */

static void fill_seal(const struct tier_seal *s, struct ckptfs_seal *arg)
{
	arg->sealed_ns = s->sealed_ns;
	arg->files = s->files;
	arg->directories = s->directories;
	arg->bytes = s->bytes;
	arg->new_bytes = 0;
	arg->uid = s->uid;
	arg->facts = CKPTFS_SEAL_HAS_ROOT | CKPTFS_SEAL_OF_TIER;
	memcpy(arg->root, s->root, sizeof(arg->root));
}

static int next_seal(fuse_req_t req, uint64_t node, struct ckptfs_seal *arg)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	const struct tier_seal *s;
	uint64_t number;
	int r;

	if (arg->inode == 0) {
		const struct tier_waiter w = tier_waiter_for(TIER_WAITS_FOR_LIST);

		r = tier_view_refresh(fs_of(req)->view, &w);
		if (r < 0)
			return r;
	}
	r = tier_view_next(fs_of(req)->view, node, arg->inode, &number, &s, &path);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	fill_seal(s, arg);
	arg->inode = number;
	memset(arg->path, 0, sizeof(arg->path));
	if (path.len <= sizeof(arg->path))
		memcpy(arg->path, path.data, path.len);
	return 0;
}

static int check_seal(fuse_req_t req, uint64_t node, struct ckptfs_seal *arg)
{
	const struct tier_waiter w = tier_waiter_for(TIER_WAITS_FOR_DATA);
	struct tier_entered *e;
	int r;

	if (tier_node_place(node) == 0 || tier_node_inode(node) != 0)
		return -ENODATA;
	if (w.must_not_wait)
		return -EINPROGRESS; /* it takes long even if everything is in memory */
	r = tier_enter(req, node, TIER_WAITS_FOR_DATA, &e);
	if (r < 0)
		return r;
	if (!is_operator(req) && fuse_req_ctx(req)->uid != e->tree->inodes[0].uid)
		r = -EPERM;
	if (r == 0)
		r = tier_root(e->tree, e->source, e->seal->root, &w, arg->root_now);
	if (r == 0) {
		fill_seal(e->seal, arg);
		arg->uid = e->tree->inodes[0].uid;
		arg->inode = tier_view_number(tier_node_place(node)); /* as next_seal() numbers them */
		arg->path[0] = '\0';
	}
	tier_view_leave(fs_of(req)->view, e);
	return r == -ETIMEDOUT ? -EIO : r;
}

static int ioctl_seal(fuse_req_t req, uint64_t node, void *p)
{
	struct ckptfs_seal *arg = p;

	switch (arg->command) {
	case CKPTFS_SEAL_NEXT:
		return next_seal(req, node, arg);
	case CKPTFS_SEAL_CHECK:
		return check_seal(req, node, arg);
	case CKPTFS_SEAL_OF_NODE:
		return -ENODATA;
	case CKPTFS_SEAL_SEAL:
	case CKPTFS_SEAL_UNSEAL:
	case CKPTFS_SEAL_REMOVE:
		return -EROFS;
	default:
		return -EOPNOTSUPP;
	}
}

/* --- the mount --- */

static int ioctl_mount(fuse_req_t req, void *p)
{
	struct ckptfs_mount *arg = p;
	struct stat ns;

	if (!is_operator(req))
		return -EPERM;
	if (arg->command > CKPTFS_MOUNT_FLAGS || (arg->command != CKPTFS_MOUNT_FLAGS && arg->flags != 0))
		return -EINVAL;
	if (arg->command == CKPTFS_MOUNT_FLAGS)
		return -EOPNOTSUPP;
	if (stat("/proc/self/ns/mnt", &ns) < 0)
		return -errno;
	arg->mount_namespace = ns.st_ino;
	atomic_store(&fs_of(req)->ends_when_detached, arg->command == CKPTFS_MOUNT_END);
	return 0;
}

/* Everything in a checkpoint is immutable. */
static int ioctl_getflags(uint64_t node, void *p)
{
	*(unsigned *)p = tier_node_place(node) > 0 ? FS_IMMUTABLE_FL : 0;
	return 0;
}

union argument {
	struct {
		uint32_t size, version;
	} head;
	struct ckptfs_sync sync;
	struct ckptfs_seal seal;
	struct ckptfs_mount mount;
	unsigned flags;
};

static int run_ioctl(fuse_req_t req, uint64_t node, unsigned cmd, union argument *arg, const void *in, size_t in_len)
{
	if (cmd == (unsigned)FS_IOC_GETFLAGS)
		return ioctl_getflags(node, arg);
	if (_IOC_TYPE(cmd) != CKPTFS_IOC_TYPE)
		return -ENOTTY;
	if (cmd != CKPTFS_IOC_SYNC && cmd != CKPTFS_IOC_SEAL && cmd != CKPTFS_IOC_MOUNT)
		return -EOPNOTSUPP;
	if (in_len != _IOC_SIZE(cmd) || in_len > sizeof(*arg))
		return -EINVAL;
	memcpy(arg, in, in_len);
	if (arg->head.size != in_len || arg->head.version != CKPTFS_IOC_VERSION)
		return -EINVAL;
	return cmd == CKPTFS_IOC_SYNC ? 0 : cmd == CKPTFS_IOC_SEAL ? ioctl_seal(req, node, arg) : ioctl_mount(req, arg);
}

void tier_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *p _unused_, struct fuse_file_info *fi _unused_,
		   unsigned flags _unused_, const void *in, size_t in_len, size_t out_len)
{
	union argument arg = { 0 };
	int r = run_ioctl(req, ino, cmd, &arg, in, in_len);

	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_ioctl(req, 0, out_len > 0 ? &arg : NULL, MIN(out_len, sizeof(arg)));
}

/* --- figures --- */

int tier_figures(fuse_req_t req, uint64_t node, struct buf *ret)
{
	struct tier_fs *fs = fs_of(req);
	struct tier_cache_figures f;
	struct json j = json_to(ret);

	tier_cache_figures(fs->cache, &f);
	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_string(&j, "kind", "tier");
	json_string(&j, "version", CKPTFS_VERSION);
	json_string(&j, "store", tier_where(fs->tier));
	json_u64(&j, "pid", (uint64_t)getpid());
	json_bool(&j, "read_only", true);
	json_bool(&j, "sealed", tier_node_place(node) > 0);
	json_u64(&j, "checkpoints", tier_view_nr(fs->view));
	json_u64(&j, "checkpoint_bytes", tier_view_bytes(fs->view));
	json_open(&j, "tier");
	json_u64(&j, "requests", f.requests);
	json_u64(&j, "received_bytes", f.bytes);
	json_u64(&j, "damaged_chunks", f.damaged);
	json_u64(&j, "cache_bytes", f.memory);
	json_u64(&j, "cache_max_bytes", f.memory_max);
	json_close(&j);
	json_end(&j);
	return buf_error(ret);
}
