/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include "index/pin_table.h"
#include "tests/unit/golden.h"

static void keys_sort_by_pack_and_frame(void **state)
{
	struct ns_key k = share_key(0x01020304, 0x0a0b0c0d);
	uint32_t pack = 9, frame = 9;

	(void)state;
	assert_int_equal(k.len, 9);
	assert_memory_equal(k.b, "E\1\2\3\4\12\13\14\15", 9);
	assert_int_equal(share_key_decode(k.b, k.len, &pack, &frame), 0);
	assert_int_equal(pack, 0x01020304);
	assert_int_equal(frame, 0x0a0b0c0d);
	k = share_key_node(65535);
	assert_int_equal(share_key_decode(k.b, k.len, &pack, &frame), 0);
	assert_int_equal(pack, 0);
	assert_int_equal(frame, 65535);
	k = share_key_totals();
	assert_int_equal(share_key_decode(k.b, k.len, &pack, &frame), 0);
	assert_int_equal(frame, UINT32_MAX);
	assert_int_equal(share_key_decode(k.b, 0, &pack, &frame), -EBADMSG);
	assert_int_equal(share_key_decode("E\0\0\0\0\0\1\0\0", 9, &pack, &frame), -EBADMSG); /* no such number */
	assert_int_equal(share_key_decode("E\1\2\3\4", 5, &pack, &frame), -EBADMSG);
	assert_int_equal(share_key_decode("F\1\2\3\4\0\0\0\0", 9, &pack, &frame), -EBADMSG);
}

static void frames_round_trip_and_nothing_else_is_taken(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	/* padding is zero */
	static struct share_frame f = { .pinned = { 1, 0, 0, UINT64_C(1) << 63 }, .settled = true, .unconfirmed =
		true }, got;

	(void)state;
	share_set(f.remote, 1);
	share_set(f.remote, 200);
	f.owners[1] = (struct share_owners){ 2, { 0, 65535 } };
	f.owners[200] = (struct share_owners){ 4, { 3, 2, 1, 300 } };
	share_frame_encode(&f, &b);
	assert_int_equal(share_frame_decode(b.data, b.len, &got), 0);
	assert_memory_equal(&got, &f, sizeof(f));
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(share_frame_decode(b.data, len, &got), -EBADMSG);
	b.data[66] = 5; /* owners */
	assert_int_equal(share_frame_decode(b.data, b.len, &got), -EBADMSG);
	b.data[66] = 0;
	assert_int_equal(share_frame_decode(b.data, b.len, &got), -EBADMSG);
	b.data[66] = 2;
	b.data[1] = 5; /* flags */
	assert_int_equal(share_frame_decode(b.data, b.len, &got), -EBADMSG);
	b.data[1] = 1;
	b.data[0] = 2; /* version */
	assert_int_equal(share_frame_decode(b.data, b.len, &got), -EBADMSG);
	b.data[0] = 1;
	b.data[2] |= 2; /* pinned, and remote as well */
	assert_int_equal(share_frame_decode(b.data, b.len, &got), -EBADMSG);

	buf_clear(&b);
	f.settled = f.unconfirmed = false;
	memset(f.owners, 0, sizeof(f.owners));
	share_frame_encode(&f, &b);
	assert_int_equal(b.len, 66);
	assert_int_equal(share_frame_decode(b.data, b.len, &got), 0);
	assert_memory_equal(&got, &f, sizeof(f));
}

static void nodes_and_totals_round_trip(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct share_node n = { .id = { 1, 2, 3 }, .name = "alpha" }, node;
	struct share_totals t = { 1, UINT64_MAX, 3, 4, 65536, false }, totals;

	(void)state;
	share_node_encode(&n, &b);
	assert_int_equal(share_node_decode(b.data, b.len, &node), 0);
	assert_memory_equal(&node, &n, sizeof(n));
	assert_int_equal(share_node_decode(b.data, 17, &node), -EBADMSG);
	for (size_t i = 0; i < 2; i++) { /* version and flags */
		b.data[i] ^= 2;
		assert_int_equal(share_node_decode(b.data, b.len, &node), -EBADMSG);
		b.data[i] ^= 2;
	}
	b.data[b.len - 1] = 0;
	assert_int_equal(share_node_decode(b.data, b.len, &node), -EBADMSG);
	buf_clear(&b);
	share_totals_encode(&t, &b);
	assert_int_equal(share_totals_decode(b.data, b.len, &totals), 0);
	assert_int_equal(totals.pinned_bytes, t.pinned_bytes);
	assert_int_equal(totals.remote_bytes, t.remote_bytes);
	assert_int_equal(totals.nr_pinned, t.nr_pinned);
	assert_int_equal(totals.nr_remote, t.nr_remote);
	assert_int_equal(totals.nr_nodes, t.nr_nodes);
	assert_false(totals.any_unconfirmed);
	for (size_t i = 0; i < 2; i++) { /* version and flags */
		b.data[i] ^= 2;
		assert_int_equal(share_totals_decode(b.data, b.len, &totals), -EBADMSG);
		b.data[i] ^= 2;
	}
	t.any_unconfirmed = true;
	buf_clear(&b);
	share_totals_encode(&t, &b);
	assert_int_equal(share_totals_decode(b.data, b.len, &totals), 0);
	assert_true(totals.any_unconfirmed);
	assert_int_equal(share_totals_decode(b.data, b.len - 1, &totals), -EBADMSG);
	t.nr_nodes++;
	buf_clear(&b);
	share_totals_encode(&t, &b);
	assert_int_equal(share_totals_decode(b.data, b.len, &totals), -EBADMSG);
}

static void pins_have_these_bytes(void **state)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	static struct share_frame f = { .pinned = { 1, 0, 0, UINT64_C(1) << 63 }, .settled = true };
	struct share_node n = { .id = "an id of sixteen", .name = "alpha" };
	struct share_totals t = { 4096, 8192, 1, 2, 3, false };
	struct ns_key k = share_key_totals();

	(void)state;
	share_totals_encode(&t, &v);
	rig_golden(&all, k.b, k.len, &v);
	k = share_key_node(300);
	share_node_encode(&n, &v);
	rig_golden(&all, k.b, k.len, &v);
	k = share_key(2, 7);
	share_set(f.remote, 200);
	f.owners[200] = (struct share_owners){ 2, { 1, 300 } };
	share_frame_encode(&f, &v);
	rig_golden(&all, k.b, k.len, &v);
	golden_expect("index/v1-pins.txt", "table E: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pins_have_these_bytes),
		cmocka_unit_test(keys_sort_by_pack_and_frame),
		cmocka_unit_test(frames_round_trip_and_nothing_else_is_taken),
		cmocka_unit_test(nodes_and_totals_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
