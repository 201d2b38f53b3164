/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/image_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"

#define PAGE_MIN 4096u
#define PAGE_MAX 65536u

void image_region_encode(struct buf *table, const struct image_region *region)
{
	struct image_region_disk d = {
		.off = le64_put(region->off),
		.len = le64_put(region->len),
		.address = le64_put(region->address),
		.flags = le32_put(region->flags),
		.name_len = le32_put(region->name_len),
	};

	buf_add(table, &d, sizeof(d));
	buf_add(table, region->name, region->name_len);
}

void image_header_encode(const struct image_header *header, struct image_header_disk *ret)
{
	*ret = (struct image_header_disk){
		.magic = IMAGE_MAGIC,
		.version = le32_put(IMAGE_VERSION),
		.page_size = le32_put(header->page_size),
		.number = le64_put(header->number),
		.table_off = le64_put(header->table_off),
		.table_len = le64_put(header->table_len),
		.nr_regions = le32_put(header->nr_regions),
		.table_crc32c = le32_put(header->table_crc),
	};
	ret->crc32c = le32_put(crc32c(ret, offsetof(struct image_header_disk, crc32c)));
}

int image_header_decode(const void *p, size_t len, uint64_t file_len, struct image_header *ret)
{
	const struct image_header_disk *d = p;
	struct image_header h;

	if (len < sizeof(*d) || memcmp(d->magic, IMAGE_MAGIC, sizeof(d->magic)) != 0 ||
	    crc32c(d, offsetof(struct image_header_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != IMAGE_VERSION || (le32_get(d->incompat) & ~IMAGE_INCOMPAT_KNOWN) != 0)
		return -EOPNOTSUPP;
	h = (struct image_header){
		.page_size = le32_get(d->page_size),
		.number = le64_get(d->number),
		.table_off = le64_get(d->table_off),
		.table_len = le64_get(d->table_len),
		.nr_regions = le32_get(d->nr_regions),
		.table_crc = le32_get(d->table_crc32c),
	};
	if (h.page_size < PAGE_MIN || h.page_size > PAGE_MAX || (h.page_size & (h.page_size - 1)) != 0)
		return -EBADMSG;
	if (file_len > INT64_MAX || h.table_off < h.page_size || h.table_off % h.page_size != 0 ||
	    h.table_off > file_len || h.table_len != file_len - h.table_off || h.table_len > IMAGE_TABLE_MAX ||
	    h.nr_regions > h.table_len / sizeof(struct image_region_disk))
		return -EBADMSG;
	*ret = h;
	return 0;
}

int image_next(struct image_iter *it, struct image_region *ret)
{
	const struct image_region_disk *d;
	uint64_t page = it->header->page_size;

	if (it->left == 0)
		return cursor_done(&it->cursor) ? 0 : -EBADMSG;
	d = cursor_take(&it->cursor, sizeof(*d));
	if (!d)
		return -EBADMSG;
	*ret = (struct image_region){
		.off = le64_get(d->off),
		.len = le64_get(d->len),
		.address = le64_get(d->address),
		.flags = le32_get(d->flags),
		.name_len = le32_get(d->name_len),
	};
	if (ret->name_len == 0 || ret->name_len > IMAGE_NAME_MAX)
		return -EBADMSG;
	ret->name = cursor_take(&it->cursor, ret->name_len);
	if (!ret->name || memchr(ret->name, '\0', ret->name_len))
		return -EBADMSG;
	if (ret->len == 0 || ret->off > it->header->table_off || ret->len > it->header->table_off - ret->off ||
	    ret->address > UINT64_MAX - page - ret->len || round_down(ret->off, page) < it->end ||
	    ret->off % page != ret->address % page)
		return -EBADMSG;
	it->end = round_up(ret->off + ret->len, page);
	it->left--;
	return 1;
}

static int by_name(const void *a, const void *b)
{
	const struct image_region *x = a, *y = b;
	int r = memcmp(x->name, y->name, MIN(x->name_len, y->name_len));

	return r != 0 ? r : x->name_len < y->name_len ? -1 : x->name_len > y->name_len;
}

/* Names must be unique: regions are restored by name. */
static int check_names(struct image_iter it)
{
	_cleanup_(freep) struct image_region *regions = calloc((size_t)it.left + 1, sizeof(*regions));
	size_t nr = 0;

	if (!regions)
		return -ENOMEM;
	while (image_next(&it, &regions[nr]) > 0)
		nr++;
	qsort(regions, nr, sizeof(*regions), by_name);
	for (size_t i = 1; i < nr; i++)
		if (by_name(&regions[i - 1], &regions[i]) == 0)
			return -EBADMSG;
	return 0;
}

int image_table_decode(const struct image_header *header, const void *p, size_t len, struct image_iter *ret)
{
	struct image_iter it = {
		.header = header, .cursor = cursor_of(p, len), .left = header->nr_regions, .end = header->page_size
	};
	struct image_iter start = it;
	struct image_region region;
	int r;

	if (len != header->table_len || crc32c(p, len) != header->table_crc)
		return -EBADMSG;
	while ((r = image_next(&it, &region)) > 0)
		;
	if (r == 0)
		r = check_names(start);
	if (r == 0)
		*ret = start;
	return r;
}
