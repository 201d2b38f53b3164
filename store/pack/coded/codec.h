/*
 * The codecs: one part of a frame in, fewer bytes out, and back. Pure but for the working memory, which is kept in a
 * coder and used again: making it costs more than a part does. A few coders that are not in use are kept.
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

/* Bytes of `ret`, fewer than len; 0: it does not get smaller, or there is no memory. `ret` has room for len. Blocks are
 * coded by those who know what is in them: PACK_CODEC_CODED is 0, too. */
size_t codec_compress(struct coder *c, enum pack_codec codec, int level, const void *p, size_t len, void *ret);
/* To exactly ret_len bytes. -EBADMSG: it is damaged, and `ret` holds anything; -ENOMEM. */
/* without a base */
int codec_decompress(struct coder *c, enum pack_codec codec, const void *p, size_t len, void *ret, size_t ret_len);
/* The same to as many bytes as it has, at most `room`: how many. `before`: the plain bytes of nr_before whole parts
 * that come before it, each NULL if it is not there; what is coded against one of those is damaged. */
int codec_decompress_some(struct coder *c, enum pack_codec codec, const void *p, size_t len, uint8_t *const before[],
			  uint32_t nr_before, void *ret, size_t room);
/* Of a coded block with its base at `place` (CODE_PLACE_LEVELS), to exactly ret_len bytes: with the first stored bytes of
 * the part that its base is. What comes of it is to be compared with fingerprints. */
int codec_decompress_by_levels(struct coder *c, const void *p, size_t len, uint32_t place, const void *base,
			       size_t base_len, void *ret, size_t ret_len);
/* In two steps, of a coded block with its base at `place` (CODE_PLACE_LEFT): match_place_left(), match_place_runs().
 * What comes of it is to be compared with fingerprints. */
int codec_place_left(struct coder *c, const void *p, size_t len, uint32_t place, void *ret, size_t room);
int codec_place_runs(struct coder *c, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret);
/* Where the block has its base; 0: it has none, or is no block. */
uint32_t codec_base_place(const void *p, size_t len);
/*
 * Where the compressed part ends that begins at p, among bytes of which nobody knows what they are: it has
 * PACK_PART_BYTES, or fewer, if zeros or nothing follow. 0: there is none. Only decompressing tells whether it is good.
 */
size_t codec_find_end(enum pack_codec codec, const void *p, size_t len);
/* Where the compressed part with plain_len bytes begins that ends with these bytes, of at most PACK_PART_BYTES.
 * 1/0/-ENOMEM. */
int codec_find_start(enum pack_codec codec, const void *p, size_t len, size_t plain_len, size_t *ret);
