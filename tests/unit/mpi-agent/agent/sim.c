/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/agent/sim.h"

#include <stdarg.h>
#include <stdio.h>

#include "tests/unit/mpi-agent/agent/sim_internal.h"

/* --- the small things --- */

static uint64_t next_random(struct sim *s)
{
	uint64_t x = s->seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

unsigned sim_below(struct sim *s, unsigned n)
{
	return (unsigned)(next_random(s) % n);
}

bool sim_chance(struct sim *s, unsigned percent)
{
	return sim_below(s, 100) < percent;
}

unsigned sim_number_of(const struct sim *s, const struct sim_node *n)
{
	return (unsigned)(n - s->nodes);
}

/* Ascending with the page: which order pages come in makes no difference to any of this. */
struct fp sim_fp_of_page(unsigned page)
{
	return (struct fp){ .lo = page * UINT64_C(0x9e3779b97f4a7c15), .hi = page + 1 };
}

void sim_trace(const struct sim *s, const char *fmt, ...)
{
	va_list args;

	if (!s->conf->trace)
		return;
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

void sim_wrong(struct sim *s, const char *fmt, ...)
{
	va_list args;

	if (s->result->failed)
		return;
	s->result->failed = true;
	va_start(args, fmt);
	vsnprintf(s->result->why, sizeof(s->result->why), fmt, args);
	va_end(args);
	sim_trace(s, "WRONG: %s", s->result->why);
}

bool sim_is_flaw(const struct sim *s, enum sim_flaw flaw)
{
	return s->conf->flaw == flaw;
}

/* What happens to a node at a step. */
enum sim_fault sim_fault_at(struct sim *s, enum sim_step step, const struct sim_node *n)
{
	const struct sim_conf *c = s->conf;
	enum sim_fault f = SIM_FINE;

	if (c->fault != SIM_FINE && c->step == step && c->round == s->round && c->node == sim_number_of(s, n))
		f = c->fault;
	else if (c->faults_percent > 0 && sim_chance(s, c->faults_percent))
		f = 1 + (enum sim_fault)sim_below(s, SIM_FAULTS - 1);
	if (f == SIM_WORLD_DIES && c->fault == SIM_FINE && sim_chance(s, 50))
		f = SIM_LOST; /* or hardly anything else would be seen */
	if (f != SIM_FINE) {
		s->result->nr_faults++;
		sim_trace(s, "round %u node %u step %d: fault %d", s->round, sim_number_of(s, n), (int)step, (int)f);
	}
	return f;
}

/* --- what must hold --- */

static void check_ref(struct sim *s, const struct sim_node *n, unsigned page)
{
	const struct sim_ref *ref = &n->remote[page];

	if (ref->nr == 0 || (ref->expected > 0 && ref->nr != ref->expected))
		sim_wrong(s, "round %u: node %u has page %u at %u others, not at %u", s->round, sim_number_of(s, n),
			  page, ref->nr, ref->expected);
	for (unsigned i = 0; i < ref->nr; i++) {
		const struct sim_node *owner = &s->nodes[ref->owners[i]];

		if (owner == n || !owner->has[page] || !owner->pinned[page])
			sim_wrong(s, "round %u: node %u has page %u at node %u, which %s", s->round,
				  sim_number_of(s, n), page, ref->owners[i],
				  owner->has[page] ? "may give it up" : "has it not");
		for (unsigned k = 0; k < i; k++)
			if (s->nodes[ref->owners[k]].host == owner->host)
				sim_wrong(s, "round %u: two of the nodes that have page %u are on one host", s->round,
					  page);
	}
}

void sim_check(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		const struct sim_node *n = &s->nodes[i];

		for (unsigned page = 0; page < SIM_PAGES; page++) {
			if (n->remote[page].is)
				check_ref(s, n, page);
			else if (n->acked[page] && !n->has[page])
				sim_wrong(s, "round %u: node %u has lost page %u", s->round, i, page);
			if (n->pinned[page] && !n->has[page])
				sim_wrong(s, "round %u: node %u dropped page %u, which it has pinned", s->round, i, page);
		}
	}
}

/* --- round after round --- */

static void run_round(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct sim_node *n = &s->nodes[i];

		if (!n->is_up && sim_chance(s, 70))
			sim_mount(s, n);
		if (!n->is_up)
			continue;
		if (s->round > 0)
			sim_delete_and_collect(s, n);
		sim_write_pages(s, n);
		sim_check(s);
	}
	if (!s->world.lives || (s->conf->faults_percent > 0 && sim_chance(s, 10)))
		sim_world_begin(s);
	sim_world_round(s);
}

void sim_run(const struct sim_conf *conf, struct sim_result *ret)
{
	struct sim s = { .conf = conf, .result = ret, .seed = conf->seed };

	*ret = (struct sim_result){ 0 };
	s.nr_nodes = conf->nr_nodes ?: 1 + sim_below(&s, SIM_NODES);
	s.nr_owners = 1 + sim_below(&s, OWNERS_MAX);
	s.max = sim_chance(&s, 20) ? 1 + sim_below(&s, SIM_PAGES) : SIM_PAGES;
	for (unsigned i = 0; i < s.nr_nodes; i++) {
		s.nodes[i] = (struct sim_node){ .is_up = true, .id = { 1, (uint8_t)i } };
		s.nodes[i].host = sim_chance(&s, 25) ? sim_below(&s, i + 1) : i;
	}
	sim_trace(&s, "%u nodes, %u owners, %zu pages in a set", s.nr_nodes, s.nr_owners, s.max);
	for (s.round = 0; s.round < SIM_ROUNDS && !ret->failed; s.round++)
		run_round(&s);
}
