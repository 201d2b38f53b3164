/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sealing a directory. Only the order makes it atomic:
 *   1. Sync everything.                                          crash: not sealed
 *      Then check the whole tree, some names at a time. This finds what cannot be sealed without delaying any request.
 *   2. Freeze the tree, in memory (freeze.h), some names at a time. Fails if a file is open for writing. From here on
 *      changes of the tree wait for the outcome.                 crash: not sealed
 *   3. Mark each inode, some per transaction, directories before their content. The first transaction also writes a
 *      incomplete seal record.                                   crash: not sealed; the next mount removes the marks
 *                                                                that were committed
 *   4. Without a lock, since the tree is frozen: compute the root (seal_root.h) and the bytes new in this checkpoint.
 *   5. Write the final seal record with these.                   crash: as in 3
 *   6. Thaw: changes of the tree fail from now on. Then sync:    COMMIT POINT. The log is ordered, so everything
 *                                                                written before the record is durable with it.
 * The first sync keeps step 6 short, and reports errors before anything is marked. If 3, 4 or 5 fails, the marks are
 * removed before the tree is thawed. If the second sync fails, the directory is immutable and listed but the caller
 * gets an error; sealing it again syncs again.
 *
 * Unsealing freezes in the same way. The first transaction makes the seal record incomplete: from then on the seal
 * is not listed, and after a crash the next mount removes the remaining marks. Marks are removed in the opposite order,
 * the record with the last of them. So a marked directory lies in a marked one or has a record, and a marked directory
 * with unmarked entries lies below an incomplete record (store/check/check_names.c).
 *
 * Only the steps hold fs.names, exclusive, one seal at a time and with pauses: the lock prefers writers, and two
 * threads that take it in turn would starve other requests.
 *
 * A writer is counted (inode.h) from before it can first change a file until all its data is in the log, and it checks
 * the mark under fs.names. So if no writer is counted, the content that is marked is the content in the log.
 *
 * The kernel reports the last close() of a file after close(2) has returned to the program. Hence sealing waits a while
 * for writers.
 */
#include "fs/seal/seal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/background/autocompact.h"
#include "fs/background/flusher.h"
#include "fs/cluster_hooks.h"
#include "fs/fs.h"
#include "fs/posix/attr.h"
#include "fs/posix/inode.h"
#include "fs/posix/permission.h"
#include "fs/seal/dir_path.h"
#include "fs/seal/freeze.h"
#include "fs/seal/reaper.h"
#include "fs/seal/seal_marks.h"
#include "fs/seal/seal_root.h"

#define BUSY_WAIT_NS 2000000000u
#define BUSY_STEP_NS 20000000
#define LOOKS_AT_ONCE 128u /* names per hold of fs.names */
#define ATTEMPTS_MAX 3u /* attempts to freeze */
#define NAMES_BYTES MiB(32) /* a million names: four times SEAL_INODES_MAX, as a file may have many */

/* All inodes of a directory tree, the directory first. */
struct tree {
	struct fs *fs;
	struct caller caller;
	struct freeze *freeze; /* NULL: check only */
	uint64_t *inos; /* directories before their content */
	size_t nr, room;
	struct ns_dirent *names; /* LOOKS_AT_ONCE, read before fs.names is taken */
	struct ns_seal seal;
	struct buf *culprit; /* name, later path, of the inode an error is about */
	uint64_t culprit_dir; /* the directory that contains it; 0: none */
	uint64_t busy; /* after -EBUSY, the file open for writing; 0: none */
};

static void tree_release(struct tree *t)
{
	freeze_end(t->freeze);
	caller_release(&t->caller);
	free(t->inos);
	free(t->names);
}

/* When freezing, a file with several names is added once. */
static int tree_add(struct tree *t, uint64_t ino)
{
	int r = t->freeze ? freeze_add(t->freeze, ino) : 1;

	if (r <= 0)
		return r;
	if (t->nr == SEAL_INODES_MAX)
		return -E2BIG;
	if (t->nr == t->room) {
		size_t room = MAX(2 * t->room, (size_t)256);
		uint64_t *more = reallocarray(t->inos, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->inos = more;
		t->room = room;
	}
	t->inos[t->nr++] = ino;
	return 0;
}

/* --- the entry that an error is about --- */

/* Record the entry an error is about. Its path is looked up later, without a lock, because that may take long. */
static int blame(struct tree *t, uint64_t dir, const struct ns_dirent *d, int r)
{
	buf_clear(t->culprit);
	buf_add(t->culprit, d->name, d->name_len);
	t->culprit_dir = dir;
	return r;
}

static void clear_culprit(struct tree *t)
{
	buf_clear(t->culprit);
	t->culprit_dir = 0;
}

/* An error here is ignored: the seal has already failed. */
static void name_culprit(struct tree *t)
{
	if (t->culprit_dir != 0 && dir_path_prepend(t->fs, t->culprit_dir, t->culprit) < 0)
		buf_clear(t->culprit);
}

/* --- checks --- */

/* May this be sealed? */
static int check(struct tree *t, const struct ns_inode *in)
{
	if (freezes_has(t->fs->freezes, in->ino, t->freeze))
		return -EBUSY;
	if (in->flags & INODE_SEALED)
		return -EEXIST;
	if (!permission_owner(&t->caller, in))
		return -EPERM;
	if (!S_ISDIR(in->mode) && in->nlink > 1 && reaper_has_trees(t->fs->reaper, in->uid)) /* see reaper.c */
		return -EBUSY;
	return S_ISREG(in->mode) && inodes_has_writers(t->fs->inodes, in->ino) ? -EBUSY : 0;
}

static int add_entry(struct tree *t, uint64_t dir, const struct ns_dirent *d, bool checks)
{
	struct ns_inode in;
	int r = attr_load(t->fs, d->ino, &in);

	if (r == 0 && !t->freeze) /* removed since the name was read */
		return 0;
	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", d->ino);
	r = checks ? check(t, &in) : 0;
	t->busy = r == -EBUSY ? d->ino : 0;
	if (r < 0)
		return blame(t, dir, d, r);
	return tree_add(t, d->ino);
}

/*
 * Read up to LOOKS_AT_ONCE names of a directory, after cookie `after`: their number, <0. Not under fs.names: RocksDB
 * searches through names that were removed, and their number is up to users. In a frozen directory none changes.
 */
static int read_some(struct tree *t, uint64_t dir, uint64_t after)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	unsigned nr = 0;
	int r;

	if (!t->names)
		t->names = calloc(LOOKS_AT_ONCE, sizeof(*t->names));
	if (!t->names)
		return -ENOMEM;
	r = ns_readdir_open(t->fs->db, dir, after, &it);
	while (r >= 0 && nr < LOOKS_AT_ONCE && (r = ns_readdir_next(it, &t->names[nr])) > 0)
		nr++;
	return r < 0 ? r : (int)nr;
}

/* Add the `nr` names that were read, and move *after behind them. 1: there may be more; 0; <0. */
static int look_at_some(struct tree *t, uint64_t dir, bool checks, unsigned nr, uint64_t *after)
	REQUIRES_SHARED(t->fs->names)
{
	int r = 0;

	for (unsigned i = 0; i < nr && r == 0; i++) {
		r = add_entry(t, dir, &t->names[i], checks);
		if (r == 0)
			*after = t->names[i].cookie;
	}
	return r < 0 ? r : nr == LOOKS_AT_ONCE;
}

/* The same, and freeze them. */
static int freeze_some(struct tree *t, uint64_t dir, bool checks, uint64_t *after)
{
	int r, nr = read_some(t, dir, *after);
	uint64_t start_ns;

	if (nr <= 0)
		return nr;
	mutex_lock(&t->fs->seal_steps);
	start_ns = monotonic_ns();
	rwlock_lock(&t->fs->names);
	r = look_at_some(t, dir, checks, (unsigned)nr, after);
	rwlock_unlock(&t->fs->names);
	seal_make_way(start_ns);
	mutex_unlock(&t->fs->seal_steps);
	return r;
}

/*
 * Freeze everything below the top, which has been added. Inodes found are appended to `inos`, and directories among
 * them are read in turn.
 */
static int freeze_rest(struct tree *t, bool checks)
{
	struct ns_inode in;
	int r = 0;

	for (size_t i = 0; i < t->nr && r >= 0; i++) {
		uint64_t after = 0;

		r = attr_load(t->fs, t->inos[i], &in);
		if (r > 0 && !S_ISDIR(in.mode))
			continue;
		while (r >= 0 && (r = freeze_some(t, t->inos[i], checks, &after)) > 0 && (r = cancel_check()) == 0)
			;
	}
	return MIN(r, 0);
}

/* --- seal, unseal --- */

static int mark_tree(struct tree *t)
{
	return seal_marks_set(&(struct seal_marks){ t->fs, t->inos, t->nr, &t->seal }, t->caller.cred->uid);
}

static int unmark(struct tree *t)
{
	return seal_marks_clear(&(struct seal_marks){ t->fs, t->inos, t->nr, &t->seal });
}

/* Check the directory itself. */
static int check_top(struct tree *t, uint64_t dir) REQUIRES_SHARED(t->fs->names)
{
	struct ns_inode in;
	int r = attr_load(t->fs, dir, &in);

	if (r <= 0 || in.nlink == 0)
		return r < 0 ? r : -ENOENT;
	if (!S_ISDIR(in.mode))
		return -ENOTDIR;
	if (!permission_owner(&t->caller, &in))
		return -EPERM;
	if (freezes_has(t->fs->freezes, dir, t->freeze))
		return -EBUSY;
	if (in.flags & INODE_SEALED) {
		r = ns_get_seal(t->fs->db, dir, &t->seal);
		return r < 0 ? r : r == 0 ? -EEXIST : t->seal.is_complete ? -EALREADY : -EBUSY;
	}
	r = permission_check(t->fs, &t->caller, &in, W_OK);
	return r < 0 ? r : dir_path_check_depth(t->fs, &in);
}

/* Wait until the file open for writing is closed, or until `until`. */
static int wait_for_writer(struct tree *t, uint64_t until)
{
	int r = 0;

	do {
		if (monotonic_ns() >= until)
			return -EBUSY;
		nanosleep(&(struct timespec){ .tv_nsec = BUSY_STEP_NS }, NULL);
		r = cancel_check();
	} while (r == 0 && t->busy != 0 && inodes_has_writers(t->fs->inodes, t->busy));
	return r;
}

static int look_at_directory(struct tree *t, uint64_t dir, uint64_t until)
{
	uint64_t after = 0;
	int r, nr;

	do {
		nr = read_some(t, dir, after);
		if (nr <= 0)
			return nr;
		rwlock_lock_shared(&t->fs->names);
		r = look_at_some(t, dir, true, (unsigned)nr, &after);
		rwlock_unlock_shared(&t->fs->names);
		if (r == -EBUSY) {
			r = wait_for_writer(t, until);
			r = r == 0 ? 1 : r;
		} else if (r > 0) {
			r = cancel_check();
			r = r == 0 ? 1 : r;
		}
	} while (r > 0);
	return r;
}

/*
 * Check whether the whole tree can be sealed before changes of it have to wait. Names may change meanwhile, so
 * freeze_tree() checks again.
 */
static int look_ahead(struct tree *t, uint64_t dir, uint64_t until)
{
	struct ns_inode in;
	int r;

	t->nr = 0;
	t->busy = 0;
	clear_culprit(t);
	do { /* until a seal of the same directory in progress has ended */
		rwlock_lock_shared(&t->fs->names);
		r = check_top(t, dir);
		rwlock_unlock_shared(&t->fs->names);
	} while (r == -EBUSY && (r = wait_for_writer(t, until)) == 0);
	if (r == 0)
		r = tree_add(t, dir);
	for (size_t i = 0; i < t->nr && r >= 0; i++) {
		r = attr_load(t->fs, t->inos[i], &in);
		if (r > 0 && S_ISDIR(in.mode))
			r = look_at_directory(t, t->inos[i], until);
	}
	if (r >= 0)
		clear_culprit(t); /* set while waiting */
	return MIN(r, 0);
}

static int freeze_tree(struct tree *t, uint64_t dir)
{
	int r = freeze_new(t->fs->freezes, t->nr, &t->freeze);

	t->nr = 0;
	t->busy = 0;
	clear_culprit(t);
	if (r < 0)
		return r;
	rwlock_lock(&t->fs->names);
	r = check_top(t, dir);
	if (r == 0)
		r = tree_add(t, dir);
	rwlock_unlock(&t->fs->names);
	return r < 0 ? r : freeze_rest(t, true);
}

static void thaw(struct tree *t)
{
	freeze_end(TAKE(t->freeze));
}

/* Waits for writers for this time only. On success the tree is frozen. */
static int seal_when_quiet(struct tree *t, uint64_t dir, uint64_t wait_ns)
{
	uint64_t until = monotonic_ns() + wait_ns;
	int r;

	for (unsigned attempt = 1;; attempt++) {
		r = look_ahead(t, dir, until);
		if (r < 0)
			return r;
		r = freeze_tree(t, dir);
		if (r == 0)
			r = mark_tree(t);
		if (r == 0)
			return 0;
		thaw(t);
		if (r != -EBUSY || attempt == ATTEMPTS_MAX)
			return r;
		r = wait_for_writer(t, until);
		if (r < 0)
			return r;
	}
}

/* Remove the marks of a seal that was unfinished when the store was last used. */
static int take_back(struct tree *t, uint64_t dir)
{
	int r = freeze_new(t->fs->freezes, 0, &t->freeze);

	t->nr = 0;
	if (r == 0)
		r = tree_add(t, dir);
	if (r >= 0)
		r = freeze_rest(t, false);
	if (r == 0)
		r = unmark(t);
	thaw(t);
	return r;
}

static bool may_continue(_unused_ void *userdata, _unused_ const struct exclusive_report *so_far)
{
	return cancel_check() == 0;
}

/* Count the stored bytes that only this tree refers to. */
static int count_new(struct tree *t)
{
	_cleanup_(freep) struct exclusive_name *names = calloc(t->seal.directories, sizeof(*names));
	struct exclusive_conf conf = { .names = names, .set_bytes = NAMES_BYTES, .step = may_continue };
	struct exclusive_report report;
	struct ns_inode in;
	int r = names ? 1 : -ENOMEM;

	for (size_t i = 0; i < t->nr && r > 0; i++) {
		r = attr_load(t->fs, t->inos[i], &in);
		if (r > 0 && S_ISDIR(in.mode) && conf.nr_names < t->seal.directories)
			names[conf.nr_names++].dir = in.ino;
	}
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	r = engine_exclusive(t->fs->engine, &conf, &report);
	t->seal.new_bytes = r == 0 ? report.exclusive_stored : 0;
	return r;
}

static void count_seal(struct fs *fs, const struct ns_seal *s)
{
	uint64_t ns = (uint64_t)MAX(s->sealed_ns, INT64_C(0));

	atomic_fetch_add(&fs->nr_sealed, 1);
	atomic_store(&fs->newest_seal_ns, MAX(atomic_load(&fs->newest_seal_ns), ns));
}

static int complete_seal(struct tree *t, uint64_t dir)
{
	struct sha256_digest root;
	int r = seal_root(t->fs, dir, &root);

	if (r == 0)
		r = count_new(t);
	if (r < 0)
		return r;
	static_assert(sizeof(t->seal.root) == sizeof(root.b), "the note has it whole");
	memcpy(t->seal.root, root.b, sizeof(root.b));
	t->seal.is_complete = true;
	rwlock_lock(&t->fs->names);
	r = seal_record_write(t->fs, dir, &t->seal);
	if (r == 0)
		count_seal(t->fs, &t->seal);
	rwlock_unlock(&t->fs->names);
	if (r < 0) {
		t->seal.is_complete = false;
		return r;
	}
	atomic_fetch_add(&t->fs->nr_seals, 1);
	atomic_fetch_add(&t->fs->sealed_bytes, t->seal.bytes);
	atomic_fetch_add(&t->fs->sealed_new_bytes, t->seal.new_bytes);
	return 0;
}

static int seal(struct fs *fs, uint64_t dir, const struct cred *cred, uint64_t wait_ns, struct ns_seal *ret,
		struct buf *culprit)
{
	static struct log_limit said;
	_cleanup_(tree_release) struct tree t = { .fs = fs, .caller = caller_of(cred), .culprit = culprit };
	int r, synced;

	if (fs->read_only)
		return -EROFS;
	r = engine_sync(fs->engine);
	if (r < 0)
		return r;
	r = seal_when_quiet(&t, dir, wait_ns);
	name_culprit(&t);
	if (r == 0) {
		r = complete_seal(&t, dir);
		r = r == -ESTALE ? -EBADMSG : r; /* nothing changes while frozen, so this is damage */
		if (r < 0)
			unmark(&t);
		if (r < 0 && cancel_check() < 0)
			r = -EINTR;
		if (r < 0 && r != -EINTR)
			log_errno(r, "directory %" PRIu64 ": its root cannot be made, so it is not sealed", dir);
		thaw(&t);
	}
	if (r < 0 && r != -EALREADY)
		return r;
	synced = engine_sync(fs->engine);
	if (synced < 0)
		return synced;
	if (r == 0)
		log_limited(&said, LOG_LEVEL_INFO,
			    "directory %" PRIu64 ": sealed with %" PRIu64 " files, %" PRIu64 " bytes", dir,
			    t.seal.files, t.seal.bytes);
	*ret = t.seal;
	if (fs->hooks)
		fs->hooks->seals_changed(fs);
	aggregator_wake(fs->aggregator);
	flusher_wake(fs->flusher);
	return r;
}

int seal_directory(struct fs *fs, uint64_t dir, const struct cred *cred, struct ns_seal *ret, struct buf *culprit)
{
	return seal(fs, dir, cred, BUSY_WAIT_NS, ret, culprit);
}

int seal_directory_now(struct fs *fs, uint64_t dir, const struct cred *cred, struct ns_seal *ret, struct buf *culprit)
{
	return seal(fs, dir, cred, 0, ret, culprit);
}

/* Find the sealed directory that contains this one. Call without a lock, as dir_path_prepend(). */
static void blame_seal(struct tree *t, uint64_t dir)
{
	struct ns_inode in;
	struct ns_seal seal;
	int r = attr_load(t->fs, dir, &in);

	while (r > 0 && in.flags & INODE_SEALED && ns_get_seal(t->fs->db, in.ino, &seal) == 0 && in.ino != NS_ROOT_INO)
		r = attr_load(t->fs, in.parent, &in);
	buf_clear(t->culprit);
	if (r <= 0 || !(in.flags & INODE_SEALED) || dir_path_prepend(t->fs, in.ino, t->culprit) < 0)
		buf_clear(t->culprit);
	else if (in.ino == NS_ROOT_INO && dir != NS_ROOT_INO)
		buf_add(t->culprit, ".", 1);
}

static void note_seal(struct fs *fs, const struct ns_seal *s)
{
	rwlock_lock(&fs->names);
	fs->last_seal_ns = MAX(fs->last_seal_ns, s->sealed_ns);
	count_seal(fs, s);
	rwlock_unlock(&fs->names);
}

int seal_take_back_all(struct fs *fs)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	_cleanup_(tree_release) struct tree t = { .fs = fs, .culprit = &culprit };
	struct ns_seal seal;
	uint64_t dir = 0;
	int r;

	while ((r = ns_next_seal(fs->db, dir, &dir, &seal)) > 0) {
		t.seal = seal;
		if (!seal.is_complete && fs->read_only)
			continue;
		r = seal.is_complete ? 0 : take_back(&t, dir);
		if (r < 0)
			return log_errno(r, "directory %" PRIu64 ": half a seal cannot be taken back", dir);
		if (!seal.is_complete)
			log_notice("directory %" PRIu64
				   ": was being sealed or unsealed when the store was last in use; it is not sealed",
				   dir);
		else
			note_seal(fs, &seal);
	}
	return r;
}

/* Freeze the top if the caller may unseal it. */
static int begin_undo(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	struct ns_inode in;
	int r = attr_load(t->fs, dir, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (in.flags & INODE_REPLICA)
		return -EROFS;
	if (!permission_owner(&t->caller, &in))
		return -EPERM;
	if (freezes_has(t->fs->freezes, dir, t->freeze))
		return -EBUSY;
	r = ns_get_seal(t->fs->db, dir, &t->seal);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	r = away_is_dropped(t->fs, dir);
	if (r != 0)
		return r < 0 ? r : -EREMOTE;
	r = tree_add(t, dir);
	return MIN(r, 0);
}

static int undo(struct tree *t, uint64_t dir)
{
	int r = freeze_new(t->fs->freezes, 0, &t->freeze);

	if (r < 0)
		return r;
	do { /* until a seal of it in progress has ended */
		rwlock_lock(&t->fs->names);
		r = begin_undo(t, dir);
		rwlock_unlock(&t->fs->names);
	} while (r == -EBUSY && (r = freezes_wait(t->fs->freezes, dir)) == 0);
	if (r == 0)
		r = freeze_rest(t, false);
	if (r == 0)
		r = unmark(t);
	thaw(t);
	return r;
}

int seal_undo(struct fs *fs, uint64_t dir, const struct cred *cred, struct buf *culprit)
{
	static struct log_limit said;
	_cleanup_(tree_release) struct tree t = { .fs = fs, .caller = caller_of(cred), .culprit = culprit };
	int r;

	if (fs->read_only)
		return -EROFS;
	r = undo(&t, dir);
	if (r == -ENODATA)
		blame_seal(&t, dir);
	if (r < 0)
		return r;
	log_limited(&said, LOG_LEVEL_INFO, "directory %" PRIu64 ": unsealed", dir);
	if (fs->hooks)
		fs->hooks->seals_changed(fs);
	flusher_wake(fs->flusher);
	return engine_sync(fs->engine);
}
