/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The codecs compress and decompress one part of a frame. They are pure functions except for their working memory,
 * which is kept in a coder and reused: allocating it costs more than compressing a part. A few unused coders are kept.
 *
 * Thread rule: any thread; a coder belongs to one thread at a time.
 */
#pragma once

#include <stddef.h>

#include "base/mutex.h"
#include "store/pack/pack_format.h"

struct coder;

struct coders {
	struct mutex lock; /* leaf */
	struct coder *free GUARDED_BY(lock);
	unsigned nr_free GUARDED_BY(lock);
};

void coders_init(struct coders *cs);
void coders_release(struct coders *cs);
struct coder *coder_get(struct coders *cs); /* NULL: no memory */
void coder_put(struct coders *cs, struct coder *c); /* NULL is fine */

/* Returns the bytes written to `ret`, fewer than len; 0: does not shrink, or no memory. `ret` has room for len. Always
 * 0 for PACK_CODEC_CODED: coding needs the data type, so the caller does it (store/codec). */
size_t codec_compress(struct coder *c, enum pack_codec codec, int level, const void *p, size_t len, void *ret);
/* Decompress a part of unknown length, at most `room`: returns its length. `before`: plain bytes of the nr_before whole
 * parts before it, NULL for parts that are missing; a part coded against a missing one counts as damaged. -EBADMSG:
 * damaged, and `ret` is undefined; -ENOMEM. */
int codec_decompress_some(struct coder *c, enum pack_codec codec, const void *p, size_t len, uint8_t *const before[],
			  uint32_t nr_before, void *ret, size_t room);
/* Decompress a coded block with its base at `place` (CODE_PLACE_LEVELS) to exactly ret_len bytes. `base` is the
 * beginning of the stored bytes of its base part. The caller verifies the result by fingerprints. */
int codec_decompress_by_levels(struct coder *c, const void *p, size_t len, uint32_t place, const void *base,
			       size_t base_len, void *ret, size_t ret_len);
/* Decompress a coded block with its base at `place` (CODE_PLACE_MATCHED) in two steps: match_place_left(), then
 * match_place_runs(). The caller verifies the result by fingerprints. */
int codec_place_left(struct coder *c, const void *p, size_t len, uint32_t place, void *ret, size_t room);
int codec_place_runs(struct coder *c, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret);
/* Place of the block's base; 0: no base, or not a block. */
uint32_t codec_base_place(const void *p, size_t len);
/*
 * Find the end of the compressed part that begins at p, among unidentified bytes. It has PACK_PART_BYTES plain bytes,
 * or fewer if zeros or nothing follow. 0: not found. Only decompressing it shows whether it is intact.
 */
size_t codec_find_end(enum pack_codec codec, const void *p, size_t len);
/* Find the beginning of a compressed part that ends at p + len and has plain_len plain bytes; len is at most
 * PACK_PART_BYTES. 1/0/-ENOMEM. */
int codec_find_start(enum pack_codec codec, const void *p, size_t len, size_t plain_len, size_t *ret);
