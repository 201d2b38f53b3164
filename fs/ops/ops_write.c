#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "fs/file.h"
#include "fs/inode.h"
#include "fs/loop.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"
#include "store/engine/engine.h"

void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct file_written done;
	int r = file_write(fs_of(req), file_of(fi), loop_buffer(), p, len, (uint64_t)off, fi->flags, loop_kills_setid(),
			   loop_later(), &done);

	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	if (done.mode_changed)
		notify_mode_changed(loop_notify(), ino);
	if (done.invalidate)
		notify_then_reply_write(loop_notify(), req, ino, (uint64_t)off, len);
	else
		fuse_reply_write(req, len);
}

struct fsync {
	struct file_sync sync;
	fuse_req_t req;
	struct loop_later later;
};

static void fsync_done(struct file_sync *s, int r)
{
	struct fsync *f = container_of(s, struct fsync, sync);

	ops_reply(f->req, r);
	loop_answered(&f->later);
	free(f);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fsync *f = calloc(1, sizeof(*f));

	(void)ino;
	(void)datasync;
	if (!f) {
		ops_reply(req, -ENOMEM);
		return;
	}
	f->sync.done = fsync_done;
	f->req = req;
	loop_answer_later(&f->later);
	file_sync_then(file_of(fi), &f->sync);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	(void)ino;
	ops_reply(req, file_allocate(fs_of(req), file_of(fi), mode, (uint64_t)off, (uint64_t)len, loop_kills_setid()));
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t from_ino, off_t from_off, struct fuse_file_info *from,
			fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to, size_t len, int flags)
{
	uint64_t done;
	int r;

	(void)from_ino;
	(void)to_ino;
	(void)flags;
	r = file_clone(fs_of(req), file_of(from), (uint64_t)from_off, file_of(to), (uint64_t)to_off, len,
		       loop_kills_setid(), &done);
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_write(req, done);
}
