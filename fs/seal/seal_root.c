/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * All directories are listed first, parents before children, and digested from the last to the first. The
 * subdirectories of a directory then already have their digests, and no recursion is needed. Subdirectories of one
 * directory are adjacent in the list, in the order in which its names are read; that order is the same in both passes
 * because nothing changes.
 */
#include "fs/seal/seal_root.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/fs.h"
#include "fs/seal/seal.h"

#define PIECES_AT_ONCE 256u

struct directory {
	uint64_t ino;
	size_t first; /* index of its first subdirectory */
	struct sha256_digest digest;
};

struct rooting {
	struct fs *fs;
	struct directory *dirs;
	size_t nr_dirs, room;
	struct buf names; /* digests of the names in one directory */
	struct buf scratch;
	struct content_piece pieces[PIECES_AT_ONCE];
};

static void rooting_free(struct rooting **t)
{
	if (!*t)
		return;
	free((*t)->dirs);
	buf_release(&(*t)->names);
	buf_release(&(*t)->scratch);
	free(*t);
}

static void begin_digest(struct sha256 *h, const char *what)
{
	sha256_init(h);
	sha256_add(h, what, strlen(what) + 1);
}

/* --- content --- */

static void add_piece(struct sha256 *h, const struct content_piece *p)
{
	uint8_t fp[FP_LEN];

	if (p->len == 0)
		return;
	fp_encode(p->fp, fp);
	sha256_add_le64(h, p->len);
	sha256_add_le32(h, p->chunk_len);
	sha256_add_le32(h, p->from);
	sha256_add(h, fp, sizeof(fp));
}

/* A hole, or a part of a chunk, may be returned as one piece or as two adjacent ones. */
static bool continues(const struct content_piece *a, const struct content_piece *b)
{
	return a->chunk_len == b->chunk_len && fp_equal(a->fp, b->fp) &&
	       (a->chunk_len == 0 || a->from + a->len == b->from);
}

static int add_pieces(struct rooting *t, struct content *c, struct sha256 *h)
{
	struct content_piece last = { 0 };
	uint64_t off = 0;
	int nr;

	while ((nr = cancel_check()) == 0 && (nr = content_pieces(c, off, t->pieces, PIECES_AT_ONCE)) > 0)
		for (int i = 0; i < nr; i++) {
			const struct content_piece *p = &t->pieces[i];

			off += p->len;
			if (last.len > 0 && continues(&last, p)) {
				last.len += p->len;
				continue;
			}
			add_piece(h, &last);
			last = *p;
		}
	add_piece(h, &last);
	return nr;
}

static int digest_content(struct rooting *t, uint64_t ino, struct sha256_digest *ret)
{
	struct content *c;
	struct sha256 h;
	int r = content_open(t->fs->engine, ino, &c);

	if (r < 0)
		return r;
	begin_digest(&h, "ckptfs content");
	sha256_add(&h, t->fs->key->veil, sizeof(t->fs->key->veil));
	r = add_pieces(t, c, &h);
	content_close(c);
	*ret = sha256_finish(&h);
	return r;
}

static int digest_target(struct rooting *t, uint64_t ino, struct sha256_digest *ret)
{
	struct sha256 h;
	int r;

	buf_clear(&t->scratch);
	r = ns_get_symlink(t->fs->db, ino, &t->scratch);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	begin_digest(&h, "ckptfs target");
	sha256_add(&h, t->scratch.data, t->scratch.len);
	*ret = sha256_finish(&h);
	return 0;
}

/* --- attributes --- */

static int add_xattrs(struct rooting *t, const struct ns_inode *in, struct sha256 *h)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	int r = in->flags & INODE_HAS_XATTRS ? ns_list_xattrs(t->fs->db, in->ino, &names) : 0;
	const char *name;

	for (size_t at = 0; r >= 0 && at < names.len; at += strlen(name) + 1) {
		name = (const char *)names.data + at;
		buf_clear(&t->scratch);
		r = ns_get_xattr(t->fs->db, in->ino, name, &t->scratch);
		if (r == 0)
			return -ESTALE;
		sha256_add_le32(h, (uint32_t)strlen(name));
		sha256_add(h, name, strlen(name));
		sha256_add_le32(h, (uint32_t)t->scratch.len);
		sha256_add(h, t->scratch.data, t->scratch.len);
	}
	return MIN(r, 0);
}

/* `held`: digest of the entries of a directory; else NULL. */
static int digest_inode(struct rooting *t, const struct ns_inode *in, const struct sha256_digest *held,
			struct sha256_digest *ret)
{
	struct sha256_digest inner = { 0 };
	struct ns_content c = { 0 };
	struct sha256 h;
	int r = 0;

	if (held)
		inner = *held;
	else if (S_ISLNK(in->mode))
		r = digest_target(t, in->ino, &inner);
	else if (S_ISREG(in->mode))
		r = digest_content(t, in->ino, &inner);
	if (r == 0 && S_ISREG(in->mode))
		r = content_peek(t->fs->engine, in->ino, &c);
	if (r < 0)
		return r;
	begin_digest(&h, "ckptfs inode");
	sha256_add_le32(&h, in->mode);
	sha256_add_le32(&h, in->uid);
	sha256_add_le32(&h, in->gid);
	sha256_add_le64(&h, (uint64_t)attr_mtime(in, &c));
	sha256_add_le64(&h, in->rdev);
	sha256_add_le64(&h, c.size);
	sha256_add(&h, inner.b, sizeof(inner.b));
	r = add_xattrs(t, in, &h);
	*ret = sha256_finish(&h);
	return r;
}

/* --- names --- */

static int add_name(struct rooting *t, const struct ns_dirent *d, size_t *next)
{
	const struct sha256_digest *held = NULL;
	struct sha256_digest digest;
	struct ns_inode in;
	struct sha256 h;
	int r = attr_load(t->fs, d->ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	if (S_ISDIR(in.mode)) {
		if (*next >= t->nr_dirs || t->dirs[*next].ino != d->ino)
			return -ESTALE;
		held = &t->dirs[(*next)++].digest;
	}
	r = digest_inode(t, &in, held, &digest);
	if (r < 0)
		return r;
	begin_digest(&h, "ckptfs name");
	sha256_add_le32(&h, d->name_len);
	sha256_add(&h, d->name, d->name_len);
	sha256_add(&h, digest.b, sizeof(digest.b));
	digest = sha256_finish(&h);
	buf_add(&t->names, digest.b, sizeof(digest.b));
	return buf_error(&t->names);
}

static int compare_digests(const void *a, const void *b)
{
	return memcmp(a, b, SHA256_LEN);
}

/* The order of names carries no meaning, so their digests are sorted. */
static int digest_names(struct rooting *t, struct directory *dir)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	size_t next = dir->first;
	struct ns_dirent d;
	struct sha256 h;
	int r = ns_readdir_open(t->fs->db, dir->ino, 0, &it);

	buf_clear(&t->names);
	while (r >= 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0)
		r = add_name(t, &d, &next);
	if (r < 0)
		return r;
	if (t->names.len > 0)
		qsort(t->names.data, t->names.len / SHA256_LEN, SHA256_LEN, compare_digests);
	begin_digest(&h, "ckptfs directory");
	sha256_add(&h, t->names.data, t->names.len);
	dir->digest = sha256_finish(&h);
	return 0;
}

/* --- directories --- */

static int add_directory(struct rooting *t, uint64_t ino)
{
	if (t->nr_dirs == SEAL_INODES_MAX)
		return -ESTALE;
	if (t->nr_dirs == t->room) {
		size_t room = MAX(2 * t->room, (size_t)64);
		struct directory *more = reallocarray(t->dirs, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->dirs = more;
		t->room = room;
	}
	t->dirs[t->nr_dirs++] = (struct directory){ .ino = ino };
	return 0;
}

static int find_directories(struct rooting *t, uint64_t top)
{
	int r = add_directory(t, top);

	for (size_t i = 0; i < t->nr_dirs && r >= 0; i++) {
		_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
		struct ns_dirent d;

		t->dirs[i].first = t->nr_dirs;
		r = ns_readdir_open(t->fs->db, t->dirs[i].ino, 0, &it);
		while (r >= 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0)
			r = d.type == DT_DIR ? add_directory(t, d.ino) : 0;
	}
	return r;
}

int seal_root(struct fs *fs, uint64_t dir, struct sha256_digest *ret)
{
	_cleanup_(rooting_free) struct rooting *t = calloc(1, sizeof(*t));
	struct ns_inode top;
	int r;

	if (!t)
		return -ENOMEM;
	t->fs = fs;
	r = find_directories(t, dir);
	for (size_t i = t->nr_dirs; i-- > 0 && r >= 0;)
		r = digest_names(t, &t->dirs[i]);
	if (r < 0)
		return r;
	r = attr_load(fs, dir, &top);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	return digest_inode(t, &top, &t->dirs[0].digest, ret);
}
