/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as a message between daemon and agent: refused, or one that gives the same bytes when it is encoded. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/link_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NR_WANTS 8 /* what CHUNKS are the answer to: of a length for each byte of the number */
#define NR_NODES 5
#define NR_OFFERED 9

static int again_greeting(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	struct link_welcome w;
	int r = h->type == LINK_HELLO ? link_decode_hello(p, h->len) : link_decode_welcome(p, h->len, &w);

	if (r == 0 && h->type == LINK_HELLO)
		link_encode_hello(b);
	else if (r == 0)
		link_encode_welcome(&w, b);
	return r;
}

static int again_nodes(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	_cleanup_(freep) struct link_node *nodes = NULL;
	uint32_t nr, self;
	int r = link_decode_nodes(p, h->len, &nodes, &nr, &self);

	if (r == 0)
		link_encode_nodes(nodes, nr, self, b);
	return r;
}

static int again_offer(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	_cleanup_(freep) struct fp *pages = NULL;
	uint32_t nr;
	int r = link_decode_offer(p, h->len, &pages, &nr);

	if (r == 0)
		link_encode_offer(h->number, pages, nr, b);
	return r;
}

static int again_announce(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	_cleanup_(freep) struct fp *pages = NULL;
	uint32_t nr;
	int r = link_decode_announce(p, h->len, &pages, &nr);

	if (r == 0)
		link_encode_announce(pages, nr, b);
	return r;
}

static int again_pin(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	_cleanup_(freep) struct fp *pages = NULL;
	const uint8_t *pinned;
	uint32_t nr;
	int r;

	if (h->type == LINK_PINNED) {
		r = link_decode_pinned(p, h->len, NR_WANTS, &pinned);
		if (r == 0)
			link_encode_pinned(h->number, pinned, NR_WANTS, b);
		return r;
	}
	r = link_decode_pin(p, h->len, &pages, &nr);
	if (r == 0)
		link_encode_pin(h->number, pages, nr, b);
	return r;
}

static int again_decision(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	_cleanup_(freep) struct link_owners *owners = NULL;
	uint32_t nr;
	int r = link_decode_decision(p, h->len, NR_OFFERED, NR_NODES, &owners, &nr);

	if (r == 0)
		link_encode_decision(h->number, owners, nr, b);
	return r;
}

static int again_end(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	const uint8_t *has_stored;
	int error, r;

	if (h->type == LINK_STORED) {
		r = link_decode_stored(p, h->len, &error);
		if (r == 0)
			link_encode_stored(h->number, error, b);
		return r;
	}
	r = link_decode_settled(p, h->len, NR_NODES, &has_stored);
	if (r == 0)
		link_encode_settled(h->number, has_stored, NR_NODES, b);
	return r;
}

static int again_wants(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	_cleanup_(freep) struct link_want *wants = NULL;
	uint32_t nr, nr_nodes;
	const uint8_t(*ids)[16];
	int r;

	if (h->type == LINK_GET) {
		r = link_decode_get(p, h->len, &wants, &nr);
		if (r == 0)
			link_encode_get(h->number, wants, nr, b);
		return r;
	}
	r = link_decode_fetch(p, h->len, &ids, &nr_nodes, &wants, &nr);
	if (r == 0)
		link_encode_fetch(h->number, ids, nr_nodes, wants, nr, b);
	return r;
}

static int again_chunks(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	struct link_want wants[NR_WANTS] = { 0 };
	const void *chunks[NR_WANTS];
	int r;

	for (unsigned i = 0; i < NR_WANTS; i++)
		wants[i].len = (uint8_t)(h->number >> 8 * i) + 1u;
	r = link_decode_chunks(p, h->len, wants, NR_WANTS, chunks);
	if (r == 0)
		link_encode_chunks(h->number, wants, chunks, NR_WANTS, b);
	return r;
}

#define SHARED_LEN 4096u

static int again_places(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	static const uint8_t shared[SHARED_LEN];
	struct link_want wants[NR_WANTS] = { 0 };
	const void *chunks[NR_WANTS];
	int r;

	for (unsigned i = 0; i < NR_WANTS; i++)
		wants[i].len = (uint8_t)(h->number >> 8 * i) + 1u;
	r = link_decode_places(p, h->len, wants, NR_WANTS, shared, sizeof(shared), chunks);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < NR_WANTS; i++)
		assert(!chunks[i] || ((const uint8_t *)chunks[i] > shared &&
				      (const uint8_t *)chunks[i] + wants[i].len <= shared + sizeof(shared)));
	link_encode_places(h->number, shared, chunks, NR_WANTS, b);
	return 0;
}

static int again_there(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	uint64_t off;
	uint32_t len;
	int r = link_decode_there(p, h->len, SHARED_LEN, &off, &len);

	if (r < 0)
		return r;
	assert(off <= SHARED_LEN && len <= SHARED_LEN - off);
	link_encode_there(h->number, off, len, b);
	return 0;
}

static int again_step(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	struct link_step s;
	int r = link_decode_step(p, h->len, &s);

	if (r == 0)
		link_encode_step(h->number, &s, b);
	return r;
}

static int again_done(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	struct link_done d;
	int r = link_decode_done(p, h->len, &d);

	if (r == 0)
		link_encode_done(h->type, h->number, &d, b);
	return r;
}

static int again_question(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	const uint8_t *id;
	const void *q;
	size_t len;
	int error, r;

	if (h->type == LINK_QUERY) {
		r = link_decode_query(p, h->len, &id, &q, &len);
		if (r == 0)
			link_encode_query(h->number, id, q, len, b);
		return r;
	}
	if (h->type == LINK_QUESTION) {
		r = link_decode_question(p, h->len);
		if (r == 0)
			link_encode_body(LINK_QUESTION, h->number, p, h->len, b);
		return r;
	}
	r = link_decode_answer(p, h->len, &error, &q, &len);
	if (r == 0)
		link_encode_answer(h->number, error, q, len, b);
	return r;
}

static int again_put(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	const uint8_t *kept;
	struct link_put put;
	int error, r;

	if (h->type == LINK_KEPT) {
		r = link_decode_kept(p, h->len, NR_WANTS, &error, &kept);
		if (r == 0)
			link_encode_kept(h->number, error, kept, NR_WANTS, b);
		return r;
	}
	r = link_decode_put(p, h->len, &put);
	if (r < 0)
		return r;
	link_encode_put(h->number, put.node, put.wants, put.chunks, put.nr, b);
	free(put.wants);
	free(put.chunks);
	return 0;
}

static int again_copy(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	struct link_replica c;
	struct link_drop d;
	int r;

	if (h->type == LINK_DROP) {
		r = link_decode_drop(p, h->len, &d);
		if (r == 0)
			link_encode_drop(h->number, &d, b);
		return r;
	}
	r = link_decode_replica(p, h->len, &c);
	if (r < 0)
		return r;
	link_encode_replica(h->number, &c, b);
	free(c.chunks);
	return 0;
}

static int again_error(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	int error, r = link_decode_error(p, h->len, &error);

	if (r == 0)
		link_encode_error(h->type, h->number, error, b);
	return r;
}

static int again(const struct link_header *h, const uint8_t *p, struct buf *b)
{
	switch (h->type) {
	case LINK_HELLO:
	case LINK_WELCOME:
		return again_greeting(h, p, b);
	case LINK_NODES:
		return again_nodes(h, p, b);
	case LINK_WANT:
	case LINK_BEGIN:
	case LINK_REFUSED:
	case LINK_WANT_COLLECT:
	case LINK_SHARED:
	case LINK_TAKEN:
		link_encode_plain(h->type, h->number, b);
		return 0;
	case LINK_OFFER:
		return again_offer(h, p, b);
	case LINK_ANNOUNCE:
		return again_announce(h, p, b);
	case LINK_PIN:
	case LINK_PINNED:
		return again_pin(h, p, b);
	case LINK_DECISION:
		return again_decision(h, p, b);
	case LINK_STORED:
	case LINK_SETTLED:
		return again_end(h, p, b);
	case LINK_FETCH:
	case LINK_GET:
		return again_wants(h, p, b);
	case LINK_CHUNKS:
		return again_chunks(h, p, b);
	case LINK_PLACES:
		return again_places(h, p, b);
	case LINK_THERE:
		return again_there(h, p, b);
	case LINK_STEP:
		return again_step(h, p, b);
	case LINK_DONE:
	case LINK_COLLECTED:
		return again_done(h, p, b);
	case LINK_QUERY:
	case LINK_QUESTION:
	case LINK_ANSWER:
		return again_question(h, p, b);
	case LINK_PUT:
	case LINK_KEPT:
		return again_put(h, p, b);
	case LINK_REPLICATE:
	case LINK_DROP:
		return again_copy(h, p, b);
	case LINK_REPLICATED:
	case LINK_DROPPED:
		return again_error(h, p, b);
	}
	assert(!"a type that is none");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const size_t at = sizeof(struct link_header_wire);
	struct link_header h;

	if (size < at || link_decode_header(data, at, &h) < 0 || h.len > size - at)
		return 0;
	if (h.type <= LINK_NODES)
		h.number = 0; /* these have none to encode */
	if (again(&h, data + at, &b) < 0 || buf_error(&b) < 0)
		return 0;
	assert(b.len == at + h.len);
	assert(memcmp(b.data + at, data + at, h.len) == 0);
	return 0;
}
