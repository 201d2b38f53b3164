/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"

#define BUF_SIZE_MIN 256

void buf_release(struct buf *b)
{
	free(b->data);
	*b = BUF_EMPTY;
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

void buf_move(struct buf *to, struct buf *from)
{
	struct buf moved = *from; /* so that moving onto itself is harmless */

	*from = BUF_EMPTY;
	buf_release(to);
	*to = moved;
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t need, size;
	uint8_t *data;

	if (b->failed)
		return -ENOMEM;
	if (more <= b->size - b->len)
		return 0;
	if (__builtin_add_overflow(b->len, more, &need) || need > SIZE_MAX / 2)
		goto failed;
	size = MAX(b->size * 2, (size_t)BUF_SIZE_MIN);
	size = MAX(size, need);
	data = realloc(b->data, size);
	if (!data)
		goto failed;
	b->data = data;
	b->size = size;
	return 0;

failed:
	b->failed = true;
	return -ENOMEM;
}

int buf_error(const struct buf *b)
{
	return b->failed ? -ENOMEM : 0;
}

void buf_add(struct buf *b, const void *p, size_t len)
{
	if (len == 0 || buf_reserve(b, len) < 0)
		return;
	memcpy(b->data + b->len, p, len);
	b->len += len;
}

void buf_add_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, sizeof(v));
}

void buf_add_le32(struct buf *b, uint32_t v)
{
	struct le32 le = le32_put(v);

	buf_add(b, &le, sizeof(le));
}

void buf_add_le64(struct buf *b, uint64_t v)
{
	struct le64 le = le64_put(v);

	buf_add(b, &le, sizeof(le));
}

void buf_add_varint(struct buf *b, uint64_t v)
{
	uint8_t bytes[VARINT_LEN_MAX];

	buf_add(b, bytes, (size_t)(varint_put(bytes, v) - bytes));
}

const void *cursor_take(struct cursor *c, size_t len)
{
	const uint8_t *p = c->p;

	if (c->failed || len > (size_t)(c->end - c->p)) {
		c->failed = true;
		return NULL;
	}
	if (len > 0) /* an empty input may be NULL, to which not even 0 may be added */
		c->p += len;
	return p;
}

uint8_t cursor_u8(struct cursor *c)
{
	const uint8_t *p = cursor_take(c, 1);

	return p ? *p : 0;
}

uint32_t cursor_le32(struct cursor *c)
{
	const struct le32 *p = cursor_take(c, sizeof(*p));

	return p ? le32_get(*p) : 0;
}

uint64_t cursor_le64(struct cursor *c)
{
	const struct le64 *p = cursor_take(c, sizeof(*p));

	return p ? le64_get(*p) : 0;
}

/* One number has one encoding: a last byte of zero (over-long) or bits beyond the 64th are refused. */
uint64_t cursor_varint(struct cursor *c)
{
	size_t len = c->failed ? 0 : MIN(cursor_left(c), (size_t)VARINT_LEN_MAX);
	const uint8_t *p = c->p;
	uint64_t v = 0;

	for (unsigned i = 0; i < len; i++) {
		uint8_t byte = p[i];

		if (i == VARINT_LEN_MAX - 1 && byte > 1)
			break;
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (byte & 0x80)
			continue;
		if (byte == 0 && i > 0)
			break;
		c->p = p + i + 1;
		return v;
	}
	c->failed = true;
	return 0;
}
