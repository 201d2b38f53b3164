/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A round on one node; tests/worlds tests rounds of many nodes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/remote/round.h"

#define SELF 1u

static struct cluster_node nodes[] = { { .id = { 10 } }, { .id = { 11 } }, { .id = { 12 } }, { .id = { 13 } } };

static int decide(struct cluster_owners *owners, size_t nr, size_t nr_offered, uint8_t *fates)
{
	struct cluster_decision d = {
		.nodes = nodes, .nr_nodes = ARRAY_SIZE(nodes), .self = SELF, .owners = owners, .nr = nr
	};

	memset(fates, 0xff, nr_offered);
	return round_decide(&d, nodes[SELF].id, nr_offered, fates);
}

static void chunks_are_written_pinned_or_awaited(void **state)
{
	struct cluster_owners owners[] = {
		{ .index = 1, .nr = 1, .owners = { 1 } },
		{ .index = 2, .nr = 2, .owners = { 0, 1 } },
		{ .index = 4, .nr = 2, .owners = { 2, 3 } },
	};
	uint8_t fates[5];

	(void)state;
	assert_int_equal(decide(owners, 3, 5, fates), 0);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_PIN, ROUND_PIN, ROUND_WRITE, ROUND_AWAIT }), 5);
	assert_int_equal(decide(NULL, 0, 2, fates), 0);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_WRITE }), 2);
	assert_int_equal(decide(NULL, 0, 0, fates), 0);
}

static void a_node_that_has_it_need_not_store_it(void **state)
{
	struct cluster_owners owners[] = {
		{ .index = 0, .nr = 1, .owners = { 0 }, .has = 1 },
		{ .index = 1, .nr = 2, .owners = { 0, 3 }, .has = 1 },
		{ .index = 2, .nr = 2, .owners = { 0, 2 }, .has = 1 },
	};
	struct cluster_decision d = {
		.nodes = nodes, .nr_nodes = ARRAY_SIZE(nodes), .self = SELF, .owners = owners, .nr = 3
	};
	static const bool has_stored[] = { false, true, true, false };
	uint8_t fates[3];

	(void)state;
	assert_int_equal(decide(owners, 3, 3, fates), 0);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_AWAIT, ROUND_AWAIT, ROUND_AWAIT }), 3);
	round_settle(&d, has_stored, 3, fates);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_REMOTE, ROUND_WRITE, ROUND_REMOTE }), 3);
	assert_int_equal(decide(owners, 3, 3, fates), 0);
	round_settle(&d, NULL, 3, fates); /* but no node goes on without the end of a round */
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_WRITE, ROUND_WRITE }), 3);
	owners[0].has = 2;
	assert_int_equal(decide(owners, 3, 3, fates), -EBADMSG);
}

/* Since then nodes may have collected together, and dropped what they had for this one. */
static void a_round_that_was_over_without_this_node_is_none(void **state)
{
	struct cluster_owners owners[] = {
		{ .index = 0, .nr = 1, .owners = { 0 }, .has = 1 },
		{ .index = 1, .nr = 1, .owners = { 2 } },
		{ .index = 2, .nr = 1, .owners = { SELF } },
	};
	struct cluster_decision d = {
		.nodes = nodes, .nr_nodes = ARRAY_SIZE(nodes), .self = SELF, .owners = owners, .nr = 3
	};
	static const bool none[4] = { false }, others[] = { true, false, true, true };
	uint8_t fates[3];

	(void)state;
	assert_int_equal(decide(owners, 3, 3, fates), 0);
	round_settle(&d, none, 3, fates);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_WRITE, ROUND_PIN }), 3);
	assert_int_equal(decide(owners, 3, 3, fates), 0);
	round_settle(&d, others, 3, fates);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_WRITE, ROUND_PIN }), 3);
}

static void a_chunk_is_remote_if_all_its_owners_have_it(void **state)
{
	static const struct {
		bool has_stored[4];
		enum round_fate first, second;
	} cases[] = {
		{ { true, true, true, true }, ROUND_REMOTE, ROUND_REMOTE },
		{ { false, true, true, true }, ROUND_WRITE, ROUND_REMOTE },
		{ { true, true, true, false }, ROUND_REMOTE, ROUND_WRITE },
		{ { false, true, false, false }, ROUND_WRITE, ROUND_WRITE },
	};
	struct cluster_owners owners[] = {
		{ .index = 0, .nr = 1, .owners = { 0 } },
		{ .index = 1, .nr = 2, .owners = { 1, 3 } },
		{ .index = 2, .nr = 2, .owners = { 2, 3 } },
	};
	struct cluster_decision d = { .self = SELF, .owners = owners, .nr = 3 };
	uint8_t fates[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(decide(owners, 3, 4, fates), 0);
		round_settle(&d, cases[i].has_stored, 4, fates);
		assert_memory_equal(
			fates,
			((uint8_t[]){ (uint8_t)cases[i].first, ROUND_PIN, (uint8_t)cases[i].second, ROUND_WRITE }), 4);
	}
}

static void without_the_end_of_a_round_all_is_written(void **state)
{
	struct cluster_owners owners[] = {
		{ .index = 0, .nr = 1, .owners = { 0 } },
		{ .index = 2, .nr = 1, .owners = { 1 } },
	};
	struct cluster_decision d = { .owners = owners, .nr = 2 };
	uint8_t fates[3];

	(void)state;
	assert_int_equal(decide(owners, 2, 3, fates), 0);
	round_settle(&d, NULL, 3, fates);
	assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_WRITE, ROUND_PIN }), 3);
}

static void a_decision_that_does_not_fit_is_none(void **state)
{
	static const struct {
		struct cluster_owners owners[2];
	} bad[] = {
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 3, .nr = 1, .owners = { 0 } } } },
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 0, .nr = 1, .owners = { 0 } } } },
		{ { { .index = 2, .nr = 1, .owners = { 0 } }, { .index = 1, .nr = 1, .owners = { 0 } } } },
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 1, .nr = 0 } } },
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 1, .nr = CLUSTER_OWNERS_MAX + 1 } } },
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 1, .nr = 1, .owners = { 4 } } } },
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 1, .nr = 2, .owners = { 2, 2 } } } },
		{ { { .index = 0, .nr = 1, .owners = { 0 } }, { .index = 1, .nr = 2, .owners = { 2, 0 } } } },
	};
	uint8_t fates[3];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct cluster_owners owners[2] = { bad[i].owners[0], bad[i].owners[1] };

		assert_int_equal(decide(owners, 2, 3, fates), -EBADMSG);
		assert_memory_equal(fates, ((uint8_t[]){ ROUND_WRITE, ROUND_WRITE, ROUND_WRITE }), 3);
	}
}

/* Of a store that was copied there may be two. */
static void a_node_is_itself_and_no_other_is(void **state)
{
	struct cluster_node twins[] = { nodes[0], nodes[1], nodes[1], nodes[3] };
	struct cluster_decision d = { .nodes = nodes, .nr_nodes = 4, .self = SELF };
	uint8_t fates[1];

	(void)state;
	assert_int_equal(round_decide(&d, nodes[SELF].id, 1, fates), 0);
	assert_int_equal(round_decide(&d, nodes[0].id, 1, fates), -EBADMSG);
	d.nodes = twins;
	assert_int_equal(round_decide(&d, nodes[SELF].id, 1, fates), -EBADMSG);
	d.self = 4;
	assert_int_equal(round_decide(&d, nodes[SELF].id, 1, fates), -EBADMSG);
	d = (struct cluster_decision){ 0 };
	assert_int_equal(round_decide(&d, nodes[SELF].id, 1, fates), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_are_written_pinned_or_awaited),
		cmocka_unit_test(a_node_that_has_it_need_not_store_it),
		cmocka_unit_test(a_round_that_was_over_without_this_node_is_none),
		cmocka_unit_test(a_chunk_is_remote_if_all_its_owners_have_it),
		cmocka_unit_test(without_the_end_of_a_round_all_is_written),
		cmocka_unit_test(a_decision_that_does_not_fit_is_none),
		cmocka_unit_test(a_node_is_itself_and_no_other_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
