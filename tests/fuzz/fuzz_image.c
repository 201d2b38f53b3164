/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as header and table of an image: refused, or every region lies in the file, by itself, and has a name of
 * its own. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/checksum.h"
#include "client/lib/image_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct image_header_disk *disk, const uint8_t *table, size_t len, uint64_t file_len)
{
	struct image_header header;
	struct image_region r;
	struct image_iter it;
	uint32_t nr = 0;
	uint64_t end;

	if (image_header_decode(disk, sizeof(*disk), file_len, &header) < 0)
		return;
	assert(header.table_off <= file_len && header.table_len == file_len - header.table_off);
	if (header.table_len != len || image_table_decode(&header, table, len, &it) < 0)
		return;
	end = header.page_size;
	while (image_next(&it, &r) > 0) {
		assert(r.off >= end && r.len > 0 && r.len <= header.table_off - r.off);
		assert(r.name_len > 0 && r.name_len <= IMAGE_NAME_MAX && memchr(r.name, '\0', r.name_len) == NULL);
		end = r.off + r.len;
		nr++;
	}
	assert(nr == header.nr_regions);
}

/* The first 8 bytes: how long the file is. Once as it is, and once with checksums that are right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_header_disk disk;
	uint64_t file_len;

	if (size < sizeof(file_len) + sizeof(disk))
		return 0;
	memcpy(&file_len, data, sizeof(file_len));
	memcpy(&disk, data + sizeof(file_len), sizeof(disk));
	data += sizeof(file_len) + sizeof(disk);
	size -= sizeof(file_len) + sizeof(disk);
	look(&disk, data, size, file_len);
	memcpy(disk.magic, IMAGE_MAGIC, sizeof(disk.magic));
	disk.version = le32_put(IMAGE_VERSION);
	disk.incompat = le32_put(0);
	disk.page_size = le32_put(4096);
	disk.table_off = le64_put((le64_get(disk.table_off) & UINT64_C(0xfffffffff000)) + 4096);
	disk.table_len = le64_put(size);
	disk.table_crc32c = le32_put(crc32c(data, size));
	disk.crc32c = le32_put(crc32c(&disk, offsetof(struct image_header_disk, crc32c)));
	look(&disk, data, size, le64_get(disk.table_off) + size);
	return 0;
}
