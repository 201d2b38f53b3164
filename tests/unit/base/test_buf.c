/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"

static const struct {
	uint64_t n;
	size_t len;
	uint8_t bytes[10];
} varints[] = {
	{ 0, 1, { 0 } },
	{ 1, 1, { 1 } },
	{ 127, 1, { 0x7f } },
	{ 128, 2, { 0x80, 1 } },
	{ 300, 2, { 0xac, 2 } },
	{ 16383, 2, { 0xff, 0x7f } },
	{ 16384, 3, { 0x80, 0x80, 1 } },
	{ UINT32_MAX, 5, { 0xff, 0xff, 0xff, 0xff, 0x0f } },
	{ (UINT64_C(1) << 63) - 1, 9, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f } },
	{ UINT64_C(1) << 63, 10, { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1 } },
	{ UINT64_MAX, 10, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1 } },
};

static void varints_are_leb128(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(varints); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct cursor c;

		buf_add_varint(&b, varints[i].n);
		assert_int_equal(buf_error(&b), 0);
		assert_int_equal(b.len, varints[i].len);
		assert_memory_equal(b.data, varints[i].bytes, b.len);
		c = cursor_of(b.data, b.len);
		assert_true(cursor_varint(&c) == varints[i].n);
		assert_true(cursor_done(&c));
	}
}

static void a_varint_cut_short_fails_at_every_length(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(varints); i++)
		for (size_t len = 0; len < varints[i].len; len++) {
			struct cursor c = cursor_of(varints[i].bytes, len);

			assert_int_equal(cursor_varint(&c), 0);
			assert_true(c.failed);
			assert_false(cursor_done(&c));
			assert_int_equal(cursor_left(&c), 0);
		}
}

static void over_long_and_over_wide_varints_are_refused(void **state _unused_)
{
	static const struct {
		size_t len;
		uint8_t bytes[12];
	} bad[] = {
		{ 2, { 0x80, 0 } },
		{ 3, { 0xff, 0x80, 0 } },
		{ 10, { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0 } },
		{ 10, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2 } },
		{ 10, { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80 } },
		{ 11, { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x81, 0 } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct cursor c = cursor_of(bad[i].bytes, bad[i].len);

		assert_int_equal(cursor_varint(&c), 0);
		assert_true(c.failed);
	}
}

static void integers_are_little_endian_and_come_back(void **state _unused_)
{
	static const uint8_t expected[] = { 0xab, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 'x', 'y' };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct cursor c;

	buf_add_u8(&b, 0xab);
	buf_add_le32(&b, 0x01020304);
	buf_add_le64(&b, UINT64_C(0x1112131415161718));
	buf_add(&b, "xy", 2);
	buf_add(&b, NULL, 0);
	assert_int_equal(buf_error(&b), 0);
	assert_int_equal(b.len, sizeof(expected));
	assert_memory_equal(b.data, expected, sizeof(expected));

	c = cursor_of(b.data, b.len);
	assert_int_equal(cursor_u8(&c), 0xab);
	assert_int_equal(cursor_le32(&c), 0x01020304);
	assert_true(cursor_le64(&c) == UINT64_C(0x1112131415161718));
	assert_int_equal(cursor_left(&c), 2);
	assert_false(cursor_done(&c));
	assert_memory_equal(cursor_take(&c, 2), "xy", 2);
	assert_true(cursor_done(&c));
}

static void a_cursor_remembers_that_it_ran_past_the_end(void **state _unused_)
{
	struct cursor c = cursor_of("abc", 3);

	assert_int_equal(cursor_le32(&c), 0);
	assert_true(c.failed);
	assert_int_equal(cursor_u8(&c), 0); /* although a byte would be there */
	assert_null(cursor_take(&c, 0));
	assert_int_equal(cursor_le64(&c), 0);
	assert_int_equal(cursor_left(&c), 0);
	assert_false(cursor_done(&c));
}

static void huge_lengths_do_not_wrap_a_cursor(void **state _unused_)
{
	struct cursor c = cursor_of("abc", 3);

	assert_null(cursor_take(&c, SIZE_MAX));
	assert_true(c.failed);
}

static void an_empty_input_is_done_at_once(void **state _unused_)
{
	struct cursor c = cursor_of(NULL, 0);

	assert_true(cursor_done(&c));
	cursor_take(&c, 0);
	assert_true(cursor_done(&c));
}

static void a_buffer_that_cannot_grow_remembers_and_keeps_what_it_has(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	buf_add(&b, "abc", 3);
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -ENOMEM);
	buf_add_u8(&b, 'd');
	assert_int_equal(buf_error(&b), -ENOMEM);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "abc", 3);

	buf_clear(&b);
	assert_int_equal(buf_error(&b), 0);
	buf_add_u8(&b, 'e');
	assert_int_equal(b.len, 1);
	assert_int_equal(b.data[0], 'e');
}

static void growing_keeps_the_bytes(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	for (uint32_t i = 0; i < 100000; i++)
		buf_add_le32(&b, i);
	assert_int_equal(buf_error(&b), 0);
	struct cursor c = cursor_of(b.data, b.len);
	for (uint32_t i = 0; i < 100000; i++)
		assert_int_equal(cursor_le32(&c), i);
	assert_true(cursor_done(&c));
}

static void moving_hands_the_memory_over(void **state _unused_)
{
	_cleanup_(buf_release) struct buf a = BUF_EMPTY, b = BUF_EMPTY;
	uint8_t *data;

	buf_add(&a, "abc", 3);
	buf_add(&b, "old", 3);
	data = a.data;
	buf_move(&b, &a);
	assert_ptr_equal(b.data, data);
	assert_int_equal(b.len, 3);
	assert_null(a.data);
	assert_int_equal(a.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(varints_are_leb128),
		cmocka_unit_test(a_varint_cut_short_fails_at_every_length),
		cmocka_unit_test(over_long_and_over_wide_varints_are_refused),
		cmocka_unit_test(integers_are_little_endian_and_come_back),
		cmocka_unit_test(a_cursor_remembers_that_it_ran_past_the_end),
		cmocka_unit_test(huge_lengths_do_not_wrap_a_cursor),
		cmocka_unit_test(an_empty_input_is_done_at_once),
		cmocka_unit_test(a_buffer_that_cannot_grow_remembers_and_keeps_what_it_has),
		cmocka_unit_test(growing_keeps_the_bytes),
		cmocka_unit_test(moving_hands_the_memory_over),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
