/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ioctls about the mount as a whole and its cluster. */
#include "fs/ops/ops_ioctl.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "fs/cluster_hooks.h"

int ioctl_sync(const struct ioctl_call *c, _unused_ void *p)
{
	ops_sync_all(c->req, true);
	return IOCTL_REPLIED;
}

int ioctl_mount(const struct ioctl_call *c, void *p)
{
	struct ckptfs_mount *arg = p;
	uint32_t known = arg->command == CKPTFS_MOUNT_FLAGS ? CKPTFS_MOUNT_READ_ONLY | CKPTFS_MOUNT_NOATIME : 0;
	struct stat ns;

	if (arg->command > CKPTFS_MOUNT_FLAGS || arg->flags & ~known)
		return -EINVAL;
	if (stat("/proc/self/ns/mnt", &ns) < 0)
		return -errno;
	arg->mount_namespace = ns.st_ino;
	if (arg->command == CKPTFS_MOUNT_FLAGS)
		return fs_set_flags(c->fs, arg->flags & CKPTFS_MOUNT_READ_ONLY, arg->flags & CKPTFS_MOUNT_NOATIME);
	c->fs->end_when_detached = arg->command == CKPTFS_MOUNT_END;
	return 0;
}

int ioctl_cluster(const struct ioctl_call *c, void *p)
{
	struct ckptfs_cluster *arg = p;

	if (arg->flags != 0 || arg->command > CKPTFS_CLUSTER_FORGET)
		return -EINVAL;
	if (arg->command == CKPTFS_CLUSTER_FORGET && !memchr(arg->node, '\0', sizeof(arg->node)))
		return -EINVAL;
	if (c->fs->hooks)
		return c->fs->hooks->command(c->fs, arg);
	if (arg->command != CKPTFS_CLUSTER_STATUS)
		return -EOPNOTSUPP;
	*arg = (struct ckptfs_cluster){
		.size = arg->size, .version = arg->version, .command = arg->command, .flags = CKPTFS_CLUSTER_NO_AGENT
	};
	return 0;
}

int ioctl_unprotected(const struct ioctl_call *c, void *p)
{
	return c->fs->hooks ? c->fs->hooks->unprotected(c->fs, p) : -ENOENT;
}
