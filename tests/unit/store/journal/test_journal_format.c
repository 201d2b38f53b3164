/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/journal/rig.h"

/* A group of `len` bytes of records, as on disk; caller frees. */
static uint8_t *encode(struct journal_group *g, size_t len, size_t *ret_bytes)
{
	size_t bytes = (size_t)journal_group_bytes(len);
	uint8_t *p = calloc(1, bytes);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[sizeof(struct journal_group_disk) + i] = (uint8_t)(i * 5 + 1);
	journal_group_encode(g, p + sizeof(struct journal_group_disk), len, (struct journal_group_disk *)p);
	*ret_bytes = bytes;
	return p;
}

static void a_group_comes_back_as_it_was(void **state _unused_)
{
	static const size_t lens[] = { 0, 1, 447, 448, 449, 959, 960, 961, 100000 };
	static const size_t sizes[] = { 512, 512, 512, 512, 1024, 1024, 1024, 1536, 100352 };

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		struct journal_group g = { .number = UINT64_MAX - i, .store_id = { 1, 2, 3 } }, got;
		_cleanup_(freep) uint8_t *p = NULL;
		const void *payload;
		size_t bytes;

		if (i % 2) {
			g.flags = JOURNAL_GROUP_SNAPSHOT | JOURNAL_GROUP_LAST;
			g.part = 77;
			g.nr_records = 1ull << 40;
		} else if (i % 4) {
			g.flags = JOURNAL_GROUP_JOINT;
		}
		p = encode(&g, lens[i], &bytes);
		assert_int_equal(bytes, sizes[i]);
		assert_int_equal(journal_group_decode(p, bytes, &got, &payload), 0);
		assert_int_equal(got.number, g.number);
		assert_int_equal(got.flags, g.flags);
		assert_int_equal(got.part, g.part);
		assert_int_equal(got.nr_records, g.nr_records);
		assert_int_equal(got.payload_len, lens[i]);
		assert_memory_equal(got.store_id, g.store_id, sizeof(g.store_id));
		assert_ptr_equal(payload, p + 64);
	}
}

static void every_flipped_bit_of_a_group_is_noticed(void **state _unused_)
{
	struct journal_group g = { .number = 9, .flags = JOURNAL_GROUP_SNAPSHOT }, got = { .number = 1234 };
	_cleanup_(freep) uint8_t *p = NULL;
	const void *payload = NULL;
	size_t bytes;

	p = encode(&g, 600, &bytes);
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(journal_group_decode(p, bytes, &got, &payload), -EBADMSG);
		p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(got.number, 1234);
	assert_null(payload);
}

static void a_group_that_is_not_all_there_is_refused(void **state _unused_)
{
	struct journal_group g = { .number = 9 }, got;
	_cleanup_(freep) uint8_t *p = NULL;
	const void *payload;
	size_t bytes;

	p = encode(&g, 600, &bytes);
	for (size_t len = 0; len < bytes; len++) {
		_cleanup_(freep) uint8_t *copy = malloc(len + !len); /* so that a sanitizer sees a read past the end */

		memcpy(copy, p, len);
		assert_int_equal(journal_group_decode(copy, len, &got, &payload), -EBADMSG);
		assert_int_equal(journal_group_header_decode(copy, len, &got), len < 64 ? -EBADMSG : 0);
	}
}

static void every_flipped_bit_of_a_file_header_is_noticed(void **state _unused_)
{
	for (int kind = JOURNAL_LOG; kind <= JOURNAL_SNAP; kind++) {
		struct journal_file f = { .kind = kind, .number = 1ull << 60, .store_id = { 9 } }, got;
		struct journal_file_disk disk;
		uint8_t *p = (uint8_t *)&disk;

		journal_file_encode(&f, &disk);
		assert_int_equal(journal_file_decode(p, sizeof(disk), &got), 0);
		assert_int_equal(got.kind, kind);
		assert_int_equal(got.number, f.number);
		assert_memory_equal(got.store_id, f.store_id, sizeof(f.store_id));
		for (size_t bit = 0; bit < 8 * sizeof(disk); bit++) {
			p[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(journal_file_decode(p, sizeof(disk), &got), -EBADMSG);
			p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		for (size_t len = 0; len < sizeof(disk); len++)
			assert_int_equal(journal_file_decode(p, len, &got), -EBADMSG);
	}
}

static void records_come_back_in_order(void **state _unused_)
{
	static const size_t lens[] = { 0, 1, 127, 128, 16383, 16384, 100000 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) uint8_t *bytes = malloc(100000);
	struct journal_iter it;
	const void *p;
	uint8_t type;
	size_t len;

	memset(bytes, 0x3c, 100000);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
		journal_record_add(&b, (uint8_t)(250 + i), bytes, lens[i]);
	assert_int_equal(buf_error(&b), 0);
	it = journal_iter(b.data, b.len);
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		assert_int_equal(journal_iter_next(&it, &type, &p, &len), 1);
		assert_int_equal(type, (uint8_t)(250 + i));
		assert_int_equal(len, lens[i]);
		assert_memory_equal(p, bytes, len);
	}
	assert_int_equal(journal_iter_next(&it, &type, &p, &len), 0);
	assert_int_equal(journal_iter_next(&it, &type, &p, &len), 0);
}

static void records_that_are_cut_off_are_refused(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint8_t bytes[300] = { 0 };

	journal_record_add(&b, 1, bytes, 3);
	journal_record_add(&b, 2, bytes, sizeof(bytes));
	assert_int_equal(b.len, 5 + 303);
	for (size_t cut = 0; cut <= b.len; cut++) {
		struct journal_iter it = journal_iter(b.data, cut);
		const void *p;
		uint8_t type = 0;
		size_t len;
		int nr = 0, r;

		while ((r = journal_iter_next(&it, &type, &p, &len)) > 0)
			nr++;
		assert_int_equal(nr, (cut >= 5) + (cut == b.len));
		assert_int_equal(r, cut == 0 || cut == 5 || cut == b.len ? 0 : -EBADMSG);
	}
}

static void a_length_that_wraps_around_is_refused(void **state _unused_)
{
	static const uint8_t huge[] = { 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0 };
	struct journal_iter it = journal_iter(huge, sizeof(huge));
	const void *p;
	uint8_t type;
	size_t len;

	assert_int_equal(journal_iter_next(&it, &type, &p, &len), -EBADMSG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_comes_back_as_it_was),
		cmocka_unit_test(every_flipped_bit_of_a_group_is_noticed),
		cmocka_unit_test(a_group_that_is_not_all_there_is_refused),
		cmocka_unit_test(every_flipped_bit_of_a_file_header_is_noticed),
		cmocka_unit_test(records_come_back_in_order),
		cmocka_unit_test(records_that_are_cut_off_are_refused),
		cmocka_unit_test(a_length_that_wraps_around_is_refused),
	};

	return cmocka_run_group_tests_name("journal_format", tests, NULL, NULL);
}
