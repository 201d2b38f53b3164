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
#include <dirent.h>
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
#include "fs/background/autocompact.h"
#include "fs/posix/attr.h"
#include "fs/posix/attr_cache.h"
#include "fs/seal/dir_names.h"
#include "fs/seal/freeze.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/permission.h"
#include "fs/cluster_hooks.h"
#include "fs/seal/reaper.h"
#include "fs/seal/seal_root.h"

#define BUSY_WAIT_NS 2000000000u
#define BUSY_STEP_NS 20000000
#define LOOKS_AT_ONCE 128u /* names per hold of fs.names */
#define MARKS_AT_ONCE 64u /* inodes per exclusive hold of fs.names: about a millisecond */
#define PAUSE_NS_MAX 2000000u
#define ATTEMPTS_MAX 3u /* attempts to freeze */
#define DEPTH_MAX 2048u
#define PATH_ATTEMPTS 8u /* attempts to look up a path while users rename its directories */

/* All inodes of a directory tree, the directory first. */
struct tree {
	struct fs *fs;
	struct caller caller;
	struct freeze *freeze; /* NULL: check only */
	uint64_t *inos; /* directories before their content */
	size_t nr, room;
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

/* --- paths --- */

static int prepend(struct buf *path, const char *name, size_t len)
{
	struct buf longer = BUF_EMPTY;

	buf_add(&longer, name, len);
	if (path->len > 0)
		buf_add_u8(&longer, '/');
	buf_add(&longer, path->data, path->len);
	buf_release(path);
	buf_move(path, &longer);
	return buf_error(path);
}

/*
 * Prepend the path of a directory to *path. The time grows with the number and size of the directories above, which
 * users choose, so the caller holds no lock. -ENOENT: also if one was renamed meanwhile; -ELOOP: longer than
 * NS_PATH_MAX or deeper than DEPTH_MAX.
 */
static int prepend_dirs(struct fs *fs, uint64_t dir, struct buf *path)
{
	struct ns_inode in;
	struct ns_dirent d;
	int r = 0;

	for (unsigned depth = 0; dir != NS_ROOT_INO && r == 0; depth++) {
		r = depth < DEPTH_MAX ? attr_load(fs, dir, &in) : -ELOOP;
		if (r == 0)
			r = -ENOENT;
		if (r > 0)
			r = dir_names_find(fs->dir_names, fs->db, in.parent, dir, &d);
		if (r == 0)
			r = prepend(path, d.name, d.name_len);
		if (r == 0 && path->len > NS_PATH_MAX)
			r = -ELOOP;
		dir = in.parent;
	}
	return r;
}

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
	if (t->culprit_dir != 0 && prepend_dirs(t->fs, t->culprit_dir, t->culprit) < 0)
		buf_clear(t->culprit);
}

/* --- checks --- */

static int count(struct tree *t, const struct ns_inode *in)
{
	struct ns_content c = { 0 };
	int r;

	if (S_ISDIR(in->mode)) {
		t->seal.directories++;
		return 0;
	}
	r = S_ISREG(in->mode) ? content_peek(t->fs->engine, in->ino, &c) : 0;
	t->seal.files++;
	t->seal.bytes += c.size;
	return r;
}

/* May this be sealed? */
static int check(struct tree *t, const struct ns_inode *in)
{
	if (freezes_has(t->fs->freezes, in->ino, t->freeze))
		return -EBUSY;
	if (in->flags & INODE_SEALED)
		return -EEXIST;
	if (!permission_owner(&t->caller, in))
		return -EPERM;
	if (!S_ISDIR(in->mode) && in->nlink > 1 && reaper_has_trees(t->fs->reaper)) /* see reaper.c */
		return -EBUSY;
	return S_ISREG(in->mode) && inodes_has_writers(t->fs->inodes, in->ino) ? -EBUSY : 0;
}

static int add_entry(struct tree *t, uint64_t dir, const struct ns_dirent *d, bool checks)
{
	struct ns_inode in;
	int r = attr_load(t->fs, d->ino, &in);

	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", d->ino);
	r = checks ? check(t, &in) : 0;
	t->busy = r == -EBUSY ? d->ino : 0;
	if (r < 0)
		return blame(t, dir, d, r);
	return tree_add(t, d->ino);
}

/* Add up to LOOKS_AT_ONCE names of a directory, after cookie *after. 1: there are more; 0; <0. */
static int look_at_some(struct tree *t, uint64_t dir, bool checks, uint64_t *after) REQUIRES_SHARED(t->fs->names)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(t->fs->db, dir, *after, &it);

	for (unsigned nr = 0; nr < LOOKS_AT_ONCE && r >= 0; nr++) {
		r = ns_readdir_next(it, &d);
		if (r <= 0)
			return r;
		r = add_entry(t, dir, &d, checks);
		if (r == 0)
			*after = d.cookie;
	}
	return r < 0 ? r : 1;
}

/* After holding fs.names since `start_ns`, pause for other threads that wait for it. */
static void make_way(uint64_t start_ns)
{
	uint64_t held_ns = monotonic_ns() - start_ns;

	nanosleep(&(struct timespec){ .tv_nsec = (long)MIN(held_ns / 2, PAUSE_NS_MAX) }, NULL);
}

/* The same, and freeze them. */
static int freeze_some(struct tree *t, uint64_t dir, bool checks, uint64_t *after)
{
	uint64_t start_ns;
	int r;

	mutex_lock(&t->fs->seal_steps);
	start_ns = monotonic_ns();
	rwlock_lock(&t->fs->names);
	r = look_at_some(t, dir, checks, after);
	rwlock_unlock(&t->fs->names);
	make_way(start_ns);
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

/* --- marks --- */

static int put_note(struct tree *t, struct engine_tx *tx, uint64_t dir)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_seal_encode(&t->seal, &value);
	engine_tx_put(tx, ns_key_seal(dir), value.data, value.len);
	return buf_error(&value);
}

static int mark_one(struct tree *t, struct engine_tx *tx, uint64_t ino, bool sealed) REQUIRES(t->fs->names)
{
	struct ns_inode in;
	int r = attr_load(t->fs, ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = sealed ? count(t, &in) : 0;
	in.flags = sealed ? in.flags | INODE_SEALED : in.flags & ~(uint32_t)INODE_SEALED;
	attr_store(t->fs, tx, &in);
	return r;
}

static int apply(struct tree *t, struct engine_tx *tx, int r)
{
	if (r == 0)
		return fs_apply(t->fs, tx);
	attr_cache_clear(t->fs->attrs); /* the cache holds changes that were not applied */
	return r;
}

/* Mark inodes from *at on. The first transaction includes the seal record with the time of the seal. */
static int mark_some(struct tree *t, size_t *at) REQUIRES(t->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	size_t i = *at, end = MIN(t->nr, i + MARKS_AT_ONCE);
	int r = 0;

	if (i == 0) {
		t->seal.sealed_ns = MAX((int64_t)now_ns(), t->fs->last_seal_ns + 1); /* the clock may go back */
		r = put_note(t, &tx, t->inos[0]);
	}
	for (; i < end && r == 0; i++)
		r = mark_one(t, &tx, t->inos[i], true);
	r = apply(t, &tx, r);
	if (r == 0 && *at == 0)
		t->fs->last_seal_ns = t->seal.sealed_ns;
	if (r == 0)
		*at = end;
	return r;
}

/* Unmark inodes before *at, backwards. The seal record is deleted with the first inode. */
static int unmark_some(struct tree *t, size_t *at) REQUIRES(t->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	size_t i = *at, end = i - MIN(i, MARKS_AT_ONCE);
	bool was_complete = t->seal.is_complete;
	int r = 0;

	while (i > end && r == 0)
		r = mark_one(t, &tx, t->inos[--i], false);
	t->seal.is_complete = false;
	if (end == 0)
		engine_tx_del(&tx, ns_key_seal(t->inos[0]));
	else if (was_complete && r == 0)
		r = put_note(t, &tx, t->inos[0]);
	r = apply(t, &tx, r);
	if (r == 0)
		*at = end;
	return r;
}

static int mark_step(struct tree *t, size_t *at, int (*step)(struct tree *t, size_t *at))
{
	uint64_t start_ns;
	int r;

	mutex_lock(&t->fs->seal_steps);
	start_ns = monotonic_ns();
	rwlock_lock(&t->fs->names);
	r = step(t, at);
	rwlock_unlock(&t->fs->names);
	make_way(start_ns);
	mutex_unlock(&t->fs->seal_steps);
	return r;
}

/* Not cancellable: stopping halfway would leave the tree neither sealed nor unsealed. */
static int unmark(struct tree *t, size_t nr)
{
	int r = 0;

	while (r == 0 && nr > 0)
		r = mark_step(t, &nr, unmark_some);
	return r;
}

/* All or none. */
static int mark(struct tree *t)
{
	size_t nr = 0;
	int r = 0;

	t->seal = (struct ns_seal){ .uid = t->caller.cred->uid };
	while (r == 0 && nr < t->nr) {
		r = mark_step(t, &nr, mark_some);
		if (r == 0)
			r = cancel_check();
	}
	if (r < 0)
		unmark(t, nr);
	return r;
}

/* --- seal, unseal, list --- */

/* A directory deeper than this has no path that could be opened or returned. */
static int check_depth(struct fs *fs, const struct ns_inode *of)
{
	struct ns_inode in = *of;
	int r = 1;

	for (unsigned depth = 0; in.ino != NS_ROOT_INO && r > 0; depth++)
		r = depth < DEPTH_MAX ? attr_load(fs, in.parent, &in) : -ENAMETOOLONG;
	return r > 0 ? 0 : r < 0 ? r : -ENOENT;
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
	return r < 0 ? r : check_depth(t->fs, &in);
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
	int r;

	do {
		rwlock_lock_shared(&t->fs->names);
		r = look_at_some(t, dir, true, &after);
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
			r = mark(t);
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
		r = unmark(t, t->nr);
	thaw(t);
	return r;
}

static bool goes_on(_unused_ void *userdata, _unused_ const struct exclusive_report *so_far)
{
	return cancel_check() == 0;
}

/* Count the stored bytes that only this tree refers to. */
static int count_new(struct tree *t)
{
	_cleanup_(freep) struct exclusive_name *names = calloc(t->seal.directories, sizeof(*names));
	struct exclusive_conf conf = { .names = names, .step = goes_on };
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

static int put_root(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int r = put_note(t, &tx, dir);

	return r < 0 ? r : fs_apply(t->fs, &tx);
}

static int finish(struct tree *t, uint64_t dir)
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
	r = put_root(t, dir);
	rwlock_unlock(&t->fs->names);
	return r;
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
		r = finish(&t, dir);
		r = r == -ESTALE ? -EBADMSG : r; /* nothing changes while frozen, so this is damage */
		if (r < 0)
			unmark(&t, t.nr);
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
			    "directory %" PRIu64 ": sealed with %" PRIu64 " files, %" PRIu64 " bytes",
			    dir, t.seal.files, t.seal.bytes);
	*ret = t.seal;
	if (fs->hooks)
		fs->hooks->seals_changed(fs);
	aggregator_wake(fs->aggregator);
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

/* Find the sealed directory that contains this one. Call without a lock, as prepend_dirs(). */
static void blame_seal(struct tree *t, uint64_t dir)
{
	struct ns_inode in;
	struct ns_seal seal;
	int r = attr_load(t->fs, dir, &in);

	while (r > 0 && in.flags & INODE_SEALED && ns_get_seal(t->fs->db, in.ino, &seal) == 0 && in.ino != NS_ROOT_INO)
		r = attr_load(t->fs, in.parent, &in);
	buf_clear(t->culprit);
	if (r <= 0 || !(in.flags & INODE_SEALED) || prepend_dirs(t->fs, in.ino, t->culprit) < 0)
		buf_clear(t->culprit);
	else if (in.ino == NS_ROOT_INO && dir != NS_ROOT_INO)
		buf_add(t->culprit, ".", 1);
}

static void note_time(struct fs *fs, int64_t sealed_ns)
{
	rwlock_lock(&fs->names);
	fs->last_seal_ns = MAX(fs->last_seal_ns, sealed_ns);
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
		r = seal.is_complete ? 0 : take_back(&t, dir);
		if (r < 0)
			return log_errno(r, "directory %" PRIu64 ": half a seal cannot be taken back", dir);
		if (!seal.is_complete)
			log_notice("directory %" PRIu64
				   ": was being sealed or unsealed when the store was last in use; it is not sealed",
				   dir);
		else
			note_time(fs, seal.sealed_ns);
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
	if (in.flags & INODE_COPY)
		return -EROFS;
	if (!permission_owner(&t->caller, &in))
		return -EPERM;
	if (freezes_has(t->fs->freezes, dir, t->freeze))
		return -EBUSY;
	r = ns_get_seal(t->fs->db, dir, &t->seal);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
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
		r = unmark(t, t->nr);
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
	return engine_sync(fs->engine);
}

static bool may_know(uint32_t uid, const struct ns_inode *in)
{
	return permission_operator(&(struct cred){ .uid = uid }) || uid == in->uid;
}

int seal_check(struct fs *fs, uint64_t dir, uint32_t uid, struct ns_seal *ret, uint8_t root[NS_SEAL_ROOT_LEN])
{
	struct sha256_digest now;
	struct ns_seal seal, then;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r > 0)
		r = may_know(uid, &in) ? ns_get_seal(fs->db, dir, &seal) : -EPERM;
	if (r <= 0 || !seal.is_complete)
		return r < 0 ? r : -ENODATA;
	r = seal_root(fs, dir, &now);
	if (ns_get_seal(fs->db, dir, &then) <= 0 || then.sealed_ns != seal.sealed_ns)
		return -ESTALE;
	if (r < 0)
		return r;
	*ret = seal;
	memcpy(root, now.b, sizeof(now.b));
	return 0;
}

/* Check up to LOOKS_AT_ONCE seals after *at. 1: found one visible to the user; 0: none of these; -ENOENT: no more. */
static int next_locked(struct fs *fs, uint32_t uid, uint64_t *at, struct ns_seal *ret) REQUIRES_SHARED(fs->names)
{
	struct ns_inode in;
	int r;

	for (unsigned nr = 0; nr < LOOKS_AT_ONCE; nr++) {
		r = ns_next_seal(fs->db, *at, at, ret);
		if (r <= 0)
			return r < 0 ? r : -ENOENT;
		r = attr_load(fs, *at, &in);
		if (r <= 0)
			return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": sealed but has no record", *at);
		if (ret->is_complete && may_know(uid, &in))
			return 1;
	}
	return 0;
}

/* 0: `path` currently leads to `dir`; -ENOENT: it does not; <0. */
static int check_path(struct fs *fs, const struct buf *path, uint64_t dir) REQUIRES_SHARED(fs->names)
{
	const char *at = (const char *)path->data, *end = at + path->len;
	struct ns_dirent d = { .ino = NS_ROOT_INO };
	char name[NS_NAME_MAX + 1];
	int r = 1;

	while (at < end && r > 0) {
		const char *slash = memchr(at, '/', (size_t)(end - at));
		size_t len = (size_t)((slash ? slash : end) - at);

		memcpy(name, at, len);
		name[len] = '\0';
		r = ns_find(fs->db, fs->key, d.ino, name, &d);
		at += len + 1;
	}
	return r < 0 ? r : r > 0 && d.ino == dir ? 0 : -ENOENT;
}

/* 1; 0: no path short enough, no longer sealed, or moved repeatedly meanwhile; <0. */
static int find_path(struct fs *fs, uint64_t dir, struct buf *path)
{
	struct ns_seal seal;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r > 0)
		r = check_depth(fs, &in); /* first, because looking up names takes longer */
	if (r < 0)
		return r == -ENAMETOOLONG || r == -ENOENT ? 0 : r;
	r = -ENOENT;
	for (unsigned attempt = 0; attempt < PATH_ATTEMPTS && r == -ENOENT; attempt++) {
		buf_clear(path);
		r = prepend_dirs(fs, dir, path);
		if (r == 0) {
			rwlock_lock_shared(&fs->names);
			r = check_path(fs, path, dir);
			rwlock_unlock_shared(&fs->names);
		}
		if (r == -ENOENT && ns_get_seal(fs->db, dir, &seal) == 0)
			break;
	}
	if (r < 0)
		buf_clear(path);
	return r == 0 ? 1 : r == -ELOOP || r == -ENOENT ? 0 : r;
}

int seal_next(struct fs *fs, uint64_t after, uint32_t uid, uint64_t *ret_ino, struct ns_seal *ret, struct buf *path)
{
	int r;

	do {
		rwlock_lock_shared(&fs->names);
		r = next_locked(fs, uid, &after, ret);
		rwlock_unlock_shared(&fs->names);
		if (r > 0)
			r = find_path(fs, after, path);
		if (r == 0)
			r = cancel_check();
	} while (r == 0);
	*ret_ino = after;
	return r == -ENOENT ? 0 : r;
}
