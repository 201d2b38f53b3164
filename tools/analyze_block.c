#include "tools/analyze_block.h"

#include <assert.h>
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "tools/analyze_complain.h"

#define WORTH_PERCENT 95u /* of the plain bytes, or less */

int block_init(struct block *b)
{
	*b = (struct block){
		.zstd = ZSTD_createCCtx(),
		.data = malloc(BLOCK_CHUNK_MAX),
		.out = malloc(BLOCK_CHUNK_MAX),
	};
	return b->zstd && b->data && b->out ? 0 : -ENOMEM;
}

void block_release(struct block *b)
{
	ZSTD_freeCCtx(b->zstd);
	free(b->data);
	free(b->out);
	*b = (struct block){ 0 };
}

static int coded_length(struct block *b, enum codec codec, size_t *ret)
{
	size_t worth = b->len * WORTH_PERCENT / 100, n;
	int lz4;

	if (codec == CODEC_LZ4) {
		lz4 = LZ4_compress_default((const char *)b->data, (char *)b->out, (int)b->len, (int)worth);
		*ret = lz4 > 0 ? (size_t)lz4 : b->len;
		return 0;
	}
	n = ZSTD_compressCCtx(b->zstd, b->out, worth, b->data, b->len, ZSTD_LEVEL);
	if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return -ENOMEM;
	if (ZSTD_isError(n) && ZSTD_getErrorCode(n) != ZSTD_error_dstSize_tooSmall)
		return complain(-EIO, "zstd: %s", ZSTD_getErrorName(n));
	*ret = ZSTD_isError(n) ? b->len : n;
	return 0;
}

int block_flush(struct block *b)
{
	size_t coded;
	int r;

	if (b->len == 0)
		return 0;
	for (size_t codec = 0; codec < NR_CODECS; codec++) {
		r = coded_length(b, codec, &coded);
		if (r < 0)
			return r;
		for (size_t i = 0; i < b->nr_shares; i++)
			b->share[i].to->coded[codec] += (double)b->share[i].bytes * (double)coded / (double)b->len;
	}
	b->len = b->nr_shares = 0;
	return 0;
}

int block_add(struct block *b, const void *p, size_t len, uint64_t weight, struct figures *to)
{
	struct block_share *last = b->nr_shares > 0 ? &b->share[b->nr_shares - 1] : NULL;
	int r;

	assert(len <= BLOCK_CHUNK_MAX);
	if ((b->len > 0 && b->len + len > BLOCK_SIZE) || (b->nr_shares == BLOCK_SHARES && last->to != to)) {
		r = block_flush(b);
		if (r < 0)
			return r;
		last = NULL;
	}
	if (!last || last->to != to) {
		last = &b->share[b->nr_shares++];
		*last = (struct block_share){ .to = to };
	}
	memcpy(b->data + b->len, p, len);
	b->len += len;
	last->bytes += len * weight;
	return 0;
}
