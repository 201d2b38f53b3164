/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/ops/ops.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "fs/seal/autoseal.h"
#include "fs/posix/file.h"
#include "fs/fuse_loop.h"
#include "fs/posix/namespace.h"
#include "fs/ops/notify.h"
#include "fs/posix/permission.h"

/* The cache is always kept: an open that bypasses it must not empty it for other descriptors. */
static void describe(const struct file *f, struct fuse_file_info *fi)
{
	fi->fh = (uintptr_t)f;
	fi->direct_io = f->direct;
	fi->keep_cache = 1;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct file *f;
	int r = file_open(fs, ino, fi->flags, &f);

	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	describe(f, fi);
	if (fuse_reply_open(req, fi) < 0)
		file_close(fs, f);
}

/* Create a file and open it; if opening fails, remove it. `name` NULL: without a name. */
static int create(struct fs *fs, uint64_t dir, const char *name, uint32_t mode, int flags, const struct cred *cred,
		  struct stat *ret_st, struct file **ret)
{
	struct names_new n = { .mode = S_IFREG | (mode & 07777), .is_opened = file_is_for_writing(flags) };
	int r = names_make(fs, dir, name, &n, cred, ret_st);

	if (r < 0)
		return r;
	r = file_open_new(fs, ret_st->st_ino, dir, flags, ret);
	if (r < 0) {
		if (name)
			names_unlink(fs, dir, name);
		names_forget(fs, &(struct names_forget){ ret_st->st_ino, 1 }, 1);
	}
	return r;
}

static void undo(struct fs *fs, struct file *f, uint64_t ino)
{
	file_close(fs, f);
	names_forget(fs, &(struct names_forget){ ino, 1 }, 1);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct cred cred = ops_cred(req);
	struct fs *fs = fs_of(req);
	struct fuse_entry_param e;
	struct file *f;
	struct stat st;
	int r;

	r = create(fs, parent, name, mode, fi->flags, &cred, &st, &f);
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	autoseal_made(fs->autoseal, parent, name, &cred); /* sealed after the file is closed */
	describe(f, fi);
	e = ops_entry(&st);
	if (fuse_reply_create(req, &e, fi) < 0)
		undo(fs, f, st.st_ino);
}

static struct fuse_attr attr_of(const struct stat *st)
{
	return (struct fuse_attr){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec,
		.mtime = (uint64_t)st->st_mtim.tv_sec,
		.ctime = (uint64_t)st->st_ctim.tv_sec,
		.atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev,
		.blksize = (uint32_t)st->st_blksize,
	};
}

struct tmpfile_answer {
	struct fuse_out_header header;
	struct fuse_entry_out entry;
	struct fuse_open_out open;
};

static struct tmpfile_answer tmpfile_answer(uint64_t unique, const struct file *f, const struct stat *st)
{
	return (struct tmpfile_answer){
		.header = { .len = sizeof(struct tmpfile_answer), .unique = unique },
		.entry = {
			.nodeid = st->st_ino,
			.entry_valid = (uint64_t)OPS_FOREVER,
			.attr_valid = (uint64_t)OPS_FOREVER,
			.attr = attr_of(st),
		},
		.open = {
			.fh = (uintptr_t)f,
			.open_flags = FOPEN_KEEP_CACHE | (f->direct ? FOPEN_DIRECT_IO : 0),
		},
	};
}

void ops_tmpfile(struct fs *fs, int fd, const struct fuse_in_header *in, size_t len)
{
	const struct fuse_create_in *arg = (const void *)(in + 1);
	struct tmpfile_answer answer;
	struct file *f;
	struct stat st;
	struct cred cred;
	int r;

	if (len < sizeof(*in) + sizeof(*arg)) {
		ops_answer_error(fd, in->unique, EIO);
		return;
	}
	cred = (struct cred){ .uid = in->uid, .gid = in->gid, .umask = arg->umask, .pid = (int32_t)in->pid };
	r = create(fs, in->nodeid, NULL, arg->mode, (int)arg->flags, &cred, &st, &f);
	if (r < 0) {
		ops_answer_error(fd, in->unique, ops_errno(r));
		return;
	}
	answer = tmpfile_answer(in->unique, f, &st);
	if (write(fd, &answer, sizeof(answer)) < 0)
		undo(fs, f, st.st_ino);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	file_take_write_error(file_of(fi)); /* the kernel reports it itself */
	ops_reply(req, file_flush(fs_of(req), file_of(fi)));
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fs_release_holder(fs_of(req), ops_holder(fi));
	file_close(fs_of(req), file_of(fi));
	fuse_reply_err(req, 0);
}
