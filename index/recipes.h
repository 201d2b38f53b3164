/*
 * A file's recipe in the view: one value per 1 MiB segment that has any data. A value lists the
 * segment's extents in order of offset; what no extent covers is a hole.
 *
 * Value: version byte 1, varint number of extents, then per extent varints: gap to the end of the
 * extent before, length, node, and pack and offset relative to where the extent before ended
 * (zig-zag), so that neighbours cost a few bytes.
 *
 * Decoding is pure, trusts nothing: -EBADMSG for overlap, excess, or bytes left over.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "index/namespace.h"

#define SEGMENT_SIZE (1u << 20)

struct extent {
	uint32_t off; /* in the segment */
	uint32_t len; /* off + len <= SEGMENT_SIZE */
	struct addr addr;
};

struct ns_key recipe_key(uint64_t ino, uint64_t segment);
struct ns_key recipe_prefix(uint64_t ino);
/* The segment number of a key of this inode's prefix. */
int recipe_key_decode(const void *key, size_t len, uint64_t *ret_ino, uint64_t *ret_segment);

void recipe_encode(const struct extent *x, size_t nr, struct buf *ret);
/* Allocates *ret (caller frees); nr may be 0, then *ret is NULL. */
int recipe_decode(const void *p, size_t len, struct extent **ret, size_t *ret_nr);
/* 1 found, 0 absent (a hole), <0. */
int recipe_get(struct db *db, uint64_t ino, uint64_t segment, struct extent **ret, size_t *ret_nr);
/* The first segment >= from that has data. 1 found, 0 none, <0. */
int recipe_next(struct db *db, uint64_t ino, uint64_t from, uint64_t *ret_segment);
