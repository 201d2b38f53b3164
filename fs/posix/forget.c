/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Removal of inodes. An inode without a name is removed, with everything the store holds of it, once the kernel has
 * forgotten it and no request or open file refers to it. A read time kept in memory is written at the same moment.
 *
 * If that fails or the daemon crashes first, the orphan mark remains and the reaper or the next mount removes the inode.
 * An orphan directory that still has entries, and a large file, are left to the reaper: erasing them takes long.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/posix/attr.h"
#include "fs/posix/attr_cache.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/xattr.h"
#include "fs/seal/reaper.h"

int names_erase(struct fs *fs, struct engine_tx *tx, const struct ns_inode *in)
{
	engine_tx_del(tx, ns_key_inode(in->ino));
	attr_cache_drop(fs->attrs, in->ino);
	if (S_ISREG(in->mode))
		engine_tx_drop_content(tx, in->ino);
	if (S_ISLNK(in->mode))
		engine_tx_del(tx, ns_key_symlink(in->ino));
	if (engine_expects_away(fs->engine))
		engine_tx_del(tx, ns_key_away(in->ino));
	return xattr_drop_all(fs, tx, in);
}

int names_is_large(struct fs *fs, const struct ns_inode *in)
{
	return S_ISREG(in->mode) ? content_takes_steps(fs->engine, in->ino) : 0;
}

/* 1/0/<0: is it removed by the reaper? */
static int is_for_reaper(struct fs *fs, const struct ns_inode *in)
{
	return S_ISDIR(in->mode) ? ns_has_entries(fs->db, in->ino) : names_is_large(fs, in);
}

#define UNKNOWN 2

/*
 * 1/0/<0: has a directory without a name entries? It gets none any more, so this may be found out before fs.names is
 * taken: RocksDB searches through names that were removed, and their number is up to users. UNKNOWN: it is none.
 */
static int has_entries(struct fs *fs, uint64_t ino)
{
	struct ns_inode in;
	int r = attr_load(fs, ino, &in);

	return r > 0 && S_ISDIR(in.mode) && in.nlink == 0 ? ns_has_entries(fs->db, ino) : r < 0 ? r : UNKNOWN;
}

/* Finish an inode without remaining references. `entries`: result of has_entries(), or UNKNOWN. */
static int finish_inode(struct fs *fs, struct engine_tx *tx, const struct inode_rest *rest, int entries)
{
	struct ns_inode in;
	int r = attr_load(fs, rest->ino, &in);

	if (r <= 0)
		return r;
	if (rest->orphan) {
		r = entries == UNKNOWN ? is_for_reaper(fs, &in) : entries;
		if (r > 0)
			S_ISDIR(in.mode) ? reaper_wake(fs->reaper) : reaper_wake_for_file(fs->reaper);
		if (r != 0)
			return MIN(r, 0);
		engine_tx_del(tx, ns_key_orphan(rest->ino));
		return names_erase(fs, tx, &in);
	}
	if (rest->atime_dirty) {
		in.atime_ns = rest->atime_ns;
		attr_store(fs, tx, &in);
	}
	return 0;
}

static int finish_idle(struct fs *fs, const uint64_t *ino, const int *entries, size_t n) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct inode_rest rest;
	int r = 0;

	for (size_t k = 0; k < n && r == 0; k++)
		if (inodes_take_idle(fs->inodes, ino[k], &rest) && !fs->read_only)
			r = finish_inode(fs, &tx, &rest, entries[k]);
	return r < 0 || tx.records.len == 0 ? r : fs_apply(fs, &tx);
}

void names_forget(struct fs *fs, const struct names_forget *f, size_t n)
{
	uint64_t idle[NAMES_FORGET_MAX];
	int entries[NAMES_FORGET_MAX];
	size_t nr = 0;
	int r;

	assert(n <= NAMES_FORGET_MAX);
	for (size_t k = 0; k < n; k++)
		if (inode_forget(fs->inodes, f[k].ino, f[k].nlookup))
			idle[nr++] = f[k].ino;
	if (nr == 0)
		return;
	for (size_t k = 0; k < nr; k++)
		entries[k] = fs->read_only ? UNKNOWN : has_entries(fs, idle[k]);
	rwlock_lock(&fs->names);
	r = finish_idle(fs, idle, entries, nr);
	rwlock_unlock(&fs->names);
	if (r < 0)
		log_warning("inodes: cannot forget them: %s; the next mount removes unnamed ones", strerror(-r));
}

void names_put(struct fs *fs, struct inode *i)
{
	uint64_t ino;

	if (!i)
		return;
	ino = i->ino;
	if (inode_put(fs->inodes, i))
		names_forget(fs, &(struct names_forget){ ino, 0 }, 1);
}

int names_clear_orphans(struct fs *fs)
{
	uint64_t ino = 0, nr = 0;
	struct ns_inode in;
	int r;

	while ((r = ns_next_orphan(fs->db, ino, &ino)) > 0) {
		_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;

		r = attr_load(fs, ino, &in);
		if (r > 0 && is_for_reaper(fs, &in) > 0)
			continue;
		engine_tx_del(&tx, ns_key_orphan(ino));
		if (r > 0)
			r = finish_inode(fs, &tx, &(struct inode_rest){ .ino = ino, .orphan = true }, UNKNOWN);
		if (r == 0)
			r = fs_apply(fs, &tx);
		if (r < 0)
			return log_errno(r, "inode %" PRIu64 ": unnamed, cannot remove", ino);
		nr++;
	}
	if (nr > 0)
		log_info("store: removed %s without a name, open before", human_nr(nr, "file").s);
	return r;
}

int names_finish_all(struct fs *fs)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct inode_rest rest;
	int r = 0;

	rwlock_lock(&fs->names); /* against the reaper: there are no requests any more */
	while (inodes_take_any(fs->inodes, &rest)) {
		if (r < 0 || fs->read_only)
			continue;
		if (rest.orphan || rest.atime_dirty)
			r = finish_inode(fs, &tx, &rest, UNKNOWN);
		if (r == 0 && tx.records.len > MiB(1))
			r = fs_apply(fs, &tx);
	}
	if (r == 0 && !fs->read_only)
		r = fs_apply(fs, &tx);
	rwlock_unlock(&fs->names);
	return r;
}
