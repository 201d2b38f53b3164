/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * FUSE requests: each function decodes one request, calls one function independent of FUSE, and replies exactly once,
 * as its last action. Only this folder, main.c and fuse_loop.c use types of libfuse.
 */
#pragma once

#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/fs.h"

struct file;
struct fuse_in_header;

extern const struct fuse_lowlevel_ops ops_table;

/* Requests that libfuse does not support, O_TMPFILE and statx(2); the reply is written to `fd` directly. */
#define OPS_STATX 52 /* FUSE_STATX, missing in some headers */
void ops_tmpfile(struct fs *fs, int fd, const struct fuse_in_header *in, size_t len);
void ops_statx(struct fs *fs, int fd, const struct fuse_in_header *in);

/* Shared by the files of this folder. */
#define OPS_FOREVER \
	1e9 /* seconds that names and attributes stay valid: only requests of this kernel change them */

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline struct file *file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

/* A number that identifies an open file or directory, unique until its last close. */
static inline uint64_t ops_holder(const struct fuse_file_info *fi)
{
	return fi->fh;
}

struct cred ops_cred(fuse_req_t req);
bool ops_may_command(fuse_req_t req); /* permission_operator() */
/*
 * `r` is 0 or a negative errno. Damage (-EBADMSG) is reported as EIO. After -EINPROGRESS (being sealed or unsealed) the
 * request is served again afterwards, so it must not have changed anything before, or EBUSY is sent (fs/seal/freeze.h).
 */
void ops_reply(fuse_req_t req, int r);
void ops_reply_ioctl(fuse_req_t req, int r, const void *arg, size_t len); /* if r is 0, replies with the argument */
int ops_errno(int r); /* errno as ops_reply() sends it, positive */
void ops_sync_all(fuse_req_t req, bool is_ioctl); /* replies when everything is durable; blocks no thread */
void ops_answer_error(int fd, uint64_t unique, int error); /* positive; for requests that libfuse does not support */
/* Reply with an entry counted as looked up; the look-up is undone if the kernel no longer wants the reply. */
void ops_reply_entry(fuse_req_t req, int r, const struct stat *st);
/* The same with a short timeout, after which the kernel looks the name up again. */
#define OPS_VIEW_SECONDS 1.0
void ops_reply_entry_for(fuse_req_t req, int r, const struct stat *st, double seconds);
struct fuse_entry_param ops_entry(const struct stat *st);

void op_init(void *userdata, struct fuse_conn_info *conn);
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t from_dir, const char *from, fuse_ino_t to_dir, const char *to,
	       unsigned flags);

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t ino, const char *p, size_t len, off_t off, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t from_ino, off_t from_off, struct fuse_file_info *from,
			fuse_ino_t to_ino, off_t to_off, struct fuse_file_info *to, size_t len, int flags);

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *p, size_t len, int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi, unsigned flags,
	      const void *in, size_t in_len, size_t out_len);
