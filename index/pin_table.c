/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/pin_table.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"

#define SHARE_VERSION 1
#define FLAG_SETTLED 1u /* of a frame */
#define FLAG_UNCONFIRMED 2u
#define FLAG_FORGOTTEN 1u /* of a node */
#define FLAG_ANY_UNCONFIRMED 1u /* of the totals */

struct ns_key share_key_totals(void)
{
	return (struct ns_key){ .b = { VIEW_SHARE }, .len = 1 };
}

struct ns_key share_key_pack(uint32_t pack)
{
	struct ns_key k = share_key_totals();

	be32_put(k.b + k.len, pack);
	k.len += 4;
	return k;
}

struct ns_key share_key(uint32_t pack, uint32_t frame)
{
	struct ns_key k = share_key_pack(pack);

	be32_put(k.b + k.len, frame);
	k.len += 4;
	return k;
}

struct ns_key share_key_node(uint16_t number)
{
	return share_key(0, number);
}

int share_key_decode(const void *key, size_t len, uint32_t *ret_pack, uint32_t *ret_frame)
{
	const uint8_t *k = key;

	if ((len != 1 && len != 9) || k[0] != VIEW_SHARE)
		return -EBADMSG;
	*ret_pack = len == 9 ? be32_get(k + 1) : 0;
	*ret_frame = len == 9 ? be32_get(k + 5) : UINT32_MAX;
	return len == 9 && *ret_pack == 0 && *ret_frame > UINT16_MAX ? -EBADMSG : 0;
}

void share_frame_encode(const struct share_frame *f, struct buf *ret)
{
	struct share_value_disk d = { .version = SHARE_VERSION };

	d.flags = (uint8_t)((f->settled ? FLAG_SETTLED : 0) | (f->unconfirmed ? FLAG_UNCONFIRMED : 0));
	for (unsigned i = 0; i < SHARE_WORDS; i++) {
		d.pinned[i] = le64_put(f->pinned[i]);
		d.remote[i] = le64_put(f->remote[i]);
	}
	buf_add(ret, &d, sizeof(d));
	for (unsigned i = 0; f->settled && i < SHARE_CHUNKS; i++) {
		if (!share_bit(f->remote, i))
			continue;
		buf_add_u8(ret, f->owners[i].nr);
		for (unsigned k = 0; k < f->owners[i].nr; k++)
			buf_add_varint(ret, f->owners[i].node[k]);
	}
}

static int decode_owners(struct cursor *c, struct share_owners *ret)
{
	ret->nr = cursor_u8(c);
	if (ret->nr == 0 || ret->nr > SHARE_OWNERS_MAX)
		return -EBADMSG;
	for (unsigned k = 0; k < ret->nr; k++) {
		uint64_t node = cursor_varint(c);

		if (node > UINT16_MAX)
			return -EBADMSG;
		ret->node[k] = (uint16_t)node;
	}
	return 0;
}

int share_frame_decode(const void *p, size_t len, struct share_frame *ret)
{
	struct cursor c = cursor_of(p, len);
	const struct share_value_disk *d = cursor_take(&c, sizeof(*d));

	if (!d || d->version != SHARE_VERSION || d->flags & ~(FLAG_SETTLED | FLAG_UNCONFIRMED))
		return -EBADMSG;
	memset(ret->owners, 0, sizeof(ret->owners));
	ret->settled = d->flags & FLAG_SETTLED;
	ret->unconfirmed = d->flags & FLAG_UNCONFIRMED;
	for (unsigned i = 0; i < SHARE_WORDS; i++) {
		ret->pinned[i] = le64_get(d->pinned[i]);
		ret->remote[i] = le64_get(d->remote[i]);
		if (ret->pinned[i] & ret->remote[i])
			return -EBADMSG;
	}
	for (unsigned i = 0; ret->settled && i < SHARE_CHUNKS; i++)
		if (share_bit(ret->remote, i) && decode_owners(&c, &ret->owners[i]) < 0)
			return -EBADMSG;
	return cursor_done(&c) ? 0 : -EBADMSG;
}

void share_node_encode(const struct share_node *n, struct buf *ret)
{
	buf_add_u8(ret, SHARE_VERSION);
	buf_add_u8(ret, n->is_forgotten ? FLAG_FORGOTTEN : 0);
	buf_add(ret, n->id, sizeof(n->id));
	buf_add(ret, n->name, strlen(n->name));
}

int share_node_decode(const void *p, size_t len, struct share_node *ret)
{
	struct cursor c = cursor_of(p, len);
	uint8_t version = cursor_u8(&c), flags = cursor_u8(&c);
	const void *id = cursor_take(&c, SHARE_ID_LEN);
	size_t name_len = cursor_left(&c);

	if (!id || version != SHARE_VERSION || flags & ~FLAG_FORGOTTEN || name_len > SHARE_NAME_MAX ||
	    memchr(c.p, '\0', name_len))
		return -EBADMSG;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->id, id, SHARE_ID_LEN);
	memcpy(ret->name, c.p, name_len);
	ret->is_forgotten = flags & FLAG_FORGOTTEN;
	return 0;
}

void share_totals_encode(const struct share_totals *t, struct buf *ret)
{
	buf_add_u8(ret, SHARE_VERSION);
	buf_add_u8(ret, t->any_unconfirmed ? FLAG_ANY_UNCONFIRMED : 0);
	buf_add_varint(ret, t->nr_pinned);
	buf_add_varint(ret, t->pinned_bytes);
	buf_add_varint(ret, t->nr_remote);
	buf_add_varint(ret, t->remote_bytes);
	buf_add_varint(ret, t->nr_nodes);
}

int share_totals_decode(const void *p, size_t len, struct share_totals *ret)
{
	struct cursor c = cursor_of(p, len);
	uint8_t version = cursor_u8(&c), flags = cursor_u8(&c);
	struct share_totals t;
	uint64_t nr_nodes;

	t.nr_pinned = cursor_varint(&c);
	t.pinned_bytes = cursor_varint(&c);
	t.nr_remote = cursor_varint(&c);
	t.remote_bytes = cursor_varint(&c);
	nr_nodes = cursor_varint(&c);
	if (!cursor_done(&c) || version != SHARE_VERSION || flags & ~FLAG_ANY_UNCONFIRMED ||
	    nr_nodes > UINT16_MAX + UINT64_C(1))
		return -EBADMSG;
	t.nr_nodes = (uint32_t)nr_nodes;
	t.any_unconfirmed = flags & FLAG_ANY_UNCONFIRMED;
	*ret = t;
	return 0;
}

static int get_view(struct db *db, struct ns_key key, struct buf *ret)
{
	return db_get(db, DB_VIEW, key.b, key.len, ret);
}

int share_get(struct db *db, uint32_t pack, uint32_t frame, struct share_frame *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_view(db, share_key(pack, frame), &value);

	if (r > 0 && share_frame_decode(value.data, value.len, ret) < 0)
		return log_errno(-EBADMSG, "index: damaged entry of shared chunks of pack %u frame %u", pack, frame);
	return r;
}

int share_get_node(struct db *db, uint16_t number, struct share_node *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_view(db, share_key_node(number), &value);

	if (r > 0 && share_node_decode(value.data, value.len, ret) < 0)
		return log_errno(-EBADMSG, "index: damaged entry of node %u", number);
	return r;
}

int share_get_totals(struct db *db, struct share_totals *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_view(db, share_key_totals(), &value);

	if (r > 0 && share_totals_decode(value.data, value.len, ret) < 0)
		return log_errno(-EBADMSG, "index: damaged totals of shared chunks");
	return r;
}
