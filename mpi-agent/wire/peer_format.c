/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/wire/peer_format.h"

#include <errno.h>
#include <stdbool.h>

#include "base/buf.h"

struct peer_header_wire peer_header_encode(const struct mac_key *key, const struct peer_header *h, const void *body,
					   size_t len)
{
	struct peer_header_wire d = {
		.type = le32_put((uint32_t)h->type),
		.from = le32_put(h->from),
		.to = le32_put(h->to),
		.len = le32_put((uint32_t)len),
		.sequence = le64_put(h->sequence),
		.number = le64_put(h->number),
	};

	assert(len <= PEER_BODY_MAX);
	mac_compute_of(key, d.mac + MAC_LEN, sizeof(d) - MAC_LEN, body, len, d.mac);
	return d;
}

void peer_encode(const struct mac_key *key, const struct peer_header *h, const void *body, size_t len, struct buf *ret)
{
	struct peer_header_wire d = peer_header_encode(key, h, body, len);

	buf_reserve(ret, sizeof(d) + len);
	buf_add(ret, &d, sizeof(d));
	buf_add(ret, body, len);
}

static bool is_type(enum peer_type type)
{
	return (type >= PEER_WANT && type <= PEER_DROPPED) || type == PEER_QUESTION || type == PEER_ANSWER ||
	       type == PEER_TWICE;
}

static bool has_body(enum peer_type type)
{
	return type == PEER_GET || type == PEER_CHUNKS ||
	       (type >= PEER_ASK && type != PEER_COLLECT && type != PEER_TWICE);
}

int peer_decode(const struct mac_key *key, const void *p, size_t len, struct peer_header *ret)
{
	const struct peer_header_wire *d = p;
	struct peer_header h;
	size_t body;

	if (len < sizeof(*d) || len - sizeof(*d) > PEER_BODY_MAX)
		return -EBADMSG;
	body = len - sizeof(*d);
	h = (struct peer_header){
		.type = (enum peer_type)le32_get(d->type),
		.from = le32_get(d->from),
		.to = le32_get(d->to),
		.sequence = le64_get(d->sequence),
		.number = le64_get(d->number),
	};
	if (!is_type(h.type) || le32_get(d->len) != body || (body > 0 && !has_body(h.type)) ||
	    !mac_is_valid_of(key, d->mac + MAC_LEN, sizeof(*d) - MAC_LEN, d + 1, body, d->mac))
		return -EBADMSG;
	*ret = h;
	return 0;
}
