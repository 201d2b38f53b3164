/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A file's recipe in the view: one value per 1 MiB segment that has any data. A value lists the segment's extents in
 * order of offset; what no extent covers is a hole, or, where the value names a layer, what that layer has there.
 *
 * A layer has extents that segments of several files have in common. It has a number, a value of the same form as a
 * recipe's, and may lie on another layer with a lower number: so there are no cycles. It never changes.
 *
 *   'R' inode segment -> [layer] extents         'P' number -> [layer] extents
 *
 * Value: version byte 1, varint number of extents, and the extents, each encoded as its difference from the one before
 * (docs/format.md section 5); with bit 7 of the version byte, the varint number of a layer precedes that of extents.
 *
 * Decoding is pure, trusts nothing: -EBADMSG for overlap, excess, or bytes left over.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "index/namespace_table.h"

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
/* Over a layer; 0: over none. */
void recipe_encode_over(uint64_t layer, const struct extent *x, size_t nr, struct buf *ret);
/* Of one that names no layer. Allocates *ret (caller frees); nr may be 0, then *ret is NULL. */
int recipe_decode(const void *p, size_t len, struct extent **ret, size_t *ret_nr);
/* Of any: these are the extents over *ret_layer, which is 0 if there is none. */
int recipe_decode_over(const void *p, size_t len, uint64_t *ret_layer, struct extent **ret, size_t *ret_nr);

bool recipe_has_layer(const void *p, size_t len); /* if it decodes */

struct ns_key layer_key(uint64_t layer);
struct ns_key layer_prefix(void); /* of all */
int layer_key_decode(const void *key, size_t len, uint64_t *ret); /* never 0 */

/* The value, appended to *ret. 1 found, 0 absent (a hole), <0. */
int recipe_get(struct db *db, uint64_t ino, uint64_t segment, struct buf *ret);
/* The first segment >= from that has data. 1 found, 0 none, <0. */
int recipe_next(struct db *db, uint64_t ino, uint64_t from, uint64_t *ret_segment);
