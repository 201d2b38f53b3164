/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/log/record_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/le.h"

void replace_encode(const struct replace *rp, struct buf *ret)
{
	buf_add_varint(ret, rp->ino);
	buf_add_varint(ret, rp->size);
	buf_add_le64(ret, (uint64_t)rp->mtime_ns);
	buf_add_le64(ret, (uint64_t)rp->ctime_ns);
	buf_add_varint(ret, rp->off);
	buf_add_varint(ret, rp->len);
	if (rp->nr > 0)
		recipe_encode(rp->x, rp->nr, ret);
}

static bool is_range(uint64_t off, uint64_t len)
{
	return off <= CONTENT_MAX_SIZE && len <= CONTENT_MAX_SIZE - off;
}

/* A patch must have extents that start and end with its range, so that each change has a single encoding. */
static bool extents_fit(const struct replace *rp)
{
	uint64_t end = rp->nr > 0 ? (uint64_t)rp->x[rp->nr - 1].off + rp->x[rp->nr - 1].len : 0;

	if (rp->nr > 0 && rp->len > SEGMENT_SIZE)
		return false;
	if (!rp->keeps)
		return end <= rp->len;
	return rp->nr > 0 && rp->x[0].off == 0 && end == rp->len && rp->off % SEGMENT_SIZE + end <= SEGMENT_SIZE;
}

int replace_decode(enum record_type type, const void *p, size_t len, struct replace *ret)
{
	struct replace rp = { .keeps = type == RECORD_PATCH };
	struct cursor c = cursor_of(p, len);
	int r;

	rp.ino = cursor_varint(&c);
	rp.size = cursor_varint(&c);
	rp.mtime_ns = (int64_t)cursor_le64(&c);
	rp.ctime_ns = (int64_t)cursor_le64(&c);
	rp.off = cursor_varint(&c);
	rp.len = cursor_varint(&c);
	if (c.failed || !is_range(rp.off, rp.len))
		return -EBADMSG;
	if (cursor_left(&c) > 0) {
		r = recipe_decode(c.p, cursor_left(&c), &rp.x, &rp.nr);
		if (r < 0)
			return r;
	}
	if (!extents_fit(&rp)) {
		free(rp.x);
		return -EBADMSG;
	}
	*ret = rp;
	return 0;
}

void clone_encode(const struct clone *cl, struct buf *ret)
{
	buf_add_varint(ret, cl->ino);
	buf_add_varint(ret, cl->size);
	buf_add_le64(ret, (uint64_t)cl->mtime_ns);
	buf_add_le64(ret, (uint64_t)cl->ctime_ns);
	buf_add_varint(ret, cl->off);
	buf_add_varint(ret, cl->len);
	buf_add_varint(ret, cl->from);
	buf_add_varint(ret, cl->from_off);
}

int clone_decode(const void *p, size_t len, struct clone *ret)
{
	struct cursor c = cursor_of(p, len);
	struct clone cl = { 0 };

	cl.ino = cursor_varint(&c);
	cl.size = cursor_varint(&c);
	cl.mtime_ns = (int64_t)cursor_le64(&c);
	cl.ctime_ns = (int64_t)cursor_le64(&c);
	cl.off = cursor_varint(&c);
	cl.len = cursor_varint(&c);
	cl.from = cursor_varint(&c);
	cl.from_off = cursor_varint(&c);
	if (!cursor_done(&c) || cl.len == 0 || cl.len > CLONE_MAX || !is_range(cl.off, cl.len) ||
	    !is_range(cl.from_off, cl.len))
		return -EBADMSG;
	*ret = cl;
	return 0;
}

void marks_encode(const struct pack_marks *m, struct buf *ret)
{
	unsigned nr = PACK_NR_STREAMS;

	while (nr > PACK_MORE_BULK && m->stream[nr - 1].pack == 0)
		nr--;
	buf_add_varint(ret, nr);
	for (unsigned i = 0; i < nr; i++) {
		buf_add_varint(ret, m->stream[i].pack);
		buf_add_varint(ret, m->stream[i].nr_frames);
	}
	buf_add_varint(ret, m->next_pack);
	buf_add_varint(ret, m->counts.nr_frames);
	buf_add_varint(ret, m->counts.nr_chunks);
	buf_add_varint(ret, m->counts.chunk_bytes);
	buf_add_varint(ret, m->counts.stored_bytes);
}

int marks_decode(const void *p, size_t len, struct pack_marks *ret)
{
	struct cursor c = cursor_of(p, len);
	struct pack_marks m = { 0 };
	uint64_t nr = cursor_varint(&c), next_pack;

	if (nr < PACK_MORE_BULK || nr > PACK_NR_STREAMS)
		return -EBADMSG;
	for (unsigned i = 0; i < nr; i++) {
		uint64_t pack = cursor_varint(&c), frames = cursor_varint(&c);

		if (pack > UINT32_MAX || frames > UINT32_MAX || (pack == 0 && frames > 0))
			return -EBADMSG;
		m.stream[i] = (struct pack_mark){ (uint32_t)pack, (uint32_t)frames };
	}
	next_pack = cursor_varint(&c);
	m.counts.nr_frames = cursor_varint(&c);
	m.counts.nr_chunks = cursor_varint(&c);
	m.counts.chunk_bytes = cursor_varint(&c);
	m.counts.stored_bytes = cursor_varint(&c);
	if (!cursor_done(&c) || next_pack == 0 || next_pack > UINT32_MAX)
		return -EBADMSG;
	m.next_pack = (uint32_t)next_pack;
	*ret = m;
	return 0;
}

void frames_encode(const struct pack_written *w, struct buf *ret)
{
	buf_add_varint(ret, w->nr);
	for (unsigned i = 0; i < w->nr; i++) {
		struct le64 seal = le64_put(w->frames[i].seal);

		buf_add_varint(ret, w->frames[i].pack);
		buf_add_varint(ret, w->frames[i].frame);
		buf_add(ret, &seal, sizeof(seal));
	}
}

int frames_decode(const void *p, size_t len, struct pack_written *ret)
{
	struct cursor c = cursor_of(p, len);
	struct pack_seal frames[PACK_WRITTEN_MAX];
	uint64_t nr = cursor_varint(&c);

	if (nr == 0 || nr > PACK_WRITTEN_MAX)
		return -EBADMSG;
	for (unsigned i = 0; i < nr; i++) {
		uint64_t pack = cursor_varint(&c), frame = cursor_varint(&c);
		const void *seal = cursor_take(&c, sizeof(struct le64));
		struct le64 v;

		if (!seal || pack == 0 || pack > UINT32_MAX || frame > UINT32_MAX)
			return -EBADMSG;
		memcpy(&v, seal, sizeof(v));
		frames[i] = (struct pack_seal){ (uint32_t)pack, (uint32_t)frame, le64_get(v) };
	}
	if (!cursor_done(&c))
		return -EBADMSG;
	memcpy(ret->frames, frames, nr * sizeof(*frames));
	ret->nr = (unsigned)nr;
	return 0;
}
