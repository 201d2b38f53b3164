#include "store/pack/codec.h"

#include <assert.h>
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

#define NR_FREE_MAX 8u /* at most half a megabyte each at the usual levels, and only where zstd is used */

struct coder {
	struct coder *next_free;
	ZSTD_CCtx *compressor; /* NULL: not needed so far */
	ZSTD_DCtx *decompressor;
};

static void coder_free(struct coder *c)
{
	if (!c)
		return;
	ZSTD_freeCCtx(c->compressor);
	ZSTD_freeDCtx(c->decompressor);
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
	size_t room = len - 1; /* what does not fit is not smaller */

	assert(len > 0 && len <= PACK_PART_BYTES);
	if (room == 0)
		return 0;
	switch (codec) {
	case PACK_CODEC_LZ4:
		return (size_t)LZ4_compress_default(p, ret, (int)len, (int)room);
	case PACK_CODEC_ZSTD:
		return zstd_compress(c, level, p, len, ret, room);
	case PACK_CODEC_NONE:
		break;
	}
	return 0;
}

static int zstd_decompress(struct coder *c, const void *p, size_t len, void *ret, size_t ret_len)
{
	size_t n;

	if (!c->decompressor)
		c->decompressor = ZSTD_createDCtx();
	if (!c->decompressor)
		return -ENOMEM;
	n = ZSTD_decompressDCtx(c->decompressor, ret, ret_len, p, len);
	return !ZSTD_isError(n) && n == ret_len ? 0 : -EBADMSG;
}

int codec_decompress(struct coder *c, enum pack_codec codec, const void *p, size_t len, void *ret, size_t ret_len)
{
	if (len > PACK_PART_BYTES || ret_len > PACK_PART_BYTES)
		return -EBADMSG;
	switch (codec) {
	case PACK_CODEC_LZ4:
		return LZ4_decompress_safe(p, ret, (int)len, (int)ret_len) == (int)ret_len ? 0 : -EBADMSG;
	case PACK_CODEC_ZSTD:
		return zstd_decompress(c, p, len, ret, ret_len);
	case PACK_CODEC_NONE:
		break;
	}
	return -EBADMSG;
}
