/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Creating a replica. Only the order makes it atomic:
 *   1. A transaction creates the top, with an ns_replica record in state PARTIAL. crash: nothing, or a partial replica
 *   2. Records of the catalog are applied, in any number of transactions. Files refer to chunks only after the node to
 *      fetch them from is durably recorded.                                   crash: a partial replica
 *   3. The catalog was complete: one transaction sets the final state, and sets older replicas that it replaces to
 *      PARTIAL. A cached replica fails here if the same seal is kept.
 *   4. Sync: COMMIT POINT.                          crash before: the older ones, and a partial one; after: the new one
 *   5. Replaced replicas are removed: names first, deepest first, the top and its record last.
 *                                                                             crash: a partial replica
 * The log is ordered, so a complete replica is complete after any crash. Partial replicas are removed on failure or at
 * the next mount, and are not visible otherwise.
 *
 * At every moment names and inodes of a partial replica are consistent for fsck: each transaction changes both sides.
 */
#include "mpi-agent/daemon/replica/replica.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/seal/seal_catalog.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/seal/seal.h"
#include "fs/posix/xattr.h"
#include "store/catalog/catalog_format.h"

#define READ_BYTES (2 * (CATALOG_RECORD_MAX + 16u)) /* two records of any size */
#define PIECES_MAX 8192u /* pending pieces: 32 MiB of pages, for one sync */
#define RUNS_MAX 1024u /* files with content open at once */
#define HOLE_INSIDE MiB(16) /* longest hole inside a run; longer ones cost time per MiB */
#define BUSY_WAIT_NS UINT64_C(30000000000) /* a window of a collection takes seconds */
#define BUSY_STEP_NS 20000000
#define FLAGS ((uint32_t)(INODE_SEALED | INODE_REPLICA))

/* Consecutive pieces of one file. */
struct run {
	uint64_t ino, off, end;
	size_t nr;
};

struct making {
	struct fs *fs;
	const struct nodes_seal *s;
	const struct cluster_node *owner;
	struct ns_replica note;
	struct ns_inode *dirs; /* indexed by number: the records in the view */
	uint64_t *files; /* indexed by number: inodes */
	size_t nr_dirs, dirs_room, nr_files, files_room;
	uint64_t last; /* the last inode, and the offset its pieces have reached */
	bool last_has_xattrs;
	uint64_t at;
	struct content_piece *pieces;
	struct run *runs;
	size_t nr_pieces, nr_runs;
};

static void making_release(struct making *m)
{
	free(m->dirs);
	free(m->files);
	free(m->pieces);
	free(m->runs);
}

/* --- names --- */

static void put_note(struct engine_tx *tx, uint64_t top, const struct ns_replica *note)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_replica_encode(note, &value);
	tx->records.failed |= buf_error(&value) < 0;
	engine_tx_put(tx, ns_key_replica(top), value.data, value.len);
}

/* An array with room for one more; or NULL, with the array unchanged. */
static void *reserve(void *v, size_t nr, size_t *room, size_t size)
{
	size_t more = MAX(2 * *room, (size_t)64);

	if (nr < *room)
		return v;
	v = reallocarray(v, more, size);
	if (v)
		*room = more;
	return v;
}

static int reserve_inode(struct making *m, bool is_dir)
{
	void *v = is_dir ? reserve(m->dirs, m->nr_dirs, &m->dirs_room, sizeof(*m->dirs)) :
			   reserve(m->files, m->nr_files, &m->files_room, sizeof(*m->files));

	if (!v)
		return -ENOMEM;
	if (is_dir)
		m->dirs = v;
	else
		m->files = v;
	return 0;
}

static int make_top(struct making *m, const struct ns_inode *in) REQUIRES(m->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;

	put_note(&tx, in->ino, &m->note);
	attr_store(m->fs, &tx, in);
	return fs_apply(m->fs, &tx);
}

/* Add a name to a directory: entry and inode record, `in` as it is to be stored. */
static int add_name(struct making *m, const struct catalog_record *rec, const struct ns_inode *in) REQUIRES(m->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	struct ns_inode dir = m->dirs[rec->dir];
	struct ns_dirent d;
	int r = names_find(m->fs, dir.ino, rec->name, &d);

	if (r != 0)
		return r < 0 ? r : -EBADMSG; /* duplicate name */
	r = names_note_hash(m->fs, &tx, &dir, d.cookie);
	if (r < 0)
		return r;
	d.ino = in->ino;
	d.type = (uint8_t)IFTODT(in->mode);
	names_put_entry(&tx, dir.ino, &d, rec->name);
	if (S_ISDIR(in->mode)) {
		dir.nlink++;
		attr_store(m->fs, &tx, &dir);
	}
	if (S_ISLNK(in->mode) && rec->type == CATALOG_INODE)
		engine_tx_put(&tx, ns_key_symlink(in->ino), rec->data, rec->len);
	attr_store(m->fs, &tx, in);
	r = fs_apply(m->fs, &tx);
	if (r == 0)
		m->dirs[rec->dir] = dir;
	return r;
}

static int set_size(struct making *m, uint64_t ino, uint64_t size)
{
	struct content *c;
	int r;

	if (size == 0)
		return 0;
	r = content_open(m->fs->engine, ino, &c);
	if (r < 0)
		return r;
	r = content_truncate(c, size);
	content_close(c);
	return r;
}

static int take_inode(struct making *m, const struct catalog_record *rec)
{
	struct ns_inode in = rec->in;
	bool is_dir = S_ISDIR(in.mode), is_top = m->nr_dirs == 0;
	int r;

	if (m->nr_dirs + m->nr_files == SEAL_INODES_MAX)
		return -E2BIG;
	r = reserve_inode(m, is_dir);
	if (r == 0)
		r = engine_new_number(m->fs->engine, &in.ino);
	if (r < 0)
		return r;
	in.nlink = is_dir ? 2 : 1;
	in.parent = !is_dir ? 0 : is_top ? in.ino : m->dirs[rec->dir].ino;
	in.flags = FLAGS;
	rwlock_lock(&m->fs->names);
	r = is_top ? make_top(m, &in) : add_name(m, rec, &in);
	rwlock_unlock(&m->fs->names);
	if (r == 0 && S_ISREG(in.mode))
		r = set_size(m, in.ino, rec->size);
	if (r < 0)
		return r;
	if (is_dir)
		m->dirs[m->nr_dirs++] = in;
	else
		m->files[m->nr_files++] = in.ino;
	m->last = in.ino;
	m->last_has_xattrs = false;
	m->at = 0;
	return 0;
}

static int add_link(struct making *m, const struct catalog_record *rec) REQUIRES(m->fs->names)
{
	struct ns_inode in;
	int r = attr_load(m->fs, m->files[rec->file], &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	in.nlink++;
	return add_name(m, rec, &in);
}

static int take_link(struct making *m, const struct catalog_record *rec)
{
	int r;

	rwlock_lock(&m->fs->names);
	r = add_link(m, rec);
	rwlock_unlock(&m->fs->names);
	return r;
}

/* Set INODE_HAS_XATTRS, for a directory also in the copy in memory. */
static int mark_xattrs(struct making *m, struct engine_tx *tx) REQUIRES(m->fs->names)
{
	struct ns_inode in;
	int r = m->last_has_xattrs ? 0 : attr_load(m->fs, m->last, &in);

	if (m->last_has_xattrs || r < 0)
		return r;
	if (r == 0)
		return -ENOENT;
	in.flags |= INODE_HAS_XATTRS;
	attr_store(m->fs, tx, &in);
	if (S_ISDIR(in.mode))
		m->dirs[m->nr_dirs - 1].flags |= INODE_HAS_XATTRS;
	m->last_has_xattrs = true;
	return 0;
}

static int add_xattr(struct making *m, const struct catalog_record *rec) REQUIRES(m->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int r = mark_xattrs(m, &tx);

	if (r < 0)
		return r;
	engine_tx_put(&tx, ns_key_xattr(m->last, rec->name), rec->data, rec->len);
	return fs_apply(m->fs, &tx);
}

static int take_xattr(struct making *m, const struct catalog_record *rec)
{
	int r;

	if (xattr_check_name(rec->name) < 0)
		return -EBADMSG;
	rwlock_lock(&m->fs->names);
	r = add_xattr(m, rec);
	rwlock_unlock(&m->fs->names);
	return r;
}

/* --- bytes --- */

/* Wait while all nodes collect. */
static int refer(struct making *m, const struct cluster_run *runs)
{
	uint64_t until = monotonic_ns() + BUSY_WAIT_NS;
	int r;

	while ((r = engine_cluster_refer(m->fs->engine, runs, m->nr_runs, m->pieces, m->owner)) == -EAGAIN &&
	       monotonic_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = BUSY_STEP_NS }, NULL);
	return r == -EINVAL ? -EBADMSG : r; /* invalid chunk lengths */
}

static int refer_all(struct making *m)
{
	_cleanup_(freep) struct cluster_run *runs = calloc(RUNS_MAX, sizeof(*runs));
	size_t nr = 0;
	int r = runs ? 0 : -ENOMEM;

	for (; r == 0 && nr < m->nr_runs; nr += r == 0) {
		runs[nr] = (struct cluster_run){ .off = m->runs[nr].off, .nr = m->runs[nr].nr };
		r = content_open(m->fs->engine, m->runs[nr].ino, &runs[nr].c);
	}
	if (r == 0 && nr > 0)
		r = refer(m, runs);
	while (nr-- > 0)
		content_close(runs[nr].c);
	m->nr_runs = m->nr_pieces = 0;
	return r;
}

static int add_piece(struct making *m, const struct content_piece *p)
{
	struct run *run = m->nr_runs > 0 ? &m->runs[m->nr_runs - 1] : NULL;
	uint64_t at = m->at;
	bool goes_on = run && run->ino == m->last && run->end == at;
	int r;

	m->at += p->len;
	if (p->chunk_len == 0 && (!goes_on || p->len > HOLE_INSIDE))
		return 0; /* the size of the file implies it */
	if (m->nr_pieces == PIECES_MAX || (!goes_on && m->nr_runs == RUNS_MAX)) {
		r = refer_all(m);
		if (r < 0)
			return r;
		goes_on = false;
	}
	if (!goes_on) {
		run = &m->runs[m->nr_runs++];
		*run = (struct run){ m->last, at, at, 0 };
	}
	m->pieces[m->nr_pieces++] = *p;
	run->nr++;
	run->end = m->at;
	return 0;
}

static int take_pieces(struct making *m, const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece p;
	int r;

	while ((r = catalog_piece_next(&c, &p)) > 0) {
		r = add_piece(m, &p);
		if (r < 0)
			return r;
	}
	return r;
}

/* --- the catalog --- */

static int take_record(struct making *m, const struct catalog_record *rec)
{
	switch (rec->type) {
	case CATALOG_HEAD:
		return memcmp(rec->head.store, m->s->from.id, sizeof(rec->head.store)) == 0 &&
				       rec->head.ino == m->s->ino && rec->head.sealed_ns == m->s->sealed_ns ?
			       0 :
			       -EBADMSG;
	case CATALOG_INODE:
		return take_inode(m, rec);
	case CATALOG_LINK:
		return take_link(m, rec);
	case CATALOG_XATTR:
		return take_xattr(m, rec);
	case CATALOG_PIECES:
		return take_pieces(m, rec);
	case CATALOG_END:
		return refer_all(m);
	}
	return -EBADMSG;
}

/* Apply all complete records in `buf`; *len becomes the number of bytes left. */
static int take_records(struct making *m, struct catalog_reader *reader, uint8_t *buf, size_t *len)
{
	struct catalog_record rec;
	size_t at = 0, used;
	int r;

	while ((r = catalog_reader_next(reader, buf + at, *len - at, &used, &rec)) > 0) {
		r = take_record(m, &rec);
		if (r < 0)
			return r;
		at += used;
	}
	*len -= at;
	memmove(buf, buf + at, *len);
	return r;
}

static int take_catalog(struct making *m, const struct nodes_source *from)
{
	_cleanup_(freep) uint8_t *buf = malloc(READ_BYTES);
	struct catalog_reader reader = { 0 };
	size_t len = 0;
	ssize_t n = 1;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && n > 0) {
		n = from->read(from->userdata, buf + len, READ_BYTES - len);
		if (n < 0)
			return (int)n;
		len += (size_t)n;
		r = take_records(m, &reader, buf, &len);
	}
	return r < 0 ? r : reader.at_end ? 0 : -EBADMSG;
}

/* --- removing --- */

/* The directories of a replica, parents before children. */
struct leaving {
	struct fs *fs;
	struct left_dir {
		uint64_t ino, parent, cookie;
	} * dirs;
	size_t nr, room;
};

static int add_dir(struct leaving *l, uint64_t ino, uint64_t parent, uint64_t cookie)
{
	struct left_dir *dirs = reserve(l->dirs, l->nr, &l->room, sizeof(*dirs));

	if (!dirs)
		return -ENOMEM;
	l->dirs = dirs;
	l->dirs[l->nr++] = (struct left_dir){ ino, parent, cookie };
	return 0;
}

static int find_dirs(struct leaving *l, uint64_t top)
{
	int r = add_dir(l, top, top, 0);

	for (size_t i = 0; i < l->nr && r >= 0; i++) {
		_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
		uint64_t parent = l->dirs[i].ino;
		struct ns_dirent d;

		r = ns_readdir_open(l->fs->db, parent, 0, &it);
		while (r >= 0 && (r = ns_readdir_next(it, &d)) > 0)
			r = d.type == DT_DIR ? add_dir(l, d.ino, parent, d.cookie) : 0;
	}
	return MIN(r, 0);
}

/* Remove one name, of a file or of an empty directory. */
static int remove_name(struct fs *fs, uint64_t dir, uint64_t cookie, uint64_t ino) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int64_t now = (int64_t)now_ns();
	struct ns_inode in, above;
	int r = attr_load(fs, ino, &in);

	if (r > 0)
		r = attr_load(fs, dir, &above);
	if (r <= 0)
		return r < 0 ? r : log_errno(-EBADMSG, "inode %" PRIu64 ": has a name but no record", ino);
	if (dir == ino) {
		engine_tx_del(&tx, ns_key_replica(ino));
	} else {
		engine_tx_del(&tx, ns_key_dirent(dir, cookie));
		if (S_ISDIR(in.mode)) {
			above.nlink--;
			attr_store(fs, &tx, &above);
		}
	}
	r = names_drop(fs, &tx, &in, now);
	if (r == 0)
		r = fs_apply(fs, &tx);
	if (r < 0 && in.nlink == 0)
		inodes_set_orphan(fs->inodes, ino, false);
	return r;
}

static int remove_locked(struct fs *fs, uint64_t dir, uint64_t cookie, uint64_t ino)
{
	int r;

	rwlock_lock(&fs->names);
	r = remove_name(fs, dir, cookie, ino);
	rwlock_unlock(&fs->names);
	return r;
}

static bool is_open(struct fs *fs, uint64_t ino)
{
	struct inode *i = inode_find(fs->inodes, ino);
	bool yes = i && inode_content(fs->inodes, i);

	if (yes)
		inode_content_close(fs->inodes, i);
	names_put(fs, i);
	return yes;
}

static int empty_dir(struct fs *fs, uint64_t dir)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(fs->db, dir, 0, &it);

	while (r >= 0 && (r = ns_readdir_next(it, &d)) > 0) {
		r = remove_locked(fs, dir, d.cookie, d.ino);
		if (fs->copied_name_gone && is_open(fs, d.ino))
			fs->copied_name_gone(fs, dir, d.name);
	}
	return r;
}

/* Remove a partial replica. It is not reachable any more, except for users that had opened it while it was complete. */
static int remove_replica(struct fs *fs, uint64_t top, bool was_whole)
{
	struct leaving l = { .fs = fs };
	struct ns_replica c;
	bool is_shown = was_whole && fs->replica_gone && ns_get_replica(fs->db, top, &c) > 0;
	int r = find_dirs(&l, top);

	for (size_t i = l.nr; i-- > 0 && r == 0;) {
		r = empty_dir(fs, l.dirs[i].ino);
		if (r == 0)
			r = remove_locked(fs, l.dirs[i].parent, l.dirs[i].cookie, l.dirs[i].ino);
	}
	free(l.dirs);
	if (is_shown)
		fs->replica_gone(fs, &c);
	return r < 0 ? log_errno(r,
				 "directory %" PRIu64
				 ": cannot remove a replica; the next mount retries",
				 top) :
		       0;
}

/* --- operations --- */

static bool is_of(const struct ns_replica *c, const uint8_t *store, uint64_t ino)
{
	return memcmp(c->store, store, sizeof(c->store)) == 0 && c->ino == ino;
}

/* Tops of retired replicas, to be removed. */
struct outgoing {
	uint64_t *tops;
	size_t nr, room;
};

static void outgoing_release(struct outgoing *o)
{
	free(o->tops);
}

/* Add to the transaction that a complete replica becomes partial: invisible, and removed afterwards. */
static int retire(struct engine_tx *tx, uint64_t top, struct ns_replica *c, struct outgoing *ret)
{
	uint64_t *tops = reserve(ret->tops, ret->nr, &ret->room, sizeof(*tops));

	if (!tops)
		return -ENOMEM;
	ret->tops = tops;
	ret->tops[ret->nr++] = top;
	c->state = NS_REPLICA_PARTIAL;
	put_note(tx, top, c);
	return 0;
}

bool nodes_is_looked_at(struct fs *fs, uint64_t top)
{
	struct inode *i = inode_find(fs->inodes, top);

	if (i)
		inode_put(fs->inodes, i); /* no work left: read times of sealed inodes do not change */
	return i;
}

/*
 * Is an existing replica replaced by one that is now complete? A kept one only by another kept one: this node cannot
 * decide which of them its owner wants. A cached one by any that is not older; but one of the same seal stays if a kept
 * one arrives while users are in it (peer_list_trim() drops it later).
 */
static bool is_replaced(struct fs *fs, uint64_t top, const struct ns_replica *c, const struct ns_replica *to)
{
	if (c->state != NS_REPLICA_CACHED)
		return c->state == to->state;
	return c->sealed_ns < to->sealed_ns ||
	       (c->sealed_ns == to->sealed_ns && (to->state == NS_REPLICA_CACHED || !nodes_is_looked_at(fs, top)));
}

/* -EEXIST: the same seal is kept here. */
static int retire_older(struct fs *fs, struct engine_tx *tx, const struct ns_replica *to, struct outgoing *ret)
	REQUIRES(fs->names)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = ns_next_replica(fs->db, top, &top, &c)) > 0) {
		if (c.state == NS_REPLICA_PARTIAL || !is_of(&c, to->store, to->ino))
			continue;
		if (c.state == NS_REPLICA_KEPT && to->state == NS_REPLICA_CACHED && c.sealed_ns == to->sealed_ns)
			return -EEXIST;
		r = is_replaced(fs, top, &c, to) ? retire(tx, top, &c, ret) : 0;
		if (r < 0)
			return r;
	}
	return r;
}

static int show(struct making *m, struct outgoing *ret) REQUIRES(m->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	struct ns_replica note = m->note;
	int r;

	note.state = m->s->is_stripe ? NS_REPLICA_STRIPE : m->s->cached ? NS_REPLICA_CACHED : NS_REPLICA_KEPT;
	r = retire_older(m->fs, &tx, &note, ret);
	if (r < 0)
		return r;
	put_note(&tx, m->dirs[0].ino, &note);
	r = fs_apply(m->fs, &tx);
	if (r == 0)
		m->note.state = note.state;
	return r;
}

/* remove_replica() logs its failures; the replicas are not visible any more. */
static void remove_all(struct fs *fs, const struct outgoing *o)
{
	for (size_t i = 0; i < o->nr; i++)
		remove_replica(fs, o->tops[i], true);
}

static int complete_replica(struct making *m)
{
	_cleanup_(outgoing_release) struct outgoing older = { 0 };
	int r;

	rwlock_lock(&m->fs->names);
	r = show(m, &older);
	rwlock_unlock(&m->fs->names);
	if (r < 0)
		return r;
	r = engine_sync(m->fs->engine);
	if (r == 0)
		remove_all(m->fs, &older);
	return r;
}

static int fill_note(struct fs *fs, const struct nodes_seal *s, struct ns_replica *ret)
{
	size_t len = strnlen(s->from.name, sizeof(s->from.name));

	static_assert(NS_STORE_ID_LEN == CLUSTER_ID_LEN && sizeof(ret->name) == sizeof(s->from.name), "as they come");
	if ((memcmp(s->from.id, engine_store_id(fs->engine), CLUSTER_ID_LEN) == 0) != s->is_stripe ||
	    !ns_node_name_is_valid(s->from.name, len) || !ns_path_is_valid(s->path, strlen(s->path)))
		return -EINVAL;
	ret->state = NS_REPLICA_PARTIAL;
	memcpy(ret->store, s->from.id, sizeof(ret->store));
	ret->ino = s->ino;
	ret->sealed_ns = s->sealed_ns;
	memcpy(ret->name, s->from.name, len + 1);
	memcpy(ret->path, s->path, strlen(s->path) + 1);
	ret->slot = s->slot;
	ret->nr_slots = s->nr_slots;
	if (s->nr_slots > 0)
		memcpy(ret->sender, s->sender, sizeof(ret->sender));
	return 0;
}

int nodes_take(struct fs *fs, const struct nodes_seal *s, const struct nodes_source *catalog,
	       const struct cluster_node *owner, uint64_t *ret_top)
{
	static struct log_limit said;
	_cleanup_(making_release) struct making m = { .fs = fs, .s = s, .owner = owner };
	int r = fs->read_only ? -EROFS : fill_note(fs, s, &m.note);

	if (r < 0)
		return r;
	m.pieces = calloc(PIECES_MAX, sizeof(*m.pieces));
	m.runs = calloc(RUNS_MAX, sizeof(*m.runs));
	if (!m.pieces || !m.runs)
		return -ENOMEM;
	r = take_catalog(&m, catalog);
	if (r == 0)
		r = complete_replica(&m);
	if (r < 0 && m.nr_dirs > 0 && m.note.state == NS_REPLICA_PARTIAL)
		remove_replica(fs, m.dirs[0].ino, false);
	if (r == 0 && ret_top)
		*ret_top = m.dirs[0].ino;
	if (r == 0 && !s->is_stripe)
		log_limited(&said, LOG_LEVEL_INFO, "node %s, %s: replica with %zu directories and %zu files",
			    s->from.name, *s->path ? s->path : "/", m.nr_dirs, m.nr_files);
	return r;
}

static int retire_all(struct fs *fs, struct engine_tx *tx, const uint8_t *store, uint64_t ino, int64_t sealed_ns,
		      struct outgoing *ret) REQUIRES(fs->names)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = ns_next_replica(fs->db, top, &top, &c)) > 0) {
		if (c.state == NS_REPLICA_PARTIAL || !is_of(&c, store, ino) || c.sealed_ns > sealed_ns)
			continue;
		r = retire(tx, top, &c, ret);
		if (r < 0)
			return r;
	}
	return r;
}

static int retire_one(struct fs *fs, struct engine_tx *tx, uint64_t top, struct outgoing *ret) REQUIRES(fs->names)
{
	struct ns_replica c;
	int r = ns_get_replica(fs->db, top, &c);

	return r <= 0 || c.state == NS_REPLICA_PARTIAL ? MIN(r, 0) : retire(tx, top, &c, ret);
}

/* All replicas of directory `ino` of a store; store NULL: the one with top `ino`. */
static int drop_locked(struct fs *fs, const uint8_t *store, uint64_t ino, int64_t sealed_ns, struct outgoing *ret)
	REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int r = store ? retire_all(fs, &tx, store, ino, sealed_ns, ret) : retire_one(fs, &tx, ino, ret);

	return r < 0 || ret->nr == 0 ? r : fs_apply(fs, &tx);
}

static int drop_replica(struct fs *fs, const uint8_t *store, uint64_t ino, int64_t sealed_ns)
{
	_cleanup_(outgoing_release) struct outgoing old = { 0 };
	int r;

	if (fs->read_only)
		return -EROFS;
	rwlock_lock(&fs->names);
	r = drop_locked(fs, store, ino, sealed_ns, &old);
	rwlock_unlock(&fs->names);
	if (r < 0 || old.nr == 0)
		return r;
	r = engine_sync(fs->engine);
	remove_all(fs, &old);
	return r;
}

int nodes_drop(struct fs *fs, const struct nodes_origin *from, uint64_t ino, int64_t sealed_ns)
{
	return drop_replica(fs, from->id, ino, sealed_ns);
}

int nodes_drop_replica(struct fs *fs, uint64_t top)
{
	return drop_replica(fs, NULL, top, INT64_MAX);
}

int nodes_next(struct fs *fs, uint64_t after, uint64_t *ret_top, struct ns_replica *ret)
{
	int r;

	while ((r = ns_next_replica(fs->db, after, &after, ret)) > 0 &&
	       (ret->state == NS_REPLICA_PARTIAL || ret->state == NS_REPLICA_STRIPE))
		;
	if (r > 0)
		*ret_top = after;
	return r;
}

int nodes_next_stripe(struct fs *fs, uint64_t after, uint64_t *ret_top, struct ns_replica *ret)
{
	int r;

	while ((r = ns_next_replica(fs->db, after, &after, ret)) > 0 && ret->state != NS_REPLICA_STRIPE)
		;
	if (r > 0)
		*ret_top = after;
	return r;
}

static int set_slots(struct fs *fs, uint64_t top, uint8_t slot, uint8_t nr_slots, const uint8_t *sender)
	REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	struct ns_replica c;
	int r = ns_get_replica(fs->db, top, &c);

	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	c.slot = slot;
	c.nr_slots = nr_slots;
	memcpy(c.sender, sender, sizeof(c.sender));
	put_note(&tx, top, &c);
	return fs_apply(fs, &tx);
}

int nodes_set_slots(struct fs *fs, uint64_t top, uint8_t slot, uint8_t nr_slots, const uint8_t sender[CLUSTER_ID_LEN])
{
	int r;

	rwlock_lock(&fs->names);
	r = set_slots(fs, top, slot, nr_slots, sender);
	rwlock_unlock(&fs->names);
	return r;
}

static int set_access(struct fs *fs, struct ns_inode *in, uint32_t access) REQUIRES(fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	int r = 0;

	in->mode = (in->mode & ~CATALOG_ACCESS) | access;
	if (in->flags & INODE_HAS_XATTRS)
		r = xattr_acl_chmod(fs, &tx, in);
	if (r < 0)
		return r;
	attr_store(fs, &tx, in);
	return fs_apply(fs, &tx);
}

int nodes_set_access(struct fs *fs, uint64_t top, uint32_t access)
{
	struct ns_inode in;
	int r;

	rwlock_lock_shared(&fs->names);
	r = attr_load(fs, top, &in);
	rwlock_unlock_shared(&fs->names);
	if (r <= 0 || (in.mode & CATALOG_ACCESS) == access)
		return MIN(r, 0);
	if (fs->read_only)
		return -EROFS;
	rwlock_lock(&fs->names);
	r = attr_load(fs, top, &in); /* it may have been removed meanwhile */
	if (r > 0)
		r = set_access(fs, &in, access);
	rwlock_unlock(&fs->names);
	return r;
}

int nodes_clear(struct fs *fs)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r, nr = 0;

	while ((r = ns_next_replica(fs->db, top, &top, &c)) > 0)
		if (c.state == NS_REPLICA_PARTIAL) {
			r = remove_replica(fs, top, false);
			if (r < 0)
				return r;
			nr++;
		}
	if (nr > 0)
		log_info("store: removed %d incomplete replicas", nr);
	return r;
}
