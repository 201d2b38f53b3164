/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/ops/ops.h"

#include <errno.h>
#include <linux/fuse.h>
#include <unistd.h>

#include "base/log.h"
#include "fs/fuse_loop.h"
#include "fs/posix/namespace.h"
#include "fs/posix/permission.h"
#include "store/engine.h"

#define MAX_BACKGROUND 64 /* read-ahead and asynchronous requests in flight */
/* The same where reads may wait for a tier: others would wait behind them in the kernel's queue. */
#define MAX_BACKGROUND_OF_TIER UINT16_MAX

/* Locking is left out on purpose: the kernel then manages file locks itself, and there is only one kernel. */
const struct fuse_lowlevel_ops ops_table = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.statfs = op_statfs,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.symlink = op_symlink,
	.link = op_link,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.open = op_open,
	.create = op_create,
	.flush = op_flush,
	.release = op_release,
	.read = op_read,
	.lseek = op_lseek,
	.write = op_write,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
	.copy_file_range = op_copy_file_range,
	.opendir = op_opendir,
	.releasedir = op_releasedir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.fsyncdir = op_fsyncdir,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.ioctl = op_ioctl,
};

/*
 * Capabilities that are not requested:
 *   - the write-back cache, unless the option is set: without it data arrives in the order and size it was written
 *     (docs/decisions/fuse.md, "Write-back");
 *   - automatic invalidation: content changes only through this mount;
 *   - splicing: one copy into an aligned buffer is cheaper;
 *   - the first version of set-id handling, which leaves too much to the daemon;
 *   - asynchronous direct I/O, unless the mount is read-only: the kernel does not drop cached pages after an
 *     asynchronous direct write, and the daemon cannot either (docs/decisions/fuse.md, "Page cache coherence");
 *   - FUSE_CAP_ATOMIC_O_TRUNC: before an open that truncates, the kernel does not wait for mapped pages it is writing
 *     back. They would arrive later and restore old bytes. Before a SETATTR it waits.
 */
void op_init(void *userdata, struct fuse_conn_info *conn)
{
	static const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_EXPORT_SUPPORT |
				       FUSE_CAP_DONT_MASK | FUSE_CAP_IOCTL_DIR | FUSE_CAP_READDIRPLUS |
				       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_PARALLEL_DIROPS |
				       FUSE_CAP_POSIX_ACL | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPLICIT_INVAL_DATA;

	struct fs *fs = userdata;

	if (fs->writeback && !(conn->capable & FUSE_CAP_WRITEBACK_CACHE)) {
		log_warning("option writeback: ignored: the kernel has no write-back cache for FUSE");
		fs->writeback = false;
	}
	conn->want = conn->capable & (wanted | (fs->read_only ? FUSE_CAP_ASYNC_DIO : 0) |
				      (fs->writeback ? FUSE_CAP_WRITEBACK_CACHE : 0));
	conn->max_write = ENGINE_BUFFER_SIZE;
	conn->max_background = fs->away ? MAX_BACKGROUND_OF_TIER : MAX_BACKGROUND;
	conn->congestion_threshold = conn->max_background;
}

struct cred ops_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct cred){ .uid = ctx->uid, .gid = ctx->gid, .umask = ctx->umask, .pid = ctx->pid };
}

bool ops_may_command(fuse_req_t req)
{
	struct cred cred = ops_cred(req);

	return permission_operator(&cred);
}

int ops_errno(int r)
{
	return r == -EBADMSG ? EIO : r == -EINPROGRESS ? EBUSY : -r;
}

void ops_reply(fuse_req_t req, int r)
{
	if (r == -EINPROGRESS && loop_serve_again(fuse_req_interrupted(req)))
		fuse_reply_none(req); /* only frees the request */
	else
		fuse_reply_err(req, ops_errno(r));
}

void ops_reply_ioctl(fuse_req_t req, int r, const void *arg, size_t len)
{
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_ioctl(req, 0, arg, len);
}

void ops_answer_error(int fd, uint64_t unique, int error)
{
	struct fuse_out_header header = { .len = sizeof(header), .error = -error, .unique = unique };

	if (error == EINPROGRESS) {
		if (loop_serve_again(false))
			return;
		header.error = -EBUSY;
	}
	if (write(fd, &header, sizeof(header)) < 0 && errno != ENOENT) /* ENOENT: aborted by the kernel */
		log_errno(-errno, "requests: cannot answer");
}

struct fuse_entry_param ops_entry(const struct stat *st)
{
	return (struct fuse_entry_param){
		.ino = st->st_ino,
		.attr = *st,
		.attr_timeout = OPS_FOREVER,
		.entry_timeout = OPS_FOREVER,
	};
}

void ops_reply_entry_for(fuse_req_t req, int r, const struct stat *st, double seconds)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e;

	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	e = ops_entry(st);
	e.entry_timeout = seconds;
	if (fuse_reply_entry(req, &e) < 0)
		names_forget(fs, &(struct names_forget){ st->st_ino, 1 }, 1);
}

void ops_reply_entry(fuse_req_t req, int r, const struct stat *st)
{
	ops_reply_entry_for(req, r, st, OPS_FOREVER);
}
