/*
 * Directories. A cookie is an entry's place in an order that other changes do not disturb, so every call starts anew
 * after the last cookie given, keeps nothing in between, and neither skips nor repeats what stays.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "fs/attr.h"
#include "fs/inode.h"
#include "fs/loop.h"
#include "fs/namespace.h"
#include "fs/ops/ops.h"
#include "fs/view.h"
#include "index/namespace.h"
#include "store/engine/engine.h"

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
	attr_touch(fs, i);
	names_put(fs, i);
	fi->fh = 2 * atomic_fetch_add(&fs->nr_opendirs, 1) + 1; /* no file's: those are addresses */
	fuse_reply_open(req, fi);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fs_let_go(fs_of(req), ops_holder(fi));
	fuse_reply_err(req, 0);
}

/* An answer being filled. */
struct listing {
	fuse_req_t req;
	struct fs *fs;
	char *p;
	size_t size, len;
	bool plus;
};

/* 1 added, 0 no room left. */
static int add(struct listing *l, const char *name, const struct stat *st, uint64_t cookie, bool counted)
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

/* With attributes an entry counts as looked up, unless it does not fit or is gone (then it has none). */
static int add_entry(struct listing *l, uint64_t dir, const struct ns_dirent *d)
{
	struct stat st = { .st_ino = d->ino, .st_mode = DTTOIF(d->type) };
	bool counted = l->plus && names_enter(l->fs, dir, d, &st) == 0;
	int r = add(l, d->name, &st, d->cookie, counted);

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
		r = add(l, ".", &dot, COOKIE_DOT, false);
	if (r > 0 && after < COOKIE_DOTDOT)
		r = add(l, "..", &dotdot, COOKIE_DOTDOT, false);
	return r;
}

/* One that is made up. The kernel looks up what it wants to know more of. */
static int list_view(struct listing *l, uint64_t ino, uint64_t after)
{
	struct ns_inode dir = { .ino = ino, .parent = view_parent(l->fs->view, ino) };
	_cleanup_(freep) struct ns_dirent *d = NULL;
	size_t nr = 0;
	int r = view_list(l->fs->view, ino, &d, &nr);

	if (r == 0)
		r = add_dots(l, &dir, after);
	for (size_t i = 0; i < nr && r > 0; i++) {
		struct stat st = { .st_ino = d[i].ino, .st_mode = DTTOIF(d[i].type) };

		if (d[i].cookie > after)
			r = add(l, d[i].name, &st, d[i].cookie, false);
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
	ops_reply(req, engine_sync(fs_of(req)->engine));
}
