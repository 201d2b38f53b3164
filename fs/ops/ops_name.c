/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <sys/stat.h>

#include "fs/seal/autoseal.h"
#include "fs/posix/namespace.h"
#include "fs/ops/ops.h"

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, const struct names_new *n)
{
	struct cred cred = ops_cred(req);
	struct stat st;
	int r = names_make(fs_of(req), parent, name, n, &cred, &st);

	if (r == 0 && !S_ISDIR(n->mode))
		autoseal_made(fs_of(req)->autoseal, parent, name, &cred);
	ops_reply_entry(req, r, &st);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	make(req, parent, name, &(struct names_new){ .mode = mode, .rdev = rdev });
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	make(req, parent, name, &(struct names_new){ .mode = S_IFDIR | (mode & 07777) });
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	make(req, parent, name, &(struct names_new){ .mode = S_IFLNK | 0777, .target = target });
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct cred cred = ops_cred(req);
	struct stat st;
	int r = names_link(fs_of(req), ino, parent, name, NULL, &st);

	if (r == 0)
		autoseal_made(fs_of(req)->autoseal, parent, name, &cred);
	ops_reply_entry(req, r, &st);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	ops_reply(req, names_unlink(fs_of(req), parent, name));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	ops_reply(req, names_rmdir(fs_of(req), parent, name));
}

void op_rename(fuse_req_t req, fuse_ino_t from_dir, const char *from, fuse_ino_t to_dir, const char *to, unsigned flags)
{
	struct cred cred = ops_cred(req);
	int r = names_rename(fs_of(req), from_dir, from, to_dir, to, flags);

	if (r == 0)
		autoseal_renamed(fs_of(req)->autoseal, from, to_dir, to, &cred);
	ops_reply(req, r);
}
