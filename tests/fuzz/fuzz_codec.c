/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Stored bytes of a part, whatever they are: decompressed to as many as were promised, or an error; and any bytes come
 * back. Where a part ends, or begins, is found among them or not, and of one that is good always.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/pack/coded/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static struct coders cs;
	enum pack_codec codec;
	struct coder *c;
	uint8_t *plain, *stored, *again, *before[2];
	size_t plain_len, n, start;

	if (len < 5 || len > PACK_PART_BYTES)
		return 0;
	codec = PACK_CODEC_LZ4 + p[0] % (NR_PACK_CODECS - 1);
	plain_len = 1 + ((size_t)p[1] << 8 | p[2]);
	p += 3;
	len -= 3;
	if (!cs.free)
		coders_init(&cs);
	c = coder_get(&cs);
	plain = malloc(plain_len);
	(void)codec_decompress_some(c, codec, p, len, NULL, 0, plain, plain_len);
	before[0] = calloc(2, PACK_PART_BYTES);
	before[1] = len % 2 ? before[0] + PACK_PART_BYTES : NULL;
	memcpy(before[0], p, len);
	(void)codec_decompress_some(c, codec, p, len, before, 2, plain, plain_len);
	free(before[0]);
	n = codec_find_end(codec, p, len);
	assert(n <= len);
	if (codec_find_start(codec, p, len, plain_len, &n) > 0)
		assert(codec_find_end(codec, p + n, len - n) == len - n);
	stored = calloc(1, len + 2);
	n = codec_compress(c, codec, 1, p, len, stored);
	if (n > 0) {
		assert(n < len);
		assert(codec_find_start(codec, stored, n, len, &start) == 1);
		assert(codec_find_end(codec, stored, n) == n && codec_find_end(codec, stored, n + 2) == n);
		again = malloc(len);
		assert(codec_decompress_some(c, codec, stored, n, NULL, 0, again, len) == (int)len);
		assert(memcmp(again, p, len) == 0);
		free(again);
	}
	coder_put(&cs, c);
	free(stored);
	free(plain);
	return 0;
}
