/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The header of a pack: as it comes, and with the checksum made right, so that what lies behind it is reached. */
#include <assert.h>
#include <string.h>

#include "base/checksum.h"
#include "store/pack/pack_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct pack_header_disk d = { 0 }, again;
	struct pack_header h;

	(void)pack_header_decode(p, len, &h);
	memcpy(&d, p, len < sizeof(d) ? len : sizeof(d));
	memcpy(d.magic, PACK_MAGIC, sizeof(d.magic));
	d.crc32c = le32_put(crc32c(&d, offsetof(struct pack_header_disk, crc32c)));
	if (pack_header_decode(&d, sizeof(d), &h) == 0) {
		assert(h.pack > 0 && h.stream < PACK_NR_STREAMS && (h.incompat & ~PACK_INCOMPAT_KNOWN) == 0);
		pack_header_encode(&h, &again);
		assert(memcmp(&again, &d, offsetof(struct pack_header_disk, reserved0)) == 0);
		assert(pack_header_decode(&again, sizeof(again), &h) == 0);
	}
	return 0;
}
