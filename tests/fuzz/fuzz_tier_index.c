/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as files of the index of a tier: refused, or the same bytes again when encoded. Each is tried as it comes, and
 * with checksums that are right. In a block that is intact every entry is found that is in its order.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/tier/index/tier_index_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void look_at_list(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	static struct tier_index_list l;

	if (tier_index_list_decode(p, len, &l) < 0)
		return;
	for (uint32_t i = 0; i < l.nr_packs; i++) {
		struct tier_manifest m = { .packs = l.packs, .nr_packs = l.nr_packs };
		struct tier_footer f;

		(void)tier_manifest_pack(&m, i, &f);
	}
	tier_index_list_encode(&l, &again);
	assert(buf_error(&again) < 0 || (again.len == len && memcmp(again.data, p, len) == 0));
}

static void look_at_block(const struct tier_index_block_disk *b)
{
	uint64_t run = le64_get(b->run), number = le64_get(b->number);

	(void)tier_index_block_is_intact(b, run, number, true);
	if (!tier_index_block_is_intact(b, run, number, false))
		return;
	assert(!tier_index_block_is_intact(b, run + 1, number, false) &&
	       !tier_index_block_is_intact(b, run, number + 1, false));
	for (uint32_t i = 0; i < le32_get(b->nr); i++) {
		struct tier_index_entry e = tier_index_entry_decode(&b->entries[i]);
		const struct tier_index_entry_disk *found = tier_index_block_find(b, e.fp, e.len);
		struct tier_index_entry_disk again;

		tier_index_entry_encode(&e, &again);
		assert(memcmp(&again, &b->entries[i], sizeof(again)) == 0);
		if (found) {
			struct tier_index_entry other = tier_index_entry_decode(found);

			assert(tier_index_entry_compare(&e, &other) == 0);
		}
		assert(found || le32_get(b->nr) > 1); /* not in order: it may be missed */
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct tier_index_block_disk b = { 0 };
	uint8_t *copy;

	look_at_list(p, len);
	memcpy(&b, p, MIN(len, sizeof(b)));
	look_at_block(&b);
	tier_index_block_seal(&b, le64_get(b.run), le64_get(b.number), le32_get(b.nr));
	look_at_block(&b);
	copy = malloc(MAX(len, (size_t)1));
	if (copy && len >= sizeof(struct le32)) {
		struct le32 crc = le32_put(crc32c(p, len - sizeof(crc)));

		memcpy(copy, p, len - sizeof(crc));
		memcpy(copy + len - sizeof(crc), &crc, sizeof(crc));
		look_at_list(copy, len);
	}
	free(copy);
	return 0;
}
