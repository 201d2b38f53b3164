/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The reduction, against what can be said of the result by looking at all nodes' pages at once, for any tree of
 * merging. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/popular/popular_merge.h"

#define NODES_MAX 24
#define PAGES_MAX 400 /* distinct ones */

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

/* Pages 0, 1, ... by fingerprints that are in another order. */
static struct fp fp_of_page(unsigned page)
{
	return (struct fp){ .lo = page * UINT64_C(0x9e3779b97f4a7c15), .hi = page * UINT64_C(0xd1342543de82ef95) >> 8 };
}

static unsigned page_of(struct fp fp)
{
	for (unsigned page = 0; page < PAGES_MAX; page++)
		if (fp_of_page(page).lo == fp.lo && fp_of_page(page).hi == fp.hi)
			return page;
	fail_msg("a fingerprint that no node has");
	return 0;
}

struct world {
	struct merge_conf conf;
	uint32_t hosts[NODES_MAX];
	uint8_t holds[NODES_MAX][PAGES_MAX];
	uint64_t seed;
};

static void world_init(struct world *w, uint64_t seed, uint32_t nr_nodes, uint32_t nr_owners, size_t max)
{
	uint32_t nr_hosts;

	*w = (struct world){ .seed = seed };
	nr_hosts = (uint32_t)(next_random(&w->seed) % nr_nodes) + 1;
	for (uint32_t n = 0; n < nr_nodes; n++)
		w->hosts[n] = n % nr_hosts;
	for (unsigned page = 0; page < PAGES_MAX; page++) {
		uint64_t popularity = next_random(&w->seed) % 100;

		for (uint32_t n = 0; n < nr_nodes; n++)
			w->holds[n][page] = next_random(&w->seed) % 100 < popularity;
	}
	w->conf = (struct merge_conf){ .max = max, .nr_owners = nr_owners, .nr_nodes = nr_nodes, .hosts = w->hosts };
}

static struct popular_set set_of_node(struct world *w, uint32_t node)
{
	struct fp pages[2 * PAGES_MAX];
	struct popular_set s;
	size_t nr = 0;

	for (unsigned page = 0; page < PAGES_MAX; page++)
		for (int twice = 0; twice < 2; twice++)
			if (w->holds[node][page])
				pages[nr++] = fp_of_page(page);
	for (size_t i = nr; i > 1; i--) {
		size_t k = next_random(&w->seed) % i;
		struct fp swapped = pages[i - 1];

		pages[i - 1] = pages[k];
		pages[k] = swapped;
	}
	assert_int_equal(popular_of_node(&w->conf, node, pages, nr, &s), 0);
	return s;
}

/* In a tree of any shape: two of what is left, until there is one. */
static struct popular_set merge_all(struct world *w)
{
	struct popular_set sets[NODES_MAX];
	size_t nr = w->conf.nr_nodes;

	for (uint32_t n = 0; n < w->conf.nr_nodes; n++)
		sets[n] = set_of_node(w, n);
	while (nr > 1) {
		size_t i = next_random(&w->seed) % nr, k = next_random(&w->seed) % (nr - 1);
		struct popular_set both, other;

		k += k >= i;
		assert_int_equal(popular_merge(&w->conf, &sets[i], &sets[k], &both), 0);
		assert_int_equal(popular_merge(&w->conf, &sets[k], &sets[i], &other), 0);
		assert_int_equal(both.nr, other.nr);
		assert_memory_equal(both.v, other.v, both.nr * sizeof(*both.v));
		popular_set_release(&other);
		popular_set_release(&sets[i]);
		popular_set_release(&sets[k]);
		sets[i] = both;
		sets[k] = sets[--nr];
	}
	return sets[0];
}

static uint32_t count_of(const struct world *w, unsigned page, uint32_t *ret_hosts)
{
	uint8_t seen[NODES_MAX] = { 0 };
	uint32_t count = 0;

	*ret_hosts = 0;
	for (uint32_t n = 0; n < w->conf.nr_nodes; n++) {
		if (!w->holds[n][page])
			continue;
		count++;
		*ret_hosts += seen[w->hosts[n]]++ == 0;
	}
	return count;
}

static void check_owners(const struct world *w, const struct popular *p, unsigned page, uint32_t nr_hosts, bool exact)
{
	if (exact)
		assert_int_equal(p->nr_owners, MIN(w->conf.nr_owners, nr_hosts));
	assert_true(p->nr_owners >= 1 && p->nr_owners <= w->conf.nr_owners);
	for (uint32_t i = 0; i < p->nr_owners; i++) {
		assert_true(w->holds[p->owners[i]][page]);
		for (uint32_t k = 0; k < i; k++) {
			assert_true(p->owners[k] < p->owners[i]);
			assert_int_not_equal(w->hosts[p->owners[k]], w->hosts[p->owners[i]]);
		}
	}
}

static void what_is_promised_holds_for_any_tree(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct world w;
		uint64_t random = seed;
		bool exact = seed % 2 == 0; /* nothing is cut on the way */
		struct popular_set s;
		uint32_t nr_hosts;
		size_t nr_pages = 0;

		world_init(&w, seed, (uint32_t)(next_random(&random) % NODES_MAX) + 1,
			   (uint32_t)(seed % OWNERS_MAX) + 1, exact ? PAGES_MAX : next_random(&random) % 200 + 1);
		s = merge_all(&w);
		for (unsigned page = 0; page < PAGES_MAX; page++)
			nr_pages += count_of(&w, page, &nr_hosts) > 0;
		assert_int_equal(s.nr, MIN(nr_pages, w.conf.max));
		for (size_t i = 0; i < s.nr; i++) {
			unsigned page = page_of(s.v[i].fp);
			uint32_t count = count_of(&w, page, &nr_hosts);

			if (exact)
				assert_int_equal(s.v[i].count, count);
			assert_true(s.v[i].count >= 1 && s.v[i].count <= count);
			check_owners(&w, &s.v[i], page, nr_hosts, exact);
			if (i > 0)
				assert_true(s.v[i - 1].fp.hi < s.v[i].fp.hi ||
					    (s.v[i - 1].fp.hi == s.v[i].fp.hi && s.v[i - 1].fp.lo < s.v[i].fp.lo));
		}
		popular_set_release(&s);
	}
}

/* The most frequent stay, and of equals the lowest fingerprints. */
static void a_set_is_cut_where_it_costs_least(void **state _unused_)
{
	const uint32_t hosts[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	const struct merge_conf all = { .max = 100, .nr_owners = 1, .nr_nodes = 8, .hosts = hosts };

	for (size_t max = 1; max <= 20; max++) {
		struct merge_conf conf = all;
		struct popular a[10], b[10];
		struct popular_set left = { a, 10 }, right = { b, 10 }, whole, part;
		size_t at = 0;

		for (unsigned i = 0; i < 10; i++) { /* 0 to 9 and 5 to 14, with counts of their own */
			a[i] = (struct popular){
				.fp = { .hi = i }, .count = i % 4 + 1, .nr_owners = 1, .owners = { i % 4 }
			};
			b[i] = (struct popular){
				.fp = { .hi = i + 5 }, .count = i % 3 + 1, .nr_owners = 1, .owners = { 4 + i % 4 }
			};
		}
		conf.max = max;
		assert_int_equal(popular_merge(&all, &left, &right, &whole), 0);
		assert_int_equal(popular_merge(&conf, &left, &right, &part), 0);
		assert_int_equal(whole.nr, 15);
		assert_int_equal(part.nr, MIN(max, (size_t)15));
		for (size_t i = 0; i < whole.nr; i++) {
			size_t better = 0;

			for (size_t k = 0; k < whole.nr; k++)
				better += whole.v[k].count > whole.v[i].count ||
					  (whole.v[k].count == whole.v[i].count && k < i);
			if (better >= max)
				continue;
			assert_memory_equal(&part.v[at], &whole.v[i], sizeof(part.v[at]));
			at++;
		}
		assert_int_equal(at, part.nr);
		popular_set_release(&whole);
		popular_set_release(&part);
	}
}

/* The paper's best case: what all have is stored once for each replica, and by all alike. */
static void what_all_nodes_have_is_shared_out_evenly(void **state _unused_)
{
	for (uint32_t nr_owners = 1; nr_owners <= 2; nr_owners++)
		for (uint32_t nr_nodes = 2; nr_nodes <= NODES_MAX; nr_nodes++) {
			static struct world w;
			uint32_t load[NODES_MAX] = { 0 }, most = 0, hosts[NODES_MAX];
			struct popular_set s;

			world_init(&w, nr_nodes, nr_nodes, nr_owners, PAGES_MAX);
			memset(w.holds, 1, sizeof(w.holds));
			for (uint32_t n = 0; n < nr_nodes; n++)
				hosts[n] = w.hosts[n] = n;
			w.conf.hosts = hosts;
			s = merge_all(&w);
			assert_int_equal(s.nr, PAGES_MAX);
			for (size_t i = 0; i < s.nr; i++) {
				assert_int_equal(s.v[i].nr_owners, nr_owners);
				for (uint32_t k = 0; k < nr_owners; k++)
					most = MAX(most, ++load[s.v[i].owners[k]]);
			}
			assert_true(most <= (PAGES_MAX * nr_owners + nr_nodes - 1) / nr_nodes + 8);
			popular_set_release(&s);
		}
}

/* A node with much of its own gets less of what is common: those without a choice are counted first. */
static void a_node_with_much_alone_gets_less_of_the_rest(void **state _unused_)
{
	const uint32_t hosts[] = { 0, 1 };
	const struct merge_conf conf = { .max = 1000, .nr_owners = 1, .nr_nodes = 2, .hosts = hosts };
	struct fp pages[2][300];
	struct popular_set a, b, s;
	uint32_t load[2] = { 0 };

	for (unsigned i = 0; i < 300; i++) {
		pages[0][i] = fp_of_page(i); /* 100 of which node 1 has, too */
		pages[1][i] = fp_of_page(200 + i);
	}
	assert_int_equal(popular_of_node(&conf, 0, pages[0], 300, &a), 0);
	assert_int_equal(popular_of_node(&conf, 1, pages[1], 140, &b), 0);
	assert_int_equal(popular_merge(&conf, &a, &b, &s), 0);
	for (size_t i = 0; i < s.nr; i++)
		load[s.v[i].owners[0]]++;
	assert_int_equal(load[0], 200);
	assert_int_equal(load[1], 140);
	popular_set_release(&a);
	popular_set_release(&b);
	popular_set_release(&s);
}

static bool owns(const struct popular *p, uint32_t node, bool *ret_has)
{
	for (uint32_t i = 0; i < p->nr_owners; i++)
		if (p->owners[i] == node) {
			*ret_has = p->has >> i & 1;
			return true;
		}
	return false;
}

/* Nodes 0 to 7 offer a page each time, of which node 8, or 8 and 9, have it already; some of them know. */
static void a_node_that_has_a_page_is_its_first_owner(void **state _unused_)
{
	static const uint16_t had[] = { 8, 9 };
	const uint32_t apart[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, together[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };

	for (uint32_t test = 0; test < 1000; test++) {
		uint32_t nr_owners = test % 3 + 1, nr_had = test / 3 % 2 + 1, nr_hosts = test % 5 == 0 ? 1 : 10;
		const struct merge_conf conf = {
			.max = 10, .nr_owners = nr_owners, .nr_nodes = 10, .hosts = nr_hosts == 1 ? together : apart
		};
		uint64_t seed = test;
		struct popular_set all = { 0 };
		uint32_t nr_stored = 0;
		bool has;

		for (uint32_t n = 0; n < 8; n++) {
			struct popular_set own, both;

			assert_int_equal(popular_of_node(&conf, n, &(struct fp){ .lo = 5 }, 1, &own), 0);
			if (n == test % 8 || next_random(&seed) % 2)
				popular_is_had(&conf, had, nr_had, &own.v[0]);
			if (n == 0) {
				all = own;
				continue;
			}
			assert_int_equal(n % 2 ? popular_merge(&conf, &all, &own, &both) :
						 popular_merge(&conf, &own, &all, &both),
					 0);
			popular_set_release(&all);
			popular_set_release(&own);
			all = both;
		}
		assert_int_equal(all.nr, 1);
		assert_int_equal(all.v[0].nr_owners, MIN(nr_owners, nr_hosts));
		assert_true(all.v[0].count >= 9 && all.v[0].count <= 10);
		assert_true(owns(&all.v[0], 8, &has) && has);
		if (nr_had == 2 && nr_owners >= 2 && nr_hosts > 1)
			assert_true(owns(&all.v[0], 9, &has) && has);
		for (uint32_t i = 0; i < all.v[0].nr_owners; i++)
			nr_stored += !(all.v[0].has >> i & 1);
		assert_int_equal(nr_stored, nr_hosts == 1 ? 0 : nr_owners - MIN(nr_owners, nr_had));
		popular_set_release(&all);
	}
}

static void a_node_that_has_a_page_has_no_load_of_it(void **state _unused_)
{
	const uint32_t hosts[] = { 0, 1, 2 };
	const struct merge_conf conf = { .max = 1000, .nr_owners = 2, .nr_nodes = 3, .hosts = hosts };
	struct popular_set sets[2], s;
	uint32_t load[3] = { 0 };
	struct fp pages[100];

	for (unsigned i = 0; i < 100; i++)
		pages[i] = fp_of_page(i);
	for (uint32_t n = 0; n < 2; n++) {
		assert_int_equal(popular_of_node(&conf, n, pages, 100, &sets[n]), 0);
		for (unsigned i = 0; i < 100; i++)
			popular_is_had(&conf, (uint16_t[]){ 2 }, 1, &sets[n].v[i]);
	}
	assert_int_equal(popular_merge(&conf, &sets[0], &sets[1], &s), 0);
	for (unsigned i = 0; i < 100; i++)
		for (uint32_t k = 0; k < s.v[i].nr_owners; k++)
			load[s.v[i].owners[k]] += !(s.v[i].has >> k & 1);
	assert_int_equal(load[0], 50);
	assert_int_equal(load[1], 50);
	assert_int_equal(load[2], 0);
	popular_set_release(&sets[0]);
	popular_set_release(&sets[1]);
	popular_set_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_promised_holds_for_any_tree),
		cmocka_unit_test(a_set_is_cut_where_it_costs_least),
		cmocka_unit_test(what_all_nodes_have_is_shared_out_evenly),
		cmocka_unit_test(a_node_with_much_alone_gets_less_of_the_rest),
		cmocka_unit_test(a_node_that_has_a_page_is_its_first_owner),
		cmocka_unit_test(a_node_that_has_a_page_has_no_load_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
