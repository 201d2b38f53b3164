/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Directories. A cookie is the position of an entry in an order that other changes do not disturb. So every call starts
 * after the last cookie returned, without state in between, and neither skips nor repeats entries that stay.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/posix/inode.h"
#include "fs/fuse_loop.h"
#include "fs/posix/namespace.h"
#include "fs/ops/ops.h"
#include "fs/cluster_hooks.h"
#include "index/namespace_table.h"
#include "store/engine.h"

#define COOKIE_DOT 1
#define COOKIE_DOTDOT 2

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct inode *i;
	int r = inode_get(fs->inodes, ino, &i);

	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	if (!fs->nodiratime && !(fi->flags & O_NOATIME))
		attr_touch(fs, i);
	names_put(fs, i);
	fi->fh = 2 * atomic_fetch_add(&fs->nr_opendirs, 1) + 1; /* odd, unlike a file's, which is an address */
	fuse_reply_open(req, fi);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fs_release_holder(fs_of(req), ops_holder(fi));
	fuse_reply_err(req, 0);
}

/* Reply being filled. */
struct listing {
	fuse_req_t req;
	struct fs *fs;
	char *p;
	size_t size, len;
	bool plus;
};

/* 1 added, 0 no room left. */
static int add_to_listing(struct listing *l, const char *name, const struct stat *st, uint64_t cookie, bool counted)
{
	size_t left = l->size - l->len, n;
	struct fuse_entry_param e;

	if (l->plus) {
		e = counted ? ops_entry(st) : (struct fuse_entry_param){ .attr = *st };
		n = fuse_add_direntry_plus(l->req, l->p + l->len, left, name, &e, (off_t)cookie);
	} else {
		n = fuse_add_direntry(l->req, l->p + l->len, left, name, st, (off_t)cookie);
	}
	if (n > left)
		return 0;
	l->len += n;
	return 1;
}

/*
 * With attributes an entry counts as looked up, unless it does not fit or has been removed (then it has no attributes).
 */
static int add_entry(struct listing *l, uint64_t dir, const struct ns_dirent *d)
{
	struct stat st = { .st_ino = d->ino, .st_mode = DTTOIF(d->type) };
	bool counted = l->plus && names_enter(l->fs, dir, d, &st) == 0;
	int r = add_to_listing(l, d->name, &st, d->cookie, counted);

	if (r == 0 && counted)
		names_forget(l->fs, &(struct names_forget){ st.st_ino, 1 }, 1);
	return r;
}

static int add_dots(struct listing *l, const struct ns_inode *dir, uint64_t after)
{
	struct stat dot = { .st_ino = dir->ino, .st_mode = S_IFDIR },
		    dotdot = { .st_ino = dir->parent, .st_mode = S_IFDIR };
	int r = 1;

	if (after < COOKIE_DOT)
		r = add_to_listing(l, ".", &dot, COOKIE_DOT, false);
	if (r > 0 && after < COOKIE_DOTDOT)
		r = add_to_listing(l, "..", &dotdot, COOKIE_DOTDOT, false);
	return r;
}

/* List a directory of the node directory view, without attributes: the kernel looks up those it needs. */
static int list_view(struct listing *l, uint64_t ino, uint64_t after)
{
	struct ns_inode dir = { .ino = ino };
	_cleanup_(freep) struct ns_dirent *d = NULL;
	size_t nr = 0;
	int r = l->fs->hooks ? l->fs->hooks->list(l->fs, ino, &dir.parent, &d, &nr) : -ENOENT;

	if (r == 0)
		r = add_dots(l, &dir, after);
	for (size_t i = 0; i < nr && r > 0; i++) {
		struct stat st = { .st_ino = d[i].ino, .st_mode = DTTOIF(d[i].type) };

		if (d[i].cookie > after)
			r = add_to_listing(l, d[i].name, &st, d[i].cookie, false);
	}
	return MIN(r, 0);
}

static int list(struct listing *l, uint64_t ino, uint64_t after)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_inode dir;
	struct ns_dirent d;
	int r;

	if (view_is(ino))
		return list_view(l, ino, after);
	r = attr_load(l->fs, ino, &dir);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = add_dots(l, &dir, after);
	if (r <= 0)
		return r;
	r = ns_readdir_open(l->fs->db, ino, MAX(after, (uint64_t)COOKIE_DOTDOT), &it);
	if (r < 0)
		return r;
	while ((r = ns_readdir_next(it, &d)) > 0 && (r = add_entry(l, ino, &d)) > 0)
		;
	return r;
}

static void reply_list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct listing l = { .req = req, .fs = fs_of(req), .p = loop_read_buffer(), .plus = plus };
	int r;

	l.size = MIN(size, ENGINE_BUFFER_SIZE);
	r = l.p ? list(&l, ino, (uint64_t)off) : -ENOMEM;
	if (r < 0 && l.len == 0)
		ops_reply(req, r);
	else
		fuse_reply_buf(req, l.p, l.len);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	reply_list(req, ino, size, off, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	reply_list(req, ino, size, off, true);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	ops_sync_all(req, false);
}
