/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/agent/sim_internal.h"

#include <string.h>

void sim_world_begin(struct sim *s)
{
	struct sim_world *w = &s->world;

	*w = (struct sim_world){ .lives = true };
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		memset(&s->nodes[i].late, 0, sizeof(s->nodes[i].late)); /* connections ended */
		if (s->nodes[i].is_up)
			w->members[w->nr++] = i;
	}
	for (unsigned i = w->nr; i > 1; i--) { /* ranks are in any order */
		unsigned k = sim_below(s, i), m = w->members[i - 1];

		w->members[i - 1] = w->members[k];
		w->members[k] = m;
	}
	sim_trace(s, "round %u: a world of %u", s->round, w->nr);
}

static void world_die(struct sim *s)
{
	sim_trace(s, "round %u: the world dies", s->round);
	s->world.lives = false;
}

/* The node at that place of the round, if it is connected to its agent. */
static struct sim_node *member(struct sim *s, unsigned rank)
{
	struct sim_node *n = &s->nodes[s->world.members[rank]];

	return n->is_up ? n : NULL;
}

/* What happens to a message or a deed of the node before it does; false: it does not, or not now. */
static bool goes_well(struct sim *s, struct sim_node *n, enum sim_fault f, bool *ret_late)
{
	*ret_late = false;
	if (f == SIM_WORLD_DIES)
		world_die(s);
	if (f == SIM_CRASH)
		sim_crash(s, n);
	if (f == SIM_LATE)
		*ret_late = true;
	return s->world.lives && n->is_up && f != SIM_LOST && f != SIM_LATE;
}

static void goes_on(struct sim *s, struct sim_node *n, enum sim_fault f)
{
	if (f == SIM_CRASH_AFTER && n->is_up)
		sim_crash(s, n);
	sim_check(s);
}

static void step_begin(struct sim *s)
{
	struct sim_world *w = &s->world;

	w->round++;
	memset(w->offered, 0, sizeof(w->offered));
	memset(w->has_stored, 0, sizeof(w->has_stored));
	for (unsigned rank = 0; rank < w->nr; rank++) {
		struct sim_node *n = member(s, rank);
		enum sim_fault f = n ? sim_fault_at(s, SIM_BEGIN, n) : SIM_FINE;
		bool late;

		if (!n)
			continue;
		if (n->late.begin && w->lives) { /* BEGIN of a round that is over, and then perhaps of this one */
			sim_on_begin(s, n, n->late.begin_round);
			n->late.begin = false;
		}
		if (goes_well(s, n, f, &late))
			sim_on_begin(s, n, w->round);
		if (late) {
			n->late.begin = true;
			n->late.begin_round = w->round;
		}
		goes_on(s, n, f);
	}
}

static void take_offer(struct sim *s, struct sim_node *n, uint64_t round, const bool *offered)
{
	if (round == s->world.round || sim_is_flaw(s, SIM_TAKES_STALE))
		memcpy(s->world.offered[sim_number_of(s, n)], offered, SIM_PAGES * sizeof(*offered));
}

static void step_offer(struct sim *s)
{
	struct sim_world *w = &s->world;

	for (unsigned rank = 0; rank < w->nr && w->lives; rank++) {
		struct sim_node *n = member(s, rank);
		bool offered[SIM_PAGES] = { false }, late;
		enum sim_fault f;

		if (!n)
			continue;
		if (n->late.offer)
			take_offer(s, n, n->late.offer_round, n->late.offered);
		n->late.offer = false;
		if (n->state != SIM_NODE_OFFERED)
			continue;
		f = sim_fault_at(s, SIM_OFFER, n);
		for (unsigned i = 0; i < n->part.nr; i++)
			offered[n->part.pages[i]] = true;
		if (goes_well(s, n, f, &late))
			take_offer(s, n, n->part.round, offered);
		if (late) {
			n->late.offer = true;
			n->late.offer_round = n->part.round;
			memcpy(n->late.offered, offered, sizeof(offered));
		}
		goes_on(s, n, f);
	}
}

/* The owner looks, notes that the page is pinned, and says so. */
static bool pins(struct sim *s, unsigned rank, unsigned page)
{
	struct sim_node *n = member(s, rank);
	enum sim_fault f;
	bool late, yes;

	if (sim_is_flaw(s, SIM_TRUSTS_HINTS))
		return true;
	if (!n)
		return false;
	f = sim_fault_at(s, SIM_PIN, n);
	if (!goes_well(s, n, f, &late))
		return false;
	yes = n->has[page] || sim_is_flaw(s, SIM_PINS_UNLOOKED);
	n->pinned[page] |= n->has[page] && !sim_is_flaw(s, SIM_PINS_UNNOTED);
	sim_trace(s, "round %u node %u: %s page %u", s->round, sim_number_of(s, n), yes ? "pins" : "does not have", page);
	goes_on(s, n, f);
	return yes && s->world.lives;
}

static bool is_had(const struct sim *s, const struct popular *p)
{
	return p->nr_owners == s->nr_owners && p->has == (1u << s->nr_owners) - 1;
}

static void ask(struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page)
{
	struct holders *h = &s->world.known[s->world.members[rank]][page], chosen = { 0 };

	for (unsigned k = 0; k < s->world.nr && chosen.nr < s->nr_owners && h->nr == 0; k++) {
		bool is_taken = k == rank || !s->world.is_reported[k][page];

		for (unsigned i = 0; i < chosen.nr; i++)
			is_taken |= conf->hosts[chosen.nodes[i]] == conf->hosts[k];
		if (!is_taken)
			holders_add(&chosen, (uint16_t)k);
	}
	for (unsigned i = 0; i < chosen.nr && s->world.lives; i++)
		if (pins(s, chosen.nodes[i], page))
			holders_add(h, chosen.nodes[i]);
}

static void step_ask(struct sim *s)
{
	uint32_t hosts[SIM_NODES];
	struct merge_conf conf = sim_merge_conf(s, hosts);
	struct sim_world *w = &s->world;

	memset(w->entered, 0, sizeof(w->entered));
	for (unsigned rank = 0; rank < w->nr && w->lives; rank++)
		for (unsigned page = 0; page < SIM_PAGES && w->lives; page++) {
			struct popular p;

			if (!w->offered[w->members[rank]][page])
				continue;
			if (sim_chance(s, 5))
				w->known[w->members[rank]][page].nr = 0; /* forgotten: nodes do not remember the same */
			ask(s, &conf, rank, page);
			p = sim_popular_of(s, &conf, rank, page);
			w->entered[w->members[rank]][page] = !is_had(s, &p);
		}
}

/* Those of a decision that has come late; and of the one that a node goes by until it is through. */
struct sim_arrays {
	struct cluster_node nodes[SIM_NODES];
	struct cluster_owners owners[SIM_PAGES];
};

static void keep(struct sim_part *p, struct sim_arrays *a)
{
	memcpy(a->nodes, p->d.nodes, p->d.nr_nodes * sizeof(*a->nodes));
	memcpy(a->owners, p->d.owners, p->d.nr * sizeof(*a->owners));
	p->d.nodes = a->nodes;
	p->d.owners = a->owners;
}

static struct sim_arrays current[SIM_NODES], late_arrays[SIM_NODES];

static void step_decision(struct sim *s)
{
	struct sim_world *w = &s->world;

	memset(s->refs, 0, sizeof(s->refs));
	if (!w->lives || w->nr == 0)
		return;
	sim_decide(s);
	for (unsigned rank = 0; rank < w->nr && w->lives; rank++) {
		struct sim_node *n = member(s, rank);
		struct sim_arrays now;
		struct sim_part p;
		enum sim_fault f;
		bool late;

		if (!n)
			continue;
		f = sim_fault_at(s, SIM_DECISION, n);
		if (n->late.decision)
			sim_on_decision(s, n, n->late.decision_round, &n->late.part);
		n->late.decision = false;
		p = sim_decision_for(s, rank, now.nodes, now.owners);
		if (goes_well(s, n, f, &late))
			sim_on_decision(s, n, w->round, &p);
		if (n->state == SIM_NODE_STORING)
			keep(&n->part, &current[sim_number_of(s, n)]);
		if (late) {
			n->late.decision = true;
			n->late.decision_round = w->round;
			n->late.part = p;
			keep(&n->late.part, &late_arrays[sim_number_of(s, n)]);
		}
		goes_on(s, n, f);
	}
}

static void take_stored(struct sim *s, struct sim_node *n, uint64_t round, bool stored)
{
	if (round == s->world.round || sim_is_flaw(s, SIM_TAKES_STALE))
		s->world.has_stored[sim_number_of(s, n)] |= stored;
}

/* Each at its own pace: a node that stores does not wait for the others. */
static void step_store(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct sim_node *n = &s->nodes[i];
		enum sim_fault f;
		bool late;
		int r = 0;

		if (n->late.stored && s->world.lives)
			take_stored(s, n, n->late.stored_round, true);
		n->late.stored = false;
		if (!n->is_up || n->state != SIM_NODE_STORING)
			continue;
		f = sim_fault_at(s, SIM_STORE, n);
		if (f == SIM_LATE)
			continue; /* step_late() */
		if (f == SIM_WORLD_DIES)
			world_die(s);
		if (f == SIM_CRASH)
			sim_crash(s, n);
		if (n->is_up)
			r = sim_store(s, n, f);
		goes_on(s, n, f);
		if (!n->is_up)
			continue;
		if (r < 0)
			n->state = SIM_NODE_IDLE; /* what it has is in memory still; and it says so */
		f = sim_fault_at(s, SIM_STORED, n);
		if (goes_well(s, n, f, &late))
			take_stored(s, n, n->part.round, r == 0);
		if (late && r == 0) {
			n->late.stored = true;
			n->late.stored_round = n->part.round;
		}
		goes_on(s, n, f);
	}
}

static void on_settled(struct sim *s, struct sim_node *n, uint64_t round, const bool *has_stored)
{
	enum sim_fault f;

	if (n->state != SIM_NODE_STORED || (round != n->part.round && !sim_is_flaw(s, SIM_TAKES_STALE)))
		return;
	if (sim_is_flaw(s, SIM_ONE_WILL_DO))
		for (size_t i = 0; i < n->part.d.nr; i++) {
			struct cluster_owners *o = &current[sim_number_of(s, n)].owners[i];

			for (unsigned k = 0; k < o->nr; k++)
				if (has_stored[o->owners[k]]) {
					o->owners[0] = o->owners[k];
					o->nr = 1;
					break;
				}
		}
	f = sim_fault_at(s, SIM_FINISH, n);
	if (f == SIM_CRASH)
		sim_crash(s, n);
	else
		sim_finish(s, n, has_stored, f);
	goes_on(s, n, f);
}

/* By their numbers in the round. What is known to the agents need not be known to each of them: a flag may be
 * missing. */
static void settled_for(struct sim *s, bool ret[SIM_NODES])
{
	for (unsigned rank = 0; rank < s->world.nr; rank++)
		ret[rank] = s->world.has_stored[s->world.members[rank]] &&
			    !(s->conf->faults_percent > 0 && sim_chance(s, s->conf->faults_percent));
}

static void step_settled(struct sim *s)
{
	struct sim_world *w = &s->world;

	for (unsigned rank = 0; rank < w->nr && w->lives; rank++) {
		struct sim_node *n = member(s, rank);
		bool has_stored[SIM_NODES] = { false }, late;
		enum sim_fault f;

		if (!n)
			continue;
		if (n->late.settled)
			on_settled(s, n, n->late.settled_round, n->late.has_stored);
		n->late.settled = false;
		settled_for(s, has_stored);
		f = sim_fault_at(s, SIM_SETTLED, n);
		if (goes_well(s, n, f, &late))
			on_settled(s, n, w->round, has_stored);
		if (late) {
			n->late.settled = true;
			n->late.settled_round = w->round;
			memcpy(n->late.has_stored, has_stored, sizeof(has_stored));
		}
		goes_on(s, n, f);
	}
}

/* What agents keep of a round, when all have received its end. */
static void step_remember(struct sim *s)
{
	struct sim_world *w = &s->world;

	for (unsigned rank = 0; rank < w->nr && w->lives; rank++)
		for (unsigned page = 0; page < SIM_PAGES; page++) {
			const struct sim_ref *ref = &s->refs[page];
			struct holders h = { 0 };

			for (unsigned k = 0; k < ref->nr; k++)
				if ((ref->has >> k & 1) || w->has_stored[w->members[ref->owners[k]]] ||
				    sim_is_flaw(s, SIM_REMEMBERS_TOO_MUCH))
					holders_add(&h, (uint16_t)ref->owners[k]);
			if (h.nr > 0)
				w->known[w->members[rank]][page] = h;
			if (!ref->is && w->entered[w->members[rank]][page] && w->has_stored[w->members[rank]])
				w->is_reported[rank][page] = true;
		}
}

/* All nodes find out together what no node refers to any more; unless one is away, or may be about to refer to
 * something. */
static void step_collect(struct sim *s)
{
	struct sim_world *w = &s->world;
	bool referred[SIM_PAGES] = { false };

	if (!w->lives || w->nr < s->nr_nodes || !sim_chance(s, 30))
		return;
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		if (!s->nodes[i].is_up || s->nodes[i].state == SIM_NODE_STORED)
			return;
		for (unsigned page = 0; page < SIM_PAGES; page++)
			referred[page] |= s->nodes[i].remote[page].is;
	}
	if (!sim_is_flaw(s, SIM_REMEMBERS_TOO_LONG)) {
		memset(w->known, 0, sizeof(w->known));
		memset(w->is_reported, 0, sizeof(w->is_reported));
	}
	for (unsigned i = 0; i < s->nr_nodes; i++)
		sim_unpin(s, &s->nodes[i], referred);
	sim_check(s);
}

/* A node that stores only now is told that none has stored, if there are agents to tell it. */
static void step_late(struct sim *s)
{
	static const bool none[SIM_NODES];

	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct sim_node *n = &s->nodes[i];

		if (!n->is_up || n->state != SIM_NODE_STORING)
			continue;
		sim_store(s, n, SIM_FINE);
		sim_check(s);
		sim_finish(s, n, s->world.lives ? none : NULL, SIM_FINE);
	}
}

/* A node that has waited long enough goes on by itself. */
static void step_locally(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct sim_node *n = &s->nodes[i];
		enum sim_fault f;

		if (!n->is_up)
			continue;
		f = sim_fault_at(s, SIM_FINISH, n);
		if (f == SIM_CRASH)
			sim_crash(s, n);
		else if (n->state == SIM_NODE_STORED)
			sim_finish(s, n, NULL, f);
		else if (n->state != SIM_NODE_IDLE || sim_chance(s, 50)) /* else it is not in a hurry */
			sim_commit_locally(s, n, f);
		goes_on(s, n, f);
	}
}

void sim_world_round(struct sim *s)
{
	step_begin(s);
	step_offer(s);
	step_ask(s);
	step_decision(s);
	step_store(s);
	step_settled(s);
	step_remember(s);
	step_collect(s);
	step_late(s);
	step_locally(s);
}
