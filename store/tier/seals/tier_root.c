/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * As fs/seal/seal_root.c does for a store. A directory has a higher number than its parent, so directories are digested
 * from the last to the first.
 *
 * The catalog may have fewer permissions of group and others for the top directory than the seal, if directories above
 * it restricted access (fs/seal/seal_catalog.c). The root covers the original permissions. There are at most 64
 * possibilities, which are all tried.
 */
#include "store/tier/seals/tier_root.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "store/tier/reading/tier_cache.h"
#include "store/tier/reading/tier_tree.h"

struct root_state {
	const struct tier_tree *tree;
	struct tier_source *source;
	const struct tier_waiter *w;
	struct sha256_digest *digests; /* of the entries of each directory, by inode */
	struct buf names; /* digests of the names in one directory */
	uint32_t pack; /* number of the pack with `tables`, plus 1; 0: none */
	const struct tier_tables *tables;
};

struct piece {
	uint64_t len;
	uint32_t chunk_len, from; /* chunk_len 0: a hole */
	struct fp fp;
};

static void begin_digest(struct sha256 *h, const char *what)
{
	sha256_init(h);
	sha256_add(h, what, strlen(what) + 1);
}

/* --- content --- */

static void release_tables(struct root_state *t)
{
	if (t->pack > 0)
		tier_source_tables_put(t->source, t->pack - 1);
	t->pack = 0;
}

static int switch_tables(struct root_state *t, uint32_t pack)
{
	int r;

	if (t->pack == pack)
		return 0;
	release_tables(t);
	r = tier_source_tables(t->source, pack - 1, t->w, &t->tables);
	if (r == 0)
		t->pack = pack;
	return r;
}

static void add_piece(struct sha256 *h, const struct piece *p)
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

/* Merges adjacent holes and adjacent parts of a chunk into one piece. */
static void next_piece(struct sha256 *h, struct piece *last, const struct piece *p)
{
	if (last->len > 0 && last->chunk_len == p->chunk_len && fp_equal(last->fp, p->fp) &&
	    (p->chunk_len == 0 || last->from + last->len == p->from)) {
		last->len += p->len;
		return;
	}
	add_piece(h, last);
	*last = *p;
}

static int add_chunks(struct root_state *t, const struct tier_run *run, struct sha256 *h, struct piece *last)
{
	int r = switch_tables(t, run->pack);

	for (uint32_t i = 0; i < MAX(run->nr, 1u) && r == 0; i++) {
		uint32_t in = 0;
		const struct tier_frame *f = tier_tables_find(t->tables, run->first + i, &in);
		struct pack_cuts cuts;
		struct piece p;

		if (!f)
			return -EBADMSG;
		cuts = pack_table_cuts(&f->table);
		p = (struct piece){ .chunk_len = pack_cut_len(&cuts, in), .fp = f->table.fps[in] };
		p.len = run->nr > 0 ? p.chunk_len : run->len;
		p.from = run->nr > 0 ? 0 : run->from;
		next_piece(h, last, &p);
	}
	return r;
}

static int digest_content(struct root_state *t, uint32_t inode, struct sha256_digest *ret)
{
	const struct fp_key *key = tier_source_key(t->source);
	struct tier_runs it = tier_runs_from(t->tree, inode, 0);
	struct piece last = { 0 };
	struct tier_run run;
	struct sha256 h;
	uint64_t at;
	int r = 0;

	begin_digest(&h, "ckptfs content");
	sha256_add(&h, key->veil, sizeof(key->veil));
	while (r == 0 && tier_runs_next(&it, &run, &at)) {
		if (t->w->is_interrupted && t->w->is_interrupted(t->w->userdata))
			return -EINTR;
		if (run.pack > 0)
			r = add_chunks(t, &run, &h, &last);
		else
			next_piece(&h, &last, &(struct piece){ .len = run.len });
	}
	add_piece(&h, &last);
	*ret = sha256_finish(&h);
	return r;
}

/* --- inodes --- */

#define ACL_NAME "system.posix_acl_access"
#define ACL_GROUP_OBJ 0x04
#define ACL_MASK 0x10
#define ACL_OTHER 0x20
#define ACL_HEAD 4u
#define ACL_ENTRY 8u

/* Digests an access list, with the permissions of `mode` for group and others. */
static void add_acl(const struct tier_xattr *x, uint32_t mode, struct sha256 *h)
{
	bool has_mask = false;

	for (size_t at = ACL_HEAD; at + ACL_ENTRY <= x->len; at += ACL_ENTRY)
		has_mask |= x->value[at] == ACL_MASK;
	sha256_add(h, x->value, MIN(x->len, ACL_HEAD));
	for (size_t at = ACL_HEAD; at + ACL_ENTRY <= x->len; at += ACL_ENTRY) {
		uint8_t entry[ACL_ENTRY];

		memcpy(entry, x->value + at, sizeof(entry));
		if (entry[0] == (has_mask ? ACL_MASK : ACL_GROUP_OBJ))
			entry[2] = mode >> 3 & 7;
		else if (entry[0] == ACL_OTHER)
			entry[2] = mode & 7;
		sha256_add(h, entry, sizeof(entry));
	}
}

static void add_xattrs(struct root_state *t, const struct tier_inode *in, uint32_t mode, struct sha256 *h)
{
	const struct tier_tree *tree = t->tree;

	for (uint32_t i = in->first_xattr; i < in->first_xattr + in->nr_xattrs; i++) {
		const struct tier_xattr *x = &tree->xattrs[i];
		const char *name = tier_tree_name(tree, x->name);

		sha256_add_le32(h, (uint32_t)strlen(name));
		sha256_add(h, name, strlen(name));
		sha256_add_le32(h, x->len);
		if (mode != in->mode && strcmp(name, ACL_NAME) == 0)
			add_acl(x, mode, h);
		else
			sha256_add(h, x->value, x->len);
	}
}

/* Digests an inode with `mode` in place of its mode. */
static int digest_inode_as(struct root_state *t, uint32_t inode, uint32_t mode, struct sha256_digest *ret)
{
	const struct tier_inode *in = &t->tree->inodes[inode];
	struct sha256_digest inner = { 0 };
	struct sha256 h;
	int r = 0;

	if (S_ISDIR(in->mode)) {
		inner = t->digests[inode];
	} else if (S_ISLNK(in->mode)) {
		begin_digest(&h, "ckptfs target");
		sha256_add(&h, in->target, in->size);
		inner = sha256_finish(&h);
	} else if (S_ISREG(in->mode)) {
		r = digest_content(t, inode, &inner);
	}
	if (r < 0)
		return r;
	begin_digest(&h, "ckptfs inode");
	sha256_add_le32(&h, mode);
	sha256_add_le32(&h, in->uid);
	sha256_add_le32(&h, in->gid);
	sha256_add_le64(&h, (uint64_t)in->mtime_ns);
	sha256_add_le64(&h, in->rdev);
	sha256_add_le64(&h, S_ISREG(in->mode) ? in->size : 0);
	sha256_add(&h, inner.b, sizeof(inner.b));
	add_xattrs(t, in, mode, &h);
	*ret = sha256_finish(&h);
	return 0;
}

static int digest_inode(struct root_state *t, uint32_t inode, struct sha256_digest *ret)
{
	return digest_inode_as(t, inode, t->tree->inodes[inode].mode, ret);
}

static int compare_digests(const void *a, const void *b)
{
	return memcmp(a, b, SHA256_LEN);
}

static int digest_directory(struct root_state *t, uint32_t dir)
{
	const struct tier_tree *tree = t->tree;
	const struct tier_inode *in = &tree->inodes[dir];
	struct sha256 h;
	int r = 0;

	buf_clear(&t->names);
	for (uint32_t i = in->first; i < in->first + in->nr && r == 0; i++) {
		const char *name = tier_tree_name(tree, tree->entries[i].name);
		struct sha256_digest digest;

		r = digest_inode(t, tree->entries[i].inode, &digest);
		begin_digest(&h, "ckptfs name");
		sha256_add_le32(&h, (uint32_t)strlen(name));
		sha256_add(&h, name, strlen(name));
		sha256_add(&h, digest.b, sizeof(digest.b));
		digest = sha256_finish(&h);
		buf_add(&t->names, digest.b, sizeof(digest.b));
	}
	if (r == 0)
		r = buf_error(&t->names);
	if (r < 0)
		return r;
	if (t->names.len > 0)
		qsort(t->names.data, t->names.len / SHA256_LEN, SHA256_LEN, compare_digests);
	begin_digest(&h, "ckptfs directory");
	sha256_add(&h, t->names.data, t->names.len);
	t->digests[dir] = sha256_finish(&h);
	return 0;
}

static int digest_top(struct root_state *t, const uint8_t sealed[SHA256_LEN], uint8_t ret[SHA256_LEN])
{
	uint32_t mode = t->tree->inodes[0].mode;
	struct sha256_digest d;
	int r = digest_inode(t, 0, &d);

	if (r < 0)
		return r;
	memcpy(ret, d.b, sizeof(d.b));
	for (uint32_t more = 1; more <= (S_IRWXG | S_IRWXO) && memcmp(ret, sealed, sizeof(d.b)) != 0; more++) {
		if (more & mode)
			continue;
		digest_inode_as(t, 0, mode | more, &d);
		if (memcmp(d.b, sealed, sizeof(d.b)) == 0)
			memcpy(ret, d.b, sizeof(d.b));
	}
	return 0;
}

int tier_root(const struct tier_tree *tree, struct tier_source *source, const uint8_t sealed[SHA256_LEN],
	      const struct tier_waiter *w, uint8_t ret[SHA256_LEN])
{
	struct root_state t = { tree, source, w, .digests = calloc(tree->nr_inodes, sizeof(*t.digests)) };
	int r = t.digests ? 0 : -ENOMEM;

	for (uint32_t i = tree->nr_inodes; i-- > 0 && r == 0;)
		if (S_ISDIR(tree->inodes[i].mode))
			r = digest_directory(&t, i);
	if (r == 0)
		r = digest_top(&t, sealed, ret);
	release_tables(&t);
	free(t.digests);
	buf_release(&t.names);
	return r;
}
