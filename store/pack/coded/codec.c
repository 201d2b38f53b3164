/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/coded/codec.h"

#include <assert.h>
#include <errno.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/util.h"
#include "store/codec/code.h"
#include "store/codec/match.h"
#include "store/codec/twin.h"

#define NR_FREE_MAX \
	8u /* at most 0.5 MiB each at the usual levels, and only if zstd is used; 1.5 MiB with coded blocks */

struct coder {
	struct coder *next_free;
	ZSTD_CCtx *compressor; /* NULL: not needed so far */
	ZSTD_DCtx *decompressor;
	struct code_work *blocks;
	struct match_out *runs;
	uint8_t *base; /* base of a block: one part, and room to round or widen to one */
};

static void coder_free(struct coder *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->compressor);
	ZSTD_freeDCtx(c->decompressor);
	code_work_free(c->blocks);
	match_out_free(c->runs);
	free(c->base);
	free(c);
}

void coders_init(struct coders *cs)
{
	*cs = (struct coders){ 0 };
	mutex_init(&cs->lock);
}

void coders_release(struct coders *cs)
{
	for (struct coder *c = cs->free, *next; c; c = next) {
		next = c->next_free;
		coder_free(c);
	}
	mutex_release(&cs->lock);
}

struct coder *coder_get(struct coders *cs)
{
	struct coder *c;

	mutex_lock(&cs->lock);
	c = cs->free;
	if (c) {
		cs->free = c->next_free;
		cs->nr_free--;
	}
	mutex_unlock(&cs->lock);
	return c ? c : calloc(1, sizeof(*c));
}

void coder_put(struct coders *cs, struct coder *c)
{
	if (!c)
		return;
	mutex_lock(&cs->lock);
	if (cs->nr_free < NR_FREE_MAX) {
		c->next_free = cs->free;
		cs->free = c;
		cs->nr_free++;
		c = NULL;
	}
	mutex_unlock(&cs->lock);
	coder_free(c);
}

static size_t zstd_compress(struct coder *c, int level, const void *p, size_t len, void *ret, size_t room)
{
	size_t n;

	if (!c->compressor)
		c->compressor = ZSTD_createCCtx();
	if (!c->compressor)
		return 0;
	n = ZSTD_compressCCtx(c->compressor, ret, room, p, len, level);
	return ZSTD_isError(n) ? 0 : n;
}

size_t codec_compress(struct coder *c, enum pack_codec codec, int level, const void *p, size_t len, void *ret)
{
	size_t room = len - 1; /* output that does not fit is not smaller */

	assert(len > 0 && len <= PACK_PART_BYTES);
	if (room == 0)
		return 0;
	switch (codec) {
	case PACK_CODEC_LZ4:
		return (size_t)LZ4_compress_default(p, ret, (int)len, (int)room);
	case PACK_CODEC_ZSTD:
		return zstd_compress(c, level, p, len, ret, room);
	default:
		break;
	}
	return 0;
}

static int zstd_decompress(struct coder *c, const void *p, size_t len, void *ret, size_t room)
{
	size_t n;

	if (!c->decompressor)
		c->decompressor = ZSTD_createDCtx();
	if (!c->decompressor)
		return -ENOMEM;
	n = ZSTD_decompressDCtx(c->decompressor, ret, room, p, len);
	return ZSTD_isError(n) ? -EBADMSG : (int)n;
}

uint32_t codec_base_place(const void *p, size_t len)
{
	const struct code_header_disk *d = p;
	struct code_header h;

	if (len < sizeof(*d) || !(d->flags & CODE_FLAG_PLACED) || code_header_decode(p, len, &h) < 0)
		return 0;
	return h.base_place;
}

/* Plain bytes [off, off + len) of the parts before: in place if they lie in one part, else copied to `room`. NULL: a
 * part is missing. */
static const uint8_t *bytes_before(uint8_t *const before[], uint32_t off, uint32_t len, uint8_t *room)
{
	const uint8_t *part = before[off / PACK_PART_BYTES];
	uint32_t in = off % PACK_PART_BYTES, n = MIN(len, PACK_PART_BYTES - in);

	if (n == len || !part)
		return part ? part + in : NULL;
	memcpy(room, part + in, n);
	for (uint32_t at = n; at < len; at += n) {
		part = before[(off + at) / PACK_PART_BYTES];
		n = MIN(len - at, PACK_PART_BYTES);
		if (!part)
			return NULL;
		memcpy(room + at, part, n);
	}
	return room;
}

/* Find the base of a block. Returns its length. */
static int find_base(struct coder *c, const struct code_header *h, uint8_t *const before[], uint32_t nr_before,
		     const uint8_t **ret)
{
	enum code_place how = code_place_how(h->base_place);
	uint32_t off = code_place_off(h->base_place), len;
	const uint8_t *from;

	if (h->plain_len > PACK_PART_BYTES || off >= nr_before * PACK_PART_BYTES)
		return -EBADMSG;
	if (!c->base)
		c->base = malloc(3 * PACK_PART_BYTES);
	if (!c->base)
		return -ENOMEM;
	len = pack_base_len(h->base_place, nr_before, h->plain_len);
	from = bytes_before(before, off, len, c->base + PACK_PART_BYTES);
	if (!from)
		return -EBADMSG;
	*ret = from;
	if (how == CODE_PLACE_SAME || how == CODE_PLACE_LEVELS)
		return (int)len;
	*ret = c->base;
	return (int)twin_base(how, h->type, h->lead, from, len, h->plain_len, c->base);
}

static bool has_memory_for_blocks(struct coder *c)
{
	if (!c->blocks)
		c->blocks = code_work_new();
	return c->blocks;
}

static bool has_memory_for_runs(struct coder *c)
{
	static_assert(PACK_PART_BYTES == MATCH_PART && PACK_PARTS == MATCH_PARTS, "blocks refer to parts");

	if (!c->runs)
		c->runs = match_out_new();
	return c->runs && has_memory_for_blocks(c);
}

int codec_place_left(struct coder *c, const void *p, size_t len, uint32_t place, void *ret, size_t room)
{
	int n;

	if (!has_memory_for_runs(c))
		return -ENOMEM;
	n = match_place_left(c->runs, c->blocks, p, len, ret, room);
	if (n < 0)
		return n == -ENOMEM ? n : -EBADMSG;
	return code_place_in_block(p) == place ? n : -EBADMSG;
}

int codec_place_runs(struct coder *c, const void *p, uint8_t *const before[], uint32_t nr_before, void *ret)
{
	return match_place_runs(c->runs, p, before, nr_before, ret);
}

static int matched_decode(struct coder *c, const void *p, size_t len, uint8_t *const before[], uint32_t nr_before,
			  void *ret, size_t room)
{
	int n;

	if (!has_memory_for_runs(c))
		return -ENOMEM;
	n = match_decode(c->runs, c->blocks, p, len, before, nr_before, ret, room);
	return n < 0 && n != -ENOMEM ? -EBADMSG : n;
}

static int block_decode(struct coder *c, const void *p, size_t len, uint8_t *const before[], uint32_t nr_before,
			void *ret, size_t room)
{
	const struct code_header_disk *d = p;
	const uint8_t *base = NULL;
	struct code_header h;
	int n = 0;

	if (len >= sizeof(*d) && d->base == CODE_BASE_MATCHED)
		return matched_decode(c, p, len, before, nr_before, ret, room);
	if (!has_memory_for_blocks(c))
		return -ENOMEM;
	if (len >= sizeof(*d) && d->flags & CODE_FLAG_PLACED) {
		n = code_header_decode_unsummed(p, len, &h);
		if (n == 0 && h.base_place > 0)
			n = find_base(c, &h, before, nr_before, &base);
		if (n < 0)
			return n == -ENOMEM ? n : -EBADMSG;
	}
	n = code_decode(c->blocks, p, len, base, (size_t)n, ret, room);
	return n < 0 && n != -ENOMEM ? -EBADMSG : n;
}

int codec_decompress_by_levels(struct coder *c, const void *p, size_t len, uint32_t place, const void *base,
			       size_t base_len, void *ret, size_t ret_len)
{
	int n;

	if (!has_memory_for_blocks(c))
		return -ENOMEM;
	n = code_decode_by_levels(c->blocks, p, len, base, base_len, ret, ret_len);
	if (n < 0)
		return n == -ENOMEM ? n : -EBADMSG;
	return (size_t)n == ret_len && code_place_in_block(p) == place ? 0 : -EBADMSG;
}

int codec_decompress_some(struct coder *c, enum pack_codec codec, const void *p, size_t len, uint8_t *const before[],
			  uint32_t nr_before, void *ret, size_t room)
{
	int n;

	if (len > PACK_PART_BYTES || room > PACK_PART_BYTES)
		return -EBADMSG;
	switch (codec) {
	case PACK_CODEC_LZ4:
		n = LZ4_decompress_safe(p, ret, (int)len, (int)room);
		return n < 0 ? -EBADMSG : n;
	case PACK_CODEC_ZSTD:
		return zstd_decompress(c, p, len, ret, room);
	case PACK_CODEC_CODED:
		return block_decode(c, p, len, before, nr_before, ret, room);
	default:
		break;
	}
	return -EBADMSG;
}

/* A length that does not fit in half a token continues behind it, up to a byte that is not 255. */
static bool lz4_length(const uint8_t *p, size_t len, size_t *at, size_t *n)
{
	uint8_t more = *n == 15 ? 255 : 0;

	while (more == 255) {
		if (*at == len || *n > PACK_PART_BYTES)
			return false;
		more = p[(*at)++];
		*n += more;
	}
	return true;
}

/* A block is a sequence of token, literals, offset and match. It ends after the literals of its last sequence: when the
 * part is complete, or when no offset follows, since offsets are never zero. */
static size_t lz4_find_end(const uint8_t *p, size_t len)
{
	size_t at = 0, plain = 0;

	while (at < len) {
		size_t literals = p[at] >> 4, match = p[at] & 15, offset;

		at++;
		if (!lz4_length(p, len, &at, &literals) || literals > len - at || literals > PACK_PART_BYTES - plain)
			return 0;
		at += literals;
		plain += literals;
		if (at == len || plain == PACK_PART_BYTES)
			return at;
		offset = len - at < 2 ? 0 : p[at] | (size_t)p[at + 1] << 8;
		if (offset == 0)
			return plain > 0 ? at : 0;
		at += 2;
		if (offset > plain || !lz4_length(p, len, &at, &match) || match + 4 >= PACK_PART_BYTES - plain)
			return 0;
		plain += match + 4;
	}
	return 0;
}

/* Length of the coded block that begins at p; 0: none with a valid checksum. */
static size_t block_len(const uint8_t *p, size_t len)
{
	struct code_header_disk d;
	struct code_header h;
	size_t n;

	if (len < sizeof(d))
		return 0;
	memcpy(&d, p, sizeof(d));
	n = sizeof(d) + le32_get(d.stored_len);
	return n <= len && code_header_decode(p, n, &h) == 0 ? n : 0;
}

/* Start of the coded block that ends at p + len. */
static int block_find_start(const uint8_t *p, size_t len, size_t plain_len, size_t *ret)
{
	struct code_header h;

	for (size_t start = len; start-- > 0;)
		if (code_header_decode(p + start, len - start, &h) == 0 && h.plain_len == plain_len) {
			*ret = start;
			return 1;
		}
	return 0;
}

size_t codec_find_end(enum pack_codec codec, const void *p, size_t len)
{
	size_t n;

	switch (codec) {
	case PACK_CODEC_LZ4:
		return lz4_find_end(p, len);
	case PACK_CODEC_ZSTD:
		n = ZSTD_findFrameCompressedSize(p, len);
		return ZSTD_isError(n) ? 0 : n;
	case PACK_CODEC_CODED:
		return block_len(p, len);
	default:
		break;
	}
	return 0;
}

/* made[i]: plain bytes of the sequences from byte i to the end; 0: they do not end there. Computed backwards, since
 * each entry depends on a later one. */
static int lz4_find_start(const uint8_t *p, size_t len, size_t plain_len, size_t *ret)
{
	_cleanup_(freep) uint32_t *made = calloc(len, sizeof(*made));

	if (!made)
		return -ENOMEM;
	for (size_t start = len; start-- > 0;) {
		size_t at = start + 1, literals = p[start] >> 4, match = p[start] & 15, n = 0;

		if (!lz4_length(p, len, &at, &literals) || literals > len - at)
			continue;
		at += literals;
		if (at == len)
			n = literals;
		else if (at + 2 < len && (at += 2, lz4_length(p, len, &at, &match)) && at < len && made[at] > 0)
			n = literals + match + 4 + made[at];
		made[start] = n <= PACK_PART_BYTES ? (uint32_t)n : 0;
		if (n == plain_len && lz4_find_end(p + start, len - start) == len - start) {
			*ret = start;
			return 1;
		}
	}
	return 0;
}

int codec_find_start(enum pack_codec codec, const void *p, size_t len, size_t plain_len, size_t *ret)
{
	const uint8_t *bytes = p;

	if (len == 0 || len > PACK_PART_BYTES || plain_len == 0 || plain_len > PACK_PART_BYTES)
		return 0;
	if (codec == PACK_CODEC_LZ4)
		return lz4_find_start(p, len, plain_len, ret);
	if (codec == PACK_CODEC_CODED)
		return block_find_start(p, len, plain_len, ret);
	for (size_t start = len; codec == PACK_CODEC_ZSTD && start-- > 0;)
		if (codec_find_end(codec, bytes + start, len - start) == len - start &&
		    ZSTD_getFrameContentSize(bytes + start, len - start) == plain_len) {
			*ret = start;
			return 1;
		}
	return 0;
}
