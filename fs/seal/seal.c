/*
 * Sealing a directory. Only the order makes it all or nothing:
 *   1. sync everything                          crash: nothing is sealed
 *   2. fs.names, exclusive: look at all that is below; nobody may be writing to it. Then one transaction has a mark
 *      for each inode and a note that it is being sealed    crash: nothing is sealed; if a commit came between, the
 *      next mount takes the marks away
 *   3. without a lock, as nothing changes any more: the root (seal_root.h), and what is new in it
 *   4. the note with these    crash: as before
 *   5. sync: COMMIT POINT. The log is in order, so whatever was written before it is durable with the note
 * The first sync is for 5 to be short, and to fail before anything is marked. If 3 or 4 fails the marks are taken away.
 * If the second sync fails the directory is immutable, and listed, but nobody has been told so; sealing it again syncs
 * again.
 *
 * A writer counts (inode.h) from before he first can change a file until all he wrote is in the log, and looks for the
 * mark under fs.names. So where nobody counts, what is marked is what the log says.
 *
 * The kernel tells of a last close() later than whoever closed knows. Hence a writer is waited for, for a while.
 */
#include "fs/seal.h"

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
#include "base/log.h"
#include "base/util.h"
#include "fs/aggregator.h"
#include "fs/attr.h"
#include "fs/attr_cache.h"
#include "fs/fs.h"
#include "fs/inode.h"
#include "fs/protect.h"
#include "fs/seal_root.h"

#define BUSY_WAIT_NS 2000000000u
#define BUSY_STEP_NS 20000000
#define DEPTH_MAX 2048u

/* All inodes of a directory and below, itself first. */
struct tree {
	struct fs *fs;
	const struct who *who;
	uint64_t *inos;
	size_t nr, room;
	struct ns_seal seal;
	struct buf *culprit;
};

static void tree_release(struct tree *t)
{
	free(t->inos);
}

static int tree_add(struct tree *t, uint64_t ino)
{
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

static int name_of_dir(struct fs *fs, uint64_t parent, uint64_t dir, struct ns_dirent *ret)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	int r = ns_readdir_open(fs->db, parent, 0, &it);

	while (r >= 0 && (r = ns_readdir_next(it, ret)) > 0)
		if (ret->ino == dir)
			return 0;
	return r < 0 ? r : -ENOENT;
}

/* Put the path of a directory in front of what is in *path. */
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
			r = name_of_dir(fs, in.parent, dir, &d);
		if (r == 0)
			r = prepend(path, d.name, d.name_len);
		dir = in.parent;
	}
	return r;
}

/* What an error is about. That its path cannot be told does not matter then. */
static int blame(struct tree *t, uint64_t dir, const struct ns_dirent *d, int r)
{
	buf_clear(t->culprit);
	buf_add(t->culprit, d->name, d->name_len);
	if (prepend_dirs(t->fs, dir, t->culprit) < 0)
		buf_clear(t->culprit);
	return r;
}

/* --- looking --- */

static bool is_allowed(const struct who *who, const struct ns_inode *in)
{
	return who->uid == 0 || who->uid == in->uid;
}

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
	if (in->flags & INODE_SEALED)
		return -EEXIST;
	if (!is_allowed(t->who, in))
		return -EPERM;
	return S_ISREG(in->mode) && inodes_has_writers(t->fs->inodes, in->ino) ? -EBUSY : 0;
}

static int add_entry(struct tree *t, uint64_t dir, const struct ns_dirent *d, bool checks)
{
	struct ns_inode in;
	int r = attr_load(t->fs, d->ino, &in);

	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", d->ino);
	r = checks ? check(t, &in) : 0;
	if (r < 0)
		return blame(t, dir, d, r);
	return tree_add(t, d->ino);
}

static int compare_inos(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* A file with several names is one file. */
static void drop_twins(struct tree *t)
{
	size_t n = 0;

	qsort(t->inos, t->nr, sizeof(*t->inos), compare_inos);
	for (size_t i = 0; i < t->nr; i++)
		if (i == 0 || t->inos[i] != t->inos[i - 1])
			t->inos[n++] = t->inos[i];
	t->nr = n;
}

/* Everything below a directory, and itself. What is found is appended, and directories among it are gone through
 * in their turn; others have no entries, so nobody has to remember which is which. */
static int gather(struct tree *t, uint64_t top, bool checks)
{
	int r = tree_add(t, top);

	for (size_t i = 0; i < t->nr && r >= 0; i++) {
		_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
		struct ns_inode in;
		struct ns_dirent d;

		r = attr_load(t->fs, t->inos[i], &in);
		if (r > 0 && !S_ISDIR(in.mode))
			continue;
		r = ns_readdir_open(t->fs->db, t->inos[i], 0, &it);
		while (r >= 0 && (r = ns_readdir_next(it, &d)) > 0)
			r = add_entry(t, t->inos[i], &d, checks);
	}
	if (r >= 0)
		drop_twins(t);
	return MIN(r, 0);
}

/* Of all of them, in one transaction; the caller adds the note of the seal. */
static int mark(struct tree *t, struct engine_tx *tx, bool sealed) REQUIRES(t->fs->names)
{
	struct ns_inode in;
	int r = 0;

	for (size_t i = 0; i < t->nr && r == 0; i++) {
		r = attr_load(t->fs, t->inos[i], &in);
		if (r <= 0)
			return r < 0 ? r : -ENOENT;
		r = sealed ? count(t, &in) : 0;
		in.flags = sealed ? in.flags | INODE_SEALED : in.flags & ~(uint32_t)INODE_SEALED;
		attr_store(t->fs, tx, &in);
	}
	return r;
}

/* --- the three things that can be done --- */

/* What lies deeper has no path that anybody could open, or be told. */
static int check_depth(struct fs *fs, const struct ns_inode *of) REQUIRES(fs->names)
{
	struct ns_inode in = *of;
	int r = 1;

	for (unsigned depth = 0; in.ino != NS_ROOT_INO && r > 0; depth++)
		r = depth < DEPTH_MAX ? attr_load(fs, in.parent, &in) : -ENAMETOOLONG;
	return r > 0 ? 0 : r < 0 ? r : -ENOENT;
}

/* The directory itself. */
static int check_top(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	struct ns_inode in;
	int r = attr_load(t->fs, dir, &in);

	if (r <= 0 || in.nlink == 0)
		return r < 0 ? r : -ENOENT;
	if (!S_ISDIR(in.mode))
		return -ENOTDIR;
	if (!is_allowed(t->who, &in))
		return -EPERM;
	if (in.flags & INODE_SEALED) {
		r = ns_get_seal(t->fs->db, dir, &t->seal);
		return r < 0 ? r : r == 0 ? -EEXIST : t->seal.unfinished ? -EBUSY : -EALREADY;
	}
	return t->who->uid == 0 || in.mode & S_IWUSR ? check_depth(t->fs, &in) : -EACCES;
}

static int apply(struct tree *t, struct engine_tx *tx, int r)
{
	if (r == 0)
		return fs_apply(t->fs, tx);
	attr_cache_clear(t->fs->attrs); /* has what is not going to happen */
	return r;
}

static int put_note(struct tree *t, struct engine_tx *tx, uint64_t dir)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_seal_encode(&t->seal, &value);
	engine_tx_put(tx, ns_key_seal(dir), value.data, value.len);
	return buf_error(&value);
}

static int seal_locked(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int r;

	t->nr = 0;
	buf_clear(t->culprit);
	t->seal = (struct ns_seal){
		.uid = t->who->uid,
		.sealed_ns = MAX((int64_t)now_ns(), t->fs->last_seal_ns + 1), /* clocks are set back, too */
		.unfinished = true,
	};
	r = check_top(t, dir);
	if (r == 0)
		r = gather(t, dir, true);
	if (r < 0)
		return r;
	r = mark(t, &tx, true);
	r = apply(t, &tx, r < 0 ? r : put_note(t, &tx, dir));
	if (r == 0)
		t->fs->last_seal_ns = t->seal.sealed_ns;
	return r;
}

/* Without waiting for writers for long. */
static int seal_when_quiet(struct tree *t, uint64_t dir)
{
	uint64_t until = monotonic_ns() + BUSY_WAIT_NS;
	int r;

	for (;;) {
		rwlock_lock(&t->fs->names);
		r = seal_locked(t, dir);
		rwlock_unlock(&t->fs->names);
		if (r != -EBUSY || monotonic_ns() >= until)
			return r;
		nanosleep(&(struct timespec){ .tv_nsec = BUSY_STEP_NS }, NULL);
	}
}

static int unmark(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int r;

	t->nr = 0;
	r = gather(t, dir, false);
	if (r < 0)
		return r;
	r = mark(t, &tx, false);
	engine_tx_del(&tx, ns_key_seal(dir));
	return apply(t, &tx, r);
}

/* A seal that was not finished, if it is still that one. */
static int take_back(struct tree *t, uint64_t dir, int64_t sealed_ns)
{
	struct ns_seal now;
	int r;

	rwlock_lock(&t->fs->names);
	r = ns_get_seal(t->fs->db, dir, &now);
	if (r > 0)
		r = now.unfinished && now.sealed_ns == sealed_ns ? unmark(t, dir) : 0;
	rwlock_unlock(&t->fs->names);
	return r;
}

/* What nothing else refers to. */
static int count_new(struct tree *t)
{
	_cleanup_(freep) struct exclusive_name *names = calloc(t->seal.directories, sizeof(*names));
	struct exclusive_conf conf = { .names = names };
	struct exclusive_report report;
	struct ns_inode in;
	int r = names ? 1 : -ENOMEM;

	for (size_t i = 0; i < t->nr && r > 0; i++) {
		r = attr_load(t->fs, t->inos[i], &in);
		if (r > 0 && S_ISDIR(in.mode) && conf.nr_names < t->seal.directories)
			names[conf.nr_names++].dir = in.ino;
	}
	if (r <= 0)
		return r < 0 ? r : -ECANCELED;
	r = engine_exclusive(t->fs->engine, &conf, &report);
	t->seal.new_bytes = r == 0 ? report.exclusive_stored : 0;
	return r;
}

/* Somebody may have unsealed it meanwhile, and even sealed it again. */
static int put_root(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	struct ns_seal now;
	int r = ns_get_seal(t->fs->db, dir, &now);

	if (r <= 0 || now.sealed_ns != t->seal.sealed_ns)
		return r < 0 ? r : -ECANCELED;
	r = put_note(t, &tx, dir);
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
	t->seal.has_root = true;
	t->seal.unfinished = false;
	rwlock_lock(&t->fs->names);
	r = put_root(t, dir);
	rwlock_unlock(&t->fs->names);
	return r;
}

int seal_directory(struct fs *fs, uint64_t dir, const struct who *who, struct ns_seal *ret, struct buf *culprit)
{
	static struct log_limit said;
	_cleanup_(tree_release) struct tree t = { .fs = fs, .who = who, .culprit = culprit };
	int r, synced;

	if (fs->read_only)
		return -EROFS;
	r = engine_sync(fs->engine);
	if (r < 0)
		return r;
	r = seal_when_quiet(&t, dir);
	if (r == 0) {
		r = finish(&t, dir);
		r = r == -ESTALE ? -ECANCELED : r;
		if (r < 0)
			take_back(&t, dir, t.seal.sealed_ns);
		if (r < 0 && r != -ECANCELED)
			log_errno(r, "directory %" PRIu64 ": its root cannot be made, so it is not sealed", dir);
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
	protect_wake(fs->protect);
	aggregator_wake(fs->aggregator);
	return r;
}

/* Which sealed directory does this one lie in? */
static void blame_seal(struct tree *t, const struct ns_inode *from)
{
	struct ns_inode in = *from;
	struct ns_seal seal;
	int r = 1;

	while (r > 0 && in.flags & INODE_SEALED && ns_get_seal(t->fs->db, in.ino, &seal) == 0 && in.ino != NS_ROOT_INO)
		r = attr_load(t->fs, in.parent, &in);
	buf_clear(t->culprit);
	if (r <= 0 || !(in.flags & INODE_SEALED) || prepend_dirs(t->fs, in.ino, t->culprit) < 0)
		buf_clear(t->culprit);
	else if (in.ino == NS_ROOT_INO && from->ino != NS_ROOT_INO)
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
		r = seal.unfinished ? take_back(&t, dir, seal.sealed_ns) : 0;
		if (r < 0)
			return log_errno(r, "directory %" PRIu64 ": half a seal cannot be taken back", dir);
		if (seal.unfinished)
			log_notice("directory %" PRIu64
				   ": was being sealed when the store was last in use; it is not sealed",
				   dir);
		else
			note_time(fs, seal.sealed_ns);
	}
	return r;
}

static int undo_locked(struct tree *t, uint64_t dir) REQUIRES(t->fs->names)
{
	struct ns_inode in;
	int r = attr_load(t->fs, dir, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (in.flags & INODE_COPY)
		return -EROFS;
	if (!is_allowed(t->who, &in))
		return -EPERM;
	r = ns_get_seal(t->fs->db, dir, &t->seal);
	if (r == 0)
		blame_seal(t, &in);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	return unmark(t, dir);
}

int seal_undo(struct fs *fs, uint64_t dir, const struct who *who, struct buf *culprit)
{
	static struct log_limit said;
	_cleanup_(tree_release) struct tree t = { .fs = fs, .who = who, .culprit = culprit };
	int r;

	if (fs->read_only)
		return -EROFS;
	rwlock_lock(&t.fs->names);
	r = undo_locked(&t, dir);
	rwlock_unlock(&t.fs->names);
	if (r < 0)
		return r;
	log_limited(&said, LOG_LEVEL_INFO, "directory %" PRIu64 ": unsealed", dir);
	protect_wake(fs->protect);
	return engine_sync(fs->engine);
}

static bool may_know(uint32_t uid, const struct ns_inode *in)
{
	return uid == 0 || uid == geteuid() || uid == in->uid;
}

int seal_check(struct fs *fs, uint64_t dir, uint32_t uid, struct ns_seal *ret, uint8_t root[NS_SEAL_ROOT_LEN])
{
	struct sha256_digest now;
	struct ns_seal seal, then;
	struct ns_inode in;
	int r = attr_load(fs, dir, &in);

	if (r > 0)
		r = may_know(uid, &in) ? ns_get_seal(fs->db, dir, &seal) : -EPERM;
	if (r <= 0 || seal.unfinished)
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

static int next_locked(struct fs *fs, uint64_t after, uint32_t uid, uint64_t *ret_ino, struct ns_seal *ret,
		       struct buf *path) REQUIRES_SHARED(fs->names)
{
	struct ns_inode in;
	int r;

	while ((r = ns_next_seal(fs->db, after, &after, ret)) > 0) {
		r = attr_load(fs, after, &in);
		if (r <= 0)
			return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": sealed but has no record", after);
		if (ret->unfinished || !may_know(uid, &in))
			continue;
		r = prepend_dirs(fs, after, path);
		if (r == 0) {
			*ret_ino = after;
			return 1;
		}
		if (r != -ELOOP)
			return r;
		buf_clear(path); /* a directory above it has been moved so deep that it has no path; others have */
	}
	return r;
}

int seal_next(struct fs *fs, uint64_t after, uint32_t uid, uint64_t *ret_ino, struct ns_seal *ret, struct buf *path)
{
	int r;

	rwlock_lock_shared(&fs->names);
	r = next_locked(fs, after, uid, ret_ino, ret, path);
	rwlock_unlock_shared(&fs->names);
	return r;
}
