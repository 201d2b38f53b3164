/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as the end of a version: refused, or every entry lies in the file. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "gpu/format/manifest_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const uint8_t *data, size_t size, uint64_t file_len)
{
	struct manifest_footer footer;
	struct manifest_iter it;
	struct manifest_entry e;
	uint64_t nr = 0;
	size_t len;

	if (manifest_footer_decode(data + size - sizeof(struct manifest_footer_disk),
				   sizeof(struct manifest_footer_disk), file_len, &footer) < 0)
		return;
	len = file_len - sizeof(struct manifest_footer_disk) - footer.off;
	if (len > size - sizeof(struct manifest_footer_disk) ||
	    manifest_decode(&footer, data + size - sizeof(struct manifest_footer_disk) - len, len, &it) < 0)
		return;
	while (manifest_next(&it, &e) > 0) {
		assert(e.off <= footer.off && e.len <= footer.off - e.off);
		assert(e.name_len > 0 && memchr(e.name, '\0', e.name_len) == NULL);
		nr++;
	}
	assert(nr == footer.nr);
}

/* The first 8 bytes: how long the file is. Once as it is, and once with checksums that are right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct manifest_footer_disk *footer;
	uint64_t file_len;
	uint8_t *copy;

	if (size < sizeof(file_len) + sizeof(*footer))
		return 0;
	memcpy(&file_len, data, sizeof(file_len));
	data += sizeof(file_len);
	size -= sizeof(file_len);
	look(data, size, file_len);
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	footer = (struct manifest_footer_disk *)(copy + size - sizeof(*footer));
	memcpy(footer->magic, MANIFEST_MAGIC, sizeof(footer->magic));
	footer->version = le32_put(MANIFEST_VERSION);
	footer->incompat = le32_put(0);
	footer->off = le64_put(le64_get(footer->off) & ~UINT64_C(4095));
	file_len = le64_get(footer->off) + size;
	footer->entries_crc32c = le32_put(crc32c(copy, size - sizeof(*footer)));
	footer->crc32c = le32_put(crc32c(footer, offsetof(struct manifest_footer_disk, crc32c)));
	look(copy, size, file_len);
	free(copy);
	return 0;
}
