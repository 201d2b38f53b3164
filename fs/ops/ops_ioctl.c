/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/ops/ops_ioctl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "fs/fuse_loop.h"
#include "fs/posix/file.h"

#define IOCTL(NAME, TYPE)                                                                                             \
	.name = "CKPTFS_IOC_" #NAME, .type = "struct " #TYPE, .number = CKPTFS_IOC_##NAME, .in = sizeof(struct TYPE), \
	.out = _IOC_DIR(CKPTFS_IOC_##NAME) & _IOC_READ ? sizeof(struct TYPE) : 0, .has_head = true

/* In the order of the manual. */
const struct ioctl_entry ioctl_table[] = {
	{ IOCTL(HANDLE, ckptfs_handle), .on = IOCTL_ON_FILE, .access = IOCTL_READ, .handler = ioctl_handle,
	  .about = "Returns a number that identifies this open file in CKPTFS_IOC_CLONE and CKPTFS_IOC_COMPARE." },
	{ IOCTL(CLONE, ckptfs_clone), .on = IOCTL_ON_FILE, .access = IOCTL_WRITE, .is_long = true, .handler = ioctl_clone,
	  .about = "Shares bytes of another file of the mount instead of copying them.", .page = "copy_file_range 2" },
	{ IOCTL(COMPARE, ckptfs_compare), .on = IOCTL_ON_FILE, .access = IOCTL_READ, .is_long = true,
	  .handler = ioctl_compare, .about = "Finds where two files are equal by their chunks, without reading them.",
	  .page = "ckptfs-diff 1" },
	{ IOCTL(STAT, ckptfs_stat), .on = IOCTL_ON_FILE, .access = IOCTL_READ, .is_long = true, .handler = ioctl_stat,
	  .about = "Returns size, extents, fingerprint and durability of a file.", .page = "ckptfs-stat 1" },
	{ IOCTL(SYNC, ckptfs_sync), .handler = ioctl_sync, .about = "Makes all changes of the mount durable." },
	{ IOCTL(SEAL, ckptfs_seal), .on = IOCTL_ON_DIRECTORY, .operator_only = IOCTL_COMMAND(CKPTFS_SEAL_REPLICA),
	  .is_long = true, .handler = ioctl_seal,
	  .about = "Seals, unseals or removes a directory; lists and checks sealed directories.",
	  .page = "ckptfs-seal 1" },
	{ IOCTL(DELTA_BEGIN, ckptfs_delta_begin), .on = IOCTL_ON_FILE, .access = IOCTL_WRITE, .handler = ioctl_delta_begin,
	  .about = "Makes an unnamed file the staging file of the next version of a lineage.", .page = "ckptfs_gpu 3" },
	{ IOCTL(DELTA_COMMIT, ckptfs_delta_commit), .on = IOCTL_ON_FILE, .access = IOCTL_WRITE, .is_long = true,
	  .handler = ioctl_delta_commit, .about = "Creates that version from the changes in the staging file." },
	{ IOCTL(DELTA_ABORT, ckptfs_delta_abort), .on = IOCTL_ON_FILE, .access = IOCTL_WRITE, .is_long = true,
	  .handler = ioctl_delta_abort, .about = "Discards that version and truncates the staging file." },
	{ IOCTL(EXCLUSIVE, ckptfs_exclusive), .on = IOCTL_ON_DIRECTORY, .is_long = true, .handler = ioctl_exclusive,
	  .about = "Computes the space that deleting some names, or all files of an owner, would free.",
	  .page = "ckptfs-stat 1" },
	{ IOCTL(OWNERS, ckptfs_owners), .is_long = true, .handler = ioctl_owners,
	  .about = "Lists the owners of files with the size of their files.", .page = "ckptfs-stat 1" },
	{ IOCTL(GC, ckptfs_gc), .operator_only = IOCTL_COMMAND(CKPTFS_GC_START) | IOCTL_COMMAND(CKPTFS_GC_STOP),
	  .handler = ioctl_gc, .about = "Starts or stops a garbage collection, or reports on the last one.",
	  .page = "ckptfs-gc 1" },
	{ IOCTL(SCRUB, ckptfs_scrub),
	  .operator_only = IOCTL_COMMAND(CKPTFS_SCRUB_START) | IOCTL_COMMAND(CKPTFS_SCRUB_STOP), .handler = ioctl_scrub,
	  .about = "Starts or stops a scrub, or reports on the last one.", .page = "ckptfs-scrub 1" },
	{ IOCTL(SCRUB_HIT, ckptfs_scrub_hit), .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_scrub_hit,
	  .about = "Returns damaged bytes of a file that the last scrub has found.", .page = "ckptfs-scrub 1" },
	{ IOCTL(COMPACT, ckptfs_compact), .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_compact,
	  .about = "Creates, starts or stops a plan that recodes variables, or reports on it.",
	  .page = "ckptfs-compact 1" },
	{ IOCTL(COMPACT_FILE, ckptfs_compact_file), .on = IOCTL_ON_FILE, .access = IOCTL_READ,
	  .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_compact_file, .about = "Adds this file to the plan." },
	{ IOCTL(COMPACT_ADD, ckptfs_compact_add), .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_compact_add,
	  .about = "Adds a variable, or more extents of the last one, to the plan." },
	{ IOCTL(COMPACT_RESULT, ckptfs_compact_result), .operator_only = IOCTL_ALL_COMMANDS,
	  .handler = ioctl_compact_result, .about = "Returns the result of a plan for one variable." },
	{ IOCTL(VARIABLE, ckptfs_variable), .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_variable,
	  .about = "Lists the cumulative results of recoding for the variables of the store.", .page = "ckptfs-stat 1" },
	{ IOCTL(CLUSTER, ckptfs_cluster), .operator_only = IOCTL_ALL_COMMANDS, .is_long = true, .handler = ioctl_cluster,
	  .about = "Reports on replicas on other nodes, re-replicates after a loss, or forgets a node.",
	  .page = "ckptfs-agent 1" },
	{ IOCTL(UNPROTECTED, ckptfs_unprotected), .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_unprotected,
	  .about = "Lists the directories that could not be replicated.", .page = "ckptfs-agent 1" },
	{ IOCTL(TIER, ckptfs_tier), .is_long = true, .handler = ioctl_tier,
	  .about = "Reports on the tier beneath the store, and on one sealed directory: that of the descriptor or, if "
		   "the caller is root, the mounting user or the user that sealed it, the one with a given inode number.",
	  .page = "ckptfs-stat 1" },
	{ IOCTL(MOUNT, ckptfs_mount), .operator_only = IOCTL_ALL_COMMANDS, .handler = ioctl_mount,
	  .about = "Ends the daemon when the mount is gone from its mount namespace, or changes the flags of the mount in "
		   "the daemon.",
	  .page = "umount.ckptfs 8" },
	{ .name = "FS_IOC_GETFLAGS",
	  .type = "unsigned",
	  .number = FS_IOC_GETFLAGS,
	  .out = sizeof(unsigned),
	  .handler = ioctl_getflags,
	  .about = "Returns FS_IMMUTABLE_FL for everything that is sealed.",
	  .page = "ioctl_iflags 2" },
};
const size_t ioctl_table_nr = ARRAY_SIZE(ioctl_table);

const struct ioctl_entry *ioctl_find(unsigned number)
{
	for (size_t i = 0; i < ARRAY_SIZE(ioctl_table); i++)
		if (ioctl_table[i].number == number)
			return &ioctl_table[i];
	return NULL;
}

struct head {
	uint32_t size, version;
	uint32_t command; /* where there are commands */
};

union argument {
	struct head head;
	struct ckptfs_handle handle;
	struct ckptfs_clone clone;
	struct ckptfs_compare compare;
	struct ckptfs_stat stat;
	struct ckptfs_sync sync;
	struct ckptfs_seal seal;
	struct ckptfs_delta_begin delta_begin;
	struct ckptfs_delta_commit delta_commit;
	struct ckptfs_delta_abort delta_abort;
	struct ckptfs_exclusive exclusive;
	struct ckptfs_owners owners;
	struct ckptfs_gc gc;
	struct ckptfs_scrub scrub;
	struct ckptfs_scrub_hit scrub_hit;
	struct ckptfs_compact compact;
	struct ckptfs_compact_file compact_file;
	struct ckptfs_compact_add compact_add;
	struct ckptfs_compact_result compact_result;
	struct ckptfs_variable variable;
	struct ckptfs_cluster cluster;
	struct ckptfs_unprotected unprotected;
	struct ckptfs_mount mount;
	struct ckptfs_tier tier;
	unsigned flags;
};

static int check_permission(const struct ioctl_entry *e, const struct ioctl_call *c, const struct head *h)
{
	bool is_restricted = e->operator_only == IOCTL_ALL_COMMANDS ||
			     (h->command < IOCTL_NR_COMMANDS && e->operator_only & IOCTL_COMMAND(h->command));
	int mode = c->file ? c->file->flags & O_ACCMODE : 0;

	if (is_restricted && !ops_may_command(c->req))
		return -EPERM;
	if ((e->access == IOCTL_READ && mode == O_WRONLY) || (e->access == IOCTL_WRITE && mode == O_RDONLY))
		return -EBADF;
	return 0;
}

static int check_call(const struct ioctl_entry *e, const struct ioctl_call *c, const struct head *h)
{
	int r;

	if (e->has_head && (h->size != e->in || h->version != CKPTFS_IOC_VERSION))
		return -EINVAL;
	if (e->on == IOCTL_ON_FILE && !c->file)
		return -EISDIR;
	if (e->on == IOCTL_ON_DIRECTORY && c->file)
		return -ENOTDIR;
	r = check_permission(e, c, h);
	return r < 0 || !e->has_head || !c->file ? r : file_take_write_error(c->file);
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, _unused_ void *user_arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_len, size_t out_len)
{
	const struct ioctl_entry *e = ioctl_find(cmd);
	struct ioctl_call c = { .req = req, .fs = fs_of(req), .ino = ino, .holder = ops_holder(fi) };
	union argument arg;
	int r;

	if (!(flags & FUSE_IOCTL_DIR))
		c.file = file_of(fi);
	if (!e) {
		ops_reply(req, -ENOTTY);
		return;
	}
	if (in_len < e->in || out_len < e->out) {
		ops_reply(req, -EINVAL);
		return;
	}
	arg.head = (struct head){ 0 };
	if (e->in > 0)
		memcpy(&arg, in, e->in);
	r = check_call(e, &c, &arg.head);
	if (r == 0)
		r = e->handler(&c, &arg);
	if (r != IOCTL_REPLIED)
		ops_reply_ioctl(req, r, &arg, e->out);
}

struct name_reply {
	struct loop_drop drop;
	fuse_req_t req;
	int r;
	size_t len;
	uint8_t arg[];
};

static void name_dropped(struct loop_drop *d, bool is_answered)
{
	struct name_reply *n = container_of(d, struct name_reply, drop);

	if (is_answered)
		fuse_reply_none(n->req); /* only frees it */
	else
		ops_reply_ioctl(n->req, n->r, n->arg, n->len);
	free(n);
}

void ioctl_drop_name_then_reply(const struct ioctl_call *c, uint64_t dir, const char *name, int r, const void *arg,
				size_t len)
{
	struct name_reply *n = malloc(sizeof(*n) + len);

	if (n) {
		*n = (struct name_reply){ .drop.done = name_dropped, .req = c->req, .r = r, .len = len };
		if (len > 0)
			memcpy(n->arg, arg, len);
	}
	if (n && loop_drop_name(&n->drop, dir, name) == 0)
		return;
	free(n);
	ops_reply(c->req, -ENOMEM);
}
