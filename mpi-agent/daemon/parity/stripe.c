/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Order of adding a member:
 *   1. The parity of the old stripe XOR the new strip is stored here as chunks.   crash: the old stripe is valid; the
 *      chunks are unreferenced and freed when all nodes collect
 *   2. A new tree that refers to them is created (mpi-agent/daemon/replica/replica.c).   crash: the old stripe, and
 *      perhaps the new one
 *   3. The parity chunks are located once more: a collection of all nodes between 1 and 2 may have freed them. Then the
 *      new tree is dropped.
 *   4. The caller drops the old stripe.   crash: both exist; stripes_sweep() drops a stripe that another one covers
 * At every moment each strip that was covered is in a complete stripe.
 */
#include "mpi-agent/daemon/parity/stripe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/gather.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "store/catalog/catalog_format.h"

#define PARITY "parity"
#define PARITY_CHUNK ((size_t)64 << 10)
#define WINDOW MiB(4) /* bytes of a stripe computed at once */
#define GATHER_BYTES MiB(16) /* bytes of chunks in memory */
#define PIECES 256u

/* --- names --- */

struct member_name {
	char s[2 * CLUSTER_ID_LEN + 1];
};

static struct member_name name_of(const uint8_t node[CLUSTER_ID_LEN])
{
	struct member_name n;

	for (size_t i = 0; i < CLUSTER_ID_LEN; i++)
		snprintf(n.s + 2 * i, 3, "%02x", node[i]);
	return n;
}

static bool parse_name(const char *name, uint8_t ret[CLUSTER_ID_LEN])
{
	static const char digits[] = "0123456789abcdef";

	if (strlen(name) != 2 * CLUSTER_ID_LEN || strspn(name, digits) != 2 * CLUSTER_ID_LEN)
		return false;
	for (size_t i = 0; i < CLUSTER_ID_LEN; i++)
		ret[i] = (uint8_t)((strchr(digits, name[2 * i]) - digits) << 4 |
				   (strchr(digits, name[2 * i + 1]) - digits));
	return true;
}

/* --- load --- */

static int load_file(struct fs *fs, const struct ns_dirent *d, struct stripe *s)
{
	struct ns_content c = { 0 };
	int r = content_peek(fs->engine, d->ino, &c);

	if (r < 0)
		return r;
	if (strcmp(d->name, PARITY) == 0) {
		s->parity = d->ino;
		s->len = c.size;
		return 0;
	}
	if (s->nr == STRIPE_MEMBERS_MAX || !parse_name(d->name, s->members[s->nr].node))
		return -EBADMSG;
	s->members[s->nr].ino = d->ino;
	s->members[s->nr++].len = c.size;
	return 0;
}

static int load(struct fs *fs, struct stripe *s)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(fs->db, s->top, 0, &it);

	while (r >= 0 && (r = ns_readdir_next(it, &d)) > 0)
		r = load_file(fs, &d, s);
	if (r == 0 && (s->parity == 0 || s->nr == 0))
		r = -EBADMSG;
	for (uint32_t i = 0; r == 0 && i < s->nr; i++)
		r = s->members[i].len > s->len ? -EBADMSG : 0;
	return r < 0 ? log_errno(r, "stripe %" PRIu64 ": cannot be used", s->number) : 0;
}

int stripe_load_all(struct fs *fs, struct stripe **ret, size_t *ret_nr)
{
	_cleanup_(freep) struct stripe *v = NULL;
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top = 0;
	size_t nr = 0;
	int r = c ? 0 : -ENOMEM;

	while (r == 0 && (r = nodes_next_stripe(fs, top, &top, c)) > 0) {
		struct stripe *more = reallocarray(v, nr + 1, sizeof(*v));

		if (!more)
			return -ENOMEM;
		v = more;
		v[nr] = (struct stripe){ .top = top, .number = c->ino };
		r = load(fs, &v[nr++]);
	}
	if (r < 0)
		return r;
	*ret = TAKE(v);
	*ret_nr = nr;
	return 0;
}

/* A chunk may be returned in several pieces. `joined`: bytes of it seen so far; 0: the next piece starts a chunk. */
static bool join_piece(struct strip_chunk *chunk, uint32_t *joined, const struct content_piece *p)
{
	if (fp_is_none(p->fp) || p->from != *joined || (*joined > 0 && !fp_equal(chunk->fp, p->fp)))
		return false;
	*chunk = (struct strip_chunk){ p->fp, p->chunk_len };
	*joined += (uint32_t)p->len;
	return true;
}

static int is_not_whole(uint64_t ino, uint64_t off)
{
	return log_errno(-EBADMSG, "stripe's file %" PRIu64 ": does not consist of whole chunks at %" PRIu64, ino, off);
}

int strip_each(struct fs *fs, uint64_t ino, int (*each)(void *userdata, const struct strip_chunk *c, uint64_t off),
	       void *userdata)
{
	struct content_piece pieces[PIECES];
	struct strip_chunk chunk;
	struct content *c;
	uint32_t joined = 0;
	uint64_t off = 0;
	int n, r = content_open(fs->engine, ino, &c);

	if (r < 0)
		return r;
	while (r == 0 && (n = content_pieces(c, off, pieces, PIECES)) != 0) {
		if (n < 0)
			r = n;
		for (int i = 0; i < n && r == 0; i++) {
			if (!join_piece(&chunk, &joined, &pieces[i]))
				r = is_not_whole(ino, off);
			off += pieces[i].len;
			if (r == 0 && joined == chunk.len) {
				r = each(userdata, &chunk, off - joined);
				joined = 0;
			}
		}
	}
	if (r == 0 && joined != 0)
		r = is_not_whole(ino, off);
	content_close(c);
	return r;
}

/* --- XOR --- */

/* A part of a chunk, to be XORed into bytes in memory. */
struct term {
	struct fp fp;
	uint32_t chunk_len, from, len;
	uint8_t *to;
	bool *failed;
};

struct terms {
	struct term *v;
	size_t nr, room;
};

static int terms_add(struct terms *t, const struct term *term)
{
	if (t->nr == t->room) {
		size_t room = MAX(2 * t->room, (size_t)256);
		struct term *v = reallocarray(t->v, room, sizeof(*v));

		if (!v)
			return -ENOMEM;
		t->v = v;
		t->room = room;
	}
	t->v[t->nr++] = *term;
	return 0;
}

/* Add the terms of a file from `off` up to its end. */
static int terms_of_file(struct fs *fs, uint64_t ino, uint64_t off, uint8_t *to, size_t len, bool *failed,
			 struct terms *t)
{
	struct content_piece pieces[PIECES];
	struct content *c;
	size_t at = 0;
	int n, r = content_open(fs->engine, ino, &c);

	if (r < 0)
		return r;
	while (r == 0 && at < len && (n = content_pieces(c, off + at, pieces, PIECES)) != 0) {
		if (n < 0)
			r = n;
		for (int i = 0; i < n && r == 0 && at < len; i++) {
			size_t part = MIN(pieces[i].len, (uint64_t)(len - at));

			r = fp_is_none(pieces[i].fp) ?
				    -EBADMSG :
				    terms_add(t, &(struct term){ pieces[i].fp, pieces[i].chunk_len, pieces[i].from,
								 (uint32_t)part, to + at, failed });
			at += part;
		}
	}
	content_close(c);
	return r;
}

static void add_bytes(uint8_t *to, const uint8_t *from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] ^= from[i];
}

/* Process as many terms as fit in memory; adjacent terms may be parts of one chunk. */
static int add_some(const struct stripe_io *io, const struct term *v, size_t nr, uint8_t *bytes, size_t *ret)
{
	_cleanup_(freep) struct cluster_want *wants = calloc(nr, sizeof(*wants));
	size_t n = 0, len = 0, nr_wants = 0;
	int r;

	if (!wants)
		return -ENOMEM;
	for (; n < nr; n++) {
		if (nr_wants > 0 && fp_equal(wants[nr_wants - 1].fp, v[n].fp))
			continue;
		if (len + v[n].chunk_len > GATHER_BYTES)
			break;
		wants[nr_wants++] = (struct cluster_want){ .fp = v[n].fp, .len = v[n].chunk_len, .buf = bytes + len };
		len += v[n].chunk_len;
	}
	r = engine_cluster_locate(io->fs->engine, wants, nr_wants);
	if (r == 0)
		r = gather_chunks(io->fs, io->fetch, io->userdata, wants, nr_wants);
	if (r < 0)
		return r;
	for (size_t i = 0, w = 0; i < n; i++) {
		w += !fp_equal(wants[w].fp, v[i].fp);
		if (wants[w].got)
			add_bytes(v[i].to, (const uint8_t *)wants[w].buf + v[i].from, v[i].len);
		else
			*v[i].failed = true;
	}
	*ret = n;
	return 0;
}

static int terms_sum(const struct stripe_io *io, const struct terms *t)
{
	_cleanup_(freep) uint8_t *bytes = malloc(GATHER_BYTES);
	size_t done;
	int r = bytes ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < t->nr; i += done)
		r = add_some(io, t->v + i, t->nr - i, bytes, &done);
	return r;
}

int stripe_rebuild(const struct stripe_io *io, struct stripe_range *ranges, size_t nr)
{
	struct terms t = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < nr; i++) {
		struct stripe_range *g = &ranges[i];

		memset(g->to, 0, g->len);
		g->failed = false;
		r = terms_of_file(io->fs, g->s->parity, g->off, g->to, g->len, &g->failed, &t);
		for (uint32_t m = 0; r == 0 && m < g->s->nr; m++)
			if (m != g->member)
				r = terms_of_file(io->fs, g->s->members[m].ino, g->off, g->to, g->len, &g->failed, &t);
	}
	if (r == 0)
		r = terms_sum(io, &t);
	free(t.v);
	return r;
}

/* --- create --- */

struct making {
	const struct stripe_io *io;
	const struct stripe *old; /* or NULL */
	const struct cluster_node *node;
	const struct strip_chunk *chunks; /* of the new strip, ... */
	size_t nr;
	uint64_t len, parity_len; /* its length, and the length of the parity */
	struct strip_chunk *parity;
	size_t nr_parity;
	uint64_t number;
	struct catalog_writer w;
	struct buf catalog, pieces;
	uint32_t nr_pieces;
};

/* Add the terms of the new strip from `off` on. *at and *start are a chunk at or before it and its offset. */
static int terms_of_strip(const struct making *m, uint64_t off, uint8_t *to, size_t len, bool *failed, size_t *at,
			  uint64_t *start, struct terms *t)
{
	size_t done = 0;
	int r = 0;

	while (r == 0 && done < len && *at < m->nr) {
		const struct strip_chunk *c = &m->chunks[*at];
		uint64_t end = *start + c->len, here = off + done;

		if (end > here) {
			uint32_t from = (uint32_t)(here - *start),
				 part = (uint32_t)MIN(end - here, (uint64_t)(len - done));

			r = terms_add(t, &(struct term){ c->fp, c->len, from, part, to + done, failed });
			done += part;
		}
		if (end > off + done)
			break;
		*start = end;
		++*at;
	}
	return r;
}

static int keep_parity(struct making *m, const uint8_t *bytes, size_t len)
{
	struct cluster_chunk chunks[WINDOW / PARITY_CHUNK];
	size_t n = 0;

	for (size_t at = 0; at < len; at += PARITY_CHUNK, n++) {
		uint32_t part = (uint32_t)MIN(PARITY_CHUNK, len - at);

		chunks[n] = (struct cluster_chunk){ fp_of(m->io->fs->key, bytes + at, part), part, bytes + at };
		m->parity[m->nr_parity++] = (struct strip_chunk){ chunks[n].fp, part };
	}
	return engine_cluster_keep(m->io->fs->engine, chunks, n);
}

static int make_window(struct making *m, uint64_t off, uint8_t *bytes, size_t len, size_t *at, uint64_t *start)
{
	struct terms t = { 0 };
	bool failed = false;
	int r;

	memset(bytes, 0, len);
	r = terms_of_strip(m, off, bytes, len, &failed, at, start, &t);
	if (r == 0 && m->old)
		r = terms_of_file(m->io->fs, m->old->parity, off, bytes, len, &failed, &t);
	if (r == 0)
		r = terms_sum(m->io, &t);
	free(t.v);
	if (r == 0 && failed)
		r = log_errno(-EIO, "node %s: cannot fetch chunks to cover them here", m->node->name);
	return r < 0 ? r : keep_parity(m, bytes, len);
}

static int make_parity(struct making *m)
{
	_cleanup_(freep) uint8_t *bytes = malloc(WINDOW);
	uint64_t start = 0;
	size_t at = 0;
	int r;

	m->parity_len = MAX(m->len, m->old ? m->old->len : 0);
	m->parity = calloc(m->parity_len / PARITY_CHUNK + 1, sizeof(*m->parity));
	r = bytes && m->parity ? 0 : -ENOMEM;
	for (uint64_t off = 0; r == 0 && off < m->parity_len; off += WINDOW)
		r = make_window(m, off, bytes, MIN((uint64_t)WINDOW, m->parity_len - off), &at, &start);
	return r;
}

/* --- encode as a catalog --- */

static void add_inode(struct making *m, const char *name, uint32_t mode, uint64_t size)
{
	struct catalog_record rec = { .type = CATALOG_INODE, .in = { .mode = mode }, .size = size };

	memcpy(rec.name, name, strlen(name) + 1);
	rec.in.mtime_ns = rec.in.ctime_ns = rec.in.atime_ns = (int64_t)now_ns();
	catalog_record_encode(&m->w, &rec, &m->catalog);
}

static void emit_pieces(struct making *m)
{
	struct catalog_record rec = { .type = CATALOG_PIECES, .data = m->pieces.data, .len = m->pieces.len };

	if (m->nr_pieces > 0)
		catalog_record_encode(&m->w, &rec, &m->catalog);
	buf_clear(&m->pieces);
	m->nr_pieces = 0;
}

static int emit_chunk(void *userdata, const struct strip_chunk *c, uint64_t off)
{
	struct making *m = userdata;

	(void)off;
	catalog_piece_encode(&(struct content_piece){ .fp = c->fp, .chunk_len = c->len, .len = c->len }, &m->pieces);
	if (++m->nr_pieces == CATALOG_PIECES_MAX)
		emit_pieces(m);
	return buf_error(&m->pieces);
}

static int add_strip(struct making *m, const char *name, uint64_t len, const struct strip_chunk *chunks, size_t nr)
{
	int r = 0;

	add_inode(m, name, S_IFREG | 0400, len);
	for (size_t i = 0; r == 0 && i < nr; i++)
		r = emit_chunk(m, &chunks[i], 0);
	emit_pieces(m);
	return r;
}

static int add_member(struct making *m, const struct stripe_member *member)
{
	int r;

	add_inode(m, name_of(member->node).s, S_IFREG | 0400, member->len);
	r = strip_each(m->io->fs, member->ino, emit_chunk, m);
	emit_pieces(m);
	return r;
}

static int make_catalog(struct making *m)
{
	struct catalog_head head = { .ino = m->number, .sealed_ns = 0 };
	int r;

	memcpy(head.store, engine_store_id(m->io->fs->engine), sizeof(head.store));
	catalog_head_encode(&head, &m->catalog);
	add_inode(m, "", S_IFDIR | 0500, 0);
	r = add_strip(m, PARITY, m->parity_len, m->parity, m->nr_parity);
	if (r == 0)
		r = add_strip(m, name_of(m->node->id).s, m->len, m->chunks, m->nr);
	for (uint32_t i = 0; r == 0 && m->old && i < m->old->nr; i++)
		r = add_member(m, &m->old->members[i]);
	catalog_end_encode(&m->w, &m->catalog);
	return r < 0 ? r : buf_error(&m->catalog);
}

struct reading {
	const struct buf *from;
	size_t at;
};

static ssize_t read_catalog(void *userdata, void *to, size_t len)
{
	struct reading *g = userdata;

	len = MIN(len, g->from->len - g->at);
	memcpy(to, g->from->data + g->at, len);
	g->at += len;
	return (ssize_t)len;
}

/* Are all parity chunks here, now that the tree refers to them? */
static int look_for_parity(struct making *m)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < m->nr_parity; i++) {
		struct cluster_want w = { .fp = m->parity[i].fp, .len = m->parity[i].len };

		r = engine_cluster_locate(m->io->fs->engine, &w, 1);
		if (r == 0 && !w.got)
			r = -ESTALE;
	}
	return r;
}

static int store_stripe(struct making *m)
{
	struct nodes_seal seal = { .from.name = "stripe", .ino = m->number, .path = "", .is_stripe = true };
	struct reading from = { &m->catalog, 0 };
	int r;

	memcpy(seal.from.id, engine_store_id(m->io->fs->engine), sizeof(seal.from.id));
	r = nodes_take(m->io->fs, &seal, &(struct nodes_source){ read_catalog, &from }, m->node, NULL);
	if (r < 0)
		return r;
	r = look_for_parity(m);
	if (r < 0)
		nodes_drop(m->io->fs, &seal.from, seal.ino, seal.sealed_ns);
	return r;
}

int stripe_add(const struct stripe_io *io, const struct stripe *old, const struct cluster_node *node,
	       const struct strip_chunk *chunks, size_t nr)
{
	struct making m = { .io = io, .old = old, .node = node, .chunks = chunks, .nr = nr };
	int r;

	for (size_t i = 0; i < nr; i++)
		m.len += chunks[i].len;
	r = make_parity(&m);
	if (r == 0)
		r = engine_new_number(io->fs->engine, &m.number);
	if (r == 0)
		r = make_catalog(&m);
	if (r == 0)
		r = store_stripe(&m);
	free(m.parity);
	buf_release(&m.catalog);
	buf_release(&m.pieces);
	return r;
}

int stripe_drop(struct fs *fs, const struct stripe *s)
{
	struct nodes_origin self = { .name = "stripe" };

	memcpy(self.id, engine_store_id(fs->engine), sizeof(self.id));
	return nodes_drop(fs, &self, s->number, INT64_MAX);
}
