/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/wire/link_format.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/link_format_internal.h"

/* --- encoding --- */

static struct link_header_wire header_of(enum link_type type, uint64_t number, size_t len)
{
	assert(len <= LINK_LEN_MAX);
	return (struct link_header_wire){ .len = le32_put((uint32_t)len),
					  .type = le16_put((uint16_t)type),
					  .number = le64_put(number) };
}

void link_add_header(struct buf *b, enum link_type type, uint64_t number, size_t len)
{
	struct link_header_wire h = header_of(type, number, len);

	buf_add(b, &h, sizeof(h));
}

void link_encode_plain(enum link_type type, uint64_t number, struct buf *ret)
{
	link_add_header(ret, type, number, 0);
}

void link_encode_hello(struct buf *ret)
{
	link_add_header(ret, LINK_HELLO, 0, sizeof(struct link_hello_wire));
	buf_add_le32(ret, LINK_VERSION);
}

void link_encode_welcome(const struct link_welcome *w, struct buf *ret)
{
	struct link_welcome_wire d = {
		.version = le32_put(LINK_VERSION),
		.hash = le32_put(w->hash),
		.incompat = le32_put(w->incompat),
		.replicas = le32_put(w->replicas),
		.popular_max = le64_put(w->popular_max),
	};

	memcpy(d.store_id, w->store_id, sizeof(d.store_id));
	memcpy(d.proof_key, w->proof_key, sizeof(d.proof_key));
	memcpy(d.name, w->name, strnlen(w->name, LINK_NAME_LEN - 1));
	link_add_header(ret, LINK_WELCOME, 0, sizeof(d));
	buf_add(ret, &d, sizeof(d));
}

void link_encode_nodes(const struct link_node *nodes, uint32_t nr, uint32_t self, struct buf *ret)
{
	link_add_header(ret, LINK_NODES, 0, 2 * sizeof(struct le32) + nr * sizeof(struct link_node_wire));
	buf_add_le32(ret, nr);
	buf_add_le32(ret, self);
	for (uint32_t i = 0; i < nr; i++) {
		struct link_node_wire d = { .host = le32_put(nodes[i].host) };

		memcpy(d.store_id, nodes[i].store_id, sizeof(d.store_id));
		memcpy(d.name, nodes[i].name, strnlen(nodes[i].name, LINK_NAME_LEN - 1));
		buf_add(ret, &d, sizeof(d));
	}
}

static void encode_pages(enum link_type type, uint64_t number, const struct fp *pages, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, type, number, (size_t)nr * FP_LEN);
	for (uint32_t i = 0; i < nr; i++) {
		uint8_t fp[FP_LEN];

		fp_encode(pages[i], fp);
		buf_add(ret, fp, sizeof(fp));
	}
}

void link_encode_offer(uint64_t round, const struct fp *pages, uint32_t nr, struct buf *ret)
{
	encode_pages(LINK_OFFER, round, pages, nr, ret);
}

void link_encode_announce(const struct fp *pages, uint32_t nr, struct buf *ret)
{
	encode_pages(LINK_ANNOUNCE, 0, pages, nr, ret);
}

void link_encode_pin(uint64_t number, const struct fp *pages, uint32_t nr, struct buf *ret)
{
	encode_pages(LINK_PIN, number, pages, nr, ret);
}

void link_encode_decision(uint64_t round, const struct link_owners *owners, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, LINK_DECISION, round, nr * sizeof(struct link_owners_wire));
	for (uint32_t i = 0; i < nr; i++) {
		struct link_owners_wire d = { .index = le32_put(owners[i].index),
					      .nr = (uint8_t)owners[i].nr,
					      .has = (uint8_t)owners[i].has };

		for (uint32_t k = 0; k < MIN(owners[i].nr, LINK_OWNERS_MAX); k++)
			d.owners[k] = le16_put(owners[i].owners[k]);
		buf_add(ret, &d, sizeof(d));
	}
}

void link_encode_error(enum link_type type, uint64_t number, int error, struct buf *ret)
{
	link_add_header(ret, type, number, sizeof(struct le32));
	buf_add_le32(ret, (uint32_t)-error);
}

void link_encode_stored(uint64_t round, int error, struct buf *ret)
{
	link_encode_error(LINK_STORED, round, error, ret);
}

void link_encode_settled(uint64_t round, const uint8_t *has_stored, uint32_t nr_nodes, struct buf *ret)
{
	link_add_header(ret, LINK_SETTLED, round, nr_nodes);
	buf_add(ret, has_stored, nr_nodes);
}

void link_encode_pinned(uint64_t number, const uint8_t *pinned, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, LINK_PINNED, number, nr);
	buf_add(ret, pinned, nr);
}

struct link_want_wire link_want_encode(const struct link_want *w, uint32_t nr_owners)
{
	struct link_want_wire d = { .nr_owners = (uint8_t)(nr_owners | (w->as_is ? LINK_AS_IS : 0)),
				    .len = le32_put(w->len) };

	fp_encode(w->fp, d.fp);
	return d;
}

void link_encode_fetch(uint64_t number, const uint8_t (*store_ids)[16], uint32_t nr_nodes,
		       const struct link_want *wants, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, LINK_FETCH, number,
		   2 * sizeof(struct le32) + nr_nodes * sizeof(*store_ids) + nr * sizeof(struct link_fetch_wire));
	buf_add_le32(ret, nr_nodes);
	buf_add_le32(ret, nr);
	buf_add(ret, store_ids, nr_nodes * sizeof(*store_ids));
	for (uint32_t i = 0; i < nr; i++) {
		struct link_fetch_wire d = { .want = link_want_encode(&wants[i], wants[i].nr_owners) };

		for (uint32_t k = 0; k < MIN((uint32_t)wants[i].nr_owners, LINK_OWNERS_MAX); k++)
			d.owners[k] = le16_put(wants[i].owners[k]);
		buf_add(ret, &d, sizeof(d));
	}
}

void link_encode_get(uint64_t number, const struct link_want *wants, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, LINK_GET, number, nr * sizeof(struct link_want_wire));
	for (uint32_t i = 0; i < nr; i++) {
		struct link_want_wire d = link_want_encode(&wants[i], 0);

		buf_add(ret, &d, sizeof(d));
	}
}

void link_encode_chunks(uint64_t number, const struct link_want *wants, const void *const *chunks, uint32_t nr,
			struct buf *ret)
{
	size_t len = nr;

	for (uint32_t i = 0; i < nr; i++)
		len += chunks[i] ? wants[i].len : 0;
	link_add_header(ret, LINK_CHUNKS, number, len);
	buf_reserve(ret, len);
	for (uint32_t i = 0; i < nr; i++)
		buf_add_u8(ret, chunks[i] != NULL);
	for (uint32_t i = 0; i < nr; i++)
		if (chunks[i])
			buf_add(ret, chunks[i], wants[i].len);
}

void link_put_chunks_head(uint64_t number, const bool *is_here, uint32_t nr, size_t bytes, uint8_t *ret)
{
	struct link_header_wire h = header_of(LINK_CHUNKS, number, nr + bytes);

	memcpy(ret, &h, sizeof(h));
	for (uint32_t i = 0; i < nr; i++)
		ret[sizeof(h) + i] = is_here[i];
}

void link_encode_step_body(const struct link_step *s, struct buf *ret)
{
	struct link_step_wire d = {
		.kind = le32_put((uint32_t)s->kind),
		.window = le32_put(s->window),
		.nr_windows = le32_put(s->nr_windows),
		.len = le32_put(s->len),
		.seed = le64_put(s->seed),
	};

	buf_reserve(ret, sizeof(d) + s->len);
	buf_add(ret, &d, sizeof(d));
	if (s->kind == LINK_UNPIN)
		buf_add(ret, s->filter, s->len);
}

void link_encode_step(uint64_t number, const struct link_step *s, struct buf *ret)
{
	link_add_header(ret, LINK_STEP, number, sizeof(struct link_step_wire) + (s->kind == LINK_UNPIN ? s->len : 0));
	link_encode_step_body(s, ret);
}

void link_encode_done_body(const struct link_done *done, struct buf *ret)
{
	struct link_done_wire d = {
		.kind = le32_put((uint32_t)done->kind),
		.window = le32_put(done->window),
		.error = le32_put((uint32_t)-done->error),
		.len = le32_put(done->len),
		.nr_referred = le64_put(done->nr_referred),
		.nr_kept = le64_put(done->nr_kept),
		.kept_bytes = le64_put(done->kept_bytes),
		.nr_dropped = le64_put(done->nr_dropped),
		.dropped_bytes = le64_put(done->dropped_bytes),
	};

	memcpy(d.missing, done->missing, strnlen(done->missing, LINK_NAME_LEN - 1));
	buf_reserve(ret, sizeof(d) + done->len);
	buf_add(ret, &d, sizeof(d));
	if (done->len > 0)
		buf_add(ret, done->filter, done->len);
}

void link_encode_done(enum link_type type, uint64_t number, const struct link_done *d, struct buf *ret)
{
	link_add_header(ret, type, number, sizeof(struct link_done_wire) + d->len);
	link_encode_done_body(d, ret);
}

void link_encode_query(uint64_t number, const uint8_t store_id[16], const void *question, size_t len, struct buf *ret)
{
	link_add_header(ret, LINK_QUERY, number, 16 + len);
	buf_add(ret, store_id, 16);
	buf_add(ret, question, len);
}

void link_encode_answer(uint64_t number, int error, const void *p, size_t len, struct buf *ret)
{
	assert(len <= LINK_ANSWER_MAX && (error == 0 || len == 0));
	link_add_header(ret, LINK_ANSWER, number, sizeof(struct le32) + len);
	buf_reserve(ret, sizeof(struct le32) + len);
	buf_add_le32(ret, (uint32_t)-error);
	buf_add(ret, p, len);
}

/* --- decoding --- */

static bool is_type(enum link_type type)
{
	return (type >= LINK_HELLO && type <= LINK_DROPPED) || (type >= LINK_QUERY && type <= LINK_ANSWER) ||
	       type == LINK_ANNOUNCE || type == LINK_SHARED || (type >= LINK_PLACES && type <= LINK_TAKEN);
}

static bool is_plain(enum link_type type)
{
	return type == LINK_WANT || type == LINK_BEGIN || type == LINK_REFUSED || type == LINK_WANT_COLLECT ||
	       type == LINK_SHARED || type == LINK_TAKEN;
}

int link_decode_header(const void *p, size_t len, struct link_header *ret)
{
	const struct link_header_wire *h = p;
	struct link_header d;

	if (len != sizeof(*h))
		return -EBADMSG;
	d = (struct link_header){ .type = (enum link_type)le16_get(h->type),
				  .len = le32_get(h->len),
				  .number = le64_get(h->number) };
	if (!is_type(d.type) || d.len > LINK_LEN_MAX || le16_get(h->reserved) != 0 ||
	    (is_plain(d.type) && d.len != 0))
		return -EBADMSG;
	*ret = d;
	return 0;
}

/* Checks the version first: the rest may have any length in other versions. */
static int decode_version(const void *p, size_t len, size_t expected_len)
{
	const struct link_hello_wire *d = p;

	if (len < sizeof(*d))
		return -EBADMSG;
	if (le32_get(d->version) != LINK_VERSION)
		return -EOPNOTSUPP;
	return len == expected_len ? 0 : -EBADMSG;
}

int link_decode_hello(const void *p, size_t len)
{
	return decode_version(p, len, sizeof(struct link_hello_wire));
}

int link_name_decode(const uint8_t name[LINK_NAME_LEN], char ret[LINK_NAME_LEN])
{
	size_t len = strnlen((const char *)name, LINK_NAME_LEN);

	if (len == 0 || len == LINK_NAME_LEN || strcmp((const char *)name, ".") == 0 ||
	    strcmp((const char *)name, "..") == 0)
		return -EBADMSG;
	for (size_t i = 0; i < LINK_NAME_LEN; i++)
		if (i < len ? name[i] < ' ' || name[i] > '~' || name[i] == '/' : name[i] != 0)
			return -EBADMSG;
	memcpy(ret, name, LINK_NAME_LEN);
	return 0;
}

int link_decode_welcome(const void *p, size_t len, struct link_welcome *ret)
{
	const struct link_welcome_wire *d = p;
	struct link_welcome w;
	int r;

	r = decode_version(p, len, sizeof(*d));
	if (r < 0)
		return r;
	w = (struct link_welcome){
		.hash = le32_get(d->hash),
		.incompat = le32_get(d->incompat),
		.replicas = le32_get(d->replicas),
		.popular_max = le64_get(d->popular_max),
	};
	if (!fp_kind_valid((enum fp_kind)w.hash) || w.replicas < 1 || w.replicas > LINK_OWNERS_MAX ||
	    w.popular_max < 1 || link_name_decode(d->name, w.name) < 0)
		return -EBADMSG;
	memcpy(w.store_id, d->store_id, sizeof(w.store_id));
	memcpy(w.proof_key, d->proof_key, sizeof(w.proof_key));
	*ret = w;
	return 0;
}

int link_decode_nodes(const void *p, size_t len, struct link_node **ret, uint32_t *ret_nr, uint32_t *ret_self)
{
	struct cursor c = cursor_of(p, len);
	uint32_t nr = cursor_le32(&c), self = cursor_le32(&c);
	_cleanup_(freep) struct link_node *nodes = NULL;
	const struct link_node_wire *d;

	if (nr > LINK_NODES_MAX || self >= nr || cursor_left(&c) != nr * sizeof(*d))
		return -EBADMSG;
	nodes = calloc(nr, sizeof(*nodes));
	if (!nodes)
		return -ENOMEM;
	d = cursor_take(&c, nr * sizeof(*d));
	for (uint32_t i = 0; i < nr; i++) {
		memcpy(nodes[i].store_id, d[i].store_id, sizeof(nodes[i].store_id));
		nodes[i].host = le32_get(d[i].host);
		if (link_name_decode(d[i].name, nodes[i].name) < 0)
			return -EBADMSG;
	}
	*ret = TAKE(nodes);
	*ret_nr = nr;
	*ret_self = self;
	return 0;
}

static int decode_pages(const void *p, size_t len, bool in_order, struct fp **ret, uint32_t *ret_nr)
{
	const uint8_t(*d)[FP_LEN] = p;
	size_t nr = len / FP_LEN;
	_cleanup_(freep) struct fp *pages = NULL;

	if (len > LINK_LEN_MAX || len % FP_LEN != 0)
		return -EBADMSG;
	pages = calloc(MAX(nr, (size_t)1), sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		pages[i] = fp_decode(d[i]);
		if (in_order && i > 0 && fp_compare(pages[i - 1], pages[i]) >= 0)
			return -EBADMSG;
	}
	*ret = TAKE(pages);
	*ret_nr = (uint32_t)nr;
	return 0;
}

int link_decode_offer(const void *p, size_t len, struct fp **ret, uint32_t *ret_nr)
{
	return decode_pages(p, len, true, ret, ret_nr);
}

int link_decode_announce(const void *p, size_t len, struct fp **ret, uint32_t *ret_nr)
{
	return len > LINK_ANNOUNCE_MAX * FP_LEN ? -EBADMSG : decode_pages(p, len, false, ret, ret_nr);
}

int link_decode_pin(const void *p, size_t len, struct fp **ret, uint32_t *ret_nr)
{
	return len > LINK_CHUNKS_MAX * FP_LEN ? -EBADMSG : link_decode_offer(p, len, ret, ret_nr);
}

static int decode_owners(const struct link_owners_wire *d, uint32_t nr_nodes, struct link_owners *ret)
{
	static const uint8_t zeros[sizeof(d->reserved)];
	struct link_owners o = { .index = le32_get(d->index), .nr = d->nr, .has = d->has };

	if (o.nr < 1 || o.nr > LINK_OWNERS_MAX || o.has >> o.nr != 0 || memcmp(d->reserved, zeros, sizeof(zeros)) != 0)
		return -EBADMSG;
	for (uint32_t k = 0; k < LINK_OWNERS_MAX; k++) {
		o.owners[k] = le16_get(d->owners[k]);
		if (k >= o.nr ? o.owners[k] != 0 : o.owners[k] >= nr_nodes || (k > 0 && o.owners[k] <= o.owners[k - 1]))
			return -EBADMSG;
	}
	*ret = o;
	return 0;
}

int link_decode_decision(const void *p, size_t len, uint32_t nr_offered, uint32_t nr_nodes, struct link_owners **ret,
			 uint32_t *ret_nr)
{
	const struct link_owners_wire *d = p;
	size_t nr = len / sizeof(*d);
	_cleanup_(freep) struct link_owners *owners = NULL;

	if (len % sizeof(*d) != 0 || nr > nr_offered)
		return -EBADMSG;
	owners = calloc(MAX(nr, (size_t)1), sizeof(*owners));
	if (!owners)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		if (decode_owners(&d[i], nr_nodes, &owners[i]) < 0 || owners[i].index >= nr_offered ||
		    (i > 0 && owners[i].index <= owners[i - 1].index))
			return -EBADMSG;
	*ret = TAKE(owners);
	*ret_nr = (uint32_t)nr;
	return 0;
}

int link_decode_error(const void *p, size_t len, int *ret)
{
	const struct le32 *error = p;

	if (len != sizeof(*error) || le32_get(*error) > LINK_ERROR_MAX)
		return -EBADMSG;
	*ret = -(int)le32_get(*error);
	return 0;
}

int link_decode_stored(const void *p, size_t len, int *ret)
{
	return link_decode_error(p, len, ret);
}

static int decode_flags(const void *p, size_t len, uint32_t nr, const uint8_t **ret)
{
	const uint8_t *flags = p;

	if (len != nr)
		return -EBADMSG;
	for (uint32_t i = 0; i < nr; i++)
		if (flags[i] > 1)
			return -EBADMSG;
	*ret = flags;
	return 0;
}

int link_decode_settled(const void *p, size_t len, uint32_t nr_nodes, const uint8_t **ret)
{
	return decode_flags(p, len, nr_nodes, ret);
}

int link_decode_pinned(const void *p, size_t len, uint32_t nr, const uint8_t **ret)
{
	return decode_flags(p, len, nr, ret);
}

int link_want_decode(const struct link_want_wire *d, struct link_want *ret)
{
	struct link_want w = { .fp = fp_decode(d->fp),
			       .len = le32_get(d->len),
			       .nr_owners = d->nr_owners & ~LINK_AS_IS,
			       .as_is = (d->nr_owners & LINK_AS_IS) != 0 };

	if (w.len < 1 || w.len > LINK_CHUNK_LEN_MAX || w.nr_owners > LINK_OWNERS_MAX)
		return -EBADMSG;
	*ret = w;
	return 0;
}

/* `bytes`: total length of the chunks so far. */
static int decode_want(const struct link_want_wire *d, struct link_want *ret, uint64_t *bytes)
{
	int r = link_want_decode(d, ret);

	if (r < 0)
		return r;
	*bytes += ret->len;
	return *bytes <= LINK_BYTES_MAX ? 0 : -EBADMSG;
}

static int decode_fetch(const struct link_fetch_wire *d, uint32_t nr_nodes, struct link_want *ret, uint64_t *bytes)
{
	int r = decode_want(&d->want, ret, bytes);

	for (uint32_t k = 0; r == 0 && k < LINK_OWNERS_MAX; k++) {
		ret->owners[k] = le16_get(d->owners[k]);
		if (k < ret->nr_owners ? ret->owners[k] >= nr_nodes : ret->owners[k] != 0)
			return -EBADMSG;
	}
	return r;
}

int link_decode_fetch(const void *p, size_t len, const uint8_t (**ret_ids)[16], uint32_t *ret_nr_nodes,
		      struct link_want **ret, uint32_t *ret_nr)
{
	struct cursor c = cursor_of(p, len);
	uint32_t nr_nodes = cursor_le32(&c), nr = cursor_le32(&c);
	_cleanup_(freep) struct link_want *wants = NULL;
	const struct link_fetch_wire *d;
	const uint8_t(*ids)[16];
	uint64_t bytes = 0;

	if (c.failed || nr_nodes > LINK_NODES_MAX || nr > LINK_CHUNKS_MAX ||
	    cursor_left(&c) != nr_nodes * sizeof(*ids) + nr * sizeof(*d))
		return -EBADMSG;
	wants = calloc(MAX(nr, UINT32_C(1)), sizeof(*wants));
	if (!wants)
		return -ENOMEM;
	ids = cursor_take(&c, nr_nodes * sizeof(*ids));
	d = cursor_take(&c, nr * sizeof(*d));
	for (uint32_t i = 0; i < nr; i++)
		if (decode_fetch(&d[i], nr_nodes, &wants[i], &bytes) < 0)
			return -EBADMSG;
	*ret_ids = ids;
	*ret_nr_nodes = nr_nodes;
	*ret = TAKE(wants);
	*ret_nr = nr;
	return 0;
}

int link_decode_get(const void *p, size_t len, struct link_want **ret, uint32_t *ret_nr)
{
	const struct link_want_wire *d = p;
	size_t nr = len / sizeof(*d);
	_cleanup_(freep) struct link_want *wants = NULL;
	uint64_t bytes = 0;

	if (len % sizeof(*d) != 0 || nr > LINK_CHUNKS_MAX)
		return -EBADMSG;
	wants = calloc(MAX(nr, (size_t)1), sizeof(*wants));
	if (!wants)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		if (decode_want(&d[i], &wants[i], &bytes) < 0 || wants[i].nr_owners != 0)
			return -EBADMSG;
	*ret = TAKE(wants);
	*ret_nr = (uint32_t)nr;
	return 0;
}

/* Checks everything first: on error chunks[] is unchanged. */
int link_decode_chunks(const void *p, size_t len, const struct link_want *wants, uint32_t nr, const void **chunks)
{
	struct cursor c = cursor_of(p, len);
	const uint8_t *is_here = cursor_take(&c, nr);
	size_t expected = 0;

	if (c.failed)
		return -EBADMSG;
	for (uint32_t i = 0; i < nr; i++) {
		if (is_here[i] > 1)
			return -EBADMSG;
		expected += is_here[i] ? wants[i].len : 0;
	}
	if (cursor_left(&c) != expected)
		return -EBADMSG;
	for (uint32_t i = 0; i < nr; i++)
		chunks[i] = is_here[i] ? cursor_take(&c, wants[i].len) : NULL;
	return 0;
}

static bool is_filter_len(uint32_t len)
{
	return len >= LINK_FILTER_MIN && len <= LINK_FILTER_MAX;
}

int link_decode_step(const void *p, size_t len, struct link_step *ret)
{
	struct cursor c = cursor_of(p, len);
	const struct link_step_wire *d = cursor_take(&c, sizeof(*d));
	struct link_step s;

	if (!d)
		return -EBADMSG;
	s = (struct link_step){
		.kind = (enum link_step_kind)le32_get(d->kind),
		.window = le32_get(d->window),
		.nr_windows = le32_get(d->nr_windows),
		.len = le32_get(d->len),
		.seed = le64_get(d->seed),
	};
	if (s.kind == LINK_PREPARE ? s.window != 0 || s.nr_windows != 0 || s.len != 0 || s.seed != 0 :
				     (s.kind != LINK_MARK && s.kind != LINK_UNPIN) || s.window >= s.nr_windows ||
					     !is_filter_len(s.len))
		return -EBADMSG;
	if (s.kind == LINK_UNPIN)
		s.filter = cursor_take(&c, s.len);
	if (!cursor_done(&c))
		return -EBADMSG;
	*ret = s;
	return 0;
}

static bool is_nothing(const uint8_t name[LINK_NAME_LEN])
{
	for (size_t i = 0; i < LINK_NAME_LEN; i++)
		if (name[i] != 0)
			return false;
	return true;
}

int link_decode_done(const void *p, size_t len, struct link_done *ret)
{
	struct cursor c = cursor_of(p, len);
	const struct link_done_wire *d = cursor_take(&c, sizeof(*d));
	struct link_done done;

	if (!d || le32_get(d->error) > LINK_ERROR_MAX)
		return -EBADMSG;
	done = (struct link_done){
		.kind = (enum link_step_kind)le32_get(d->kind),
		.window = le32_get(d->window),
		.error = -(int)le32_get(d->error),
		.len = le32_get(d->len),
		.nr_referred = le64_get(d->nr_referred),
		.nr_kept = le64_get(d->nr_kept),
		.kept_bytes = le64_get(d->kept_bytes),
		.nr_dropped = le64_get(d->nr_dropped),
		.dropped_bytes = le64_get(d->dropped_bytes),
	};
	if (le32_get(d->kind) > LINK_UNPIN ||
	    (!is_nothing(d->missing) && link_name_decode(d->missing, done.missing) < 0) ||
	    (done.kind == LINK_MARK && done.error == 0 ? !is_filter_len(done.len) : done.len != 0))
		return -EBADMSG;
	if (done.len > 0)
		done.filter = cursor_take(&c, done.len);
	if (!cursor_done(&c))
		return -EBADMSG;
	*ret = done;
	return 0;
}

int link_decode_question(const void *p, size_t len)
{
	(void)p;
	return len == 0 || len > LINK_QUESTION_MAX ? -EBADMSG : 0;
}

int link_decode_query(const void *p, size_t len, const uint8_t **ret_id, const void **ret, size_t *ret_len)
{
	struct cursor c = cursor_of(p, len);
	const uint8_t *id = cursor_take(&c, 16);

	if (!id || link_decode_question(c.p, cursor_left(&c)) < 0)
		return -EBADMSG;
	*ret_id = id;
	*ret_len = cursor_left(&c);
	*ret = c.p;
	return 0;
}

int link_decode_answer(const void *p, size_t len, int *ret_error, const void **ret, size_t *ret_len)
{
	struct cursor c = cursor_of(p, len);
	uint32_t error = cursor_le32(&c);
	size_t left = cursor_left(&c);

	if (c.failed || error > LINK_ERROR_MAX || left > LINK_ANSWER_MAX || (error != 0 && left > 0))
		return -EBADMSG;
	*ret_error = -(int)error;
	*ret = c.p;
	*ret_len = left;
	return 0;
}
