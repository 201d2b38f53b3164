/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include "index/freed.h"
#include "tests/unit/golden.h"

static void keys_sort_by_pack_and_frame(void **state)
{
	uint32_t pack = 9, frame = 9;
	struct ns_key k = freed_key(0x01020304, 0x0a0b0c0d);

	(void)state;
	assert_int_equal(k.len, 9);
	assert_memory_equal(k.b, "F\1\2\3\4\12\13\14\15", 9);
	assert_int_equal(freed_key_decode(k.b, k.len, &pack, &frame), 0);
	assert_int_equal(pack, 0x01020304);
	assert_int_equal(frame, 0x0a0b0c0d);
	k = freed_key_pack(0x01020304);
	assert_int_equal(k.len, 5);
	assert_int_equal(freed_key_decode(k.b, k.len, &pack, &frame), 0);
	assert_int_equal(pack, 0x01020304);
	assert_int_equal(frame, UINT32_MAX);
	k = freed_key_totals();
	assert_int_equal(k.len, 1);
	assert_int_equal(freed_key_decode(k.b, k.len, &pack, &frame), 0);
	assert_int_equal(pack, 0);
	assert_int_equal(freed_key_decode(k.b, 0, &pack, &frame), -EBADMSG);
	assert_int_equal(freed_key_decode("F\1\2\3", 4, &pack, &frame), -EBADMSG);
	assert_int_equal(freed_key_decode("R\1\2\3\4", 5, &pack, &frame), -EBADMSG);
}

static void values_round_trip_and_nothing_else_is_taken(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct freed_frame f = { .gone = { 1, 2, 3, UINT64_MAX }, .punched = true }, got = { 0 };
	struct freed_totals t = { 5, UINT64_MAX, UINT32_MAX }, sums = { 0 };

	(void)state;
	freed_frame_encode(&f, &b);
	assert_int_equal(b.len, 34);
	assert_int_equal(freed_frame_decode(b.data, b.len, &got), 0);
	assert_memory_equal(got.gone, f.gone, sizeof(f.gone));
	assert_true(got.punched);
	assert_int_equal(freed_frame_decode(b.data, b.len - 1, &got), -EBADMSG);
	b.data[1] = 2;
	assert_int_equal(freed_frame_decode(b.data, b.len, &got), -EBADMSG);
	b.data[1] = 0;
	b.data[0] = 2;
	assert_int_equal(freed_frame_decode(b.data, b.len, &got), -EBADMSG);

	buf_clear(&b);
	freed_totals_encode(&t, &b);
	assert_int_equal(freed_totals_decode(b.data, b.len, &sums), 0);
	assert_int_equal(sums.nr_chunks, 5);
	assert_int_equal(sums.bytes, UINT64_MAX);
	assert_int_equal(sums.next_pack, UINT32_MAX);
	assert_int_equal(freed_totals_decode(b.data, b.len - 1, &sums), -EBADMSG);
	assert_int_equal(freed_totals_decode(b.data, 0, &sums), -EBADMSG);

	buf_clear(&b);
	freed_pack_encode(&b);
	assert_int_equal(freed_pack_decode(b.data, b.len), 0);
	assert_int_equal(freed_pack_decode("\2", 1), -EBADMSG);
	assert_int_equal(freed_pack_decode(b.data, 0), -EBADMSG);
}

static void freed_chunks_have_these_bytes(void **state)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	struct freed_frame f = { .gone = { 1, 2, 3, UINT64_MAX }, .punched = true };
	struct freed_totals t = { 5, 20480, 3 };
	struct ns_key k = freed_key_totals();

	(void)state;
	freed_totals_encode(&t, &v);
	rig_golden(&all, k.b, k.len, &v);
	k = freed_key_pack(1);
	freed_pack_encode(&v);
	rig_golden(&all, k.b, k.len, &v);
	k = freed_key(2, 7);
	freed_frame_encode(&f, &v);
	rig_golden(&all, k.b, k.len, &v);
	golden_expect("index/v1-freed.txt", "table F: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(freed_chunks_have_these_bytes),
		cmocka_unit_test(keys_sort_by_pack_and_frame),
		cmocka_unit_test(values_round_trip_and_nothing_else_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
