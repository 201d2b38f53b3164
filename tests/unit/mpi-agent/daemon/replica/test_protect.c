/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which nodes have replicas of what a node has sealed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/daemon/replica/gather_group.h"
#include "mpi-agent/daemon/replica/partners.h"
#include "mpi-agent/daemon/service.h"
#include "store/remote/cluster_calls.h"

/* In no order, as ranks are. */
static struct cluster_node nodes[] = { { .id = { 40 } }, { .id = { 10 } }, { .id = { 30 } }, { .id = { 20 } } };

static int partner(uint32_t *hosts, uint32_t nr, uint32_t self, const uint8_t *origin)
{
	const struct service_world w = { nodes, hosts, nr, self };
	uint32_t ret;
	int r = partners_first(&w, origin, &ret);

	return r < 0 ? r : (int)ret;
}

static void the_partner_is_the_next_and_around(void **state _unused_)
{
	uint32_t hosts[] = { 0, 1, 2, 3 };
	static const int expected[] = { 1, 3, 0, 2 };

	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(partner(hosts, 4, i, nodes[i].id), expected[i]);
}

static void the_partner_is_on_another_host(void **state _unused_)
{
	uint32_t two[] = { 0, 0, 1, 0 }, one[] = { 5, 5, 5, 5 };

	assert_int_equal(partner(two, 4, 1, nodes[1].id), 2);
	assert_int_equal(partner(two, 4, 3, nodes[3].id), 2);
	assert_int_equal(partner(two, 4, 2, nodes[2].id), 0);
	assert_int_equal(partner(one, 4, 2, nodes[2].id), -EHOSTUNREACH);
	assert_int_equal(partner(one, 1, 0, nodes[0].id), -EHOSTUNREACH);
}

/* The first two behind it have its replicas, for every node that asks. */
static void two_nodes_care_for_a_lost_one(void **state _unused_)
{
	static const uint8_t lost[CLUSTER_ID_LEN] = { 15 };
	uint32_t hosts[] = { 0, 1, 2, 3 };

	assert_int_equal(partner(hosts, 4, 3, lost), 2);
	assert_int_equal(partner(hosts, 4, 2, lost), 3);
	assert_int_equal(partner(hosts, 4, 0, lost), 3);
	assert_int_equal(partner(hosts, 4, 1, lost), 3);
}

/* On different hosts, the next first, and no more than there are slots. */
static void a_group_is_the_next_ones_on_hosts_of_their_own(void **state _unused_)
{
	uint32_t four[] = { 0, 1, 2, 3 }, two[] = { 0, 1, 1, 0 }, one[] = { 0, 0, 0, 0 }, group[PARTNERS_MAX];
	struct cluster_node many[PARTNERS_MAX + 3] = { 0 };
	uint32_t hosts[PARTNERS_MAX + 3];

	assert_int_equal(partners_group(&(struct service_world){ nodes, four, 4, 1 }, nodes[1].id, group), 3);
	assert_int_equal(group[0], 3);
	assert_int_equal(group[1], 2);
	assert_int_equal(group[2], 0);
	assert_int_equal(partners_group(&(struct service_world){ nodes, two, 4, 1 }, nodes[1].id, group), 1);
	assert_int_equal(group[0], 3);
	assert_int_equal(partners_group(&(struct service_world){ nodes, one, 4, 1 }, nodes[1].id, group), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(many); i++) {
		many[i].id[0] = (uint8_t)i;
		hosts[i] = i;
	}
	assert_int_equal(partners_group(&(struct service_world){ many, hosts, ARRAY_SIZE(many), 5 }, many[5].id, group),
			 PARTNERS_MAX);
	for (uint32_t i = 0; i < PARTNERS_MAX; i++)
		assert_int_equal(group[i], (6 + i) % ARRAY_SIZE(many));
}

/* --- collectors --- */

/* Numbers of them as digits, the first one first; -1: none. */
static int gatherers(uint32_t *hosts, uint32_t nr, uint32_t self, uint32_t group, uint32_t replicas)
{
	const struct service_world w = { nodes, hosts, nr, self };
	uint32_t ret[CLUSTER_OWNERS_MAX];
	int n = gather_group_nodes(&w, group, replicas, ret), digits = 0;

	if (n < 0)
		return n;
	assert_int_equal(n, replicas);
	for (int i = 0; i < n; i++)
		digits = digits * 10 + 1 + (int)ret[i];
	return digits;
}

/* Ids are 10, 20, 30 and 40 of nodes 1, 3, 2 and 0: digits are one more. */
static void the_first_of_each_group_collects(void **state _unused_)
{
	uint32_t hosts[] = { 0, 1, 2, 3 };
	static const int of_two[] = { 3, 2, 3, 2 }, both[] = { 31, 24, 31, 24 };

	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(gatherers(hosts, 4, i, 1, 1), 1 + i);
		assert_int_equal(gatherers(hosts, 4, i, 2, 1), of_two[i]);
		assert_int_equal(gatherers(hosts, 4, i, 2, 2), both[i]);
		assert_int_equal(gatherers(hosts, 4, i, 4, 1), 2);
		assert_int_equal(gatherers(hosts, 4, i, 3, 2), 24); /* one group: the rest is too small for another */
		assert_int_equal(gatherers(hosts, 4, i, 1000, 2), 24);
	}
}

static void collectors_are_on_different_hosts(void **state _unused_)
{
	uint32_t two[] = { 0, 1, 0, 1 }, one[] = { 5, 5, 5, 5 };

	assert_int_equal(gatherers(two, 4, 0, 4, 2), 23);
	assert_int_equal(gatherers(two, 4, 0, 2, 2), -EHOSTUNREACH); /* both of this group are on one */
	assert_int_equal(gatherers(one, 4, 0, 4, 2), -EHOSTUNREACH);
	assert_int_equal(gatherers(one, 4, 0, 4, 1), 2);
	assert_int_equal(gatherers(one, 1, 0, 4, 1), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_partner_is_the_next_and_around),
		cmocka_unit_test(the_partner_is_on_another_host),
		cmocka_unit_test(two_nodes_care_for_a_lost_one),
		cmocka_unit_test(a_group_is_the_next_ones_on_hosts_of_their_own),
		cmocka_unit_test(the_first_of_each_group_collects),
		cmocka_unit_test(collectors_are_on_different_hosts),
	};

	return cmocka_run_group_tests_name("protect", tests, NULL, NULL);
}
