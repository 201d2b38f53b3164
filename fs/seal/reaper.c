/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Removed trees.
 *
 * The top of a removed checkpoint is an orphan: it has no links, an entry in the table of orphans (`O`), and all its
 * content. Two kinds of transaction erase it:
 *   1. Up to NAMES_PER_STEP names of an orphan directory are removed. A file loses a link and is erased with its last
 *      one, or becomes an orphan if it is large. An empty directory is erased. A directory with entries becomes an
 *      orphan itself.
 *   2. An orphan directory without entries is erased, or left to forget.c while the kernel refers to it.
 * The names of an orphan directory are read before fs.names is taken: nothing else changes them, and RocksDB searches
 * through those that were removed. A crash between any two leaves orphan directories with entries. The next mount
 * finds these in the table, which does not depend on names that a user could create. A tree of any depth is handled as
 * a flat set of directories.
 *
 * All inodes of the tree keep INODE_SEALED, so a process with one of its directories open cannot add anything. A file
 * that also has a name outside the tree loses the flag with its name here. It may have another name in a part of the
 * tree that is not erased yet; removing that name would clear the flag of a later seal. So files with several names are
 * not sealed while there are trees to erase that may contain them (reaper_has_trees()). A user can remove only trees
 * whose files are all the user's, so those of other users need not wait; root can remove any tree. Each scan of the
 * table erases the trees of all removals before it, and the owners of these are then dropped from the list.
 *
 * A file whose bytes were dropped (fs/away/dropped.h) has all its names in the tree, and keeps the flag until the last
 * of them is removed: a process that has it open could link it elsewhere before, and write to it.
 *
 * Large files.
 *
 * A large file without a name is an orphan too, with an entry in the table and all its content. When the kernel has
 * forgotten it, forget.c leaves it to this thread:
 *   1. content_erase_some() erases its bytes, in steps that do not take fs.names.
 *   2. One transaction erases the rest: the inode, its attributes, what is known of its content, the entry.
 * A crash leaves an orphan with all, some or none of its bytes. Each of these is a sound file, and the collector counts
 * the bytes that are left as used. The next mount finds it in the table and starts over.
 * An orphan that is not in the table of inodes is not used and stays so: it has no name, and names_lookup() does not
 * find it by its number. Trees have precedence, because seals may have to wait for them.
 *
 * What cannot be erased, because it is damaged, is left, and the rest is erased. While such a tree is left,
 * reaper_has_trees() stays true for its owner, or for all users if root removed it or an earlier mount has left it.
 */
#include "fs/seal/reaper.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/posix/attr.h"
#include "fs/posix/attr_cache.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "store/engine.h"

#define NAMES_PER_STEP 32u /* fs.names is held for this many: fractions of a millisecond */
#define NEXT_MAX 64u /* orphans to continue with; those that do not fit are found in the table */
#define WAIT_NS 20000000u
#define END_NS 2000000000u /* to finish before the store is closed, so that a collection without a mount frees it all */

struct reaper {
	struct fs *fs; /* constant, as the thread */
	pthread_t thread;
	struct {
		uint64_t ino, after; /* directory, and the cookie of its last name that was removed */
	} next[NEXT_MAX]; /* used by the thread only, like the fields below */
	size_t nr_next;
	bool was_stopped; /* during this scan, even if the mount is writable again */
	struct {
		uint64_t ino, segment; /* the file that was interrupted, and where to continue */
	} file;

	struct mutex lock; /* outside the lock of fs/ops/notify.h */
	struct cond changed;
	/* Users that may have files in trees: added before the first name of a tree is removed. `scan`: the one that erases it */
	struct owner {
		uint32_t uid;
		uint64_t scan;
	} *owners GUARDED_BY(lock);
	size_t nr_owners GUARDED_BY(lock), room_owners GUARDED_BY(lock);
	uint64_t any GUARDED_BY(lock); /* the same for all users; 0: not */
	uint64_t scan GUARDED_BY(lock); /* the number of the last one that began */
	bool tree_due GUARDED_BY(lock), file_due GUARDED_BY(lock), is_busy GUARDED_BY(lock), stop GUARDED_BY(lock);
	uint64_t stop_ns GUARDED_BY(lock); /* with `stop`: the latest end */
	reaper_changed_fn *link_changed GUARDED_BY(lock);
	void *userdata GUARDED_BY(lock);
};

/* One transaction under fs.names. */
struct step {
	struct reaper *r;
	struct {
		struct ns_dirent d;
		bool has_entries; /* a directory */
	} names[NAMES_PER_STEP]; /* read before the lock is taken */
	size_t nr_names;
	struct engine_tx tx;
	uint64_t unlinked[NAMES_PER_STEP]; /* inodes that lose their last name */
	size_t nr_unlinked;
	uint64_t linked; /* an inode with names left; 0: none */
	uint64_t subdir; /* a directory that becomes an orphan; 0: none */
	bool is_last; /* the directory itself is erased */
};

/* --- owners of trees --- */

static void add_owner(struct reaper *r, uint32_t uid, uint64_t scan) REQUIRES(r->lock)
{
	size_t i = 0;

	while (i < r->nr_owners && r->owners[i].uid != uid)
		i++;
	if (uid == REAPER_ANY ||
	    (i == r->nr_owners && list_grow(&r->owners, i, &r->room_owners, sizeof(*r->owners)) < 0)) {
		r->any = scan;
		return;
	}
	r->owners[i] = (struct owner){ uid, scan };
	r->nr_owners = MAX(r->nr_owners, i + 1);
}

/* The scan has erased what was there when it began. */
static void drop_owners(struct reaper *r) REQUIRES(r->lock)
{
	size_t left = 0;

	for (size_t i = 0; i < r->nr_owners; i++)
		if (r->owners[i].scan > r->scan)
			r->owners[left++] = r->owners[i];
	r->nr_owners = left;
	if (r->any <= r->scan)
		r->any = 0;
}

/* A tree of this directory cannot be erased. That of a removal by root may contain files of any user. */
static void keep_owner(struct reaper *r, uint64_t dir)
{
	struct ns_inode in;
	bool is_known = attr_load(r->fs, dir, &in) > 0;

	mutex_lock(&r->lock);
	add_owner(r, is_known && r->any == 0 ? in.uid : REAPER_ANY, r->scan + 1);
	mutex_unlock(&r->lock);
}

/* --- trees --- */

/* Also true while the mount is read-only: fs_set_flags() wakes the thread afterwards. */
static bool is_stopping(struct reaper *r)
{
	bool stop;

	mutex_lock(&r->lock);
	stop = (r->stop && monotonic_ns() >= r->stop_ns) || r->fs->read_only;
	mutex_unlock(&r->lock);
	r->was_stopped |= stop;
	return stop;
}

static bool is_tree_due(struct reaper *r)
{
	bool is_due;

	mutex_lock(&r->lock);
	is_due = r->tree_due;
	mutex_unlock(&r->lock);
	return is_due;
}

/* Make a directory with entries an orphan; everything below stays in place. */
static void detach_directory(struct step *s, struct ns_inode *in)
{
	in->nlink = 0;
	inodes_set_orphan(s->r->fs->inodes, in->ino, true);
	engine_tx_put(&s->tx, ns_key_orphan(in->ino), NULL, 0);
	attr_store(s->r->fs, &s->tx, in);
	s->subdir = in->ino;
}

static int drop_name(struct step *s, uint64_t dir, const struct ns_dirent *d, bool has_entries)
	REQUIRES(s->r->fs->names)
{
	struct fs *fs = s->r->fs;
	struct ns_inode in;
	int r = attr_load(fs, d->ino, &in), is_dropped = 0;

	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", d->ino);
	if (!S_ISDIR(in.mode) && in.nlink > 1)
		is_dropped = away_is_dropped(fs, in.ino);
	if (is_dropped < 0)
		return is_dropped;
	engine_tx_del(&s->tx, ns_key_dirent(dir, d->cookie));
	if (!S_ISDIR(in.mode) && in.nlink > 1) {
		s->linked = in.ino;
		if (!is_dropped)
			in.flags &= ~(uint32_t)INODE_SEALED;
	} else {
		s->unlinked[s->nr_unlinked++] = in.ino;
	}
	if (!has_entries)
		return names_drop(fs, &s->tx, &in, (int64_t)now_ns());
	detach_directory(s, &in);
	return 0;
}

/* The next names of an orphan directory. */
static int read_names(struct step *s, uint64_t dir, uint64_t after)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct db *db = s->r->fs->db;
	int r = ns_readdir_open(db, dir, after, &it), is_full = 0;

	while (r >= 0 && s->nr_names < NAMES_PER_STEP) {
		struct ns_dirent *d = &s->names[s->nr_names].d;

		r = ns_readdir_next(it, d);
		if (r <= 0)
			return r;
		is_full = d->type == DT_DIR ? ns_has_entries(db, d->ino) : 0;
		if (is_full < 0)
			return is_full;
		s->names[s->nr_names++].has_entries = is_full;
	}
	return r;
}

/*
 * A file with several names ends the step: the next name may belong to the same file, and its record is read from
 * applied transactions. A directory ends it too, because the caller continues with that directory.
 */
static int drop_names(struct step *s, uint64_t dir, uint64_t *after) REQUIRES(s->r->fs->names)
{
	int r = 0;

	for (size_t i = 0; i < s->nr_names && r == 0 && !s->linked && !s->subdir; i++) {
		r = drop_name(s, dir, &s->names[i].d, s->names[i].has_entries);
		*after = s->names[i].d.cookie;
	}
	s->is_last = s->nr_names == 0;
	return r;
}

static int erase_directory(struct step *s, const struct ns_inode *in) REQUIRES(s->r->fs->names)
{
	if (inodes_set_orphan(s->r->fs->inodes, in->ino, true))
		return 0;
	engine_tx_del(&s->tx, ns_key_orphan(in->ino));
	return names_erase(s->r->fs, &s->tx, in);
}

/* 1: `dir` may have more entries; 0: it has none, or is no orphan directory. */
static int step_locked(struct step *s, uint64_t dir, uint64_t *after) REQUIRES(s->r->fs->names)
{
	struct fs *fs = s->r->fs;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r <= 0 || !S_ISDIR(in.mode) || in.nlink != 0)
		return MIN(r, 0);
	r = drop_names(s, dir, after);
	if (r == 0 && s->is_last)
		r = erase_directory(s, &in);
	if (r == 0)
		r = fs_apply(fs, &s->tx);
	else
		attr_cache_clear(fs->attrs); /* it holds changes that were not committed */
	if (r == 0)
		return !s->is_last;
	for (size_t i = 0; i < s->nr_unlinked; i++)
		inodes_set_orphan(fs->inodes, s->unlinked[i], false);
	return r;
}

static void notify_changed(struct reaper *r, uint64_t ino)
{
	mutex_lock(&r->lock);
	if (r->link_changed)
		r->link_changed(r->userdata, ino);
	mutex_unlock(&r->lock);
}

/* Erase an orphan directory and all directories that become orphans with it. */
static int take_apart(struct reaper *r, uint64_t ino)
{
	int more = 1;

	r->next[0].ino = ino;
	r->next[0].after = 0;
	r->nr_next = 1;
	while (r->nr_next > 0 && more >= 0 && !is_stopping(r)) {
		uint64_t dir = r->next[r->nr_next - 1].ino, after = r->next[r->nr_next - 1].after;
		struct step s = { .r = r, .tx = ENGINE_TX_EMPTY };

		more = read_names(&s, dir, after);
		if (more < 0)
			break;
		rwlock_lock(&s.r->fs->names);
		more = step_locked(&s, dir, &after);
		rwlock_unlock(&s.r->fs->names);
		r->next[r->nr_next - 1].after = after;
		engine_tx_release(&s.tx);
		if (more == 0)
			r->nr_next--;
		if (more >= 0 && s.linked)
			notify_changed(r, s.linked);
		if (more >= 0 && s.subdir && r->nr_next < NEXT_MAX) {
			r->next[r->nr_next].ino = s.subdir;
			r->next[r->nr_next++].after = 0;
		}
	}
	return MIN(more, 0);
}

/*
 * Must the reaper erase it? forget.c erases an empty directory when the kernel forgets it, unless it found entries
 * just before they were erased here.
 */
static int is_tree(struct fs *fs, uint64_t ino)
{
	struct ns_inode in;
	int r = attr_load(fs, ino, &in);

	if (r <= 0 || !S_ISDIR(in.mode) || in.nlink != 0)
		return MIN(r, 0);
	return inodes_has(fs->inodes, ino) ? ns_has_entries(fs->db, ino) : 1;
}

/* Waits for the transaction of a caller of reaper_add_tree() or reaper_wake_for_file(). */
static void await_change(struct fs *fs)
{
	rwlock_lock_shared(&fs->names);
	rwlock_unlock_shared(&fs->names);
}

/*
 * Repeats until no tree is found: orphans that did not fit into `next` may lie before the current position. A tree that
 * cannot be erased does not keep the others.
 */
static int take_apart_all(struct reaper *r, bool *ret_whole)
{
	uint64_t ino, nr;
	int error, found = 0;

	do {
		ino = nr = 0;
		error = 0;
		while (!is_stopping(r) && (found = ns_next_orphan(r->fs->db, ino, &ino)) > 0) {
			int is = is_tree(r->fs, ino);

			if (is > 0)
				is = take_apart(r, ino);
			else if (is == 0)
				continue;
			nr += is == 0;
			error = is < 0 ? is : error;
			if (is < 0)
				keep_owner(r, ino);
		}
	} while (found >= 0 && nr > 0 && !is_stopping(r));
	*ret_whole = found == 0;
	return found < 0 ? found : error;
}

/*
 * The first file after *ino that is to be erased; *ret is its record. 1/0/<0. The search is not under fs.names, as that
 * for names.
 */
static int next_file(struct fs *fs, uint64_t *ino, struct ns_inode *ret)
{
	bool is_file = false;
	int r = 1;

	while (r > 0 && !is_file) {
		r = ns_next_orphan(fs->db, *ino, ino);
		if (r <= 0)
			break;
		rwlock_lock_shared(&fs->names);
		if (attr_load(fs, *ino, ret) > 0)
			is_file = !S_ISDIR(ret->mode) && ret->nlink == 0 && !inodes_has(fs->inodes, *ino);
		rwlock_unlock_shared(&fs->names);
	}
	return r;
}

static int erase_inode(struct fs *fs, const struct ns_inode *in)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int r;

	rwlock_lock(&fs->names);
	engine_tx_del(&tx, ns_key_orphan(in->ino));
	r = names_erase(fs, &tx, in);
	if (r == 0)
		r = fs_apply(fs, &tx);
	else
		attr_cache_clear(fs->attrs);
	rwlock_unlock(&fs->names);
	return r;
}

/* 1: interrupted. */
static int erase_file(struct reaper *r, const struct ns_inode *in)
{
	uint64_t segment = r->file.ino == in->ino ? r->file.segment : 0;
	struct content *c;
	int more = content_open(r->fs->engine, in->ino, &c);

	if (more < 0)
		return more;
	do
		more = is_stopping(r) || is_tree_due(r) ? 2 : content_erase_some(c, &segment);
	while (more == 1);
	if (more == 0)
		more = erase_inode(r->fs, in); /* with the content open: that it has no bytes is known in memory */
	r->file.ino = in->ino;
	r->file.segment = segment;
	content_close(c);
	return MIN(more, 1);
}

/* 1: interrupted. */
static int erase_files(struct reaper *r)
{
	struct ns_inode in;
	uint64_t ino = 0;
	int found, is = 0, error = 0;

	await_change(r->fs);
	while (is <= 0 && (found = next_file(r->fs, &ino, &in)) > 0) {
		is = erase_file(r, &in);
		error = is < 0 ? is : error;
	}
	return is > 0 ? is : found < 0 ? found : error;
}

/* Erase what is due. false: some of it is left. */
static bool erase_all(struct reaper *r) REQUIRES(r->lock)
{
	bool goes_on, is_whole = true, scans = r->tree_due || r->nr_owners > 0 || r->any != 0;
	int trees = 0, files = 0;

	r->tree_due = r->file_due = false;
	r->scan += scans;
	r->was_stopped = false;
	mutex_unlock(&r->lock);
	if (scans) {
		await_change(r->fs);
		trees = take_apart_all(r, &is_whole);
	}
	goes_on = !is_stopping(r) && !r->was_stopped;
	mutex_lock(&r->lock);
	if (scans && goes_on && is_whole)
		drop_owners(r);
	mutex_unlock(&r->lock);
	if (goes_on)
		files = erase_files(r);
	if ((trees < 0 && trees != -EROFS) || (files < 0 && files != -EROFS))
		log_errno(trees < 0 ? trees : files,
			  "store: cannot erase all removed files and checkpoints; the next removal or mount retries");
	mutex_lock(&r->lock);
	return goes_on && trees == 0 && files == 0;
}

static void *run_reaper(void *userdata)
{
	struct reaper *r = userdata;

	pthread_setname_np(pthread_self(), "ckptfs-reaper");
	mutex_lock(&r->lock);
	for (;;) {
		if (!r->tree_due && !r->file_due) {
			if (r->stop)
				break;
			cond_wait(&r->changed, &r->lock);
			continue;
		}
		r->is_busy = true;
		if (!erase_all(r) && r->tree_due)
			r->file_due = true; /* interrupted by another tree */
		r->is_busy = false;
		cond_broadcast(&r->changed);
	}
	mutex_unlock(&r->lock);
	return NULL;
}

int reaper_new(struct fs *fs, struct reaper **ret)
{
	struct reaper *r = calloc(1, sizeof(*r));
	int error;

	if (!r)
		return -ENOMEM;
	r->fs = fs;
	r->tree_due = r->file_due = true;
	r->any = 1;
	mutex_init(&r->lock);
	cond_init(&r->changed);
	error = pthread_create(&r->thread, NULL, run_reaper, r);
	if (error != 0) {
		mutex_release(&r->lock);
		cond_release(&r->changed);
		free(r);
		return -error;
	}
	*ret = r;
	return 0;
}

void reaper_free(struct reaper *r)
{
	if (!r)
		return;
	mutex_lock(&r->lock);
	r->stop = true;
	r->stop_ns = monotonic_ns() + END_NS;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	mutex_release(&r->lock);
	cond_release(&r->changed);
	free(r->owners);
	free(r);
}

void reaper_wake(struct reaper *r)
{
	mutex_lock(&r->lock);
	r->tree_due = r->file_due = true;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
}

void reaper_add_tree(struct reaper *r, uint32_t uid)
{
	mutex_lock(&r->lock);
	add_owner(r, uid, r->scan + 1);
	r->tree_due = r->file_due = true;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
}

void reaper_chowned(struct reaper *r)
{
	if (!r)
		return;
	mutex_lock(&r->lock);
	if (r->nr_owners > 0) {
		r->any = r->scan + 1;
		r->tree_due = true;
		cond_broadcast(&r->changed);
	}
	mutex_unlock(&r->lock);
}

void reaper_wake_for_file(struct reaper *r)
{
	if (!r)
		return;
	mutex_lock(&r->lock);
	r->file_due = true;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
}

bool reaper_has_trees(struct reaper *r, uint32_t uid)
{
	bool has;

	if (!r)
		return false;
	mutex_lock(&r->lock);
	has = r->any != 0;
	for (size_t i = 0; i < r->nr_owners; i++)
		has |= r->owners[i].uid == uid;
	mutex_unlock(&r->lock);
	return has;
}

void reaper_wait(struct reaper *r, bool (*goes_on)(void *userdata), void *userdata)
{
	bool waits = r;

	while (waits && goes_on(userdata)) {
		mutex_lock(&r->lock);
		waits = (r->tree_due || r->file_due || r->is_busy) && !r->stop;
		if (waits)
			cond_wait_for(&r->changed, &r->lock, WAIT_NS);
		mutex_unlock(&r->lock);
	}
}

void reaper_set_changed(struct reaper *r, reaper_changed_fn *fn, void *userdata)
{
	if (!r)
		return;
	mutex_lock(&r->lock);
	r->link_changed = fn;
	r->userdata = userdata;
	mutex_unlock(&r->lock);
}
