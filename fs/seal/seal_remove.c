/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Removes a sealed checkpoint, identified by its inode and the time of the seal that the caller has examined. While it
 * is sealed, its content, its name and its parent directory cannot change.
 *   1. Without a lock: check the owners of everything in it, and find its name.
 *   2. fs.names, exclusive: check that it is still that seal and that the caller may remove it. One transaction removes
 *      name and seal and makes the directory an orphan.   crash before it: sealed and intact; after it: an orphan
 *   3. Sync: the removal is durable before the reply.
 *   4. fs/seal/reaper.c erases the tree in the background.   crash: the next mount continues
 * It is never unsealed while it has a name, and nothing depends on names that users can create.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/background/flusher.h"
#include "fs/posix/attr.h"
#include "fs/seal/freeze.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/permission.h"
#include "fs/cluster_hooks.h"
#include "fs/seal/reaper.h"
#include "fs/seal/seal.h"

/* --- owners --- */

struct walk {
	struct fs *fs;
	uint32_t uid;
	uint64_t *dirs; /* not yet visited */
	size_t nr, room;
};

static void walk_release(struct walk *w)
{
	free(w->dirs);
}

static int walk_add(struct walk *w, uint64_t dir)
{
	if (w->nr == w->room) {
		size_t room = MAX(2 * w->room, (size_t)64);
		uint64_t *more = reallocarray(w->dirs, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->dirs = more;
		w->room = room;
	}
	w->dirs[w->nr++] = dir;
	return 0;
}

static int check_owner(struct walk *w, uint64_t ino)
{
	struct ns_inode in;
	int r = attr_load(w->fs, ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	if (in.uid != w->uid)
		return -EPERM;
	return S_ISDIR(in.mode) ? walk_add(w, ino) : 0;
}

/* Does one user own a directory and everything below it? Memory: its directories, at most SEAL_INODES_MAX. */
static int check_owners(struct fs *fs, uint64_t top, uint32_t uid)
{
	_cleanup_(walk_release) struct walk w = { .fs = fs, .uid = uid };
	int r = check_owner(&w, top);

	while (r == 0 && w.nr > 0) {
		_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
		struct ns_dirent d;

		r = ns_readdir_open(fs->db, w.dirs[--w.nr], 0, &it);
		while (r == 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0)
			r = check_owner(&w, d.ino);
	}
	return r;
}

/* --- name --- */

static int find_name(struct fs *fs, uint64_t dir, uint64_t ino, struct seal_removed *ret)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(fs->db, dir, 0, &it);

	while (r >= 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0)
		if (d.ino == ino) {
			memcpy(ret->name, d.name, (size_t)d.name_len + 1);
			return 0;
		}
	return r < 0 ? r : -ESTALE;
}

/* --- the transaction --- */

/* Permission to unseal and remove it, except for the ownership of its content. */
static int check_permission(struct fs *fs, const struct cred *cred, const struct seal_removal *how,
			    const struct ns_inode *dir, const struct ns_inode *in) REQUIRES(fs->names)
{
	_cleanup_(caller_release) struct caller caller = caller_of(cred);

	if (how->owner != 0 && dir->uid != how->owner)
		return -EPERM;
	return permission_remove(fs, &caller, dir, in, true);
}

/* The seal of `top`, if it is the requested one. */
static int find_seal(struct fs *fs, uint64_t top, int64_t sealed_ns, struct ns_inode *ret, struct ns_seal *seal)
{
	int r = attr_load(fs, top, ret);

	if (r <= 0 || ret->nlink == 0)
		return r < 0 ? r : -ENOENT;
	if (ret->flags & INODE_REPLICA)
		return -EROFS;
	r = ns_get_seal(fs->db, top, seal);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	if (!seal->is_complete || top == NS_ROOT_INO || freezes_has(fs->freezes, top, NULL))
		return -EBUSY;
	return sealed_ns == 0 || seal->sealed_ns == sealed_ns ? 0 : -ESTALE;
}

/* `uid`: the owner of everything in it; 0: any. */
static int remove_locked(struct fs *fs, uint64_t top, const struct cred *cred, const struct seal_removal *how,
			 int64_t sealed_ns, const char *name, uint32_t uid) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int64_t now = (int64_t)now_ns();
	struct ns_inode in, dir;
	struct ns_dirent d;
	struct ns_seal seal;
	int r = find_seal(fs, top, sealed_ns, &in, &seal);

	if (r == 0)
		r = names_load_dir(fs, in.parent, name, &dir);
	if (r == -EINPROGRESS)
		r = -EBUSY;
	if (r == 0)
		r = check_permission(fs, cred, how, &dir, &in);
	if (r == 0)
		r = names_find(fs, dir.ino, name, &d);
	if (r <= 0 || d.ino != top)
		return r < 0 ? r : -ESTALE;
	engine_tx_del(&tx, ns_key_dirent(dir.ino, d.cookie));
	engine_tx_del(&tx, ns_key_seal(top));
	engine_tx_put(&tx, ns_key_orphan(top), NULL, 0);
	dir.nlink--;
	dir.mtime_ns = dir.ctime_ns = now;
	attr_store(fs, &tx, &dir);
	in.nlink = 0;
	in.ctime_ns = now;
	attr_store(fs, &tx, &in);
	inodes_set_orphan(fs->inodes, top, true);
	reaper_add_tree(fs->reaper, uid != 0 ? uid : REAPER_ANY);
	r = fs_apply(fs, &tx);
	if (r < 0)
		inodes_set_orphan(fs->inodes, top, false);
	else
		atomic_fetch_sub(&fs->nr_sealed, 1);
	return r;
}

int seal_remove(struct fs *fs, uint64_t top, const struct cred *cred, const struct seal_removal *how,
		struct seal_removed *ret)
{
	static struct log_limit said;
	uint32_t uid = how->owner != 0 ? how->owner : cred->uid;
	struct ns_seal seal;
	struct ns_inode in;
	int r;

	ret->dir = 0;
	if (fs->read_only)
		return -EROFS;
	r = find_seal(fs, top, how->sealed_ns, &in, &seal);
	if (r == 0 && uid != 0)
		r = cred->uid == 0 || cred->uid == uid ? check_owners(fs, top, uid) : -EPERM;
	if (r == 0)
		r = find_name(fs, in.parent, top, ret);
	if (r < 0)
		return r;
	rwlock_lock(&fs->names);
	r = remove_locked(fs, top, cred, how, seal.sealed_ns, ret->name, uid);
	rwlock_unlock(&fs->names);
	if (r < 0)
		return r;
	ret->dir = in.parent;
	if (fs->hooks)
		fs->hooks->seals_changed(fs);
	flusher_wake(fs->flusher);
	log_limited(&said, LOG_LEVEL_INFO, "directory %" PRIu64 ": removed, with %" PRIu64 " files and its seal", top,
		    seal.files);
	return engine_sync(fs->engine);
}
