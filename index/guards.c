/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/guards.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"

#define GUARD_VERSION 1
#define KEY_LEN (1 + sizeof(uint64_t))

struct ns_key guard_key(uint64_t ino)
{
	struct ns_key k = { .b = { VIEW_GUARD }, .len = KEY_LEN };

	be64_put(k.b + 1, ino);
	return k;
}

void guard_encode(const struct guard *g, struct buf *ret)
{
	struct guard_value_disk d = {
		.version = GUARD_VERSION,
		.state = (uint8_t)g->state,
		.holder_len = (uint8_t)strlen(g->holder_name),
		.origin_len = (uint8_t)strlen(g->origin_name),
		.ino = le64_put(g->ino),
		.sealed_ns = le64_put((uint64_t)g->sealed_ns),
	};

	memcpy(d.holder, g->holder, sizeof(d.holder));
	memcpy(d.origin, g->origin, sizeof(d.origin));
	buf_add(ret, &d, sizeof(d));
	buf_add(ret, g->holder_name, d.holder_len);
	buf_add(ret, g->origin_name, d.origin_len);
	buf_add_u8(ret, (uint8_t)g->nr_more);
	for (uint32_t i = 0; i < g->nr_more; i++) {
		size_t len = strlen(g->more[i].name);

		buf_add(ret, g->more[i].id, sizeof(g->more[i].id));
		buf_add_u8(ret, (uint8_t)len);
		buf_add(ret, g->more[i].name, len);
	}
}

static bool take_name(struct cursor *c, size_t len, char ret[NS_NODE_NAME_MAX + 1])
{
	const char *p = len > 0 && len <= NS_NODE_NAME_MAX ? cursor_take(c, len) : NULL;

	if (!p || memchr(p, '\0', len))
		return false;
	memcpy(ret, p, len);
	ret[len] = '\0';
	return true;
}

static bool take_more(struct cursor *c, struct guard *g)
{
	g->nr_more = cursor_u8(c);
	if (c->failed || g->nr_more > GUARD_MORE_MAX)
		return false;
	for (uint32_t i = 0; i < g->nr_more; i++) {
		const uint8_t *id = cursor_take(c, sizeof(g->more[i].id));

		if (!id || !take_name(c, cursor_u8(c), g->more[i].name))
			return false;
		memcpy(g->more[i].id, id, sizeof(g->more[i].id));
	}
	return true;
}

int guard_decode(const void *p, size_t len, struct guard *ret)
{
	struct cursor c = cursor_of(p, len);
	const struct guard_value_disk *d = cursor_take(&c, sizeof(*d));
	struct guard g = { 0 };

	if (!d || d->version != GUARD_VERSION || d->state < GUARD_BEGUN || d->state > GUARD_RELEASED ||
	    !take_name(&c, d->holder_len, g.holder_name) || !take_name(&c, d->origin_len, g.origin_name) ||
	    !take_more(&c, &g) || !cursor_done(&c))
		return -EBADMSG;
	g.state = (enum guard_state)d->state;
	memcpy(g.holder, d->holder, sizeof(g.holder));
	memcpy(g.origin, d->origin, sizeof(g.origin));
	g.ino = le64_get(d->ino);
	g.sealed_ns = (int64_t)le64_get(d->sealed_ns);
	*ret = g;
	return 0;
}

static int decode_or_log(uint64_t ino, const void *p, size_t len, struct guard *ret)
{
	int r = guard_decode(p, len, ret);

	return r < 0 ? log_errno(r, "directory %" PRIu64 ": damaged entry of its replica holders in the index", ino) : 1;
}

int guard_get(struct db *db, uint64_t ino, struct guard *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key k = guard_key(ino);
	int r = db_get(db, DB_VIEW, k.b, k.len, &value);

	return r <= 0 ? r : decode_or_log(ino, value.data, value.len, ret);
}

int guard_next(struct db *db, uint64_t after, uint64_t *ret_ino, struct guard *ret)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key from = guard_key(after + 1);
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t ino;
	int r;

	if (after == UINT64_MAX)
		return 0;
	r = db_iter_new(db, NULL, from.b, 1, from.b, from.len, &it);
	if (r == 0)
		r = db_iter_next(it, &key, &key_len, &value, &value_len);
	if (r <= 0)
		return r;
	if (key_len != KEY_LEN)
		return log_errno(-EBADMSG, "table %c: key of %zu bytes in the index", VIEW_GUARD, key_len);
	ino = be64_get((const uint8_t *)key + 1);
	r = decode_or_log(ino, value, value_len, ret);
	if (r > 0)
		*ret_ino = ino;
	return r;
}
