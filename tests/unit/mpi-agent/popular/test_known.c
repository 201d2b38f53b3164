/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/popular/known.h"

/* All in one place of a small table, or spread. */
static struct fp page(unsigned n)
{
	return (struct fp){ .lo = n, .hi = n + 1 };
}
static struct fp spread(unsigned n)
{
	return (struct fp){ .lo = n * UINT64_C(0x9e3779b97f4a7c15), .hi = n };
}

static struct known *table(size_t bytes)
{
	struct known *k;

	assert_int_equal(known_new(bytes, &k), 0);
	return k;
}

static void what_was_set_is_found(void **state _unused_)
{
	const struct holders set = { 2, { 1, 5 } };
	struct known *k = table(4096);
	struct holders h = { 0 };

	assert_false(known_find(k, page(1), 1, &h));
	known_set(k, page(1), &set, 1);
	assert_false(known_find(k, page(2), 1, &h));
	assert_true(known_find(k, page(1), 1, &h));
	assert_int_equal(h.nr, 2);
	assert_int_equal(h.nodes[1], 5);
	assert_int_equal(known_nr(k), 1);
	known_clear(k);
	assert_false(known_find(k, page(1), 1, &h));
	assert_int_equal(known_nr(k), 0);
	known_free(k);
}

static void holders_are_in_order_and_each_once(void **state _unused_)
{
	static const uint16_t come[] = { 7, 2, 7, 65535, 0, 2, 9 };
	static const uint16_t expected[] = { 0, 2, 7, 65535 };
	struct known *k = table(4096);
	struct holders h = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(come); i++)
		known_add(k, page(1), come[i], 1);
	assert_true(known_find(k, page(1), 1, &h));
	assert_int_equal(h.nr, ARRAY_SIZE(expected));
	assert_memory_equal(h.nodes, expected, sizeof(expected)); /* 9 had no room */
	assert_int_equal(known_nr(k), 1);
	known_free(k);
}

static void what_was_not_asked_for_for_longest_goes(void **state _unused_)
{
	struct known *k = table(256); /* eight pages */
	struct holders h;

	for (unsigned i = 0; i < 8; i++)
		known_add(k, page(i), 0, i);
	assert_true(known_find(k, page(0), 8, &h));
	known_add(k, page(8), 3, 9);
	assert_true(known_find(k, page(0), 9, &h));
	assert_true(known_find(k, page(8), 9, &h));
	assert_false(known_find(k, page(1), 9, &h));
	for (unsigned i = 2; i < 8; i++)
		assert_true(known_find(k, page(i), 9, &h));
	assert_int_equal(known_nr(k), 8);
	known_free(k);
}

static void it_is_bounded_and_its_room_is_used(void **state _unused_)
{
	struct known *k = table(64 * 1024); /* 2048 pages */
	struct holders h;
	unsigned nr = 0;

	for (unsigned i = 0; i < 10000; i++)
		known_add(k, spread(i), (uint16_t)(i % 100), i);
	assert_true(known_nr(k) <= 2048);
	for (unsigned i = 0; i < 10000; i++)
		if (known_find(k, spread(i), 10000, &h)) {
			assert_int_equal(h.nr, 1);
			assert_int_equal(h.nodes[0], i % 100);
			nr++;
			assert_true(i >= 10000 - 4 * 2048); /* none of those that are very old */
		}
	assert_int_equal(nr, known_nr(k));
	assert_true(nr > 2048 * 9 / 10);
	known_free(k);
}

static void it_grows_with_what_is_known(void **state _unused_)
{
	struct known *k = table(3 << 20); /* 98,304 pages: more than twice as many as there are */
	struct holders h;
	unsigned nr = 0;

	for (unsigned i = 0; i < 40000; i++) {
		known_add(k, spread(i), (uint16_t)(i % 100), i);
		assert_true(known_find(k, spread(i / 2), i, &h));
		assert_int_equal(h.nodes[0], i / 2 % 100);
	}
	for (unsigned i = 0; i < 40000; i++)
		nr += known_find(k, spread(i), 40000, &h);
	assert_int_equal(nr, 40000); /* none had to go */
	assert_int_equal(known_nr(k), 40000);
	known_free(k);
}

static void without_memory_it_knows_nothing(void **state _unused_)
{
	struct known *k = table(255);
	struct holders h;

	known_add(k, page(1), 1, 1);
	assert_false(known_find(k, page(1), 1, &h));
	known_clear(k);
	known_free(k);
	known_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_set_is_found),
		cmocka_unit_test(holders_are_in_order_and_each_once),
		cmocka_unit_test(what_was_not_asked_for_for_longest_goes),
		cmocka_unit_test(it_is_bounded_and_its_room_is_used),
		cmocka_unit_test(it_grows_with_what_is_known),
		cmocka_unit_test(without_memory_it_knows_nothing),
	};

	return cmocka_run_group_tests_name("known", tests, NULL, NULL);
}
