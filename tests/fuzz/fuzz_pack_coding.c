/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How a frame was compressed, told by a damaged table and any bytes: whatever is found, a table can say it, for any
 * number of plain bytes there can be.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/pack/coded/pack_coding.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void check(const struct pack_coding_found *f, uint32_t plain_len)
{
	struct pack_coding c = pack_coding_settle(f, plain_len);
	uint32_t nr = pack_nr_parts(plain_len);

	for (uint32_t i = 0; i < nr; i++) {
		assert(c.part_end[i] > pack_part_start(&c, i));
		assert(c.part_end[i] - pack_part_start(&c, i) <= pack_part_len(plain_len, i));
	}
}

/* The first 108 bytes of a table, then those of the data. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static uint8_t stored[PACK_FRAME_BYTES], plain[PACK_FRAME_BYTES];
	static struct coders cs;
	static struct coder *c;
	struct pack_table_disk said = { 0 };
	struct pack_coding_found found;
	size_t n = len < 108 ? len : 108;

	if (!c) {
		coders_init(&cs);
		c = coder_get(&cs);
	}
	if (len > n + sizeof(stored))
		return 0;
	memcpy(&said, p, n);
	memset(stored, 0, sizeof(stored));
	memcpy(stored, p + n, len - n);
	for (enum pack_codec codec = PACK_CODEC_LZ4; codec < NR_PACK_CODECS; codec++) {
		if (pack_coding_find(c, codec, &said, stored, plain, &found) <= 0)
			continue;
		assert(found.plain_len > 0 && found.plain_len <= PACK_FRAME_BYTES);
		check(&found, found.plain_len);
		check(&found, PACK_FRAME_BYTES);
		for (uint32_t plain_len = 1; plain_len < PACK_FRAME_BYTES; plain_len += 54321)
			check(&found, plain_len);
	}
	return 0;
}
