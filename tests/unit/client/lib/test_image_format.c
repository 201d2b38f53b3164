/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "client/lib/image_format.h"

#define PAGE 4096u

static const struct image_region regions[] = {
	{ .off = PAGE + 8, .len = 24, .address = 0x10008, .flags = 0, .name_len = 4, .name = "step" },
	{ .off = 2 * PAGE,
	  .len = 3 * PAGE,
	  .address = 0x7f0000000000,
	  .flags = IMAGE_REGION_OURS,
	  .name_len = 5,
	  .name = "field" },
};

struct image {
	struct image_header_disk header;
	struct buf table;
};

static void image_release(struct image *image)
{
	buf_release(&image->table);
}

static void finish(struct image *image, uint32_t nr)
{
	image_header_encode(
		&(struct image_header){
			.page_size = PAGE,
			.number = 7,
			.table_off = 5 * PAGE,
			.table_len = image->table.len,
			.nr_regions = nr,
			.table_crc = crc32c(image->table.data, image->table.len),
		},
		&image->header);
}

static struct image make(const struct image_region *r, uint32_t nr)
{
	struct image image = { .table = BUF_EMPTY };

	for (uint32_t i = 0; i < nr; i++)
		image_region_encode(&image.table, &r[i]);
	finish(&image, nr);
	return image;
}

static int decode(const struct image *image, struct image_header *header, struct image_iter *it)
{
	int r = image_header_decode(&image->header, sizeof(image->header), 5 * PAGE + image->table.len, header);

	return r < 0 ? r : image_table_decode(header, image->table.data, image->table.len, it);
}

static void regions_come_back(void **state _unused_)
{
	_cleanup_(image_release) struct image image = make(regions, 2);
	struct image_header header;
	struct image_region r;
	struct image_iter it;

	assert_int_equal(decode(&image, &header, &it), 0);
	assert_int_equal(header.number, 7);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(image_next(&it, &r), 1);
		assert_int_equal(r.off, regions[i].off);
		assert_int_equal(r.len, regions[i].len);
		assert_int_equal(r.address, regions[i].address);
		assert_int_equal(r.flags, regions[i].flags);
		assert_int_equal(r.name_len, regions[i].name_len);
		assert_memory_equal(r.name, regions[i].name, r.name_len);
	}
	assert_int_equal(image_next(&it, &r), 0);
}

static void none_are_an_image_too(void **state _unused_)
{
	_cleanup_(image_release) struct image image = make(regions, 0);
	struct image_header header;
	struct image_region r;
	struct image_iter it;

	assert_int_equal(decode(&image, &header, &it), 0);
	assert_int_equal(image_next(&it, &r), 0);
}

/* docs/format.md, by hand: one region of 4 bytes, called "x", at the beginning of its page. */
static void bytes_are_as_documented(void **state _unused_)
{
	static const struct image_region x = { .off = PAGE, .len = 4, .address = 0x20000, .name_len = 1, .name = "x" };
	static const uint8_t header[] =
		"ckptIMAG\1\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0\7\0\0\0\0\0\0\0\0\120\0\0\0\0\0\0\41\0\0\0\0\0\0\0\1\0\0";
	static const uint8_t table[] = "\0\20\0\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\1\0\0\0x";
	_cleanup_(image_release) struct image image = make(&x, 1);

	assert_int_equal(image.table.len, sizeof(table) - 1);
	assert_memory_equal(image.table.data, table, image.table.len);
	assert_memory_equal(&image.header, header, 52);
	assert_int_equal(le32_get(image.header.table_crc32c), crc32c(table, sizeof(table) - 1));
	assert_int_equal(le32_get(image.header.crc32c), crc32c(&image.header, 60));
}

static void any_changed_byte_is_found(void **state _unused_)
{
	_cleanup_(image_release) struct image image = make(regions, 2);
	uint8_t *header = (uint8_t *)&image.header;
	struct image_header h;
	struct image_iter it;

	for (size_t i = 0; i < sizeof(image.header); i++) {
		header[i] ^= 1;
		assert_int_equal(decode(&image, &h, &it), -EBADMSG);
		header[i] ^= 1;
	}
	for (size_t i = 0; i < image.table.len; i++) {
		image.table.data[i] ^= 1;
		assert_int_equal(decode(&image, &h, &it), -EBADMSG);
		image.table.data[i] ^= 1;
	}
	assert_int_equal(image_header_decode(&image.header, sizeof(image.header) - 1, 5 * PAGE + image.table.len, &h),
			 -EBADMSG);
	assert_int_equal(image_header_decode(&image.header, sizeof(image.header), 5 * PAGE + image.table.len - 1, &h),
			 -EBADMSG);
}

static void what_lies_is_refused(void **state _unused_)
{
	static const struct image_region lies[][2] = {
		{ { .off = 8, .len = 1, .address = 8, .name_len = 1, .name = "x" } }, /* in the header */
		{ { .off = PAGE, .len = 0, .address = 0, .name_len = 1, .name = "x" } },
		{ { .off = PAGE, .len = 4 * PAGE + 1, .address = 0, .name_len = 1, .name = "x" } }, /* in the table */
		{ { .off = PAGE, .len = UINT64_MAX, .address = 0, .name_len = 1, .name = "x" } },
		{ { .off = PAGE, .len = PAGE, .address = UINT64_MAX - PAGE + 1, .name_len = 1, .name = "x" } },
		{ { .off = PAGE + 1, .len = 1, .address = 2, .name_len = 1, .name = "x" } },
		{ { .off = PAGE, .len = 1, .address = 0, .name_len = 0, .name = "" } },
		{ { .off = PAGE, .len = 1, .address = 0, .name_len = 3, .name = "x\0y" } },
		{ { .off = PAGE, .len = 1, .address = 0, .name_len = 1, .name = "x" }, /* one page, two regions */
		  { .off = PAGE + 8, .len = 1, .address = 8, .name_len = 1, .name = "y" } },
		{ { .off = PAGE, .len = 1, .address = 0, .name_len = 1, .name = "x" }, /* one name */
		  { .off = 2 * PAGE, .len = 1, .address = 0, .name_len = 1, .name = "x" } },
		{ { .off = 2 * PAGE, .len = 1, .address = 0, .name_len = 1, .name = "x" }, /* another order */
		  { .off = PAGE, .len = 1, .address = 0, .name_len = 1, .name = "y" } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_(image_release) struct image image = make(lies[i], lies[i][1].name ? 2 : 1);
		struct image_header header;
		struct image_iter it;

		assert_int_equal(decode(&image, &header, &it), -EBADMSG);
	}
}

static void bytes_behind_the_last_region_are_refused(void **state _unused_)
{
	_cleanup_(image_release) struct image image = make(regions, 2);
	struct image_header header;
	struct image_iter it;

	buf_add_u8(&image.table, 0);
	finish(&image, 2);
	assert_int_equal(decode(&image, &header, &it), -EBADMSG);
}

static void later_versions_are_refused_as_such(void **state _unused_)
{
	for (int i = 0; i < 2; i++) {
		_cleanup_(image_release) struct image image = make(regions, 2);
		struct image_header header;
		struct image_iter it;

		if (i == 0)
			image.header.version = le32_put(2);
		else
			image.header.incompat = le32_put(1);
		image.header.crc32c = le32_put(crc32c(&image.header, offsetof(struct image_header_disk, crc32c)));
		assert_int_equal(decode(&image, &header, &it), -EOPNOTSUPP);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_come_back),
		cmocka_unit_test(none_are_an_image_too),
		cmocka_unit_test(bytes_are_as_documented),
		cmocka_unit_test(any_changed_byte_is_found),
		cmocka_unit_test(what_lies_is_refused),
		cmocka_unit_test(bytes_behind_the_last_region_are_refused),
		cmocka_unit_test(later_versions_are_refused_as_such),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
