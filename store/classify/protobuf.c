/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/protobuf.h"

#include <errno.h>
#include <stddef.h>

#include "base/le.h"

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static int take_varint(struct protobuf *m, uint64_t *ret)
{
	uint64_t n = 0;

	for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
		uint8_t b = *m->at++;

		n |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*ret = n;
			return 0;
		}
	}
	return -EBADMSG;
}

static int take_fixed(struct protobuf *m, unsigned bytes, uint64_t *ret)
{
	if ((size_t)(m->end - m->at) < bytes)
		return -EBADMSG;
	*ret = bytes == 8 ? le64_get(*(const struct le64 *)m->at) : le32_get(*(const struct le32 *)m->at);
	m->at += bytes;
	return 0;
}

static int take_bytes(struct protobuf *m, struct protobuf_field *ret)
{
	if (take_varint(m, &ret->len) < 0 || ret->len > (uint64_t)(m->end - m->at))
		return -EBADMSG;
	ret->bytes = m->at;
	m->at += ret->len;
	return 0;
}

int protobuf_next(struct protobuf *m, struct protobuf_field *ret)
{
	uint64_t tag;
	int r;

	if (m->at == m->end)
		return 0;
	if (take_varint(m, &tag) < 0 || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
		return -EBADMSG;
	*ret = (struct protobuf_field){ .number = (uint32_t)(tag >> 3) };
	switch (tag & 7) {
	case WIRE_VARINT:
		r = take_varint(m, &ret->value);
		break;
	case WIRE_64:
		r = take_fixed(m, 8, &ret->value);
		break;
	case WIRE_32:
		r = take_fixed(m, 4, &ret->value);
		break;
	case WIRE_BYTES:
		r = take_bytes(m, ret);
		break;
	default:
		r = -EBADMSG;
	}
	return r < 0 ? r : 1;
}
