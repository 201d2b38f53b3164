/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Node numbers are computed (tier_view.h), not allocated, so FORGET does nothing. Names and attributes in a checkpoint
 * never change, and the kernel caches them. It caches those of directories above checkpoints for one second.
 *
 * The kernel locks a directory while it looks a name up, and other users wait for it. So the look-up of a checkpoint
 * does not wait for its manifest: until the manifest has been read, the reply has attributes that grant nothing and are
 * not cached, and the kernel requests them again, without the lock.
 *
 * The kernel checks permissions (default_permissions), with the access lists of files.
 */
#include "fs/tiermount/tier_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/mutex.h"
#include "base/util.h"
#include "client/retention.h"
#include "fs/tiermount/tier_view.h"
#include "store/tier/tier.h"

#define FOREVER 86400.0
#define ABOVE 1.0 /* seconds */
#define IOV_MANY 512u /* replies of more pieces are copied into one buffer */
#define BACKGROUND UINT16_MAX /* reads in flight, of all users together: the kernel queues those beyond it */
#define DIRECTORY_SIZE 4096 /* as on a mounted store */
#define STAT_NAME "user.ckptfs.stat"

static struct tier_fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* --- waiting --- */

static bool is_cancelled(void *userdata _unused_)
{
	return cancel_check() < 0;
}

struct tier_waiter tier_waiter_for(enum tier_wait what)
{
	return (struct tier_waiter){ .is_interrupted = is_cancelled, .must_not_wait = !tier_loop_may_wait(what) };
}

void tier_reply_error(fuse_req_t req, int r)
{
	if (r == -EINPROGRESS) {
		fuse_reply_none(req);
		tier_loop_serve_again();
		return;
	}
	fuse_reply_err(req, r == -EBADMSG || r == -ETIMEDOUT || r == -EAGAIN ? EIO : -r);
}

int tier_enter(fuse_req_t req, uint64_t node, enum tier_wait what, struct tier_entered **ret)
{
	const struct tier_waiter w = tier_waiter_for(what);
	struct tier_entered *e;
	int r = tier_view_enter(fs_of(req)->view, tier_node_place(node), &w, &e);

	if (r == 0 && tier_node_inode(node) >= e->tree->nr_inodes) {
		tier_view_leave(fs_of(req)->view, e);
		return -ESTALE;
	}
	if (r == 0)
		*ret = e;
	return r == -ENOENT ? -ESTALE : r;
}

/* --- attributes --- */

static struct timespec timespec_of(int64_t ns)
{
	int64_t s = ns / 1000000000, rest = ns % 1000000000;

	return (struct timespec){ .tv_sec = rest < 0 ? s - 1 : s, .tv_nsec = rest < 0 ? rest + 1000000000 : rest };
}

static struct stat stat_of(uint64_t node, const struct tier_inode *in)
{
	return (struct stat){
		.st_ino = node,
		.st_mode = in->mode,
		.st_nlink = in->nlink,
		.st_uid = in->uid,
		.st_gid = in->gid,
		.st_rdev = in->rdev,
		.st_size = S_ISDIR(in->mode) ? DIRECTORY_SIZE : (off_t)in->size,
		.st_blksize = (blksize_t)TIER_READ_MAX,
		.st_blocks = (blkcnt_t)((in->mapped + 511) / 512),
		.st_atim = timespec_of(in->atime_ns),
		.st_mtim = timespec_of(in->mtime_ns),
		.st_ctim = timespec_of(in->ctime_ns),
	};
}

static int stat_above(struct tier_fs *fs, uint64_t node, struct stat *ret)
{
	int64_t newest = 0;
	int r = tier_view_time(fs->view, tier_node_inode(node), &newest);
	struct timespec time = timespec_of(newest > 0 ? newest : fs->mounted_ns);

	*ret = (struct stat){
		.st_ino = node,
		.st_mode = S_IFDIR | 0555,
		.st_nlink = 1, /* subdirectories are not counted */
		.st_uid = geteuid(),
		.st_gid = getegid(),
		.st_atim = time,
		.st_mtim = time,
		.st_ctim = time,
	};
	return r;
}

static int stat_node(fuse_req_t req, uint64_t node, struct stat *ret)
{
	struct tier_entered *e;
	int r;

	if (tier_node_place(node) == 0)
		return stat_above(fs_of(req), node, ret);
	r = tier_enter(req, node, TIER_WAITS_FOR_TREE, &e);
	if (r < 0)
		return r;
	*ret = stat_of(node, &e->tree->inodes[tier_node_inode(node)]);
	tier_view_leave(fs_of(req)->view, e);
	return 0;
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi _unused_)
{
	struct stat st;
	int r = stat_node(req, ino, &st);

	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_attr(req, &st, tier_node_place(ino) > 0 ? FOREVER : ABOVE);
}

/* Attributes of a checkpoint that is looked up, or of a directory above checkpoints. Never waits. */
static int stat_found(struct tier_fs *fs, uint64_t node, struct fuse_entry_param *ret)
{
	struct tier_inode top;

	ret->attr_timeout = ABOVE;
	if (tier_node_place(node) == 0)
		return stat_above(fs, node, &ret->attr);
	if (tier_view_top(fs->view, tier_node_place(node), &top)) {
		ret->attr = stat_of(node, &top);
		ret->attr_timeout = FOREVER;
		return 0;
	}
	ret->attr = stat_of(node, &(struct tier_inode){ .mode = S_IFDIR, .nlink = 2 });
	ret->attr_timeout = 0;
	return 0;
}

/* Looks up an entry of a directory. In a checkpoint the kernel also caches that a name is missing. */
static int lookup_entry(fuse_req_t req, uint64_t parent, const char *name, struct fuse_entry_param *ret)
{
	bool is_above = tier_node_place(parent) == 0;
	struct tier_fs *fs = fs_of(req);
	const struct tier_entry *entry;
	struct tier_entered *e;
	uint64_t node;
	int r;

	*ret = (struct fuse_entry_param){
		.attr_timeout = FOREVER,
		.entry_timeout = is_above ? ABOVE : FOREVER,
	};
	if (is_above) {
		const struct tier_waiter w = tier_waiter_for(TIER_WAITS_FOR_LIST);

		r = tier_view_refresh(fs->view, &w);
		if (r == 0)
			r = tier_view_find(fs->view, tier_node_inode(parent), name, &node);
		if (r == 0)
			r = stat_found(fs, node, ret);
		ret->ino = r == 0 ? node : 0;
		return r;
	}
	r = tier_enter(req, parent, TIER_WAITS_FOR_TREE, &e);
	if (r < 0)
		return r;
	entry = tier_tree_find(e->tree, tier_node_inode(parent), name);
	if (entry) {
		ret->ino = tier_node(tier_node_place(parent), entry->inode);
		ret->attr = stat_of(ret->ino, &e->tree->inodes[entry->inode]);
	}
	tier_view_leave(fs->view, e);
	return 0;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry;
	int r = lookup_entry(req, parent, name, &entry);

	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_entry(req, &entry);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino _unused_, uint64_t nr _unused_)
{
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t nr _unused_, struct fuse_forget_data *v _unused_)
{
	fuse_reply_none(req);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct tier_entered *e;
	const struct tier_inode *in;
	char target[PATH_MAX];
	int r = tier_enter(req, ino, TIER_WAITS_FOR_TREE, &e);

	if (r < 0) {
		tier_reply_error(req, r);
		return;
	}
	in = &e->tree->inodes[tier_node_inode(ino)];
	r = !in->target || in->size >= sizeof(target) ? -EINVAL : 0;
	if (r == 0) {
		memcpy(target, in->target, in->size);
		target[in->size] = '\0';
	}
	tier_view_leave(fs_of(req)->view, e);
	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_readlink(req, target);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino _unused_)
{
	const struct statvfs st = {
		.f_bsize = TIER_READ_MAX,
		.f_frsize = 4096,
		.f_blocks = tier_view_bytes(fs_of(req)->view) / 4096,
		.f_files = tier_view_nr(fs_of(req)->view),
		.f_namemax = 255,
	};

	fuse_reply_statfs(req, &st);
}

/* --- directories --- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct tier_entered *e = NULL;
	int r;

	if (tier_node_place(ino) == 0) {
		const struct tier_waiter w = tier_waiter_for(TIER_WAITS_FOR_LIST);

		r = tier_view_refresh(fs_of(req)->view, &w);
	} else {
		r = tier_enter(req, ino, TIER_WAITS_FOR_TREE, &e);
		fi->cache_readdir = 1;
		fi->keep_cache = 1;
	}
	tier_view_leave(fs_of(req)->view, e);
	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_open(req, fi);
}

struct listing {
	fuse_req_t req;
	char *buf;
	size_t len, size;
	bool plus;
};

/* false: the buffer is full. `next`: offset of the next entry. */
static bool list_entry(struct listing *l, const char *name, const struct fuse_entry_param *entry, off_t next)
{
	size_t n = l->plus ? fuse_add_direntry_plus(l->req, l->buf + l->len, l->size - l->len, name, entry, next) :
			     fuse_add_direntry(l->req, l->buf + l->len, l->size - l->len, name, &entry->attr, next);

	if (n > l->size - l->len)
		return false;
	l->len += n;
	return true;
}

/* With READDIRPLUS and node number 0, the kernel looks the name up on demand. */
static bool list_without_attributes(struct listing *l, const char *name, uint64_t node, mode_t mode, off_t next)
{
	const struct fuse_entry_param entry = { .attr = { .st_ino = node, .st_mode = mode } };

	return list_entry(l, name, &entry, next);
}

static int list_above(struct listing *l, struct tier_view *v, uint32_t dir, off_t off)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = tier_view_list(v, dir, (uint64_t)off, l->size, &names);

	for (size_t at = 0; r == 0 && at < names.len;) {
		const char *name = (const char *)names.data + at + sizeof(uint64_t);
		uint64_t node;

		memcpy(&node, names.data + at, sizeof(node));
		at += sizeof(node) + strlen(name) + 1;
		if (!list_without_attributes(l, name, node, S_IFDIR, (off_t)tier_node_offset(node)))
			break;
	}
	return r;
}

static void list_tree(struct listing *l, const struct tier_entered *e, uint64_t node, off_t off)
{
	const struct tier_inode *dir = &e->tree->inodes[tier_node_inode(node)];

	for (uint64_t i = (uint64_t)off - 2; i < dir->nr; i++) {
		const struct tier_entry *entry = &e->tree->entries[dir->first + i];
		uint64_t child = tier_node(tier_node_place(node), entry->inode);
		const struct fuse_entry_param param = {
			.ino = child,
			.attr = stat_of(child, &e->tree->inodes[entry->inode]),
			.attr_timeout = FOREVER,
			.entry_timeout = FOREVER,
		};

		if (!list_entry(l, tier_tree_name(e->tree, entry->name), &param, (off_t)i + 3))
			return;
	}
}

static int list_names(struct listing *l, fuse_ino_t ino, off_t off)
{
	struct tier_view *v = fs_of(l->req)->view;
	struct tier_entered *e;
	int r;

	if (tier_node_place(ino) == 0)
		return list_above(l, v, tier_node_inode(ino), off);
	r = tier_enter(l->req, ino, TIER_WAITS_FOR_TREE, &e);
	if (r < 0)
		return r;
	list_tree(l, e, ino, off);
	tier_view_leave(v, e);
	return 0;
}

static void list_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct listing l = { .req = req, .buf = malloc(size), .size = size, .plus = plus };
	int r = l.buf ? 0 : -ENOMEM;

	if (r == 0 && (off > 0 || list_without_attributes(&l, ".", ino, S_IFDIR, 1)) &&
	    (off > 1 || list_without_attributes(&l, "..", ino, S_IFDIR, 2)))
		r = list_names(&l, ino, MAX(off, (off_t)2));
	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_buf(req, l.buf, l.len);
	free(l.buf);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi _unused_)
{
	list_directory(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi _unused_)
{
	list_directory(req, ino, size, off, true);
}

/* --- files --- */

struct open_file {
	struct tier_ahead ahead; /* of the cache */
	uint64_t since_ns; /* with O_DIRECT: bypass the cache */
};

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct tier_entered *e = NULL;
	struct open_file *f;
	int r = (fi->flags & O_ACCMODE) != O_RDONLY ? -EROFS : tier_enter(req, ino, TIER_WAITS_FOR_TREE, &e);

	tier_view_leave(fs_of(req)->view, e);
	f = r == 0 ? calloc(1, sizeof(*f)) : NULL;
	if (!f) {
		tier_reply_error(req, r < 0 ? r : -ENOMEM);
		return;
	}
	if (fi->flags & O_DIRECT) {
		fi->direct_io = 1;
		f->since_ns = monotonic_ns();
	}
	fi->keep_cache = 1; /* content does not change */
	fi->fh = (uintptr_t)f;
	if (fuse_reply_open(req, fi) < 0)
		free(f);
}

static void op_release(fuse_req_t req, fuse_ino_t ino _unused_, struct fuse_file_info *fi)
{
	free((struct open_file *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

static void report_read_error(struct tier_fs *fs, const struct tier_range *range, uint64_t node,
			      const struct tier_fault *fault, int r)
{
	_cleanup_(buf_release) struct buf top = BUF_EMPTY, path = BUF_EMPTY;

	if (r == -EINTR || r == -EINPROGRESS)
		return;
	tier_view_path(fs->view, tier_node_place(node), &top);
	tier_tree_path(range->tree, range->inode, &path);
	if (buf_error(&top) < 0 || buf_error(&path) < 0)
		return;
	log_limited(&fs->limit, LOG_LEVEL_ERROR,
		    "file %s/%s: cannot read %zu bytes at %" PRIu64 ": tier %s: %s %s%s", (const char *)top.data,
		    (const char *)path.data, range->len, range->off, tier_where(fs->tier),
		    fault->object.s[0] ? fault->object.s : "an object", fault->what,
		    r == -ETIMEDOUT ? " (tier_timeout=)" : "");
}

/* The kernel accepts at most 1024 pieces. */
static void reply_bytes(fuse_req_t req, const struct tier_bytes *b, size_t len)
{
	_cleanup_(freep) char *copy = NULL;
	size_t at = 0;

	if (len == 0) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	if (b->nr <= IOV_MANY) {
		fuse_reply_iov(req, b->iov, (int)b->nr);
		return;
	}
	copy = malloc(len);
	if (!copy) {
		tier_reply_error(req, -ENOMEM);
		return;
	}
	for (size_t i = 0; i < b->nr; i++) {
		memcpy(copy + at, b->iov[i].iov_base, b->iov[i].iov_len);
		at += b->iov[i].iov_len;
	}
	fuse_reply_buf(req, copy, at);
}

static int read_file(fuse_req_t req, uint64_t node, const struct tier_entered *e, struct tier_range *range,
		     struct tier_bytes *ret)
{
	const struct tier_waiter w = tier_waiter_for(TIER_WAITS_FOR_DATA);
	struct tier_fs *fs = fs_of(req);
	struct tier_fault fault;
	int r;

	range->source = e->source;
	range->tree = e->tree;
	r = tier_cache_read(fs->cache, range, &w, ret, &fault);
	if (r < 0)
		report_read_error(fs, range, node, &fault, r);
	return r;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct open_file *f = (struct open_file *)(uintptr_t)fi->fh;
	struct tier_fs *fs = fs_of(req);
	struct tier_range range = {
		.inode = tier_node_inode(ino),
		.off = (uint64_t)off,
		.ahead = &f->ahead,
		.since_ns = f->since_ns,
	};
	struct tier_bytes bytes = { 0 };
	struct tier_entered *e;
	uint64_t file_size;
	int r = tier_enter(req, ino, TIER_WAITS_FOR_DATA, &e);

	if (r < 0) {
		tier_reply_error(req, r);
		return;
	}
	file_size = e->tree->inodes[range.inode].size;
	if (range.off < file_size) {
		range.len = MIN(size, (size_t)TIER_READ_MAX);
		range.len = (size_t)MIN(file_size - range.off, (uint64_t)range.len);
		r = read_file(req, ino, e, &range, &bytes);
	}
	tier_view_leave(fs->view, e);
	if (r < 0) {
		tier_reply_error(req, r);
		return;
	}
	reply_bytes(req, &bytes, range.len);
	tier_bytes_release(fs->cache, &bytes);
}

/* Where the next data or hole begins, with the holes of the sealed file. */
static int seek_in_file(const struct tier_entered *e, uint32_t inode, uint64_t off, int whence, uint64_t *ret)
{
	const struct tier_inode *in = &e->tree->inodes[inode];
	struct tier_runs it;
	struct tier_run run;
	uint64_t at;

	if (off >= in->size)
		return -ENXIO;
	it = tier_runs_from(e->tree, inode, off);
	while (tier_runs_next(&it, &run, &at))
		if ((run.pack > 0) == (whence == SEEK_DATA)) {
			*ret = MAX(at, off);
			return 0;
		}
	*ret = in->size;
	return whence == SEEK_DATA ? -ENXIO : 0;
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi _unused_)
{
	struct tier_entered *e = NULL;
	uint64_t found = 0;
	int r = whence != SEEK_DATA && whence != SEEK_HOLE ? -EINVAL : off < 0 ? -ENXIO : 0;

	if (r == 0)
		r = tier_enter(req, ino, TIER_WAITS_FOR_TREE, &e);
	if (r == 0)
		r = seek_in_file(e, tier_node_inode(ino), (uint64_t)off, whence, &found);
	tier_view_leave(fs_of(req)->view, e);
	if (r < 0)
		tier_reply_error(req, r);
	else
		fuse_reply_lseek(req, (off_t)found);
}

/* --- extended attributes --- */

static void reply_value(fuse_req_t req, int r, const struct buf *value, size_t size)
{
	if (r == 0)
		r = buf_error(value) < 0 ? -ENOMEM : size > 0 && value->len > size ? -ERANGE : 0;
	if (r < 0)
		tier_reply_error(req, r);
	else if (size == 0)
		fuse_reply_xattr(req, value->len);
	else
		fuse_reply_buf(req, (const char *)value->data, value->len);
}

/* A retention rule is stored with the user that set it. */
static int add_xattr_value(const struct tier_xattr *x, bool is_rule, struct buf *ret)
{
	size_t len = x->len;
	uint32_t uid;
	int r = is_rule ? keep_stored_decode(x->value, x->len, &len, &uid) : 0;

	if (r == 0)
		buf_add(ret, x->value, len);
	return r < 0 ? -EIO : 0;
}

static int get_xattr(fuse_req_t req, uint64_t node, const char *name, struct buf *ret)
{
	struct tier_entered *e;
	const struct tier_inode *in;
	int r;

	if (strcmp(name, STAT_NAME) == 0)
		return tier_figures(req, node, ret);
	if (tier_node_place(node) == 0)
		return -ENODATA;
	r = tier_enter(req, node, TIER_WAITS_FOR_TREE, &e);
	if (r < 0)
		return r;
	in = &e->tree->inodes[tier_node_inode(node)];
	r = -ENODATA;
	for (uint32_t i = in->first_xattr; i < in->first_xattr + in->nr_xattrs && r == -ENODATA; i++)
		if (strcmp(tier_tree_name(e->tree, e->tree->xattrs[i].name), name) == 0)
			r = add_xattr_value(&e->tree->xattrs[i], strcmp(name, KEEP_XATTR) == 0, ret);
	tier_view_leave(fs_of(req)->view, e);
	return r;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_xattr(req, ino, name, &value);

	reply_value(req, r, &value, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	struct tier_entered *e = NULL;
	int r = tier_node_place(ino) > 0 ? tier_enter(req, ino, TIER_WAITS_FOR_TREE, &e) : 0;

	if (r == 0 && e) {
		const struct tier_inode *in = &e->tree->inodes[tier_node_inode(ino)];

		for (uint32_t i = in->first_xattr; i < in->first_xattr + in->nr_xattrs; i++) {
			const char *name = tier_tree_name(e->tree, e->tree->xattrs[i].name);

			if (strncmp(name, "trusted.", 8) != 0 || fuse_req_ctx(req)->uid == 0)
				buf_add(&names, name, strlen(name) + 1);
		}
		tier_view_leave(fs_of(req)->view, e);
	}
	reply_value(req, r, &names, size);
}

/* --- changes: refused by the kernel, unless root remounts read-write --- */

static void op_setattr(fuse_req_t req, fuse_ino_t ino _unused_, struct stat *st _unused_, int which _unused_,
		       struct fuse_file_info *fi _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t dir _unused_, const char *name _unused_, mode_t mode _unused_,
		     dev_t dev _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t dir _unused_, const char *name _unused_, mode_t mode _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_unlink(fuse_req_t req, fuse_ino_t dir _unused_, const char *name _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *target _unused_, fuse_ino_t dir _unused_, const char *name _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t dir _unused_, const char *name _unused_, fuse_ino_t to _unused_,
		      const char *new_name _unused_, unsigned flags _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t ino _unused_, fuse_ino_t dir _unused_, const char *name _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino _unused_, const char *name _unused_, const char *p _unused_,
			size_t len _unused_, int flags _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino _unused_, const char *name _unused_)
{
	fuse_reply_err(req, EROFS);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	static const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_IOCTL_DIR | FUSE_CAP_READDIRPLUS |
				       FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_POSIX_ACL |
				       FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_ASYNC_DIO;
	struct tier_fs *fs = userdata;
	uint64_t one = 1;
	ssize_t n _unused_;

	conn->want = conn->capable & wanted;
	conn->max_background = BACKGROUND;
	conn->congestion_threshold = BACKGROUND;
	n = write(fs->answers_fd, &one, sizeof(one));
}

/* The kernel implements file locks. */
const struct fuse_lowlevel_ops tier_ops_table = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.lseek = op_lseek,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.ioctl = tier_op_ioctl,
	.setattr = op_setattr,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_unlink,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
};
