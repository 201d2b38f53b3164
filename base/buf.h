/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A growing byte buffer to encode into, and a bounded cursor to decode from.
 *
 * Errors are sticky: encoders call buf_add_*() without checks and test buf_error() once at the end. A cursor past its
 * end likewise returns zeros and stays failed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t len, size;
	bool failed;
};

#define BUF_EMPTY ((struct buf){ 0 })

void buf_release(struct buf *b); /* frees, leaves BUF_EMPTY */
void buf_clear(struct buf *b);	 /* len = 0, keeps the memory */
void buf_move(struct buf *to, struct buf *from);
int buf_reserve(struct buf *b, size_t more);
int buf_error(const struct buf *b); /* 0 or -ENOMEM */

void buf_add(struct buf *b, const void *p, size_t len);
void buf_add_u8(struct buf *b, uint8_t v);
void buf_add_le32(struct buf *b, uint32_t v);
void buf_add_le64(struct buf *b, uint64_t v);
void buf_add_varint(struct buf *b, uint64_t v); /* LEB128, at most VARINT_LEN_MAX bytes */
/* The same into memory with enough room, to add many quickly. Returns the end. */
#define VARINT_LEN_MAX 10u /* 64 bits, 7 in each byte */
static inline uint8_t *varint_put(uint8_t *to, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*to++ = (uint8_t)(v | 0x80);
	*to++ = (uint8_t)v;
	return to;
}

struct cursor {
	const uint8_t *p, *end;
	bool failed;
};

static inline struct cursor cursor_of(const void *p, size_t len)
{
	return (struct cursor){ p, len > 0 ? (const uint8_t *)p + len : p, false }; /* p may be NULL if empty */
}

const void *cursor_take(struct cursor *c, size_t len); /* borrows from the input; NULL past the end */
uint8_t cursor_u8(struct cursor *c);
uint32_t cursor_le32(struct cursor *c);
uint64_t cursor_le64(struct cursor *c);
uint64_t cursor_varint(struct cursor *c); /* over-long or over-wide encodings fail */
static inline size_t cursor_left(const struct cursor *c)
{
	return c->failed ? 0 : (size_t)(c->end - c->p);
}
static inline bool cursor_done(const struct cursor *c) /* everything taken, nothing failed */
{
	return !c->failed && c->p == c->end;
}
