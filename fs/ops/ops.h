/*
 * Requests: each function decodes one, calls one function that knows no FUSE, and replies exactly once, last.
 * Nothing below this folder (and main.c and loop.c) knows a type of libfuse.
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

/* Requests that libfuse does not know: O_TMPFILE and statx(2), answered on `fd` itself. */
#define OPS_STATX 52 /* FUSE_STATX, not in every header */
void ops_tmpfile(struct fs *fs, int fd, const struct fuse_in_header *in, size_t len);
void ops_statx(struct fs *fs, int fd, const struct fuse_in_header *in);

/* Shared by the files of this folder. */
#define OPS_FOREVER \
	1e9 /* seconds that names and attributes stay valid: nothing changes them but the kernel's own requests */

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline struct file *file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

/* Of an open file or directory, until it is closed for the last time: a number that no other one has meanwhile. */
static inline uint64_t ops_holder(const struct fuse_file_info *fi)
{
	return fi->fh;
}

struct who ops_who(fuse_req_t req);
bool ops_in_group(fuse_req_t req, gid_t gid); /* is the caller a member, or root? */
bool ops_may_command(fuse_req_t req); /* what concerns the store as a whole */
/* 0: the caller may do this with the inode, R_OK, W_OK or X_OK. -EACCES, <0. */
int ops_may(fuse_req_t req, uint64_t ino, unsigned want);
/* 0 or a negative errno. Damage is what applications know as EIO. */
void ops_reply(fuse_req_t req, int r);
void ops_reply_ioctl(fuse_req_t req, int r, const void *arg, size_t len); /* the argument, as it is now, if r is 0 */
int ops_errno(int r); /* as ops_reply() would send it, positive */
void ops_answer_error(int fd, uint64_t unique, int error); /* positive; for requests that libfuse does not know */
/* An entry counted as looked up; taken back if the kernel does not want it any more. */
void ops_reply_entry(fuse_req_t req, int r, const struct stat *st);
/* The same for a name that the kernel is to ask for again soon. */
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

void ioctl_compact(fuse_req_t req, uint64_t holder, const void *in);
void ioctl_compact_file(fuse_req_t req, struct file *f, const void *in);
void ioctl_compact_add(fuse_req_t req, const void *in);
void ioctl_compact_result(fuse_req_t req, const void *in);
void ioctl_variable(fuse_req_t req, const void *in);
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi, unsigned flags,
	      const void *in, size_t in_len, size_t out_len);
