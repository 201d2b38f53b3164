/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A sealed directory does not change, so its catalog is generated without a lock: each name and inode as it is in the
 * view. If the directory is unsealed meanwhile, its seal record is gone or has another time, which is checked at the
 * end.
 *
 * Directories above it are not part of the catalog, and other nodes let every user pass in their place. So the catalog
 * contains the top with fewer permissions if these directories are not searchable by all users here: what is
 * unreachable on its own node is unreadable on other nodes. Their permissions may change later: other nodes query them
 * with every listing (mpi-agent/daemon/nodes/peer_list.h).
 */
#include "fs/seal/seal_catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/posix/acl.h"
#include "fs/posix/attr.h"
#include "fs/fs.h"
#include "store/catalog/catalog_format.h"

#define PUT_BYTES MiB(1)
#define PIECES_AT_ONCE 1023u
#define PIECES_ENOUGH 768 /* a segment of pages has 256 */
#define BYTES_ENOUGH MiB(3) /* a segment has 1 MiB */
static_assert(PIECES_AT_ONCE < CATALOG_PIECES_MAX, "with one that was kept, of a record");

/* Numbers of the files with several names, by inode. */
struct twins {
	struct twin {
		uint64_t ino, file; /* ino 0: free */
	} * v;
	size_t nr, size; /* a power of two, at most half full */
};

struct encoding {
	struct fs *fs;
	const struct catalog_sink *to;
	catalog_located_fn *located; /* NULL: not wanted */
	struct catalog_writer w;
	struct buf out, scratch;
	uint64_t *dirs; /* indexed by number */
	size_t nr_dirs, room;
	uint64_t nr_files;
	struct twins twins;
	bool narrowed; /* permissions of the top were removed, so its access list is limited to its mode */
};

static void encoding_release(struct encoding *t)
{
	buf_release(&t->out);
	buf_release(&t->scratch);
	free(t->dirs);
	free(t->twins.v);
}

static struct twin *twin_of(struct twins *t, uint64_t ino)
{
	size_t at = (size_t)(ino * UINT64_C(0x9e3779b97f4a7c15)) & (t->size - 1);

	while (t->v[at].ino != 0 && t->v[at].ino != ino)
		at = (at + 1) & (t->size - 1);
	return &t->v[at];
}

static int twins_reserve(struct twins *t)
{
	struct twins more = { .size = MAX(2 * t->size, (size_t)64) };

	if (t->size > 0 && 2 * (t->nr + 1) <= t->size)
		return 0;
	more.v = calloc(more.size, sizeof(*more.v));
	if (!more.v)
		return -ENOMEM;
	for (size_t i = 0; i < t->size; i++)
		if (t->v[i].ino != 0)
			*twin_of(&more, t->v[i].ino) = t->v[i];
	more.nr = t->nr;
	free(t->v);
	*t = more;
	return 0;
}

static int add_dir(struct encoding *t, uint64_t ino)
{
	if (t->nr_dirs == t->room) {
		size_t room = MAX(2 * t->room, (size_t)64);
		uint64_t *more = reallocarray(t->dirs, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->dirs = more;
		t->room = room;
	}
	t->dirs[t->nr_dirs++] = ino;
	return 0;
}

static int put_pending(struct encoding *t, size_t at_least)
{
	int r = buf_error(&t->out);

	if (r < 0 || t->out.len < at_least || t->out.len == 0)
		return r;
	r = t->to->put(t->to->userdata, t->out.data, t->out.len);
	buf_clear(&t->out);
	return r;
}

static int add_record(struct encoding *t, const struct catalog_record *rec)
{
	catalog_record_encode(&t->w, rec, &t->out);
	return put_pending(t, PUT_BYTES);
}

static int add_xattr(struct encoding *t, const struct ns_inode *in, const char *name)
{
	struct catalog_record rec = { .type = CATALOG_XATTR };
	int r;

	buf_clear(&t->scratch);
	r = ns_get_xattr(t->fs->db, in->ino, name, &t->scratch);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	if (t->narrowed && t->nr_dirs == 0 && strcmp(name, ACL_ACCESS_NAME) == 0) {
		if (acl_check(t->scratch.data, t->scratch.len) < 0)
			return log_errno(-EBADMSG, "inode %" PRIu64 ": its access list is damaged", in->ino);
		acl_chmod(t->scratch.data, t->scratch.len, in->mode);
	}
	memcpy(rec.name, name, strlen(name) + 1);
	rec.data = t->scratch.data;
	rec.len = t->scratch.len;
	return add_record(t, &rec);
}

static int encode_xattrs(struct encoding *t, const struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = 0;

	if (!(in->flags & INODE_HAS_XATTRS))
		return 0;
	r = ns_list_xattrs(t->fs->db, in->ino, &names);
	for (size_t at = 0; r >= 0 && at < names.len; at += strlen((const char *)names.data + at) + 1)
		r = add_xattr(t, in, (const char *)names.data + at);
	return MIN(r, 0);
}

/* Write one record with the pieces in scratch. */
static int encode_scratch(struct encoding *t)
{
	struct catalog_record rec = { .type = CATALOG_PIECES, .data = t->scratch.data, .len = t->scratch.len };
	int r = buf_error(&t->scratch);

	return r < 0 ? r : rec.len > 0 ? add_record(t, &rec) : 0;
}

/* The same for pieces of `c`, which it has in the order of `p`. */
static int encode_located(struct encoding *t, struct content *c, uint64_t off, const struct content_piece *p, int nr)
{
	int r = t->located ? put_pending(t, 0) : 0;

	if (r < 0)
		return r;
	if (t->located)
		t->located(t->to->userdata, c, off, p, (size_t)nr);
	r = encode_scratch(t);
	return r == 0 && t->located ? put_pending(t, 0) : r;
}

/* Holes are returned in parts of 1 MiB and written as one piece. */
static int encode_some(struct encoding *t, struct content *c, uint64_t off, const struct content_piece *p, int nr,
		       uint64_t *hole)
{
	buf_clear(&t->scratch);
	for (int i = 0; i < nr; i++) {
		if (p[i].chunk_len == 0) {
			*hole += p[i].len;
			continue;
		}
		if (*hole > 0)
			catalog_piece_encode(&(struct content_piece){ .len = *hole }, &t->scratch);
		*hole = 0;
		catalog_piece_encode(&p[i], &t->scratch);
	}
	return encode_located(t, c, off, p, nr);
}

/* Pieces of a record: of several segments, since a flush to a tier waits once for each record. 0: the end. */
static int list_pieces(struct content *c, uint64_t off, struct content_piece *ret)
{
	uint64_t bytes = 0;
	int nr = 0, r;

	do {
		r = content_pieces(c, off, ret + nr, PIECES_AT_ONCE - (size_t)nr);
		if (r < 0)
			return r;
		for (int end = nr + r; nr < end; nr++) {
			off += ret[nr].len;
			bytes += ret[nr].chunk_len;
		}
	} while (r > 0 && nr < PIECES_ENOUGH && bytes < BYTES_ENOUGH);
	return nr;
}

static int encode_pieces(struct encoding *t, struct content *c)
{
	_cleanup_(freep) struct content_piece *p = calloc(PIECES_AT_ONCE, sizeof(*p));
	uint64_t off = 0, hole = 0;
	int r = p ? 0 : -ENOMEM, nr = 1;

	while (r == 0 && nr > 0) {
		r = nr = list_pieces(c, off, p);
		if (r >= 0)
			r = encode_some(t, c, off, p, nr, &hole);
		for (int i = 0; i < nr; i++)
			off += p[i].len;
	}
	if (r < 0 || hole == 0)
		return r;
	buf_clear(&t->scratch);
	catalog_piece_encode(&(struct content_piece){ .len = hole }, &t->scratch);
	return encode_scratch(t);
}

static int encode_content(struct encoding *t, const struct ns_inode *in)
{
	struct content *c;
	int r;

	if (!S_ISREG(in->mode))
		return 0;
	r = content_open(t->fs->engine, in->ino, &c);
	if (r < 0)
		return r;
	r = encode_pieces(t, c);
	content_close(c);
	return r;
}

/* Attributes as shown by stat(2): times of a file come from its content where newer. */
static int fill_attributes(struct encoding *t, const struct ns_inode *in, struct catalog_record *rec)
{
	struct ns_content c = { 0 };
	int r = 1;

	rec->in = *in;
	buf_clear(&t->scratch);
	if (S_ISLNK(in->mode))
		r = ns_get_symlink(t->fs->db, in->ino, &t->scratch);
	rec->data = t->scratch.data;
	rec->len = t->scratch.len;
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	if (!S_ISREG(in->mode))
		return 0;
	r = content_peek(t->fs->engine, in->ino, &c);
	rec->size = c.size;
	rec->in.mtime_ns = attr_mtime(in, &c);
	rec->in.ctime_ns = attr_ctime(in, &c);
	return r;
}

static int encode_inode(struct encoding *t, uint64_t dir, const char *name, const struct ns_inode *in)
{
	struct catalog_record rec = { .type = CATALOG_INODE, .dir = dir };
	int r = fill_attributes(t, in, &rec);

	memcpy(rec.name, name, strlen(name) + 1);
	if (r == 0)
		r = add_record(t, &rec);
	if (r == 0)
		r = encode_xattrs(t, in);
	if (r == 0)
		r = encode_content(t, in);
	if (r < 0)
		return r;
	if (S_ISDIR(in->mode))
		return add_dir(t, in->ino);
	t->nr_files++;
	return 0;
}

/* 1: the file was written before, and a LINK record for this name was added. */
static int encode_link(struct encoding *t, uint64_t dir, const char *name, const struct ns_inode *in)
{
	struct catalog_record rec = { .type = CATALOG_LINK, .dir = dir };
	struct twin *twin;
	int r = twins_reserve(&t->twins);

	if (r < 0)
		return r;
	twin = twin_of(&t->twins, in->ino);
	if (twin->ino == 0) {
		*twin = (struct twin){ in->ino, t->nr_files };
		t->twins.nr++;
		return 0;
	}
	rec.file = twin->file;
	memcpy(rec.name, name, strlen(name) + 1);
	r = add_record(t, &rec);
	return r < 0 ? r : 1;
}

static int encode_name(struct encoding *t, uint64_t dir, const struct ns_dirent *d)
{
	struct ns_inode in;
	int r = attr_load(t->fs, d->ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	r = !S_ISDIR(in.mode) && in.nlink > 1 ? encode_link(t, dir, d->name, &in) : 0;
	return r != 0 ? MIN(r, 0) : encode_inode(t, dir, d->name, &in);
}

static int encode_names(struct encoding *t, uint64_t dir)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(t->fs->db, t->dirs[dir], 0, &it);

	while (r >= 0 && (r = ns_readdir_next(it, &d)) > 0)
		r = encode_name(t, dir, &d);
	return r;
}

static int encode_all(struct encoding *t, const struct ns_inode *top, const struct catalog_head *head)
{
	int r;

	catalog_head_encode(head, &t->out);
	r = encode_inode(t, 0, "", top);
	for (uint64_t i = 0; r == 0 && i < t->nr_dirs; i++)
		r = encode_names(t, i);
	if (r < 0)
		return r;
	catalog_end_encode(&t->w, &t->out);
	return put_pending(t, 0);
}

/* Identity of a directory: of this store, or a replica. 1/0/<0. */
static int find_head(struct fs *fs, uint64_t dir, struct catalog_head *ret)
{
	struct ns_replica replica;
	struct ns_seal seal;
	int r = ns_get_seal(fs->db, dir, &seal);

	if (r != 0) {
		ret->ino = dir;
		ret->sealed_ns = r > 0 ? seal.sealed_ns : 0;
		memcpy(ret->store, engine_store_id(fs->engine), sizeof(ret->store));
		return r > 0 && !seal.is_complete ? 0 : r;
	}
	r = ns_get_replica(fs->db, dir, &replica);
	if (r <= 0 || replica.state == NS_REPLICA_PARTIAL)
		return MIN(r, 0);
	*ret = (struct catalog_head){ .ino = replica.ino, .sealed_ns = replica.sealed_ns };
	memcpy(ret->store, replica.store, sizeof(ret->store));
	return 1;
}

/* 1/0/<0 */
static int has_access_list(struct fs *fs, const struct ns_inode *in)
{
	_cleanup_(buf_release) struct buf list = BUF_EMPTY;

	return in->flags & INODE_HAS_XATTRS ? ns_get_xattr(fs->db, in->ino, ACL_ACCESS_NAME, &list) : 0;
}

/*
 * Remove permissions of `top` from classes that cannot pass through `above`; an access list on `above` removes both.
 * 1/<0
 */
static int consume(struct fs *fs, const struct ns_inode *above, struct ns_inode *top)
{
	bool group = above->gid == top->gid ? above->mode & S_IXGRP :
					      (above->mode & (S_IXGRP | S_IXOTH)) == (S_IXGRP | S_IXOTH);
	int r = has_access_list(fs, above);

	if (r < 0)
		return r;
	if (r > 0 || !group)
		top->mode &= ~(uint32_t)S_IRWXG;
	if (r > 0 || (above->mode & (S_IXGRP | S_IXOTH)) != (S_IXGRP | S_IXOTH))
		top->mode &= ~(uint32_t)S_IRWXO;
	return 1;
}

/*
 * The owner keeps all permissions. If any were removed and the top has an access list, the group class is removed too:
 * users named in the list may not be able to pass.
 */
static int narrow(struct fs *fs, struct ns_inode *top)
{
	struct ns_inode above = *top;
	uint32_t mode = top->mode;
	int r = 1;

	rwlock_lock_shared(&fs->names);
	while (r > 0 && above.ino != NS_ROOT_INO) {
		r = attr_load(fs, above.parent, &above);
		if (r > 0)
			r = consume(fs, &above, top);
	}
	rwlock_unlock_shared(&fs->names);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	r = top->mode != mode ? has_access_list(fs, top) : 0;
	if (r > 0)
		top->mode &= ~(uint32_t)S_IRWXG;
	return MIN(r, 0);
}

int catalog_access(struct fs *fs, uint64_t dir, uint32_t *ret)
{
	struct ns_inode top;
	int r = attr_load(fs, dir, &top);

	r = r > 0 ? narrow(fs, &top) : r < 0 ? r : -ESTALE;
	if (r == 0)
		*ret = top.mode & CATALOG_ACCESS;
	return r;
}

int catalog_write(struct fs *fs, uint64_t dir, const struct catalog_sink *to)
{
	return catalog_write_located(fs, dir, to, NULL);
}

int catalog_write_located(struct fs *fs, uint64_t dir, const struct catalog_sink *to, catalog_located_fn *located)
{
	_cleanup_(encoding_release) struct encoding t = { .fs = fs, .to = to, .located = located };
	struct catalog_head head = { 0 }, then = { 0 };
	struct ns_inode top;
	uint32_t mode;
	int r = find_head(fs, dir, &head);

	if (r > 0)
		r = attr_load(fs, dir, &top);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	mode = top.mode;
	r = memcmp(head.store, engine_store_id(fs->engine), sizeof(head.store)) == 0 ? narrow(fs, &top) : 0;
	t.narrowed = top.mode != mode;
	if (r == 0)
		r = encode_all(&t, &top, &head);
	if (find_head(fs, dir, &then) <= 0 || then.sealed_ns != head.sealed_ns)
		return -ESTALE;
	return r;
}
