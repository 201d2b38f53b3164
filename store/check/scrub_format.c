/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Encoding of the scrub record, 'M' "scrub" in the view. docs/format.md changes with this. */
#include <errno.h>

#include "base/buf.h"
#include "store/check/scrub_job.h"

#define SCRUB_VERSION 1u

static void sums_encode(const struct scrub_sums *s, struct buf *ret)
{
	buf_add_varint(ret, s->nr_chunks);
	buf_add_varint(ret, s->bytes);
	buf_add_varint(ret, s->nr_damaged);
	buf_add_varint(ret, s->nr_left);
}

static struct scrub_sums sums_decode(struct cursor *c)
{
	struct scrub_sums s;

	s.nr_chunks = cursor_varint(c);
	s.bytes = cursor_varint(c);
	s.nr_damaged = cursor_varint(c);
	s.nr_left = cursor_varint(c);
	return s;
}

void scrub_state_encode(const struct scrub_state *st, struct buf *ret)
{
	buf_add_u8(ret, SCRUB_VERSION);
	buf_add_varint(ret, st->pack);
	buf_add_varint(ret, st->frame);
	sums_encode(&st->round, ret);
	buf_add_varint(ret, st->last_ns);
	sums_encode(&st->last, ret);
}

int scrub_state_decode(const void *p, size_t len, struct scrub_state *ret)
{
	struct cursor c = cursor_of(p, len);
	uint8_t version = cursor_u8(&c);
	uint64_t pack = cursor_varint(&c), frame = cursor_varint(&c);
	struct scrub_state st = { .round = sums_decode(&c) };

	st.last_ns = cursor_varint(&c);
	st.last = sums_decode(&c);
	if (!cursor_done(&c) || version != SCRUB_VERSION || pack > UINT32_MAX || frame > UINT32_MAX)
		return -EBADMSG;
	st.pack = (uint32_t)pack;
	st.frame = (uint32_t)frame;
	*ret = st;
	return 0;
}
