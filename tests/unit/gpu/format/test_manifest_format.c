/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "gpu/format/delta_format.h"
#include "gpu/format/manifest_format.h"
#include "tests/unit/gpu/format/rig.h"

#define AT (4 * DELTA_PAGE) /* where the manifest is */
#define FOOTER sizeof(struct manifest_footer_disk)

static const struct manifest_entry entries[] = {
	{ .off = 0, .len = 5000, .name = "weights", .name_len = 7, .info = "f32", .info_len = 3 },
	{ .off = 2 * DELTA_PAGE, .len = 2 * DELTA_PAGE, .name = "m", .name_len = 1, .info = "", .info_len = 0 },
	{ .off = 0, .len = 0, .name = "empty", .name_len = 5, .info = "123456789", .info_len = 9 },
};

static void make(struct buf *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		manifest_add(ret, &entries[i]);
	manifest_end(ret, AT, ARRAY_SIZE(entries));
	assert_int_equal(buf_error(ret), 0);
}

/* Whole, as a reader of a file of AT + len bytes does it. */
static int decode(const uint8_t *p, size_t len, struct manifest_iter *ret)
{
	struct manifest_footer footer;
	int r = manifest_footer_decode(p + len - FOOTER, FOOTER, AT + len, &footer);

	if (r < 0)
		return r;
	if (footer.off != AT)
		return -ENOENT; /* it says that it begins elsewhere */
	return manifest_decode(&footer, p, len - FOOTER, ret);
}

static void entries_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct manifest_iter it;
	struct manifest_entry e;

	make(&b);
	assert_int_equal(decode(b.data, b.len, &it), 0);
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		assert_int_equal(manifest_next(&it, &e), 1);
		assert_int_equal(e.off, entries[i].off);
		assert_int_equal(e.len, entries[i].len);
		assert_int_equal(e.name_len, entries[i].name_len);
		assert_memory_equal(e.name, entries[i].name, e.name_len);
		assert_int_equal(e.info_len, entries[i].info_len);
		assert_memory_equal(e.info, entries[i].info, e.info_len);
	}
	assert_int_equal(manifest_next(&it, &e), 0);
}

/* docs/format.md, by hand: one buffer of 4 bytes, called "x", with info "i". */
static void bytes_are_as_documented(void **state _unused_)
{
	static const uint8_t want[] = {
		/* entry */
		0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 'x', 'i', 0, 0, 0, 0, 0, 0,
		/* magic, version, compat, incompat */
		'c', 'k', 'p', 't', 'M', 'A', 'N', 'I', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0x27, 0xfe, 0x84, 0x1b, /* crc32c of the entry */
		0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, /* at 4096, one entry */
		/* crc32c of the 60 bytes before */
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0x95, 0x5d, 0x3c,
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	manifest_add(&b, &(struct manifest_entry){ .len = 4, .name = "x", .name_len = 1, .info = "i", .info_len = 1 });
	manifest_end(&b, DELTA_PAGE, 1);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
}

static void any_changed_byte_is_found(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct manifest_iter it;

	make(&b);
	for (size_t i = 0; i < b.len; i++) {
		b.data[i] ^= 1u << i % 8;
		assert_int_equal(decode(b.data, b.len, &it), -EBADMSG);
		b.data[i] ^= 1u << i % 8;
	}
	for (size_t len = FOOTER; len < b.len; len++)
		assert_int_equal(decode(b.data + b.len - len, len, &it), -EBADMSG);
}

/* With checksums that are right. */
static void what_lies_is_refused(void **state _unused_)
{
	const struct manifest_entry lies[] = {
		{ .off = DELTA_PAGE, .len = AT, .name = "x", .name_len = 1 }, /* reaches into the manifest */
		{ .off = AT + DELTA_PAGE, .len = 0, .name = "x", .name_len = 1 },
		{ .off = DELTA_PAGE, .len = UINT64_MAX - DELTA_PAGE + 1, .name = "x", .name_len = 1 },
		{ .off = 100, .len = 1, .name = "x", .name_len = 1 },
		{ .off = 0, .len = 1, .name = "", .name_len = 0 },
		{ .off = 0, .len = 1, .name = "a\0b", .name_len = 3 },
	};
	struct manifest_iter it;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		manifest_add(&b, &lies[i]);
		manifest_end(&b, AT, 1);
		assert_int_equal(decode(b.data, b.len, &it), -EBADMSG);
	}
	for (uint64_t nr = 0; nr < 4; nr++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		manifest_add(&b, &entries[0]);
		manifest_add(&b, &entries[1]);
		manifest_end(&b, AT, nr);
		assert_int_equal(decode(b.data, b.len, &it), nr == 2 ? 0 : -EBADMSG);
	}
}

static void later_versions_are_refused_as_such(void **state _unused_)
{
	for (int i = 0; i < 2; i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct manifest_footer_disk *d;
		struct manifest_iter it;

		make(&b);
		d = (struct manifest_footer_disk *)(b.data + b.len - FOOTER);
		if (i == 0)
			d->version = le32_put(2);
		else
			d->incompat = le32_put(1);
		d->crc32c = le32_put(crc32c(d, offsetof(struct manifest_footer_disk, crc32c)));
		assert_int_equal(decode(b.data, b.len, &it), -EOPNOTSUPP);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_come_back),
		cmocka_unit_test(bytes_are_as_documented),
		cmocka_unit_test(any_changed_byte_is_found),
		cmocka_unit_test(what_lies_is_refused),
		cmocka_unit_test(later_versions_are_refused_as_such),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
