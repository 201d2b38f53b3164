/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/freed.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"

#define FREED_VERSION 1
#define FLAG_PUNCHED 1u

struct ns_key freed_key_totals(void)
{
	return (struct ns_key){ .b = { VIEW_FREED }, .len = 1 };
}

struct ns_key freed_key_pack(uint32_t pack)
{
	struct ns_key k = freed_key_totals();

	be32_put(k.b + k.len, pack);
	k.len += 4;
	return k;
}

struct ns_key freed_key(uint32_t pack, uint32_t frame)
{
	struct ns_key k = freed_key_pack(pack);

	be32_put(k.b + k.len, frame);
	k.len += 4;
	return k;
}

int freed_key_decode(const void *key, size_t len, uint32_t *ret_pack, uint32_t *ret_frame)
{
	const uint8_t *k = key;

	if ((len != 1 && len != 5 && len != 9) || k[0] != VIEW_FREED)
		return -EBADMSG;
	*ret_pack = len >= 5 ? be32_get(k + 1) : 0;
	*ret_frame = len == 9 ? be32_get(k + 5) : UINT32_MAX;
	return 0;
}

void freed_frame_encode(const struct freed_frame *f, struct buf *ret)
{
	struct freed_value_disk d = { .version = FREED_VERSION, .flags = f->punched ? FLAG_PUNCHED : 0 };

	for (unsigned i = 0; i < FREED_WORDS; i++)
		d.gone[i] = le64_put(f->gone[i]);
	buf_add(ret, &d, sizeof(d));
}

int freed_frame_decode(const void *p, size_t len, struct freed_frame *ret)
{
	struct freed_value_disk d;

	if (len != sizeof(d))
		return -EBADMSG;
	memcpy(&d, p, sizeof(d));
	if (d.version != FREED_VERSION || d.flags & ~FLAG_PUNCHED)
		return -EBADMSG;
	for (unsigned i = 0; i < FREED_WORDS; i++)
		ret->gone[i] = le64_get(d.gone[i]);
	ret->punched = d.flags & FLAG_PUNCHED;
	return 0;
}

void freed_pack_encode(struct buf *ret)
{
	buf_add(ret, &(uint8_t){ FREED_VERSION }, 1);
}

int freed_pack_decode(const void *p, size_t len)
{
	return len == 1 && *(const uint8_t *)p == FREED_VERSION ? 0 : -EBADMSG;
}

void freed_totals_encode(const struct freed_totals *t, struct buf *ret)
{
	buf_add(ret, &(uint8_t){ FREED_VERSION }, 1);
	buf_add_varint(ret, t->nr_chunks);
	buf_add_varint(ret, t->bytes);
	buf_add_varint(ret, t->next_pack);
}

int freed_totals_decode(const void *p, size_t len, struct freed_totals *ret)
{
	struct cursor c = cursor_of(p, len);
	const uint8_t *version = cursor_take(&c, 1);
	uint64_t nr_chunks = cursor_varint(&c), bytes = cursor_varint(&c), next_pack = cursor_varint(&c);

	if (!cursor_done(&c) || *version != FREED_VERSION || next_pack > UINT32_MAX)
		return -EBADMSG;
	*ret = (struct freed_totals){ nr_chunks, bytes, (uint32_t)next_pack };
	return 0;
}

static int get_view(struct db *db, struct ns_key key, struct buf *ret)
{
	return db_get(db, DB_VIEW, key.b, key.len, ret);
}

int freed_get(struct db *db, uint32_t pack, uint32_t frame, struct freed_frame *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_view(db, freed_key(pack, frame), &value);

	if (r > 0 && freed_frame_decode(value.data, value.len, ret) < 0)
		return log_errno(-EBADMSG, "index: damaged entry of freed chunks of pack %u frame %u", pack, frame);
	return r;
}

int freed_get_pack(struct db *db, uint32_t pack)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	return get_view(db, freed_key_pack(pack), &value);
}

int freed_get_totals(struct db *db, struct freed_totals *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_view(db, freed_key_totals(), &value);

	if (r > 0 && freed_totals_decode(value.data, value.len, ret) < 0)
		return log_errno(-EBADMSG, "index: damaged totals of freed chunks");
	return r;
}
