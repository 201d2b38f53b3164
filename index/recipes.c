/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/recipes.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"

#define RECIPE_VERSION 1
#define RECIPE_OVER_LAYER 0x80 /* bit of the version byte: the number of a layer follows */
#define RECIPE_KEY_LEN 17
#define LAYER_KEY_LEN 9
#define EXTENT_BYTES_MIN 2 /* tag, move */
#define PAGE 4096u
#define PAGE_SHIFT 12u
#define PACK_SIZE_MAX (UINT64_C(1) << 32)

/* What of an extent follows: what it has not in common with the one before. */
enum recipe_tag {
	RECIPE_GAP = 1 << 0,
	RECIPE_LENGTH = 1 << 1,
	RECIPE_NODE = 1 << 2,
	RECIPE_PACK = 1 << 3,
	RECIPE_PAGES = 1 << 4, /* gap, length and move are whole pages, and counted in pages */
	RECIPE_TAG_END = 1 << 5,
};

struct ns_key recipe_prefix(uint64_t ino)
{
	struct ns_key k;

	k.b[0] = VIEW_RECIPE;
	be64_put(k.b + 1, ino);
	k.len = 9;
	return k;
}

struct ns_key recipe_key(uint64_t ino, uint64_t segment)
{
	struct ns_key k = recipe_prefix(ino);

	be64_put(k.b + k.len, segment);
	k.len = RECIPE_KEY_LEN;
	return k;
}

int recipe_key_decode(const void *key, size_t len, uint64_t *ret_ino, uint64_t *ret_segment)
{
	const uint8_t *k = key;

	if (len != RECIPE_KEY_LEN || k[0] != VIEW_RECIPE)
		return -EBADMSG;
	*ret_ino = be64_get(k + 1);
	*ret_segment = be64_get(k + 9);
	return 0;
}

struct ns_key layer_prefix(void)
{
	return (struct ns_key){ .b = { VIEW_LAYER }, .len = 1 };
}

struct ns_key layer_key(uint64_t layer)
{
	struct ns_key k = layer_prefix();

	be64_put(k.b + k.len, layer);
	k.len = LAYER_KEY_LEN;
	return k;
}

int layer_key_decode(const void *key, size_t len, uint64_t *ret)
{
	const uint8_t *k = key;

	if (len != LAYER_KEY_LEN || k[0] != VIEW_LAYER || be64_get(k + 1) == 0)
		return -EBADMSG;
	*ret = be64_get(k + 1);
	return 0;
}

static uint64_t zigzag(int64_t n)
{
	return (uint64_t)n << 1 ^ (uint64_t)(n >> 63);
}

static int64_t unzigzag(uint64_t n)
{
	return (int64_t)(n >> 1 ^ (0 - (n & 1)));
}

/* What the extent before leaves: where it ended, in the segment and in its pack, and what the next has in common. */
struct recipe_pos {
	uint64_t off, len, node;
	int64_t pack, pack_off;
};

static const struct recipe_pos first = { .len = PAGE };

static struct recipe_pos pos_after(const struct extent *x)
{
	return (struct recipe_pos){
		.off = (uint64_t)x->off + x->len,
		.len = x->len,
		.node = x->addr.node,
		.pack = x->addr.pack,
		.pack_off = (int64_t)x->addr.off + x->len,
	};
}

#define EXTENT_BYTES_MAX 20u /* tag, and varints of 20, 21, 16, 33 and 34 bits */

/* `to` has room for EXTENT_BYTES_MAX. Returns what is behind it. */
static uint8_t *extent_encode(const struct extent *x, const struct recipe_pos *pos, uint8_t *to)
{
	int64_t move = (int64_t)x->addr.off - pos->pack_off;
	uint64_t gap = x->off - pos->off;
	unsigned tag = gap > 0 ? RECIPE_GAP : 0, shift;

	assert(x->off >= pos->off && x->len > 0 && (uint64_t)x->off + x->len <= SEGMENT_SIZE);
	tag |= x->len != pos->len ? RECIPE_LENGTH : 0;
	tag |= x->addr.node != pos->node ? RECIPE_NODE : 0;
	tag |= x->addr.pack != pos->pack ? RECIPE_PACK : 0;
	tag |= (gap | x->len | (uint64_t)move) % PAGE == 0 ? RECIPE_PAGES : 0;
	shift = tag & RECIPE_PAGES ? PAGE_SHIFT : 0;
	*to++ = (uint8_t)tag;
	if (tag & RECIPE_GAP)
		to = varint_put(to, gap >> shift);
	if (tag & RECIPE_LENGTH)
		to = varint_put(to, x->len >> shift);
	if (tag & RECIPE_NODE)
		to = varint_put(to, x->addr.node);
	if (tag & RECIPE_PACK)
		to = varint_put(to, zigzag((int64_t)x->addr.pack - pos->pack));
	return varint_put(to, zigzag(move >> shift));
}

#define EXTENTS_AT_ONCE 64u /* that there is made room for */

void recipe_encode(const struct extent *x, size_t nr, struct buf *ret)
{
	recipe_encode_over(0, x, nr, ret);
}

void recipe_encode_over(uint64_t layer, const struct extent *x, size_t nr, struct buf *ret)
{
	struct recipe_pos pos = first;

	buf_add_u8(ret, RECIPE_VERSION | (layer ? RECIPE_OVER_LAYER : 0));
	if (layer)
		buf_add_varint(ret, layer);
	buf_add_varint(ret, nr);
	for (size_t i = 0; i < nr;) {
		size_t end = MIN(nr, i + EXTENTS_AT_ONCE);
		uint8_t *to;

		if (buf_reserve(ret, EXTENTS_AT_ONCE * EXTENT_BYTES_MAX) < 0)
			return;
		to = ret->data + ret->len;
		for (; i < end; i++) {
			to = extent_encode(&x[i], &pos, to);
			pos = pos_after(&x[i]);
		}
		ret->len = (size_t)(to - ret->data);
	}
}

/* The fields of an extent as they are on disk, in bytes and as differences. */
struct recipe_fields {
	uint64_t gap, len, node;
	int64_t pack, move;
};

/* Each is there where the tag says, and nowhere else: there is one way to write an extent. */
static int fields_decode(struct cursor *c, const struct recipe_pos *pos, struct recipe_fields *ret)
{
	struct recipe_fields f = { .len = pos->len, .node = pos->node };
	unsigned tag = cursor_u8(c), shift = tag & RECIPE_PAGES ? PAGE_SHIFT : 0;
	uint64_t move;

	if (tag & RECIPE_GAP)
		f.gap = cursor_varint(c);
	if (tag & RECIPE_LENGTH)
		f.len = cursor_varint(c);
	if (tag & RECIPE_NODE)
		f.node = cursor_varint(c);
	if (tag & RECIPE_PACK)
		f.pack = unzigzag(cursor_varint(c));
	move = cursor_varint(c);
	if (c->failed || tag >= RECIPE_TAG_END || f.gap > SEGMENT_SIZE || f.len > SEGMENT_SIZE || move > 4 * PACK_SIZE_MAX)
		return -EBADMSG;
	f.gap <<= shift;
	f.len <<= tag & RECIPE_LENGTH ? shift : 0;
	f.move = unzigzag(move) * (INT64_C(1) << shift);
	if (((tag & RECIPE_GAP) && f.gap == 0) || ((tag & RECIPE_LENGTH) && f.len == pos->len) ||
	    ((tag & RECIPE_NODE) && f.node == pos->node) || ((tag & RECIPE_PACK) && f.pack == 0) ||
	    ((f.gap | f.len | (uint64_t)f.move) % PAGE == 0) != (shift > 0))
		return -EBADMSG;
	*ret = f;
	return 0;
}

static int extent_decode(const struct recipe_fields *f, const struct recipe_pos *pos, struct extent *ret)
{
	int64_t pack, pack_off;

	if (f->gap > SEGMENT_SIZE || f->len == 0 || f->len > SEGMENT_SIZE || f->node > UINT16_MAX)
		return -EBADMSG;
	if (pos->off + f->gap + f->len > SEGMENT_SIZE)
		return -EBADMSG;
	if (__builtin_add_overflow(f->pack, pos->pack, &pack) || pack <= 0 || pack > UINT32_MAX)
		return -EBADMSG;
	if (__builtin_add_overflow(f->move, pos->pack_off, &pack_off) || pack_off < 0 || pack_off > UINT32_MAX ||
	    (uint64_t)pack_off + f->len > PACK_SIZE_MAX)
		return -EBADMSG;
	*ret = (struct extent){
		.off = (uint32_t)(pos->off + f->gap),
		.len = (uint32_t)f->len,
		.addr = { .pack = (uint32_t)pack, .off = (uint32_t)pack_off, .node = (uint16_t)f->node },
	};
	return 0;
}

int recipe_decode_over(const void *p, size_t len, uint64_t *ret_layer, struct extent **ret, size_t *ret_nr)
{
	_cleanup_(freep) struct extent *x = NULL;
	struct cursor c = cursor_of(p, len);
	uint8_t version = cursor_u8(&c);
	struct recipe_pos pos = first;
	struct recipe_fields f;
	uint64_t nr, layer = 0;
	int r;

	if ((version & ~RECIPE_OVER_LAYER) != RECIPE_VERSION)
		return -EBADMSG;
	if (version & RECIPE_OVER_LAYER) {
		layer = cursor_varint(&c);
		if (layer == 0)
			return -EBADMSG;
	}
	nr = cursor_varint(&c);
	if (c.failed || nr > cursor_left(&c) / EXTENT_BYTES_MIN)
		return -EBADMSG;
	if (nr > 0) {
		x = malloc(nr * sizeof(*x));
		if (!x)
			return -ENOMEM;
	}
	for (uint64_t i = 0; i < nr; i++) {
		r = fields_decode(&c, &pos, &f);
		if (r == 0)
			r = extent_decode(&f, &pos, &x[i]);
		if (r < 0)
			return r;
		pos = pos_after(&x[i]);
	}
	if (!cursor_done(&c))
		return -EBADMSG;
	*ret_layer = layer;
	*ret = TAKE(x);
	*ret_nr = nr;
	return 0;
}

bool recipe_has_layer(const void *p, size_t len)
{
	return len > 0 && *(const uint8_t *)p & RECIPE_OVER_LAYER;
}

int recipe_decode(const void *p, size_t len, struct extent **ret, size_t *ret_nr)
{
	uint64_t layer;

	return recipe_has_layer(p, len) ? -EBADMSG : recipe_decode_over(p, len, &layer, ret, ret_nr);
}

int recipe_get(struct db *db, uint64_t ino, uint64_t segment, struct buf *ret)
{
	struct ns_key k = recipe_key(ino, segment);

	return db_get(db, DB_VIEW, k.b, k.len, ret);
}

int recipe_next(struct db *db, uint64_t ino, uint64_t from, uint64_t *ret_segment)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = recipe_prefix(ino), k = recipe_key(ino, from);
	size_t key_len, value_len;
	const void *key, *value;
	uint64_t key_ino;
	int r;

	r = db_iter_new(db, NULL, prefix.b, prefix.len, k.b, k.len, &it);
	if (r < 0)
		return r;
	r = db_iter_next(it, &key, &key_len, &value, &value_len);
	if (r <= 0)
		return r;
	r = recipe_key_decode(key, key_len, &key_ino, ret_segment);
	return r < 0 ? log_errno(r, "inode %" PRIu64 ": damaged recipe key in the index", ino) : 1;
}
