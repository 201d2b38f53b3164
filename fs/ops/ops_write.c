/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/fuse_loop.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"
#include "fs/posix/permission.h"
#include "store/engine.h"

struct write {
	struct file_sync sync;
	fuse_req_t req;
	struct notify *notify;
	struct file *file;
	uint64_t ino, off;
	size_t len;
	struct file_written written;
	struct loop_late_reply late;
};

/* A write may fail after its bytes are in the file (file_write()); other readers must then not find the old ones. */
static void reply_write(const struct write *w, int r)
{
	ssize_t result = r < 0 ? r : (ssize_t)w->len;

	if (r < 0 && fs_of(w->req)->writeback) {
		file_write_failed(w->file, r);
		notify_attributes_changed(w->notify, w->ino); /* the next write(2) then sends GETATTR */
	}
	if (w->written.stale == FILE_STALE_RANGE)
		notify_range_then_reply_write(w->notify, w->req, w->ino, w->off, w->len, result);
	else if (w->written.stale == FILE_STALE_ALL)
		notify_all_then_reply_write(w->notify, w->req, w->ino, w->file, w->written.opens, result);
	else if (r < 0)
		ops_reply(w->req, r);
	else
		fuse_reply_write(w->req, w->len);
}

static void write_synced(struct file_sync *s, int r)
{
	struct write *w = container_of(s, struct write, sync);

	reply_write(w, r);
	loop_answered(&w->late);
	free(w);
}

static void sync_then_reply_write(const struct write *written)
{
	struct write *w = malloc(sizeof(*w));

	if (!w) {
		reply_write(written, -ENOMEM);
		return;
	}
	*w = *written;
	w->sync.done = write_synced;
	loop_run_job();
	loop_reply_later(&w->late);
	file_sync_data_then(w->file, &w->sync);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct write w = {
		.req = req, .notify = loop_notify(), .file = file_of(fi), .ino = ino, .off = (uint64_t)off, .len = len
	};
	int r = file_write(fs_of(req), w.file, loop_buffer(), p, len, w.off, loop_kills_setid() ? &caller : NULL,
			   loop_job(), &w.written);

	if (r == 0 && w.written.mode_changed)
		notify_attributes_changed(w.notify, ino);
	if (r == 0 && file_is_synchronous(fi->flags))
		sync_then_reply_write(&w);
	else
		reply_write(&w, r);
}

struct fsync {
	struct file_sync sync;
	fuse_req_t req;
	struct notify *notify; /* NULL: the kernel's attributes are valid */
	uint64_t ino;
	struct loop_late_reply late;
};

static void fsync_done(struct file_sync *s, int r)
{
	struct fsync *f = container_of(s, struct fsync, sync);

	if (f->notify)
		notify_attributes_changed(f->notify, f->ino);
	ops_reply(f->req, r);
	loop_answered(&f->late);
	free(f);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fsync *f = calloc(1, sizeof(*f));

	(void)datasync;
	if (!f) {
		ops_reply(req, -ENOMEM);
		return;
	}
	f->sync.done = fsync_done;
	f->req = req;
	f->ino = ino;
	if (fs_of(req)->writeback) {
		f->notify = loop_notify(); /* the kernel cached the number of blocks before write-back */
		file_take_write_error(file_of(fi)); /* the kernel reports it itself */
	}
	loop_reply_later(&f->late);
	file_sync_then(fs_of(req), file_of(fi), &f->sync);
}

/* A request that is answered when everything so far is durable. */
struct sync_all {
	struct engine_waiter w;
	fuse_req_t req;
	struct loop_late_reply late;
	enum sync_reply { SYNC_REPLY, SYNC_REPLY_IOCTL, SYNC_REPLY_WRITE } kind;
	size_t written; /* SYNC_REPLY_WRITE: bytes to report */
	int error; /* error of data that was to be included */
};

static void sync_all_done(struct engine_waiter *w, int r)
{
	struct sync_all *s = container_of(w, struct sync_all, w);

	r = s->error < 0 ? s->error : r;
	if (s->kind == SYNC_REPLY_IOCTL)
		ops_reply_ioctl(s->req, r, NULL, 0);
	else if (s->kind == SYNC_REPLY_WRITE && r == 0)
		fuse_reply_write(s->req, s->written);
	else
		ops_reply(s->req, r);
	loop_answered(&s->late);
	free(s);
}

static void sync_all(fuse_req_t req, enum sync_reply kind, size_t written)
{
	struct sync_all *s = calloc(1, sizeof(*s));

	if (!s) {
		ops_reply(req, -ENOMEM);
		return;
	}
	s->w.done = sync_all_done;
	s->req = req;
	s->kind = kind;
	s->written = written;
	loop_reply_later(&s->late);
	if (kind == SYNC_REPLY_IOCTL) /* fsync of a directory concerns names only; other changes are in the log */
		s->error = file_flush_all(fs_of(req));
	engine_sync_then(fs_of(req)->engine, &s->w);
}

void ops_sync_all(fuse_req_t req, bool is_ioctl)
{
	sync_all(req, is_ioctl ? SYNC_REPLY_IOCTL : SYNC_REPLY, 0);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	int r = file_allocate(fs_of(req), file_of(fi), mode, (uint64_t)off, (uint64_t)len, &caller);

	if (r > 0)
		notify_attributes_changed(loop_notify(), ino);
	if (r >= 0 && file_syncs_changes(fs_of(req), file_of(fi)))
		sync_all(req, SYNC_REPLY, 0);
	else
		ops_reply(req, MIN(r, 0));
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t from_ino, off_t from_off, struct fuse_file_info *from,
			fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to, size_t len, int flags)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	uint64_t done;
	int r;

	(void)from_ino;
	(void)flags;
	r = file_copy_some(fs_of(req), file_of(from), (uint64_t)from_off, file_of(to), (uint64_t)to_off, len,
			   &caller, &done);
	if (r > 0)
		notify_attributes_changed(loop_notify(), to_ino);
	if (r < 0)
		ops_reply(req, r);
	else if (file_syncs_changes(fs_of(req), file_of(to)))
		sync_all(req, SYNC_REPLY_WRITE, done);
	else
		fuse_reply_write(req, done);
}
