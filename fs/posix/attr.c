/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/attr.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/posix/acl.h"
#include "fs/posix/attr_cache.h"
#include "fs/seal/freeze.h"
#include "fs/seal/reaper.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/permission.h"
#include "fs/cluster_hooks.h"
#include "fs/posix/xattr.h"

#define NS_PER_S INT64_C(1000000000)
#define DAY_NS (86400 * NS_PER_S)
/* st_blksize, the buffer size of stdio and cp. Copying this much costs about as much as one request. */
#define BLKSIZE 131072
#define DIRECTORY_SIZE 4096

static int load(struct fs *fs, uint64_t ino, struct ns_inode *ret)
{
	uint64_t ticket;
	int r = 1;

	if (!attr_cache_get(fs->attrs, ino, ret, &ticket)) {
		r = ns_get_inode(fs->db, ino, ret);
		if (r > 0)
			attr_cache_fill(fs->attrs, ret, ticket);
	}
	return r;
}

int attr_load(struct fs *fs, uint64_t ino, struct ns_inode *ret)
{
	int64_t atime_ns;
	int r = load(fs, ino, ret);

	if (r > 0 && inodes_atime(fs->inodes, ino, &atime_ns))
		ret->atime_ns = atime_ns;
	return r;
}

int attr_load_parent(struct fs *fs, uint64_t ino, uint64_t *ret)
{
	struct ns_inode in;
	int r = load(fs, ino, &in);

	if (r > 0)
		*ret = in.parent;
	return r;
}

void attr_store(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_inode_encode(in, &value);
	engine_tx_put(tx, ns_key_inode(in->ino), value.data, value.len);
	attr_cache_change(fs->attrs, in);
	inodes_written(fs->inodes, in->ino); /* if the transaction fails, only a read time is lost */
	if (S_ISREG(in->mode) && in->mode & (S_ISUID | S_ISGID))
		inodes_set_privileged(fs->inodes, in->ino);
}

int attr_sealed(struct fs *fs, const struct ns_inode *in)
{
	if (in->flags & INODE_REPLICA)
		return -EROFS;
	if (freezes_has(fs->freezes, in->ino, NULL))
		return -EINPROGRESS;
	return in->flags & INODE_SEALED ? -EPERM : 0;
}

int attr_write_begin(struct fs *fs, struct inode *i, struct ns_inode *ret)
{
	struct ns_inode in;
	int r;

	rwlock_lock_shared(&fs->names);
	r = attr_load(fs, i->ino, &in);
	if (r > 0)
		r = attr_sealed(fs, &in);
	else if (r == 0)
		r = -ENOENT;
	if (r == 0)
		inode_count_writer(fs->inodes, i, 1);
	rwlock_unlock_shared(&fs->names);
	if (r == 0)
		*ret = in;
	return r;
}

void attr_write_end(struct fs *fs, struct inode *i)
{
	inode_count_writer(fs->inodes, i, -1);
}

static struct timespec timespec_of(int64_t ns)
{
	struct timespec ts = { ns / NS_PER_S, ns % NS_PER_S };

	if (ts.tv_nsec < 0) { /* before 1970 */
		ts.tv_nsec += NS_PER_S;
		ts.tv_sec--;
	}
	return ts;
}

static void fill_stat(const struct ns_inode *in, const struct ns_content *c, struct stat *ret)
{
	*ret = (struct stat){
		.st_ino = in->ino,
		.st_mode = in->mode,
		.st_nlink = in->nlink,
		.st_uid = in->uid,
		.st_gid = in->gid,
		.st_rdev = in->rdev,
		.st_size = (off_t)c->size,
		.st_blocks = (blkcnt_t)((c->mapped + 511) / 512),
		.st_blksize = BLKSIZE,
		.st_atim = timespec_of(in->atime_ns),
		.st_mtim = timespec_of(attr_mtime(in, c)),
		.st_ctim = timespec_of(attr_ctime(in, c)),
	};
}

void attr_fill(const struct ns_inode *in, uint64_t size, struct stat *ret)
{
	fill_stat(in, &(struct ns_content){ .size = S_ISDIR(in->mode) ? DIRECTORY_SIZE : size }, ret);
}

static int symlink_length(struct fs *fs, uint64_t ino, uint64_t *ret)
{
	_cleanup_(buf_release) struct buf target = BUF_EMPTY;
	int r = ns_get_symlink(fs->db, ino, &target);

	if (r < 0)
		return r;
	*ret = target.len;
	return 0;
}

/*
 * A file that was dropped takes no space here. It reports a block: tar(1) and others do not read a file without blocks,
 * and take it for zeros.
 */
static int count_block(struct fs *fs, const struct ns_inode *in, struct ns_content *c)
{
	int r = away_is_dropped(fs, in->ino);

	c->mapped += r > 0;
	return MIN(r, 0);
}

static int stat_of(struct fs *fs, const struct ns_inode *in, struct stat *ret)
{
	struct ns_content c = { 0 };
	int r = 0;

	if (S_ISREG(in->mode))
		r = content_peek(fs->engine, in->ino, &c);
	else if (S_ISLNK(in->mode))
		r = symlink_length(fs, in->ino, &c.size);
	else if (S_ISDIR(in->mode))
		c.size = DIRECTORY_SIZE;
	if (r == 0 && in->flags & INODE_SEALED && c.mapped == 0 && c.size > 0)
		r = count_block(fs, in, &c);
	if (r < 0)
		return r;
	fill_stat(in, &c, ret);
	return 0;
}

int attr_stat(struct fs *fs, struct inode *i, struct stat *ret)
{
	struct ns_inode in;
	int r;

	if (view_is(i->ino))
		return fs->hooks ? fs->hooks->stat(fs, i->ino, ret) : -ENOENT;
	r = attr_load(fs, i->ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	return stat_of(fs, &in, ret);
}

int attr_birth(struct fs *fs, uint64_t ino, struct timespec *ret)
{
	struct ns_inode in;
	struct stat st;
	int r;

	if (view_is(ino)) {
		r = fs->hooks ? fs->hooks->stat(fs, ino, &st) : -ENOENT;
		*ret = r < 0 ? *ret : st.st_ctim;
		return r;
	}
	r = attr_load(fs, ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*ret = timespec_of(in.btime_ns);
	return 0;
}

bool attr_privileged(const struct ns_inode *in)
{
	return S_ISREG(in->mode) && (in->mode & (S_ISUID | S_ISGID) || in->flags & INODE_HAS_XATTRS);
}

/* As setattr_should_drop_suidgid() in the kernel: group members keep a set-gid bit without group execute. */
static void drop_setid(struct ns_inode *in, struct caller *caller)
{
	in->mode &= ~(uint32_t)S_ISUID;
	if (in->mode & S_ISGID && (in->mode & S_IXGRP || !(permission_in_group(caller, in->gid) ||
							   permission_capable(caller, CAP_FSETID))))
		in->mode &= ~(uint32_t)S_ISGID;
}

/*
 * Truncate, and set the times of the content. The mtime of a file that was never written is in the record only. With
 * fs.writeback, times missing from the request equal those the kernel sent last.
 */
static int change_content(struct fs *fs, struct inode *i, const struct attr_change *change)
{
	struct content *c;
	struct ns_content now;
	struct ns_inode in;
	int r;

	r = attr_write_begin(fs, i, &in);
	if (r < 0)
		return r;
	r = inode_content_open(fs->inodes, i, &c);
	if (r < 0) {
		attr_write_end(fs, i);
		return r;
	}
	if (change->what & ATTR_SIZE)
		r = change->size > INT64_MAX ? -EFBIG : content_truncate(c, change->size);
	content_stat(c, &now);
	if (r == 0 && change->what & ATTR_MTIME && now.mtime_ns != 0)
		r = content_set_times(c, change->mtime_ns, change->ctime_ns);
	else if (r == 0 && fs->writeback) /* use the mtime the record gets next, unless the content has its own */
		r = content_restore_times(c, change->what & ATTR_MTIME ? change->mtime_ns : in.mtime_ns, in.ctime_ns);
	inode_content_close(fs->inodes, i);
	attr_write_end(fs, i);
	return r;
}

/*
 * chown(2), also with -1 and -1, drops set-ID bits and capabilities. The latter arrives as a request without any
 * attribute, and the kernel sends it for users that are not the owner as well; a write(2) to such a file may send the
 * same one before its WRITE, which drops them itself.
 */
static bool is_chown(const struct ns_inode *in, const struct attr_change *c)
{
	return c->what & (ATTR_UID | ATTR_GID) || (c->what == 0 && permission_owner(c->caller, in));
}

static void apply_change(struct ns_inode *in, const struct attr_change *c)
{
	if (is_chown(in, c) && !S_ISDIR(in->mode))
		drop_setid(in, c->caller); /* checked against the old group */
	if (c->what & ATTR_UID)
		in->uid = c->uid;
	if (c->what & ATTR_GID)
		in->gid = c->gid;
	if (c->what & ATTR_MODE)
		in->mode = (in->mode & S_IFMT) | (c->mode & 07777);
	if (c->what & ATTR_SIZE && c->kill_setid)
		drop_setid(in, c->caller);
	if (c->what & ATTR_ATIME)
		in->atime_ns = c->atime_ns;
	if (c->what & ATTR_MTIME)
		in->mtime_ns = c->mtime_ns;
	in->ctime_ns = c->ctime_ns;
}

/* Read, modify and write the record. */
static int change_record(struct fs *fs, uint64_t ino, const struct attr_change *c, struct ns_inode *ret)
	REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	bool drops_capabilities;
	struct ns_inode in;
	int r;

	r = attr_load(fs, ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = attr_sealed(fs, &in);
	if (r < 0)
		return r;
	drops_capabilities = S_ISREG(in.mode) && (is_chown(&in, c) || c->what & ATTR_SIZE);
	if (c->what & ATTR_UID && in.nlink > 1 && !S_ISDIR(in.mode))
		reaper_chowned(fs->reaper);
	apply_change(&in, c);
	if (in.flags & INODE_HAS_XATTRS) {
		if (c->what & ATTR_MODE)
			r = xattr_acl_chmod(fs, &tx, &in);
		if (drops_capabilities)
			xattr_drop_capabilities(&tx, ino);
		if (r < 0)
			return r;
	}
	attr_store(fs, &tx, &in);
	r = fs_apply(fs, &tx);
	if (r < 0)
		return r;
	*ret = in;
	return 0;
}

int attr_change(struct fs *fs, struct inode *i, const struct attr_change *c, struct stat *ret)
{
	struct ns_inode in;
	int r;

	if (view_is(i->ino))
		return -EROFS;
	r = attr_load(fs, i->ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (S_ISREG(in.mode) && (fs->writeback || c->what & (ATTR_SIZE | ATTR_MTIME))) {
		r = change_content(fs, i, c);
		if (r < 0)
			return r;
		if (c->what == ATTR_SIZE && !attr_privileged(&in)) { /* truncation has updated the content's ctime */
			r = fs->sync ? engine_sync(fs->engine) : 0;
			return r < 0 ? r : attr_stat(fs, i, ret);
		}
	}
	if (c->what == 0)
		permission_owner(c->caller, &in); /* may read /proc, so do it before taking a lock */
	rwlock_lock(&fs->names);
	r = change_record(fs, i->ino, c, &in);
	rwlock_unlock(&fs->names);
	if (r == 0 && fs->sync)
		r = engine_sync(fs->engine);
	return r < 0 ? r : stat_of(fs, &in, ret);
}

static int drop_privileges(struct fs *fs, struct inode *i, struct caller *caller) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_inode in, before;
	int r;

	r = attr_load(fs, i->ino, &before);
	if (r <= 0)
		return r;
	in = before;
	if (caller && !permission_capable(caller, CAP_FSETID))
		drop_setid(&in, caller);
	if (in.flags & INODE_HAS_XATTRS)
		xattr_drop_capabilities(&tx, i->ino);
	i->privileged = false;
	attr_store(fs, &tx, &in); /* sets it again if set-id bits remain */
	r = fs_apply(fs, &tx);
	return r < 0 ? r : in.mode != before.mode;
}

int attr_drop_privileges(struct fs *fs, struct inode *i, struct caller *caller)
{
	int r;

	if (!i->privileged)
		return 0;
	if (caller)
		permission_capable(caller, CAP_FSETID); /* reads /proc, so do it before taking a lock */
	rwlock_lock(&fs->names);
	r = drop_privileges(fs, i, caller);
	rwlock_unlock(&fs->names);
	return r;
}

static bool out_of_date(int64_t atime_ns, int64_t mtime_ns, int64_t ctime_ns, int64_t now)
{
	return atime_ns <= mtime_ns || atime_ns <= ctime_ns || now - atime_ns >= DAY_NS;
}

/* Decides without a lock: a race only makes a read time slightly older or newer. */
void attr_touch(struct fs *fs, struct inode *i)
{
	int64_t now = (int64_t)now_ns();
	struct ns_content c = { 0 };
	struct ns_inode in;

	if (fs->noatime || fs->read_only)
		return;
	if (content_peek(fs->engine, i->ino, &c) < 0)
		return;
	if (i->atime_ns != 0 && !out_of_date(i->atime_ns, c.mtime_ns, c.ctime_ns, now))
		return;
	if (attr_load(fs, i->ino, &in) <= 0)
		return;
	if (!(in.flags & INODE_SEALED) &&
	    out_of_date(in.atime_ns, MAX(c.mtime_ns, S_ISREG(in.mode) ? 0 : in.mtime_ns), MAX(c.ctime_ns, in.ctime_ns),
			now)) {
		i->atime_ns = now;
		i->atime_dirty = true;
	} else {
		i->atime_ns = in.atime_ns;
	}
}

int attr_readlink(struct fs *fs, struct inode *i, struct buf *ret)
{
	int r;

	if (view_is(i->ino))
		return fs->hooks ? fs->hooks->readlink(fs, i->ino, ret) : -ENOENT;
	r = ns_get_symlink(fs->db, i->ino, ret);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	attr_touch(fs, i);
	return buf_error(ret);
}
