/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/agent/sim_internal.h"

#include <stdlib.h>
#include <string.h>

struct merge_conf sim_merge_conf(const struct sim *s, uint32_t hosts[SIM_NODES])
{
	for (unsigned rank = 0; rank < s->world.nr; rank++)
		hosts[rank] = s->nodes[s->world.members[rank]].host;
	return (struct merge_conf){ .max = s->max, .nr_owners = s->nr_owners, .nr_nodes = s->world.nr, .hosts = hosts };
}

/* As mpi-agent/agent/rounds.c has it. */
struct popular sim_popular_of(const struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page)
{
	const struct holders *h = &s->world.known[s->world.members[rank]][page];
	struct popular p = { .fp = sim_fp_of_page(page), .count = 1, .nr_owners = 1, .owners = { rank } };

	if (h->nr > 0)
		popular_is_had(conf, h->nodes, h->nr, &p);
	return p;
}

static void must(int r)
{
	if (r < 0)
		abort(); /* want of memory, in a test */
}

/* In a tree of any shape. */
static struct popular_set reduce(struct sim *s, const struct merge_conf *conf)
{
	struct popular_set sets[SIM_NODES];
	unsigned nr = s->world.nr;

	for (unsigned rank = 0; rank < nr; rank++) {
		const bool *entered = s->world.entered[s->world.members[rank]];
		struct fp pages[SIM_PAGES];
		size_t nr_pages = 0;

		for (unsigned page = 0; page < SIM_PAGES; page++)
			if (entered[page])
				pages[nr_pages++] = sim_fp_of_page(page);
		must(popular_of_node(conf, rank, pages, nr_pages, &sets[rank]));
		for (size_t i = 0; i < sets[rank].nr; i++)
			sets[rank].v[i] = sim_popular_of(s, conf, rank, (unsigned)(sets[rank].v[i].fp.hi - 1));
	}
	while (nr > 1) {
		unsigned a = sim_below(s, nr), b = (a + 1 + sim_below(s, nr - 1)) % nr;
		struct popular_set merged;

		must(popular_merge(conf, &sets[a], &sets[b], &merged));
		popular_set_release(&sets[a]);
		popular_set_release(&sets[b]);
		sets[a] = merged;
		sets[b] = sets[nr - 1 == a ? b : nr - 1];
		if (nr - 1 == a)
			sets[b] = merged;
		nr--;
	}
	return sets[0];
}

static unsigned hosts_that_offer(const struct sim *s, unsigned page)
{
	bool is_counted[SIM_NODES] = { false };
	unsigned nr = 0;

	for (unsigned rank = 0; rank < s->world.nr; rank++) {
		unsigned i = s->world.members[rank], host = s->nodes[i].host;

		if (s->world.entered[i][page] && !is_counted[host]) {
			is_counted[host] = true;
			nr++;
		}
	}
	return nr;
}

/* What is decided, for all alike: which node stores each page that two or more have. */
static void references(struct sim *s, const struct popular_set *popular, struct sim_ref refs[SIM_PAGES])
{
	for (size_t i = 0; i < popular->nr; i++) {
		const struct popular *p = &popular->v[i];
		struct sim_ref *ref = &refs[p->fp.hi - 1];

		if (p->count < 2)
			continue;
		*ref = (struct sim_ref){ .is = true, .nr = p->nr_owners, .has = p->has };
		if (s->max >= SIM_PAGES && p->has == 0)
			ref->expected = MIN(s->nr_owners, hosts_that_offer(s, (unsigned)(p->fp.hi - 1)));
		for (unsigned k = 0; k < p->nr_owners; k++)
			ref->owners[k] = p->owners[k];
	}
}

/* Where nothing has gone wrong and all have the same, it is spread evenly (as tests/unit/mpi-agent/popular/test_popular_merge.c has
 * it). */
static void check_loads(struct sim *s, const struct sim_ref refs[SIM_PAGES])
{
	unsigned load[SIM_NODES] = { 0 }, total = 0;

	for (unsigned page = 0; page < SIM_PAGES; page++) {
		unsigned nr = 0;

		for (unsigned rank = 0; rank < s->world.nr; rank++)
			nr += s->world.entered[s->world.members[rank]][page];
		if (nr != s->world.nr && nr != 0)
			return;
		for (unsigned k = 0; k < refs[page].nr; k++)
			if (!(refs[page].has >> k & 1)) {
				load[refs[page].owners[k]]++;
				total++;
			}
	}
	for (unsigned i = 0; i < s->nr_nodes; i++)
		for (unsigned k = 0; k < i; k++)
			if (s->nodes[i].host == s->nodes[k].host)
				return;
	for (unsigned rank = 0; rank < s->world.nr; rank++)
		if (load[rank] > (total + s->world.nr - 1) / s->world.nr + 8)
			sim_wrong(s, "round %u: of %u pages to be stored node %u has %u", s->round, total,
				  s->world.members[rank], load[rank]);
}

void sim_decide(struct sim *s)
{
	uint32_t hosts[SIM_NODES];
	struct merge_conf conf = sim_merge_conf(s, hosts);
	struct popular_set popular = reduce(s, &conf);

	references(s, &popular, s->refs);
	popular_set_release(&popular);
	check_loads(s, s->refs);
}

/* Of a page that the node need not ask about; or what all have decided. */
static struct sim_ref ref_for(struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page,
			      const struct sim_ref *decided)
{
	struct popular p;
	struct sim_ref ref = { .is = true };

	if (s->world.entered[s->world.members[rank]][page])
		return *decided;
	p = sim_popular_of(s, conf, rank, page);
	ref.nr = ref.expected = p.nr_owners;
	ref.has = p.has;
	for (unsigned k = 0; k < p.nr_owners; k++)
		ref.owners[k] = p.owners[k];
	return ref;
}

struct sim_part sim_decision_for(struct sim *s, unsigned rank, struct cluster_node *nodes,
				 struct cluster_owners *owners)
{
	unsigned self = s->world.members[rank], index = 0;
	uint32_t hosts[SIM_NODES];
	struct merge_conf conf = sim_merge_conf(s, hosts);
	struct sim_part p = { .round = s->world.round };

	p.d = (struct cluster_decision){ .nodes = nodes, .nr_nodes = s->world.nr, .self = rank, .owners = owners };
	for (unsigned i = 0; i < s->world.nr; i++)
		memcpy(nodes[i].id, s->nodes[s->world.members[i]].id, CLUSTER_ID_LEN);
	for (unsigned page = 0; page < SIM_PAGES; page++) {
		struct cluster_owners *o = &owners[p.d.nr];
		struct sim_ref ref;

		if (!s->world.offered[self][page])
			continue;
		ref = ref_for(s, &conf, rank, page, &s->refs[page]);
		if (ref.is) {
			*o = (struct cluster_owners){ .index = index, .nr = ref.nr, .has = ref.has };
			p.refs[index] = ref;
			for (unsigned k = 0; k < o->nr; k++) {
				o->owners[k] = (uint16_t)ref.owners[k];
				p.refs[index].owners[k] = s->world.members[ref.owners[k]];
			}
			p.d.nr++;
		}
		index++;
	}
	return p;
}
