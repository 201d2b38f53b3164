/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/popular/homes.h"
#include "mpi-agent/popular/known.h"

#define SECOND UINT64_C(1000000000)

static struct fp page(unsigned n)
{
	return (struct fp){ .lo = n * UINT64_C(0x9e3779b97f4a7c15), .hi = n };
}

static struct homes *homes(void)
{
	struct homes *hs;

	assert_int_equal(homes_new(1 << 20, 4, &hs), 0);
	return hs;
}

/* The last one first: they come in any order. */
static void announce(struct homes *hs, uint32_t node, unsigned first, unsigned nr, uint64_t now_ns)
{
	uint8_t(*fps)[FP_LEN] = calloc(nr, FP_LEN);

	assert_non_null(fps);
	for (unsigned i = 0; i < nr; i++)
		fp_encode(page(first + nr - 1 - i), fps[i]);
	assert_int_equal(homes_announce(hs, node, fps, (size_t)nr * FP_LEN, now_ns), 0);
	free(fps);
}

static void what_is_reported_is_found_once_it_is_noted(void **state _unused_)
{
	struct homes *hs = homes();
	struct homes_noted noted;
	struct holders h;

	announce(hs, 2, 100, 50, 0);
	assert_false(homes_find(hs, page(100), 1, &h));
	assert_int_equal(homes_note(hs, 1, &noted), 1);
	assert_int_equal(noted.node, 2);
	assert_int_equal(noted.nr, 50);
	assert_int_equal(noted.nr_twice, 0);
	for (unsigned n = 100; n < 150; n++) {
		assert_true(homes_find(hs, page(n), 1, &h));
		assert_int_equal(h.nr, 1);
		assert_int_equal(h.nodes[0], 2);
	}
	assert_false(homes_find(hs, page(150), 1, &h));
	assert_int_equal(homes_nr(hs), 50);
	assert_int_equal(homes_note(hs, 1, &noted), 0);
	homes_free(hs);
}

static void the_oldest_is_noted_first_and_equal_reports_are_counted(void **state _unused_)
{
	struct homes *hs = homes();
	struct homes_noted noted;

	announce(hs, 0, 0, 10, 0);
	announce(hs, 1, 5, 10, 0);
	announce(hs, 3, 8, 4, 0);
	announce(hs, 3, 8, 4, 0); /* again: it has nothing in common with itself */
	assert_int_equal(homes_note(hs, 1, &noted), 1);
	assert_int_equal(noted.node, 0);
	assert_int_equal(noted.nr_twice, 0);
	assert_int_equal(homes_note(hs, 1, &noted), 1);
	assert_int_equal(noted.node, 1);
	assert_int_equal(noted.nr_twice, 5);
	assert_int_equal(noted.twice[0], 5);
	for (unsigned again = 0; again < 2; again++) {
		assert_int_equal(homes_note(hs, 1, &noted), 1);
		assert_int_equal(noted.node, 3);
		assert_int_equal(noted.nr, 4);
		assert_int_equal(noted.nr_twice, 4); /* 8 to 11, of which node 0 had 8 and 9, and node 1 all */
		assert_int_equal(noted.twice[0], 2);
		assert_int_equal(noted.twice[1], 4);
		assert_int_equal(noted.twice[2], 0);
		assert_int_equal(noted.twice[3], 0);
	}
	assert_int_equal(homes_note(hs, 1, &noted), 0);
	homes_free(hs);
}

static void it_is_time_when_no_node_has_reported_for_a_while(void **state _unused_)
{
	struct homes *hs = homes();
	struct homes_noted noted;

	assert_false(homes_due(hs, 100 * SECOND));
	announce(hs, 0, 0, 10, 100 * SECOND);
	assert_false(homes_due(hs, 100 * SECOND));
	assert_false(homes_due(hs, 100 * SECOND - 1)); /* by a clock that was read before */
	announce(hs, 1, 20, 10, 101 * SECOND);
	assert_false(homes_due(hs, 101 * SECOND + SECOND / 2));
	assert_true(homes_due(hs, 103 * SECOND));
	while (homes_note(hs, 1, &noted) > 0)
		;
	assert_false(homes_due(hs, 103 * SECOND));
	homes_free(hs);
}

static void endless_reports_are_received_all_the_same(void **state _unused_)
{
	struct homes *hs = homes();
	uint64_t at = 100 * SECOND;

	for (; at < 110 * SECOND; at += SECOND / 2) {
		assert_false(homes_due(hs, at));
		announce(hs, 0, 0, 10, at);
	}
	assert_true(homes_due(hs, at));
	homes_free(hs);
}

static void too_much_does_not_wait(void **state _unused_)
{
	struct homes *hs = homes();
	const unsigned nr = 1 << 16;

	for (size_t bytes = 0; bytes <= HOMES_WAITING_MAX; bytes += (size_t)nr * FP_LEN) {
		assert_false(homes_due(hs, SECOND));
		announce(hs, 0, 0, nr, SECOND);
	}
	assert_true(homes_due(hs, SECOND));
	homes_free(hs); /* what waits, too */
}

static void what_are_no_fingerprints_is_refused(void **state _unused_)
{
	static const uint8_t bytes[3 * FP_LEN];
	struct homes *hs = homes();
	struct homes_noted noted;

	assert_int_equal(homes_announce(hs, 0, bytes, FP_LEN + 1, 0), -EBADMSG);
	assert_int_equal(homes_announce(hs, 0, bytes, FP_LEN - 1, 0), -EBADMSG);
	assert_int_equal(homes_announce(hs, 0, bytes, 0, 0), 0);
	assert_int_equal(homes_note(hs, 1, &noted), 0);
	homes_free(hs);
}

static void what_was_reported_can_be_forgotten(void **state _unused_)
{
	struct homes *hs = homes();
	struct homes_noted noted;
	struct holders h;

	announce(hs, 0, 0, 10, 0);
	assert_int_equal(homes_note(hs, 1, &noted), 1);
	announce(hs, 0, 20, 10, 0);
	homes_clear(hs);
	assert_int_equal(homes_note(hs, 1, &noted), 0);
	assert_false(homes_find(hs, page(0), 1, &h));
	assert_int_equal(homes_nr(hs), 0);
	announce(hs, 1, 0, 1, 0);
	assert_int_equal(homes_note(hs, 1, &noted), 1);
	assert_true(homes_find(hs, page(0), 1, &h));
	homes_free(hs);
	homes_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_reported_is_found_once_it_is_noted),
		cmocka_unit_test(the_oldest_is_noted_first_and_equal_reports_are_counted),
		cmocka_unit_test(it_is_time_when_no_node_has_reported_for_a_while),
		cmocka_unit_test(endless_reports_are_received_all_the_same),
		cmocka_unit_test(too_much_does_not_wait),
		cmocka_unit_test(what_are_no_fingerprints_is_refused),
		cmocka_unit_test(what_was_reported_can_be_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
