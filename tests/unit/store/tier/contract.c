/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/contract.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/tier/tier.h"

static const struct contract_back_end *back_end;
static struct tier *t;

static int begin(void **state _unused_)
{
	t = back_end->open();
	return t ? 0 : -1;
}

static int end(void **state _unused_)
{
	back_end->close(t);
	return 0;
}

static int put(const char *name, const char *s)
{
	return tier_call(t, &(struct tier_request){ .op = TIER_PUT, .name = name, .data = s, .len = strlen(s) });
}

static int del(const char *name)
{
	return tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name });
}

static void expect(const char *name, const char *s)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert_int_equal(tier_get_all(t, name, 1 << 20, &b), 0);
	assert_int_equal(b.len, strlen(s));
	if (b.len > 0)
		assert_memory_equal(b.data, s, b.len);
}

static void an_object_is_put_once(void **state _unused_)
{
	assert_int_equal(tier_put_new(t, "packs/a/1", "one", 3), 0);
	assert_int_equal(tier_put_new(t, "packs/a/1", "two!", 4), -EEXIST);
	expect("packs/a/1", "one");
	assert_int_equal(tier_put_new(t, "packs/empty", NULL, 0), 0);
	expect("packs/empty", "");
}

static void a_put_replaces(void **state _unused_)
{
	assert_int_equal(put("index/1", "one"), 0);
	assert_int_equal(put("index/1", "three"), 0);
	expect("index/1", "three");
}

static void a_deleted_object_is_gone_and_may_be_put_again(void **state _unused_)
{
	char c;

	assert_int_equal(del("a/b/c"), 0);
	assert_int_equal(tier_put_new(t, "a/b/c", "x", 1), 0);
	assert_int_equal(del("a/b/c"), 0);
	assert_int_equal(del("a/b/c"), 0);
	assert_int_equal(tier_get(t, "a/b/c", 0, &c, 1), -ENOENT);
	assert_int_equal(tier_put_new(t, "a/b/c", "y", 1), 0);
	expect("a/b/c", "y");
}

static void ranges_are_read(void **state _unused_)
{
	static const struct {
		uint64_t off;
		size_t len, got;
	} cases[] = { { 0, 0, 0 }, { 0, 4, 4 }, { 3, 4, 4 },  { 7, 3, 3 },
		      { 7, 4, 3 }, { 9, 1, 1 }, { 10, 1, 0 }, { 99, 8, 0 } };
	char p[16];

	assert_int_equal(tier_put_new(t, "o", "0123456789", 10), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tier_request q = { .op = TIER_GET, .name = "o", .off = cases[i].off, .len = cases[i].len, .buf = p };

		memset(p, '.', sizeof(p));
		assert_int_equal(tier_call(t, &q), 0);
		assert_int_equal(q.got, cases[i].got);
		assert_int_equal(q.size, 10);
		if (q.got > 0)
			assert_memory_equal(p, &"0123456789"[cases[i].off], q.got);
		assert_int_equal(p[q.got], '.');
	}
	assert_int_equal(tier_get(t, "o", 7, p, 3), 0);
	assert_int_equal(tier_get(t, "o", 7, p, 4), -EBADMSG);
	assert_int_equal(tier_get(t, "o/below", 0, p, 1), -ENOENT);
	assert_int_equal(tier_get(t, "absent", 0, p, 1), -ENOENT);
}

static void a_whole_object_is_read_up_to_a_limit(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	size_t len = 200000;
	uint8_t *p = malloc(len);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 >> 3);
	assert_int_equal(tier_put_new(t, "large", p, len), 0);
	buf_add(&b, "head", 4);
	assert_int_equal(tier_get_all(t, "large", len - 1, &b), -EFBIG);
	assert_int_equal(b.len, 4);
	assert_int_equal(tier_get_all(t, "large", len, &b), 0);
	assert_int_equal(b.len, 4 + len);
	assert_memory_equal(b.data + 4, p, len);
	assert_int_equal(tier_get_all(t, "none", len, &b), -ENOENT);
	free(p);
}

static void expect_list(const char *prefix, const char *expected)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	char seen[500] = "";

	assert_int_equal(tier_list_all(t, prefix, &b), 0);
	for (size_t at = 0; at < b.len; at += strlen((char *)b.data + at) + 1) {
		strcat(seen, (char *)b.data + at);
		strcat(seen, " ");
	}
	assert_string_equal(seen, expected);
}

static void names_are_listed_in_order(void **state _unused_)
{
	static const char *const names[] = { "a-b/x", "a/z", "a/c/1", "a/c/2", "a/c.d", "a/c-d", "a0", "b/1", "a/c/0/q" };

	expect_list("", "");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(tier_put_new(t, names[i], "", 0), 0);
	expect_list("", "a-b/x a/c-d a/c.d a/c/0/q a/c/1 a/c/2 a/z a0 b/1 ");
	expect_list("a/", "a/c-d a/c.d a/c/0/q a/c/1 a/c/2 a/z ");
	expect_list("a/c/", "a/c/0/q a/c/1 a/c/2 ");
	expect_list("c/", "");
	expect_list("a0/", "");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) { /* each one is a place to go on from */
		struct tier_request q = { .op = TIER_LIST, .name = "", .after = names[i] };

		assert_int_equal(tier_call(t, &q), 0);
		assert_true(q.names.len == 0 ? !strcmp(names[i], "b/1") : strcmp((char *)q.names.data, names[i]) > 0);
		buf_release(&q.names);
	}
}

static void other_names_are_refused(void **state _unused_)
{
	static const char *const bad[] = { "",	   "/",	     "/a",  "a/",   "a//b",	".",  "..",
					   "a/.b", "a/../b", "a b", "a%20", "\xc3\xa4", "a\n" };
	char part[TIER_PART_MAX + 2], whole[TIER_NAME_MAX + 2];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(tier_name_is_valid(bad[i]));
		assert_int_equal(tier_put_new(t, bad[i], "", 0), -EINVAL);
	}
	memset(part, 'p', sizeof(part));
	part[TIER_PART_MAX + 1] = '\0';
	assert_int_equal(tier_put_new(t, part, "", 0), -EINVAL);
	part[TIER_PART_MAX] = '\0';
	assert_int_equal(tier_put_new(t, part, "", 0), 0);
	memset(whole, 'w', sizeof(whole));
	whole[TIER_PART_MAX] = '/';
	whole[TIER_NAME_MAX] = '\0';
	assert_int_equal(tier_put_new(t, whole, "", 0), 0);
	whole[TIER_NAME_MAX] = 'w';
	whole[TIER_NAME_MAX + 1] = '\0';
	assert_int_equal(tier_put_new(t, whole, "", 0), -EINVAL);
	assert_true(tier_prefix_is_valid(""));
	assert_true(tier_prefix_is_valid("a/b/"));
	assert_false(tier_prefix_is_valid("a/b"));
	assert_false(tier_prefix_is_valid("/"));
}

#define MANY 40u

static void many_are_in_flight_and_one_of_a_name_is_put(void **state _unused_)
{
	struct tier_request q[MANY], *done;
	unsigned nr_put = 0, nr = 0, winner = 0;
	struct tier_queue *u;
	uint8_t value[MANY], got;

	assert_int_equal(tier_queue_new(t, &u), 0);
	assert_null(tier_next(u));
	for (unsigned i = 0; i < MANY; i++) {
		value[i] = (uint8_t)i;
		q[i] = (struct tier_request){ .op = TIER_PUT_NEW, .name = "race/1", .data = &value[i], .len = 1 };
		tier_start(u, &q[i]);
	}
	assert_int_equal(tier_in_flight(u), MANY);
	while ((done = tier_next(u))) {
		nr++;
		assert_true(done->result == 0 || done->result == -EEXIST);
		if (done->result == 0) {
			nr_put++;
			winner = (unsigned)(done - q);
		}
	}
	assert_int_equal(nr, MANY);
	assert_int_equal(nr_put, 1);
	assert_int_equal(tier_get(t, "race/1", 0, &got, 1), 0);
	assert_int_equal(got, winner);
	for (unsigned i = 0; i < MANY; i++) /* a queue waits for those in flight when it is freed */
		tier_start(u, &q[i]);
	tier_queue_free(u);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(q[i].result, -EEXIST);
}

int contract_check(const struct contract_back_end *b)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(an_object_is_put_once),
		TEST(a_put_replaces),
		TEST(a_deleted_object_is_gone_and_may_be_put_again),
		TEST(ranges_are_read),
		TEST(a_whole_object_is_read_up_to_a_limit),
		TEST(names_are_listed_in_order),
		TEST(other_names_are_refused),
		TEST(many_are_in_flight_and_one_of_a_name_is_put),
	};

	back_end = b;
	return cmocka_run_group_tests_name(b->name, tests, NULL, NULL);
}
