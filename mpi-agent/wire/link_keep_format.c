/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages of link_format.h about replicas: PUT, KEPT, REPLICATE, DROP. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/link_format_internal.h"

#define ID_LEN ((size_t)16)

/* --- encoding --- */

static void add_wants(const struct link_want *wants, uint32_t nr, struct buf *ret)
{
	for (uint32_t i = 0; i < nr; i++) {
		struct link_want_wire d = link_want_encode(&wants[i], 0);

		buf_add(ret, &d, sizeof(d));
	}
}

void link_encode_put(uint64_t number, const uint8_t node[16], const struct link_want *wants, const void *const *chunks,
		     uint32_t nr, struct buf *ret)
{
	size_t len = ID_LEN + sizeof(struct le32) + nr * (sizeof(struct link_want_wire) + 1);

	for (uint32_t i = 0; i < nr; i++)
		len += chunks[i] ? wants[i].len : 0;
	buf_reserve(ret, sizeof(struct link_header_wire) + len);
	link_add_header(ret, LINK_PUT, number, len);
	buf_add(ret, node, ID_LEN);
	buf_add_le32(ret, nr);
	add_wants(wants, nr, ret);
	for (uint32_t i = 0; i < nr; i++)
		buf_add_u8(ret, chunks[i] != NULL);
	for (uint32_t i = 0; i < nr; i++)
		if (chunks[i])
			buf_add(ret, chunks[i], wants[i].len);
}

void link_encode_kept(uint64_t number, int error, const uint8_t *kept, uint32_t nr, struct buf *ret)
{
	link_add_header(ret, LINK_KEPT, number, sizeof(struct le32) + nr);
	buf_add_le32(ret, (uint32_t)-error);
	buf_add(ret, kept, nr);
}

void link_encode_replica(uint64_t number, const struct link_replica *c, struct buf *ret)
{
	struct link_replica_wire d = {
		.ino = le64_put(c->ino),
		.sealed_ns = le64_put((uint64_t)c->sealed_ns),
		.path_len = le32_put((uint32_t)strlen(c->path)),
		.nr_chunks = le32_put(c->nr_chunks),
		.slot = le32_put(c->slot),
		.nr_slots = le32_put(c->nr_slots),
		.step = le32_put(c->step),
	};

	memcpy(d.node, c->node, sizeof(d.node));
	memcpy(d.origin, c->origin, sizeof(d.origin));
	memcpy(d.name, c->name, strnlen(c->name, LINK_NAME_LEN - 1));
	link_add_header(ret, LINK_REPLICATE, number,
			sizeof(d) + strlen(c->path) + c->nr_chunks * sizeof(struct link_want_wire));
	buf_add(ret, &d, sizeof(d));
	buf_add(ret, c->path, strlen(c->path));
	add_wants(c->chunks, c->nr_chunks, ret);
}

void link_encode_drop(uint64_t number, const struct link_drop *drop, struct buf *ret)
{
	struct link_drop_wire d = {
		.ino = le64_put(drop->ino),
		.sealed_ns = le64_put((uint64_t)drop->sealed_ns),
		.flags = le32_put(drop->abandons ? LINK_DROP_ABANDONS : 0),
	};

	memcpy(d.node, drop->node, sizeof(d.node));
	memcpy(d.origin, drop->origin, sizeof(d.origin));
	memcpy(d.name, drop->name, strnlen(drop->name, LINK_NAME_LEN - 1));
	link_add_header(ret, LINK_DROP, number, sizeof(d));
	buf_add(ret, &d, sizeof(d));
}

void link_encode_body(enum link_type type, uint64_t number, const void *body, size_t len, struct buf *ret)
{
	buf_reserve(ret, sizeof(struct link_header_wire) + len);
	link_add_header(ret, type, number, len);
	buf_add(ret, body, len);
}

/* --- decoding --- */

static int decode_wants(struct cursor *c, uint32_t nr, struct link_want **ret)
{
	const struct link_want_wire *d = cursor_take(c, nr * sizeof(*d));
	_cleanup_(freep) struct link_want *wants = NULL;

	if (!d)
		return -EBADMSG;
	wants = calloc(MAX(nr, UINT32_C(1)), sizeof(*wants));
	if (!wants)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++)
		if (link_want_decode(&d[i], &wants[i]) < 0 || wants[i].nr_owners != 0 || wants[i].as_is)
			return -EBADMSG;
	*ret = TAKE(wants);
	return 0;
}

int link_decode_put(const void *p, size_t len, struct link_put *ret)
{
	struct cursor c = cursor_of(p, len);
	const uint8_t *node = cursor_take(&c, ID_LEN);
	uint32_t nr = cursor_le32(&c);
	_cleanup_(freep) struct link_want *wants = NULL;
	_cleanup_(freep) const void **chunks = NULL;
	const uint8_t *follows;
	uint64_t bytes = 0;
	int r;

	if (c.failed || nr > LINK_CHUNKS_MAX)
		return -EBADMSG;
	r = decode_wants(&c, nr, &wants);
	if (r < 0)
		return r;
	follows = cursor_take(&c, nr);
	for (uint32_t i = 0; follows && i < nr; i++) {
		if (follows[i] > 1)
			return -EBADMSG;
		bytes += follows[i] ? wants[i].len : 0;
	}
	if (!follows || bytes > LINK_PUT_BYTES_MAX || cursor_left(&c) != bytes)
		return -EBADMSG;
	chunks = calloc(MAX(nr, UINT32_C(1)), sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++)
		chunks[i] = follows[i] ? cursor_take(&c, wants[i].len) : NULL;
	*ret = (struct link_put){ .nr = nr };
	memcpy(ret->node, node, sizeof(ret->node));
	ret->wants = TAKE(wants);
	ret->chunks = TAKE(chunks);
	return 0;
}

int link_decode_kept(const void *p, size_t len, uint32_t nr, int *ret_error, const uint8_t **ret)
{
	struct cursor c = cursor_of(p, len);
	uint32_t error = cursor_le32(&c);
	const uint8_t *kept = cursor_take(&c, nr);

	if (!kept || !cursor_done(&c) || error > LINK_ERROR_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < nr; i++)
		if (kept[i] > LINK_ON_PEERS || (error != 0 && kept[i] != LINK_NOT_KEPT))
			return -EBADMSG;
	*ret_error = -(int)error;
	*ret = kept;
	return 0;
}

/* Valid names separated by single slashes. */
static bool is_path(const char *path, size_t len)
{
	for (size_t at = 0, n; at < len; at += n + 1) {
		const char *name = path + at, *end = memchr(name, '/', len - at);

		n = end ? (size_t)(end - name) : len - at;
		if (n == 0 || n > 255 || memchr(name, '\0', n) || (n == 1 && name[0] == '.') ||
		    (n == 2 && memcmp(name, "..", 2) == 0) || at + n + 1 == len)
			return false;
	}
	return true;
}

/* Only the first step has chunks; the others need slots. */
static bool steps_fit(const struct link_replica *c)
{
	if (c->nr_slots > LINK_SLOTS_MAX || c->slot >= MAX(c->nr_slots, UINT32_C(1)))
		return false;
	return c->step == LINK_REPLICA_CREATE ?
		       c->nr_chunks > 0 :
		       (uint32_t)c->step <= LINK_REPLICA_SETTLE && c->nr_slots > 0 && c->nr_chunks == 0;
}

int link_decode_replica(const void *p, size_t len, struct link_replica *ret)
{
	struct cursor c = cursor_of(p, len);
	const struct link_replica_wire *d = cursor_take(&c, sizeof(*d));
	struct link_replica replica;
	const char *path;
	uint32_t path_len;
	int r;

	if (!d)
		return -EBADMSG;
	replica = (struct link_replica){
		.ino = le64_get(d->ino),
		.sealed_ns = (int64_t)le64_get(d->sealed_ns),
		.nr_chunks = le32_get(d->nr_chunks),
		.slot = le32_get(d->slot),
		.nr_slots = le32_get(d->nr_slots),
		.step = (enum link_replica_step)le32_get(d->step),
	};
	path_len = le32_get(d->path_len);
	if (path_len > LINK_PATH_MAX || replica.nr_chunks > LINK_REPLICA_CHUNKS_MAX || !steps_fit(&replica) ||
	    link_name_decode(d->name, replica.name) < 0)
		return -EBADMSG;
	path = cursor_take(&c, path_len);
	if (!path || !is_path(path, path_len) || cursor_left(&c) != replica.nr_chunks * sizeof(struct link_want_wire))
		return -EBADMSG;
	memcpy(replica.node, d->node, sizeof(replica.node));
	memcpy(replica.origin, d->origin, sizeof(replica.origin));
	memcpy(replica.path, path, path_len);
	r = decode_wants(&c, replica.nr_chunks, &replica.chunks);
	if (r == 0)
		*ret = replica;
	return r;
}

int link_decode_drop(const void *p, size_t len, struct link_drop *ret)
{
	const struct link_drop_wire *d = p;
	struct link_drop drop = { 0 };

	if (len != sizeof(*d) || link_name_decode(d->name, drop.name) < 0 ||
	    le32_get(d->flags) & ~LINK_DROP_ABANDONS || le32_get(d->reserved) != 0)
		return -EBADMSG;
	drop.abandons = le32_get(d->flags) & LINK_DROP_ABANDONS;
	memcpy(drop.node, d->node, sizeof(drop.node));
	memcpy(drop.origin, d->origin, sizeof(drop.origin));
	drop.ino = le64_get(d->ino);
	drop.sealed_ns = (int64_t)le64_get(d->sealed_ns);
	*ret = drop;
	return 0;
}
