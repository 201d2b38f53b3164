/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/catalog/catalog_format.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "base/fp.h"
#include "base/util.h"

#define CHUNK_MAX (1u << 20)
#define RECORD_HEAD_MAX 4u /* type, and a length below 2^21 */

/* --- encoding --- */

void catalog_head_encode(const struct catalog_head *h, struct buf *ret)
{
	struct catalog_head_disk d = {
		.version = le32_put(CATALOG_VERSION),
		.ino = le64_put(h->ino),
		.sealed_ns = le64_put((uint64_t)h->sealed_ns),
	};

	memcpy(d.magic, CATALOG_MAGIC, sizeof(d.magic));
	memcpy(d.store, h->store, sizeof(d.store));
	d.crc32c = le32_put(crc32c(&d, offsetof(struct catalog_head_disk, crc32c)));
	buf_add(ret, &d, sizeof(d));
}

static void add_name(struct buf *b, const char *name)
{
	size_t len = strlen(name);

	buf_add_u8(b, (uint8_t)len);
	buf_add(b, name, len);
}

static void add_inode(struct buf *b, const struct catalog_record *rec)
{
	const struct ns_inode *in = &rec->in;

	buf_add_varint(b, in->mode);
	buf_add_varint(b, in->uid);
	buf_add_varint(b, in->gid);
	buf_add_varint(b, in->rdev);
	buf_add_le64(b, (uint64_t)in->atime_ns);
	buf_add_le64(b, (uint64_t)in->mtime_ns);
	buf_add_le64(b, (uint64_t)in->ctime_ns);
	buf_add_le64(b, (uint64_t)in->btime_ns);
	if (S_ISREG(in->mode))
		buf_add_varint(b, rec->size);
	if (S_ISLNK(in->mode))
		buf_add(b, rec->data, rec->len);
}

static void add_framed(struct catalog_writer *w, enum catalog_type type, const struct buf *payload, struct buf *ret)
{
	size_t from = ret->len;

	buf_add_u8(ret, (uint8_t)type);
	buf_add_varint(ret, payload->len);
	buf_add(ret, payload->data, payload->len);
	ret->failed |= buf_error(payload) < 0;
	if (!ret->failed)
		w->crc = crc32c_add(w->crc, ret->data + from, ret->len - from);
}

void catalog_record_encode(struct catalog_writer *w, const struct catalog_record *rec, struct buf *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	if (rec->type == CATALOG_INODE || rec->type == CATALOG_LINK) {
		buf_add_varint(&b, rec->dir);
		add_name(&b, rec->name);
		w->nr_entries++;
	}
	switch (rec->type) {
	case CATALOG_INODE:
		add_inode(&b, rec);
		break;
	case CATALOG_LINK:
		buf_add_varint(&b, rec->file);
		break;
	case CATALOG_XATTR:
		add_name(&b, rec->name);
		buf_add(&b, rec->data, rec->len);
		break;
	default:
		buf_add(&b, rec->data, rec->len);
	}
	add_framed(w, rec->type, &b, ret);
}

void catalog_end_encode(struct catalog_writer *w, struct buf *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	buf_add_varint(&b, w->nr_entries);
	buf_add_le32(&b, w->crc);
	add_framed(w, CATALOG_END, &b, ret);
}

void catalog_piece_encode(const struct content_piece *p, struct buf *ret)
{
	uint8_t fp[FP_LEN];

	buf_add_varint(ret, p->len);
	buf_add_varint(ret, p->chunk_len);
	if (p->chunk_len == 0)
		return;
	buf_add_varint(ret, p->from);
	fp_encode(p->fp, fp);
	buf_add(ret, fp, sizeof(fp));
}

/* --- decoding --- */

static int head_decode(const void *p, struct catalog_head *ret)
{
	const struct catalog_head_disk *d = p;

	if (memcmp(d->magic, CATALOG_MAGIC, sizeof(d->magic)) != 0 ||
	    crc32c(d, offsetof(struct catalog_head_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != CATALOG_VERSION || le32_get(d->incompat) != 0 || le32_get(d->reserved) != 0)
		return -EOPNOTSUPP;
	*ret = (struct catalog_head){ .ino = le64_get(d->ino), .sealed_ns = (int64_t)le64_get(d->sealed_ns) };
	memcpy(ret->store, d->store, sizeof(ret->store));
	return 0;
}

static uint32_t take_u32(struct cursor *c)
{
	uint64_t v = cursor_varint(c);

	c->failed |= v > UINT32_MAX;
	return (uint32_t)v;
}

/* Any bytes; the caller validates file names. */
static size_t take_name(struct cursor *c, char ret[NS_NAME_MAX + 1])
{
	size_t len = cursor_u8(c);
	const void *name = cursor_take(c, len);

	if (!name || memchr(name, 0, len)) {
		c->failed = true;
		len = 0;
	}
	if (len > 0)
		memcpy(ret, name, len);
	ret[len] = '\0';
	return len;
}

static bool name_is_valid(const char *name)
{
	return name[0] != '\0' && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool mode_is_valid(uint32_t mode)
{
	uint32_t type = mode & S_IFMT;

	return !(mode & ~(uint32_t)(S_IFMT | 07777)) &&
	       (type == S_IFREG || type == S_IFDIR || type == S_IFLNK || type == S_IFIFO || type == S_IFSOCK ||
		type == S_IFCHR || type == S_IFBLK);
}

static void take_attributes(struct cursor *c, struct ns_inode *ret)
{
	ret->mode = take_u32(c);
	ret->uid = take_u32(c);
	ret->gid = take_u32(c);
	ret->rdev = cursor_varint(c);
	ret->atime_ns = (int64_t)cursor_le64(c);
	ret->mtime_ns = (int64_t)cursor_le64(c);
	ret->ctime_ns = (int64_t)cursor_le64(c);
	ret->btime_ns = (int64_t)cursor_le64(c);
}

static void take_rest(struct cursor *c, struct catalog_record *ret)
{
	ret->len = cursor_left(c);
	ret->data = cursor_take(c, ret->len);
}

static int inode_decode(struct catalog_reader *r, struct cursor *c, struct catalog_record *ret)
{
	bool is_first = r->nr_entries == 0;

	take_attributes(c, &ret->in);
	if (c->failed || !mode_is_valid(ret->in.mode) || (is_first && !S_ISDIR(ret->in.mode)))
		return -EBADMSG;
	if (is_first ? ret->name[0] != '\0' || ret->dir != 0 : !name_is_valid(ret->name) || ret->dir >= r->nr_dirs)
		return -EBADMSG;
	if (S_ISREG(ret->in.mode)) {
		ret->size = cursor_varint(c);
		if (c->failed || ret->size > INT64_MAX)
			return -EBADMSG;
	}
	if (S_ISLNK(ret->in.mode)) {
		take_rest(c, ret);
		if (ret->len == 0 || ret->len > CATALOG_TARGET_MAX || memchr(ret->data, 0, ret->len))
			return -EBADMSG;
	}
	if (S_ISDIR(ret->in.mode))
		r->nr_dirs++;
	else
		r->nr_files++;
	r->left = r->is_without_pieces ? 0 : ret->size;
	r->has_inode = true;
	r->nr_entries++;
	return 0;
}

static int link_decode(struct catalog_reader *r, struct cursor *c, struct catalog_record *ret)
{
	ret->file = cursor_varint(c);
	if (c->failed || !name_is_valid(ret->name) || ret->dir >= r->nr_dirs || ret->file >= r->nr_files)
		return -EBADMSG;
	r->has_inode = false;
	r->nr_entries++;
	return 0;
}

static int xattr_decode(struct catalog_reader *r, struct cursor *c, struct catalog_record *ret)
{
	if (take_name(c, ret->name) == 0 || !r->has_inode)
		return -EBADMSG;
	take_rest(c, ret);
	return ret->len > CATALOG_VALUE_MAX ? -EBADMSG : 0;
}

static int pieces_decode(struct catalog_reader *r, struct cursor *c, struct catalog_record *ret)
{
	struct cursor all;
	struct content_piece p;
	unsigned nr = 0;
	int k;

	take_rest(c, ret);
	all = cursor_of(ret->data, ret->len);
	while ((k = catalog_piece_next(&all, &p)) > 0) {
		if (p.len > r->left || ++nr > CATALOG_PIECES_MAX)
			return -EBADMSG;
		r->left -= p.len;
	}
	return k < 0 || nr == 0 ? -EBADMSG : 0;
}

static int end_decode(struct catalog_reader *r, struct cursor *c)
{
	uint64_t nr = cursor_varint(c);
	uint32_t crc = cursor_le32(c);

	if (c->failed || nr != r->nr_entries || nr == 0 || (crc != r->crc && !r->is_without_pieces))
		return -EBADMSG;
	r->at_end = true;
	return 0;
}

static int record_decode(struct catalog_reader *r, struct cursor *c, struct catalog_record *ret)
{
	if (ret->type == CATALOG_INODE || ret->type == CATALOG_LINK) {
		ret->dir = cursor_varint(c);
		take_name(c, ret->name);
	}
	if (r->left > 0 && ret->type != CATALOG_PIECES && ret->type != CATALOG_XATTR)
		return -EBADMSG; /* pieces must cover all bytes of a file */
	switch (ret->type) {
	case CATALOG_INODE:
		return inode_decode(r, c, ret);
	case CATALOG_LINK:
		return link_decode(r, c, ret);
	case CATALOG_XATTR:
		return xattr_decode(r, c, ret);
	case CATALOG_PIECES:
		return pieces_decode(r, c, ret);
	case CATALOG_END:
		return end_decode(r, c);
	default:
		return -EBADMSG;
	}
}

static int next_record(struct catalog_reader *r, const uint8_t *p, size_t len, size_t *ret_used,
		       struct catalog_record *ret)
{
	struct cursor c = cursor_of(p, len), payload;
	uint64_t size;
	int k;

	ret->type = (enum catalog_type)cursor_u8(&c);
	size = cursor_varint(&c);
	if (c.failed)
		return len < RECORD_HEAD_MAX ? 0 : -EBADMSG;
	if (size > CATALOG_RECORD_MAX)
		return -EBADMSG;
	if (cursor_left(&c) < size)
		return 0;
	payload = cursor_of(c.p, (size_t)size);
	*ret_used = (size_t)(c.p + size - p);
	k = record_decode(r, &payload, ret);
	if (k < 0 || !cursor_done(&payload))
		return -EBADMSG;
	r->crc = crc32c_add(r->crc, p, *ret_used);
	return 1;
}

int catalog_reader_next(struct catalog_reader *r, const void *p, size_t len, size_t *ret_used, struct catalog_record *ret)
{
	struct catalog_record rec = { .type = CATALOG_HEAD };
	size_t used = sizeof(struct catalog_head_disk);
	int k;

	if (r->at_end)
		return len > 0 ? -EBADMSG : 0;
	if (r->has_head) {
		k = next_record(r, p, len, &used, &rec);
	} else {
		if (len < used)
			return 0;
		k = head_decode(p, &rec.head);
		r->has_head = k == 0;
		k = k == 0 ? 1 : k;
	}
	if (k > 0) {
		*ret_used = used;
		*ret = rec;
	}
	return k;
}

int catalog_piece_next(struct cursor *c, struct content_piece *ret)
{
	struct content_piece p = { .fp = FP_NONE };
	const uint8_t *fp;

	if (cursor_left(c) == 0)
		return 0;
	p.len = cursor_varint(c);
	p.chunk_len = take_u32(c);
	if (p.chunk_len > 0) {
		p.from = take_u32(c);
		fp = cursor_take(c, FP_LEN);
		if (!fp || p.chunk_len > CHUNK_MAX || p.from > p.chunk_len || p.len > p.chunk_len - p.from)
			return -EBADMSG;
		p.fp = fp_decode(fp);
		if (fp_is_none(p.fp))
			return -EBADMSG;
	}
	if (c->failed || p.len == 0)
		return -EBADMSG;
	*ret = p;
	return 1;
}
