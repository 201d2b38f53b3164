/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * rename(2), the largest namespace change: up to two directories, two inodes and two entries in one transaction.
 *
 * The kernel holds its own rename lock and has refused to move a directory below itself. Data written to the file that
 * moves is flushed first: after a crash the new name must not exist without its data.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/series.h"
#include "fs/cluster_hooks.h"

/* One side of a rename. */
struct side {
	const char *name;
	struct ns_dirent d; /* if absent, only the cookie is valid */
	struct ns_inode in; /* the inode it refers to */
	bool present;
};

struct move {
	struct ns_inode dir[2]; /* from, to; for one directory only [0] is used */
	struct ns_inode *from_dir, *to_dir;
	struct side from, to;
	struct names_emptiness *emptiness; /* of what `to` refers to */
	int64_t now;
};

static int load_side(struct fs *fs, uint64_t dir, const char *name, struct side *s)
{
	int r;

	s->name = name;
	r = names_find(fs, dir, name, &s->d);
	if (r < 0)
		return r;
	s->present = r > 0;
	if (!s->present)
		return 0;
	r = attr_load(fs, s->d.ino, &s->in);
	if (r < 0)
		return r;
	return r > 0 ? 0 : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", s->d.ino);
}

static int load(struct fs *fs, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to, struct move *m)
{
	int r;

	r = fs_is_in_view(fs, to_dir, to) ? -EROFS : names_load_dir(fs, from_dir, from, &m->dir[0]);
	if (r < 0)
		return r;
	m->from_dir = m->to_dir = &m->dir[0];
	if (from_dir != to_dir) {
		r = names_load_dir(fs, to_dir, to, &m->dir[1]);
		if (r < 0)
			return r;
		m->to_dir = &m->dir[1];
	}
	r = load_side(fs, from_dir, from, &m->from);
	if (r < 0)
		return r;
	return load_side(fs, to_dir, to, &m->to);
}

static int check_replace(const struct move *m)
{
	if (S_ISDIR(m->to.in.mode))
		return S_ISDIR(m->from.in.mode) ? names_check_empty(&m->to.in, m->emptiness) : -EISDIR;
	return S_ISDIR(m->from.in.mode) ? -ENOTDIR : 0;
}

static int check(const struct move *m, unsigned flags)
{
	if (!m->from.present)
		return -ENOENT;
	if (flags & RENAME_EXCHANGE)
		return m->to.present ? 0 : -ENOENT;
	if (!m->to.present)
		return 0;
	return flags & RENAME_NOREPLACE ? -EEXIST : check_replace(m);
}

/* A directory that changes its parent changes the link counts of both parents. */
static void reparent(struct ns_inode *in, struct ns_inode *from, struct ns_inode *to)
{
	if (!S_ISDIR(in->mode) || from == to)
		return;
	in->parent = to->ino;
	from->nlink--;
	to->nlink++;
}

/* Point the entry of side `s` at `in`. */
static void put_side(struct engine_tx *tx, uint64_t dir, const struct side *s, const struct ns_inode *in)
{
	struct ns_dirent d = s->d;

	d.ino = in->ino;
	d.type = (uint8_t)IFTODT(in->mode);
	names_put_entry(tx, dir, &d, s->name);
}

static void exchange(struct fs *fs, struct engine_tx *tx, struct move *m)
{
	reparent(&m->from.in, m->from_dir, m->to_dir);
	reparent(&m->to.in, m->to_dir, m->from_dir);
	put_side(tx, m->from_dir->ino, &m->from, &m->to.in);
	put_side(tx, m->to_dir->ino, &m->to, &m->from.in);
	m->to.in.ctime_ns = m->now;
	attr_store(fs, tx, &m->to.in);
}

static int replace_target(struct fs *fs, struct engine_tx *tx, struct move *m)
{
	int r;

	if (m->to.present && S_ISDIR(m->to.in.mode))
		m->to_dir->nlink--;
	if (!m->to.present) {
		r = names_note_hash(fs, tx, m->from_dir->ino == NS_ROOT_INO ? m->from_dir : m->to_dir, m->to.d.cookie);
		if (r < 0)
			return r;
	}
	reparent(&m->from.in, m->from_dir, m->to_dir);
	engine_tx_del(tx, ns_key_dirent(m->from_dir->ino, m->from.d.cookie));
	put_side(tx, m->to_dir->ino, &m->to, &m->from.in);
	return m->to.present ? names_drop(fs, tx, &m->to.in, m->now) : 0;
}

static void store_dirs(struct fs *fs, struct engine_tx *tx, struct move *m)
{
	m->from_dir->mtime_ns = m->from_dir->ctime_ns = m->now;
	attr_store(fs, tx, m->from_dir);
	if (m->to_dir != m->from_dir) {
		m->to_dir->mtime_ns = m->to_dir->ctime_ns = m->now;
		attr_store(fs, tx, m->to_dir);
	}
}

static int apply_move(struct fs *fs, struct move *m, unsigned flags) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int r = 0;

	if (flags & RENAME_EXCHANGE)
		exchange(fs, &tx, m);
	else
		r = replace_target(fs, &tx, m);
	m->from.in.ctime_ns = m->now;
	attr_store(fs, &tx, &m->from.in);
	store_dirs(fs, &tx, m);
	if (r == 0)
		r = fs_apply(fs, &tx);
	if (r < 0 && m->to.present && m->to.in.nlink == 0)
		inodes_set_orphan(fs->inodes, m->to.in.ino, false);
	return r;
}

static int rename_locked(struct fs *fs, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to,
			 unsigned flags, struct names_emptiness *emptiness, uint64_t *ret_ino) REQUIRES(fs->names)
{
	struct move m = { .now = (int64_t)now_ns(), .emptiness = emptiness };
	int r;

	r = load(fs, from_dir, from, to_dir, to, &m);
	if (r == 0)
		r = check(&m, flags);
	if (r < 0)
		return r;
	r = attr_sealed(fs, &m.from.in);
	if (r == 0 && m.to.present)
		r = attr_sealed(fs, &m.to.in);
	if (r < 0)
		return r;
	if (m.to.present && m.from.in.ino == m.to.in.ino)
		return 0; /* two names of one file: POSIX requires that both stay */
	*ret_ino = m.from.in.ino;
	return apply_move(fs, &m, flags);
}

/*
 * The inode to move, flushed before the lock is taken. The name may refer to another inode, with other data, by then.
 */
static uint64_t source(struct fs *fs, uint64_t dir, const char *name)
{
	struct ns_dirent d;

	return names_find(fs, dir, name, &d) > 0 ? d.ino : 0;
}

int names_rename(struct fs *fs, uint64_t from_dir, const char *from, uint64_t to_dir, const char *to, unsigned flags)
{
	struct names_emptiness e = { 0 };
	uint64_t ino = 0;
	unsigned nr = 0;
	int r;

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE) || flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	r = names_settle(fs, source(fs, from_dir, from));
	if (r == 0 && flags & RENAME_EXCHANGE)
		r = names_settle(fs, source(fs, to_dir, to));
	if (r < 0)
		return r;
	do {
		r = flags != 0 || fs_is_in_view(fs, to_dir, to) ? 0 : names_examine(fs, to_dir, to, &e);
		if (r < 0)
			return r;
		rwlock_lock(&fs->names);
		r = rename_locked(fs, from_dir, from, to_dir, to, flags, &e, &ino);
		rwlock_unlock(&fs->names);
	} while (e.is_stale && ++nr < NAMES_EXAMINATIONS_MAX);
	if (e.is_stale)
		return -EBUSY;
	if (r == 0 && ino != 0)
		series_renamed(fs, ino, to_dir, to);
	return r == 0 && fs->sync ? engine_sync(fs->engine) : r;
}
