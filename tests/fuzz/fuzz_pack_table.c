/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of a frame: as it comes, and sealed for the place it names, so that what lies behind the seal is reached.
 * What is accepted encodes to the same bytes.
 */
#include <assert.h>
#include <string.h>

#include "store/pack/pack_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	static struct fp_key key;
	struct pack_table_disk d = { 0 }, again;
	struct pack_table t;

	if (key.kind == 0)
		fp_key_init(&key, FP_XXH3, secret);
	(void)pack_table_decode(p, len, &key, 1, 0, &t);
	memcpy(&d, p, len < sizeof(d) ? len : sizeof(d));
	memcpy(d.magic, PACK_TABLE_MAGIC, sizeof(d.magic));
	d.seal = le64_put(pack_table_seal(&d, &key));
	if (pack_table_decode(&d, sizeof(d), &key, le32_get(d.pack), le32_get(d.frame), &t) == 0) {
		struct pack_cuts cuts = pack_table_cuts(&t);

		assert(t.chunk_len == PACK_VARIED || pack_chunk_len_valid(t.chunk_len));
		assert(t.nr_chunks > 0 && t.nr_chunks <= pack_nr_chunks_max(t.chunk_len));
		assert(pack_cut_total(&cuts) > 0 && pack_cut_total(&cuts) <= PACK_FRAME_BYTES);
		assert(pack_stored_len(&t.coding, pack_cut_total(&cuts)) <= pack_cut_total(&cuts));
		for (uint32_t i = 0; i < t.nr_chunks; i++)
			assert(pack_cut_at(&cuts, pack_cut_start(&cuts, i)) == i &&
			       pack_cut_at(&cuts, pack_cut_end(&cuts, i) - 1) == i);
		pack_table_encode(&t, &key, le32_get(d.pack), le32_get(d.frame), &again);
		assert(memcmp(&again, &d, sizeof(d)) == 0);
	}
	return 0;
}
