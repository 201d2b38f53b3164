/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/compacted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/search.h"
#include "base/util.h"
#include "index/namespace_table.h"
#include "store/engine.h"

#define NOTE "compacted"
#define VERSION 1u

void compacted_release(struct compacted *c)
{
	free(c->v);
	*c = (struct compacted){ 0 };
}

/* Index of the directory, or where it would be inserted. */
static size_t find_directory(const struct compacted *c, uint64_t ino)
{
	return search_u64(c->v, c->nr, sizeof(*c->v), ino);
}

bool compacted_has(struct compacted *c, uint64_t ino, uint64_t sealed_ns)
{
	size_t at = find_directory(c, ino);
	bool is_there = at < c->nr && c->v[at].ino == ino && c->v[at].sealed_ns == sealed_ns;

	if (is_there)
		c->v[at].seen = true;
	return is_there || (c->nr == COMPACTED_MAX && sealed_ns <= c->dropped_ns);
}

static void remove_entry(struct compacted *c, size_t at)
{
	memmove(&c->v[at], &c->v[at + 1], (--c->nr - at) * sizeof(*c->v));
}

/* Makes room for a directory that was sealed at this time. false: it is older than all in the set. */
static bool drop_oldest(struct compacted *c, uint64_t sealed_ns)
{
	size_t oldest = 0;

	for (size_t i = 1; i < c->nr; i++)
		if (c->v[i].sealed_ns < c->v[oldest].sealed_ns)
			oldest = i;
	if (sealed_ns < c->v[oldest].sealed_ns) {
		c->dropped_ns = MAX(c->dropped_ns, sealed_ns);
		return false;
	}
	c->dropped_ns = c->v[oldest].sealed_ns;
	remove_entry(c, oldest);
	return true;
}

int compacted_add(struct compacted *c, uint64_t ino, uint64_t sealed_ns)
{
	size_t at;

	if (c->nr == COMPACTED_MAX && !drop_oldest(c, sealed_ns))
		return 0;
	if (c->nr == c->room) {
		size_t room = MAX(2 * c->room, (size_t)64);
		struct compacted_dir *more = reallocarray(c->v, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->v = more;
		c->room = room;
	}
	at = find_directory(c, ino);
	if (at == c->nr || c->v[at].ino != ino)
		memmove(&c->v[at + 1], &c->v[at], (c->nr++ - at) * sizeof(*c->v));
	c->v[at] = (struct compacted_dir){ ino, sealed_ns, true };
	return 0;
}

void compacted_drop_unseen(struct compacted *c)
{
	size_t nr = 0;

	for (size_t i = 0; i < c->nr; i++)
		if (c->v[i].seen) {
			c->v[nr] = c->v[i];
			c->v[nr++].seen = false;
		}
	c->nr = nr;
}

void compacted_encode(const struct compacted *c, struct buf *ret)
{
	buf_add_u8(ret, VERSION);
	buf_add_varint(ret, c->nr);
	for (size_t i = 0; i < c->nr; i++) {
		buf_add_varint(ret, c->v[i].ino - (i > 0 ? c->v[i - 1].ino : 0));
		buf_add_varint(ret, c->v[i].sealed_ns);
	}
}

int compacted_decode(const void *p, size_t len, struct compacted *ret)
{
	struct cursor in = cursor_of(p, len);
	struct compacted c = { 0 };
	uint8_t version = cursor_u8(&in);
	uint64_t nr = cursor_varint(&in), ino = 0;
	int r = version == VERSION && nr <= COMPACTED_MAX && nr <= len ? 0 : -EBADMSG;

	for (; r == 0 && c.nr < nr; r = r < 0 ? r : compacted_add(&c, ino, cursor_varint(&in))) {
		uint64_t more = cursor_varint(&in);

		if (more == 0 || more > UINT64_MAX - ino) /* must ascend; also 0 at the end of the bytes */
			r = -EBADMSG;
		ino += more;
	}
	if (r == 0 && !cursor_done(&in))
		r = -EBADMSG;
	if (r < 0) {
		compacted_release(&c);
		return r;
	}
	for (size_t i = 0; i < c.nr; i++)
		c.v[i].seen = false;
	*ret = c;
	return 0;
}

int compacted_load(struct engine *e, struct compacted *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = ns_get_meta(engine_db(e), NOTE, &value);

	if (r <= 0)
		return r;
	r = compacted_decode(value.data, value.len, ret);
	if (r == -EBADMSG) {
		log_warning("index: cannot read the record of compacted directories; starting a new one");
		r = 0;
	}
	return r;
}

int compacted_save(struct engine *e, const struct compacted *c)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	compacted_encode(c, &value);
	r = buf_error(&value);
	if (r < 0)
		return r;
	engine_tx_put(&tx, ns_key_meta(NOTE), value.data, value.len);
	return engine_tx_apply(e, &tx);
}
