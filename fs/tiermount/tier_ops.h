/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * FUSE requests of a mounted tier. A request that needs the back end is served again in one of the places for such
 * requests (fs/tiermount/tier_loop.h), where it may wait until the timeout of the mount, or until its client is killed.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include <fuse_lowlevel.h>

#include "base/log.h"

#include "fs/tiermount/tier_loop.h"

struct buf;
struct tier;
struct tier_cache;
struct tier_entered;
struct tier_view;
struct tier_waiter;

struct tier_fs {
	struct tier *tier; /* constant, like all but the last two */
	struct tier_cache *cache;
	struct tier_view *view;
	uint64_t timeout_ns;
	int64_t mounted_ns;
	int answers_fd; /* eventfd, readable after the first request of the kernel */
	atomic_bool ends_when_detached; /* see CKPTFS_MOUNT_END */
	struct log_limit limit;
};

extern const struct fuse_lowlevel_ops tier_ops_table; /* userdata: struct tier_fs */

/* --- for the files of this folder --- */

struct tier_waiter tier_waiter_for(enum tier_wait what); /* until the client is killed, if it may wait at all */
void tier_reply_error(fuse_req_t req, int r); /* -EINPROGRESS: of a waiter that must not wait */
/* The checkpoint of a node. Errors as of tier_view_enter(), but -ESTALE in place of -ENOENT. */
int tier_enter(fuse_req_t req, uint64_t node, enum tier_wait what, struct tier_entered **ret);
/* tier_ioctl.c. Figures as JSON, for user.ckptfs.stat of any node. */
int tier_figures(fuse_req_t req, uint64_t node, struct buf *ret);
void tier_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi, unsigned flags,
		   const void *in, size_t in_len, size_t out_len);
