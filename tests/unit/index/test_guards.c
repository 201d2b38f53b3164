/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Records of the nodes that have a replica of a sealed directory. */
#include "tests/unit/index/rig.h"

#include "index/guards.h"
#include "tests/unit/golden.h"

static const struct guard sample = {
	.state = GUARD_DONE,
	.holder = "the one that has",
	.holder_name = "node-b",
	.origin = "who sealed it...",
	.origin_name = "a",
	.ino = UINT64_MAX,
	.sealed_ns = -5,
};

static void expect_same(const struct guard *a, const struct guard *b)
{
	assert_int_equal(a->state, b->state);
	assert_memory_equal(a->holder, b->holder, sizeof(a->holder));
	assert_string_equal(a->holder_name, b->holder_name);
	assert_memory_equal(a->origin, b->origin, sizeof(a->origin));
	assert_string_equal(a->origin_name, b->origin_name);
	assert_int_equal(a->ino, b->ino);
	assert_int_equal(a->sealed_ns, b->sealed_ns);
}

static void a_guard_round_trips_and_damage_is_refused(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct guard got;

	guard_encode(&sample, &b);
	assert_int_equal(b.len, 52 + 6 + 1 + 1);
	assert_int_equal(b.data[0], 1);
	assert_int_equal(guard_decode(b.data, b.len, &got), 0);
	expect_same(&got, &sample);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(guard_decode(b.data, len, &got), -EBADMSG);
	for (size_t i = 0; i < 4; i++) { /* version, state, lengths */
		b.data[i] ^= 64;
		assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
		b.data[i] ^= 64;
	}
	b.data[1] = 0;
	assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
	b.data[1] = GUARD_RELEASED;
	assert_int_equal(guard_decode(b.data, b.len, &got), 0);
	assert_int_equal(got.state, GUARD_RELEASED);
	b.data[1] = GUARD_RELEASED + 1;
	assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
	b.data[1] = GUARD_BEGUN;
	b.data[52 + 2] = 0; /* the end of a name */
	assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
}

static void several_holders_round_trip_and_damage_is_refused(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct guard got, g = sample;

	for (uint32_t i = 0; i < GUARD_MORE_MAX; i++) {
		memset(g.more[i].id, (int)('a' + i), sizeof(g.more[i].id));
		snprintf(g.more[i].name, sizeof(g.more[i].name), "more-%u", i);
	}
	g.nr_more = GUARD_MORE_MAX;
	guard_encode(&g, &b);
	assert_int_equal(guard_decode(b.data, b.len, &got), 0);
	expect_same(&got, &g);
	assert_int_equal(got.nr_more, g.nr_more);
	assert_memory_equal(got.more, g.more, sizeof(g.more));
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(guard_decode(b.data, len, &got), -EBADMSG);
	buf_add_u8(&b, 0);
	assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
	b.data[52 + 6 + 1] = 0; /* how many */
	assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
	assert_int_equal(guard_decode(b.data, 52 + 6 + 2, &got), 0);
	assert_int_equal(got.nr_more, 0);
	b.data[52 + 6 + 1] = GUARD_MORE_MAX + 1;
	assert_int_equal(guard_decode(b.data, b.len, &got), -EBADMSG);
}

static void guards_are_found_in_order(void **state)
{
	static const uint64_t inos[] = { 3, 256, UINT64_MAX };
	struct rig *rig = *state;
	struct guard got;
	uint64_t ino = 0;

	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct ns_key k = guard_key(inos[i]);
		struct guard g = sample;

		g.ino = i;
		guard_encode(&g, &b);
		rig_put_bytes(rig, k.b, k.len, &b);
	}
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		assert_int_equal(guard_next(rig->db, ino, &ino, &got), 1);
		assert_int_equal(ino, inos[i]);
		assert_int_equal(got.ino, i);
	}
	assert_int_equal(guard_next(rig->db, ino, &ino, &got), 0);
	assert_int_equal(guard_get(rig->db, 256, &got), 1);
	assert_int_equal(got.ino, 1);
	assert_int_equal(guard_get(rig->db, 257, &got), 0);
}

static void guards_have_these_bytes(void **state _unused_)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	struct guard g = sample;
	struct ns_key k = guard_key(3);

	guard_encode(&g, &v);
	rig_golden(&all, k.b, k.len, &v);
	g.nr_more = 1;
	memcpy(g.more[0].id, "the second holds", sizeof(g.more[0].id));
	memcpy(g.more[0].name, "node-c", 7);
	guard_encode(&g, &v);
	k = guard_key(4);
	rig_golden(&all, k.b, k.len, &v);
	golden_expect("index/v1-guards.txt", "table G: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guards_have_these_bytes),
		cmocka_unit_test(a_guard_round_trips_and_damage_is_refused),
		cmocka_unit_test(several_holders_round_trip_and_damage_is_refused),
		cmocka_unit_test_setup_teardown(guards_are_found_in_order, rig_setup, rig_teardown),
	};

	return cmocka_run_group_tests_name("guards", tests, NULL, NULL);
}
