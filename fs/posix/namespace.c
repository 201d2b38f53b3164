/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/namespace.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/permission.h"
#include "fs/posix/series.h"
#include "fs/cluster_hooks.h"
#include "fs/seal/reaper.h"
#include "fs/posix/xattr.h"

#define NLINK_MAX (UINT32_MAX / 2)

static int load_any_dir(struct fs *fs, uint64_t dir, struct ns_inode *ret)
{
	int r = attr_load(fs, dir, ret);

	if (r < 0)
		return r;
	if (r == 0 || ret->nlink == 0)
		return -ENOENT;
	return S_ISDIR(ret->mode) ? 0 : -ENOTDIR;
}

int names_load_dir(struct fs *fs, uint64_t dir, const char *name, struct ns_inode *ret)
{
	int r = fs_is_in_view(fs, dir, name) ? -EROFS : load_any_dir(fs, dir, ret);

	return r == 0 ? attr_sealed(fs, ret) : r;
}

int names_find(struct fs *fs, uint64_t dir, const char *name, struct ns_dirent *ret)
{
	int r;

	if (strlen(name) > NS_NAME_MAX)
		return -ENAMETOOLONG;
	r = fs->shared_hash ? -EEXIST : ns_find_first(fs->db, fs->key, dir, name, ret);
	return r == -EEXIST ? ns_find(fs->db, fs->key, dir, name, ret) : r;
}

void names_put_entry(struct engine_tx *tx, uint64_t dir, const struct ns_dirent *d, const char *name)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_dirent e = *d;

	e.name_len = (uint8_t)strlen(name);
	memcpy(e.name, name, (size_t)e.name_len + 1);
	ns_dirent_encode(&e, &value);
	engine_tx_put(tx, ns_key_dirent(dir, e.cookie), value.data, value.len);
}

int names_note_hash(struct fs *fs, struct engine_tx *tx, struct ns_inode *dir, uint64_t cookie)
{
	struct ns_inode root;
	int r;

	if (!ns_cookie_shared(cookie) || fs->shared_hash)
		return 0;
	fs->shared_hash = true; /* even if the transaction fails: the flag only makes look-ups slower */
	if (dir->ino == NS_ROOT_INO) {
		dir->flags |= INODE_SHARED_HASH;
		return 0;
	}
	r = attr_load(fs, NS_ROOT_INO, &root);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	root.flags |= INODE_SHARED_HASH;
	attr_store(fs, tx, &root);
	return 0;
}

int names_drop(struct fs *fs, struct engine_tx *tx, struct ns_inode *in, int64_t now)
{
	int r;

	in->nlink = S_ISDIR(in->mode) ? 0 : in->nlink - 1;
	in->ctime_ns = now;
	if (in->nlink == 0) {
		if (!inodes_set_orphan(fs->inodes, in->ino, true)) {
			r = names_is_large(fs, in);
			if (r <= 0)
				return r < 0 ? r : names_erase(fs, tx, in);
			reaper_wake_for_file(fs->reaper);
		}
		engine_tx_put(tx, ns_key_orphan(in->ino), NULL, 0);
	}
	attr_store(fs, tx, in);
	return 0;
}

static int apply_and_sync(struct fs *fs, int r)
{
	return r == 0 && fs->sync ? engine_sync(fs->engine) : r;
}

int names_settle(struct fs *fs, uint64_t ino)
{
	struct inode *i = inode_find(fs->inodes, ino);
	struct content *c;
	int r = 0;

	if (!i)
		return 0;
	c = inode_content(fs->inodes, i);
	if (c) {
		r = content_flush(c);
		inode_content_close(fs->inodes, i);
	}
	names_put(fs, i);
	return r;
}

/* Count a look-up and stat the inode. The name determines the series; open() does not carry a name. */
static int enter(struct fs *fs, uint64_t dir, const char *name, uint64_t ino, struct stat *ret)
{
	struct inode *i;
	int r;

	r = inode_get_lookup(fs->inodes, ino, &i);
	if (r < 0)
		return r;
	r = attr_stat(fs, i, ret);
	if (r == 0 && ret->st_nlink == 0 && !i->orphan)
		r = -ENOENT; /* by its number; nothing referred to it any more, so it is being erased */
	if (r < 0)
		inode_forget(fs->inodes, ino, 1); /* still pinned, so there is no work left yet */
	else if (name)
		series_named(fs, ino, S_ISDIR(ret->st_mode), dir, name);
	inode_put(fs->inodes, i); /* the look-up keeps the entry; after a failure nothing is left to do */
	return r;
}

static int lookup(struct fs *fs, uint64_t dir, const char *name, struct stat *ret) REQUIRES_SHARED(fs->names)
{
	struct ns_dirent d;
	struct ns_inode in;
	int r;

	if (strcmp(name, ".") == 0)
		return enter(fs, 0, NULL, dir, ret);
	if (strcmp(name, "..") == 0) {
		r = load_any_dir(fs, dir, &in);
		return r < 0 ? r : enter(fs, 0, NULL, in.parent, ret);
	}
	r = names_find(fs, dir, name, &d);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	return enter(fs, dir, name, d.ino, ret);
}

int names_lookup(struct fs *fs, uint64_t dir, const char *name, struct stat *ret)
{
	uint64_t ino = 0;
	int r = fs_is_in_view(fs, dir, name) ? fs->hooks->lookup(fs, dir, name, &ino) : 0;

	if (r < 0)
		return r;
	rwlock_lock_shared(&fs->names);
	r = ino ? enter(fs, 0, NULL, ino, ret) : lookup(fs, dir, name, ret);
	rwlock_unlock_shared(&fs->names);
	return r;
}

int names_enter(struct fs *fs, uint64_t dir, const struct ns_dirent *d, struct stat *ret)
{
	int r;

	rwlock_lock_shared(&fs->names);
	r = enter(fs, dir, d->name, d->ino, ret);
	rwlock_unlock_shared(&fs->names);
	return r;
}

static struct ns_inode new_inode(uint64_t ino, const struct names_new *n, const struct cred *cred,
				 const struct ns_inode *dir, int64_t now)
{
	struct ns_inode in = {
		.ino = ino,
		.mode = n->mode,
		.nlink = S_ISDIR(n->mode) ? 2 : 1,
		.uid = cred->uid,
		.gid = cred->gid,
		.rdev = n->rdev,
		.atime_ns = now,
		.mtime_ns = now,
		.ctime_ns = now,
		.btime_ns = now,
	};

	if (S_ISDIR(in.mode))
		in.parent = dir->ino;
	if (dir->mode & S_ISGID) {
		in.gid = dir->gid;
		if (S_ISDIR(in.mode))
			in.mode |= S_ISGID;
	}
	return in;
}

static uint8_t type_of(uint32_t mode)
{
	return (uint8_t)IFTODT(mode);
}

/* Add the directory entry of a new name. */
static int add_entry(struct fs *fs, struct engine_tx *tx, struct ns_inode *dir, struct ns_dirent *d, const char *name,
		     const struct ns_inode *in, int64_t now)
{
	int r = names_note_hash(fs, tx, dir, d->cookie);

	if (r < 0)
		return r;
	d->ino = in->ino;
	d->type = type_of(in->mode);
	names_put_entry(tx, dir->ino, d, name);
	if (S_ISDIR(in->mode))
		dir->nlink++;
	dir->mtime_ns = dir->ctime_ns = now;
	attr_store(fs, tx, dir);
	return 0;
}

static int copy_attributes(struct fs *fs, struct engine_tx *tx, uint64_t from, struct ns_inode *in) REQUIRES(fs->names)
{
	struct ns_inode like;
	int r = attr_load(fs, from, &like);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	in->uid = like.uid;
	in->gid = like.gid;
	in->mode = like.mode;
	return xattr_copy_all(fs, tx, &like, in);
}

static int make(struct fs *fs, uint64_t dir_ino, const char *name, uint64_t ino, const struct names_new *n,
		const struct cred *cred, struct ns_inode *ret) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int64_t now = (int64_t)now_ns();
	struct ns_inode dir, in;
	struct ns_dirent d;
	int r;

	r = names_load_dir(fs, dir_ino, name, &dir);
	if (r < 0)
		return r;
	if (name) {
		r = names_find(fs, dir_ino, name, &d);
		if (r != 0)
			return r < 0 ? r : -EEXIST;
		if (S_ISDIR(n->mode) && dir.nlink >= NLINK_MAX)
			return -EMLINK;
	}
	in = new_inode(ino, n, cred, &dir, now);
	r = n->like ? copy_attributes(fs, &tx, n->like, &in) : xattr_inherit(fs, &tx, &dir, cred->umask, &in);
	if (r < 0)
		return r;
	if (name) {
		r = add_entry(fs, &tx, &dir, &d, name, &in, now);
		if (r < 0)
			return r;
	} else {
		in.nlink = 0;
		engine_tx_put(&tx, ns_key_orphan(ino), NULL, 0);
	}
	if (n->target)
		engine_tx_put(&tx, ns_key_symlink(ino), n->target, strlen(n->target));
	attr_store(fs, &tx, &in);
	r = fs_apply(fs, &tx);
	if (r == 0)
		*ret = in;
	return r;
}

int names_make(struct fs *fs, uint64_t dir, const char *name, const struct names_new *n, const struct cred *cred,
	       struct stat *ret)
{
	struct inode *i;
	struct ns_inode in;
	uint64_t ino;
	int r;

	if (name && strlen(name) > NS_NAME_MAX)
		return -ENAMETOOLONG;
	r = engine_new_number(fs->engine, &ino);
	if (r == 0)
		r = inode_get_lookup(fs->inodes, ino, &i);
	if (r < 0)
		return r;
	if (name)
		series_named(fs, ino, S_ISDIR(n->mode), dir, name);
	i->orphan = !name;
	if (n->is_opened)
		inode_count_writer(fs->inodes, i, 1);
	rwlock_lock(&fs->names);
	r = make(fs, dir, name, ino, n, cred, &in);
	rwlock_unlock(&fs->names);
	if (r == 0)
		attr_fill(&in, n->target ? strlen(n->target) : 0, ret);
	else
		inode_forget(fs->inodes, ino, 1); /* still pinned */
	r = apply_and_sync(fs, r);
	if (r < 0 && n->is_opened)
		inode_count_writer(fs->inodes, i, -1);
	names_put(fs, i);
	return r;
}

static int link_one(struct fs *fs, uint64_t ino, uint64_t dir_ino, const char *name, struct caller *caller)
	REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int64_t now = (int64_t)now_ns();
	struct ns_inode dir, in;
	struct ns_dirent d;
	int r;

	r = names_load_dir(fs, dir_ino, name, &dir);
	if (r == 0 && caller)
		r = permission_create(fs, caller, &dir);
	if (r < 0)
		return r;
	r = attr_load(fs, ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = attr_sealed(fs, &in);
	if (r < 0 || S_ISDIR(in.mode))
		return r < 0 ? r : -EPERM;
	if (in.nlink >= NLINK_MAX)
		return -EMLINK;
	r = names_find(fs, dir_ino, name, &d);
	if (r != 0)
		return r < 0 ? r : -EEXIST;
	if (in.nlink++ == 0)
		engine_tx_del(&tx, ns_key_orphan(ino));
	in.ctime_ns = now;
	attr_store(fs, &tx, &in);
	r = add_entry(fs, &tx, &dir, &d, name, &in, now);
	if (r == 0)
		r = fs_apply(fs, &tx);
	if (r == 0)
		inodes_set_orphan(fs->inodes, ino, false);
	return r;
}

int names_link(struct fs *fs, uint64_t ino, uint64_t dir, const char *name, struct caller *caller, struct stat *ret)
{
	int r = names_settle(fs, ino);

	if (r < 0)
		return r;
	rwlock_lock(&fs->names);
	r = link_one(fs, ino, dir, name, caller);
	if (r == 0)
		r = enter(fs, dir, name, ino, ret);
	rwlock_unlock(&fs->names);
	return apply_and_sync(fs, r);
}

/* A transaction changes the attributes in memory before the index, so the lock waits for it. */
static int find_directory(struct fs *fs, uint64_t dir, const char *name, struct names_emptiness *ret)
	REQUIRES_SHARED(fs->names)
{
	struct ns_dirent d;
	struct ns_inode in;
	int r = names_find(fs, dir, name, &d);

	if (r <= 0 || d.type != DT_DIR)
		return MIN(r, 0);
	r = attr_load(fs, d.ino, &in);
	if (r > 0) {
		ret->ino = d.ino;
		ret->ctime_ns = in.ctime_ns;
	}
	return MIN(r, 0);
}

int names_examine(struct fs *fs, uint64_t dir, const char *name, struct names_emptiness *ret)
{
	int r;

	*ret = (struct names_emptiness){ 0 };
	rwlock_lock_shared(&fs->names);
	r = find_directory(fs, dir, name, ret);
	rwlock_unlock_shared(&fs->names);
	if (r < 0 || ret->ino == 0)
		return r;
	r = ns_has_entries(fs->db, ret->ino);
	ret->is_empty = r == 0;
	return MIN(r, 0);
}

int names_check_empty(const struct ns_inode *in, struct names_emptiness *e)
{
	e->is_stale = e->ino != in->ino || e->ctime_ns != in->ctime_ns;
	return e->is_stale ? -EAGAIN : e->is_empty ? 0 : -ENOTEMPTY;
}

/* unlink, and rmdir with `emptiness`. */
static int remove_one(struct fs *fs, uint64_t dir_ino, const char *name, struct names_emptiness *emptiness)
	REQUIRES(fs->names)
{
	bool want_dir = emptiness;
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int64_t now = (int64_t)now_ns();
	struct ns_inode dir, in;
	struct ns_dirent d;
	int r;

	r = names_load_dir(fs, dir_ino, name, &dir);
	if (r < 0)
		return r;
	r = names_find(fs, dir_ino, name, &d);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = attr_load(fs, d.ino, &in);
	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", d.ino);
	if (S_ISDIR(in.mode) != want_dir)
		return want_dir ? -ENOTDIR : -EISDIR;
	r = attr_sealed(fs, &in);
	if (r < 0)
		return r;
	if (want_dir) {
		r = names_check_empty(&in, emptiness);
		if (r < 0)
			return r;
		dir.nlink--;
	}
	engine_tx_del(&tx, ns_key_dirent(dir_ino, d.cookie));
	dir.mtime_ns = dir.ctime_ns = now;
	attr_store(fs, &tx, &dir);
	r = names_drop(fs, &tx, &in, now);
	if (r == 0)
		r = fs_apply(fs, &tx);
	if (r < 0 && in.nlink == 0)
		inodes_set_orphan(fs->inodes, in.ino, false);
	return r;
}

int names_unlink(struct fs *fs, uint64_t dir, const char *name)
{
	int r;

	rwlock_lock(&fs->names);
	r = remove_one(fs, dir, name, NULL);
	rwlock_unlock(&fs->names);
	return apply_and_sync(fs, r);
}

int names_rmdir(struct fs *fs, uint64_t dir, const char *name)
{
	struct names_emptiness e;
	unsigned nr = 0;
	int r;

	do {
		r = fs_is_in_view(fs, dir, name) ? -EROFS : names_examine(fs, dir, name, &e);
		if (r < 0)
			return r;
		rwlock_lock(&fs->names);
		r = remove_one(fs, dir, name, &e);
		rwlock_unlock(&fs->names);
	} while (e.is_stale && ++nr < NAMES_EXAMINATIONS_MAX);
	return e.is_stale ? -EBUSY : apply_and_sync(fs, r);
}

static int make_root(struct fs *fs)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int64_t now = (int64_t)now_ns();
	struct ns_inode root = {
		.ino = NS_ROOT_INO,
		.mode = S_IFDIR | 0755,
		.nlink = 2,
		.uid = getuid(),
		.gid = getgid(),
		.atime_ns = now,
		.mtime_ns = now,
		.ctime_ns = now,
		.btime_ns = now,
		.parent = NS_ROOT_INO,
	};

	attr_store(fs, &tx, &root);
	return fs_apply(fs, &tx);
}

int names_open_root(struct fs *fs)
{
	struct ns_inode root;
	int r = attr_load(fs, NS_ROOT_INO, &root);

	if (r < 0)
		return r;
	if (r == 0)
		return fs->read_only ? log_errno(-EROFS, "store: has no root: it was never mounted for writing") :
				       make_root(fs);
	fs->shared_hash = root.flags & INODE_SHARED_HASH;
	return 0;
}
