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
#define RECIPE_KEY_LEN 17
#define EXTENT_BYTES_MIN 5 /* five varints */
#define PACK_SIZE_MAX (UINT64_C(1) << 32)

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

static uint64_t zigzag(int64_t n)
{
	return (uint64_t)n << 1 ^ (uint64_t)(n >> 63);
}

static int64_t unzigzag(uint64_t n)
{
	return (int64_t)(n >> 1 ^ (0 - (n & 1)));
}

/* Where the extent before ended, in the segment and in its pack. */
struct recipe_pos {
	uint64_t off;
	int64_t pack, pack_off;
};

void recipe_encode(const struct extent *x, size_t nr, struct buf *ret)
{
	struct recipe_pos pos = { 0 };

	buf_add_u8(ret, RECIPE_VERSION);
	buf_add_varint(ret, nr);
	for (size_t i = 0; i < nr; i++, x++) {
		assert(x->off >= pos.off && x->len > 0 && (uint64_t)x->off + x->len <= SEGMENT_SIZE);
		buf_add_varint(ret, x->off - pos.off);
		buf_add_varint(ret, x->len);
		buf_add_varint(ret, x->addr.node);
		buf_add_varint(ret, zigzag((int64_t)x->addr.pack - pos.pack));
		buf_add_varint(ret, zigzag((int64_t)x->addr.off - pos.pack_off));
		pos = (struct recipe_pos){
			.off = (uint64_t)x->off + x->len,
			.pack = x->addr.pack,
			.pack_off = (int64_t)x->addr.off + x->len,
		};
	}
}

static int extent_decode(struct cursor *c, struct recipe_pos *pos, struct extent *ret)
{
	uint64_t gap = cursor_varint(c), len = cursor_varint(c), node = cursor_varint(c);
	int64_t pack = unzigzag(cursor_varint(c)), pack_off = unzigzag(cursor_varint(c));

	if (c->failed || gap > SEGMENT_SIZE || len == 0 || len > SEGMENT_SIZE || node > UINT16_MAX)
		return -EBADMSG;
	if (pos->off + gap + len > SEGMENT_SIZE)
		return -EBADMSG;
	if (__builtin_add_overflow(pack, pos->pack, &pack) || pack <= 0 || pack > UINT32_MAX)
		return -EBADMSG;
	if (__builtin_add_overflow(pack_off, pos->pack_off, &pack_off) || pack_off < 0 || pack_off > UINT32_MAX ||
	    (uint64_t)pack_off + len > PACK_SIZE_MAX)
		return -EBADMSG;
	*ret = (struct extent){
		.off = (uint32_t)(pos->off + gap),
		.len = (uint32_t)len,
		.addr = { .pack = (uint32_t)pack, .off = (uint32_t)pack_off, .node = (uint16_t)node },
	};
	*pos = (struct recipe_pos){
		.off = pos->off + gap + len,
		.pack = pack,
		.pack_off = pack_off + (int64_t)len,
	};
	return 0;
}

int recipe_decode(const void *p, size_t len, struct extent **ret, size_t *ret_nr)
{
	_cleanup_(freep) struct extent *x = NULL;
	struct cursor c = cursor_of(p, len);
	struct recipe_pos pos = { 0 };
	uint64_t nr;
	int r;

	if (cursor_u8(&c) != RECIPE_VERSION)
		return -EBADMSG;
	nr = cursor_varint(&c);
	if (c.failed || nr > cursor_left(&c) / EXTENT_BYTES_MIN)
		return -EBADMSG;
	if (nr > 0) {
		x = malloc(nr * sizeof(*x));
		if (!x)
			return -ENOMEM;
	}
	for (uint64_t i = 0; i < nr; i++) {
		r = extent_decode(&c, &pos, &x[i]);
		if (r < 0)
			return r;
	}
	if (!cursor_done(&c))
		return -EBADMSG;
	*ret = TAKE(x);
	*ret_nr = nr;
	return 0;
}

int recipe_get(struct db *db, uint64_t ino, uint64_t segment, struct extent **ret, size_t *ret_nr)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = recipe_key(ino, segment);
	int r;

	r = db_get(db, DB_VIEW, k.b, k.len, &value);
	if (r <= 0)
		return r;
	r = recipe_decode(value.data, value.len, ret, ret_nr);
	if (r == -EBADMSG)
		return log_errno(r, "inode %" PRIu64 ": damaged recipe of segment %" PRIu64 " in the index", ino,
				 segment);
	return r < 0 ? r : 1;
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
