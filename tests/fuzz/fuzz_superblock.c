/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The superblock: the checksum is set right first, so that what lies behind it is reached. */
#include <assert.h>
#include <string.h>

#include "base/checksum.h"
#include "store/superblock_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct superblock_disk d = { 0 }, again;
	struct superblock sb;

	(void)superblock_decode(p, len, &sb);
	memcpy(&d, p, len < sizeof(d) ? len : sizeof(d));
	memcpy(d.magic, SUPERBLOCK_MAGIC, sizeof(d.magic));
	d.crc32c = le32_put(crc32c(&d, offsetof(struct superblock_disk, crc32c)));
	if (superblock_decode(&d, sizeof(d), &sb) == 0) {
		superblock_encode(&sb, &again);
		assert(superblock_decode(&again, sizeof(again), &sb) == 0);
	}
	return 0;
}
