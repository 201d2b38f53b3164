/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include "index/backref_table.h"
#include "tests/unit/golden.h"

static void keys_are_short_and_sort_by_number(void **state)
{
	static const uint64_t numbers[] = { 0, 1, 255, 256, 65535, 65536, UINT64_C(1) << 56, UINT64_MAX };
	struct ns_key before = { .len = 0 }, k;
	struct backref got;

	(void)state;
	k = backref_key(&(struct backref){ .pack = 0x01020304, .frames = 0x0506, .ino = 0x0708, .segments = 0 });
	assert_int_equal(k.len, 11);
	assert_memory_equal(k.b, "B\1\2\3\4\5\6\2\7\10\0", 11);
	for (size_t i = 0; i < 8; i++)
		for (size_t s = 0; s < 8; s++) {
			k = backref_key(&(struct backref){
				.pack = 7, .frames = 2999, .ino = numbers[i], .segments = numbers[s] });
			assert_int_equal(backref_key_decode(k.b, k.len, &got), 0);
			assert_int_equal(got.pack, 7);
			assert_int_equal(got.frames, 2999);
			assert_int_equal(got.ino, numbers[i]);
			assert_int_equal(got.segments, numbers[s]);
			assert_true(memcmp(before.b, k.b, before.len < k.len ? before.len : k.len) < 0 ||
				    before.len == 0);
			before = k;
		}
}

static void nothing_else_is_taken_for_a_key(void **state)
{
	static const struct {
		const char *p;
		size_t len;
	} wrong[] = {
		{ "", 0 },
		{ "B\0\0\0\1\0\0", 7 }, /* no inode */
		{ "B\0\0\0\1\0\0\1\5", 9 }, /* no segment */
		{ "B\0\0\0\1\0\0\1\5\1", 10 }, /* cut off */
		{ "B\0\0\0\1\0\0\1\5\0\0", 11 }, /* goes on */
		{ "B\0\0\0\1\0\0\1\0\0", 10 }, /* a number longer than need be */
		{ "B\0\0\0\1\0\0\11\1\1\1\1\1\1\1\1\1\0", 18 }, /* or than there are */
		{ "B\0\0\0\0\0\0\1\5\0", 10 }, /* no pack */
		{ "R\0\0\0\1\0\0\1\5\0", 10 },
	};
	struct backref got = { .pack = 77 };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(backref_key_decode(wrong[i].p, wrong[i].len, &got), -EBADMSG);
	assert_int_equal(got.pack, 77);
	assert_int_equal(backref_key_decode("B\0\0\0\1\0\0\1\5\0", 10, &got), 0);
}

static void back_references_have_these_bytes(void **state)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	struct ns_key k = backref_key(&(struct backref){ .pack = 2, .frames = 3, .ino = 0x0708, .segments = 70000 });

	(void)state;
	rig_golden(&all, k.b, k.len, &v);
	golden_expect("index/v1-backrefs.txt", "table B: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(back_references_have_these_bytes),
		cmocka_unit_test(keys_are_short_and_sort_by_number),
		cmocka_unit_test(nothing_else_is_taken_for_a_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
