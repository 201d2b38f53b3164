/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/agent/sim_internal.h"

#include <errno.h>
#include <string.h>

#include "store/remote/round.h"

/* --- a store --- */

void sim_crash(struct sim *s, struct sim_node *n)
{
	sim_trace(s, "round %u node %u: dies", s->round, sim_number_of(s, n));
	n->is_up = false;
	n->state = SIM_NODE_IDLE;
	memset(n->paused, 0, sizeof(n->paused));
	memset(&n->part, 0, sizeof(n->part));
	memset(&n->late, 0, sizeof(n->late));
	if (sim_is_flaw(s, SIM_FORGETS_PINNED))
		memset(n->pinned, 0, sizeof(n->pinned));
}

void sim_mount(struct sim *s, struct sim_node *n)
{
	sim_trace(s, "round %u node %u: comes back", s->round, sim_number_of(s, n));
	n->is_up = true;
	memcpy(n->file, n->acked, sizeof(n->file));
}

/* Applications delete something, and what no file needs is given back. Known pages are used again before that. */
void sim_delete_and_collect(struct sim *s, struct sim_node *n)
{
	for (unsigned page = 0; page < SIM_PAGES; page++) {
		if (!n->file[page] || n->paused[page] || !sim_chance(s, 20))
			continue;
		n->file[page] = n->acked[page] = false; /* deleting is a commit of its own here */
		n->remote[page].is = false;
		if (!n->pinned[page] || sim_is_flaw(s, SIM_FREES_PINNED))
			n->has[page] = false;
		sim_trace(s, "round %u node %u: deletes %u", s->round, sim_number_of(s, n), page);
	}
}

void sim_write_pages(struct sim *s, struct sim_node *n)
{
	for (unsigned page = 0; page < SIM_PAGES; page++) {
		if (n->file[page] || !(s->conf->identical || sim_chance(s, 30 + 60 * (page % 2))))
			continue;
		n->file[page] = true;
		n->paused[page] = !n->has[page] && !n->remote[page].is;
	}
}

static void acknowledge(struct sim *s, struct sim_node *n)
{
	memcpy(n->acked, n->file, sizeof(n->acked));
	n->state = SIM_NODE_IDLE;
	sim_check(s);
}

/* Everything here: without a round, or without its end. */
void sim_commit_locally(struct sim *s, struct sim_node *n, enum sim_fault fault)
{
	n->state = SIM_NODE_IDLE;
	if (fault == SIM_FULL)
		return; /* not reported as durable; it stays in memory */
	for (unsigned page = 0; page < SIM_PAGES; page++) {
		n->has[page] |= n->paused[page];
		n->paused[page] = false;
	}
	sim_trace(s, "round %u node %u: commits alone", s->round, sim_number_of(s, n));
	acknowledge(s, n);
}

/* --- a node's part in a round --- */

void sim_on_begin(struct sim *s, struct sim_node *n, uint64_t round)
{
	(void)s;
	n->part = (struct sim_part){ .round = round };
	for (unsigned page = 0; page < SIM_PAGES; page++)
		if (n->paused[page])
			n->part.pages[n->part.nr++] = page;
	n->state = SIM_NODE_OFFERED;
}

void sim_on_decision(struct sim *s, struct sim_node *n, uint64_t round, const struct sim_part *p)
{
	struct cluster_node nodes[SIM_NODES];
	struct cluster_owners owners[SIM_PAGES];
	struct cluster_decision d = p->d;

	if (n->state != SIM_NODE_OFFERED || (round != n->part.round && !sim_is_flaw(s, SIM_TAKES_STALE)))
		return;
	memcpy(nodes, p->d.nodes, p->d.nr_nodes * sizeof(*nodes));
	memcpy(owners, p->d.owners, p->d.nr * sizeof(*owners));
	d.nodes = nodes;
	d.owners = owners;
	if (round_decide(&d, n->id, n->part.nr, n->part.fates) < 0) {
		if (sim_is_flaw(s, SIM_RIGHT))
			sim_wrong(s, "round %u: node %u cannot make anything of what was decided", s->round,
				  sim_number_of(s, n));
		return;
	}
	n->part.d = p->d;
	memcpy(n->part.refs, p->refs, sizeof(n->part.refs));
	n->state = SIM_NODE_STORING;
}

static void refer(struct sim *s, struct sim_node *n, unsigned i)
{
	unsigned page = n->part.pages[i];

	n->remote[page] = n->part.refs[i];
	n->paused[page] = false;
	s->result->nr_remote++;
	sim_trace(s, "round %u node %u: page %u is elsewhere", s->round, sim_number_of(s, n), page);
}

static void pin(struct sim_node *n)
{
	for (unsigned i = 0; i < n->part.nr; i++)
		if (n->part.fates[i] == ROUND_PIN)
			n->pinned[n->part.pages[i]] = true;
}

/* What it is to store is on the disk, and noted there as pinned. */
int sim_store(struct sim *s, struct sim_node *n, enum sim_fault fault)
{
	for (unsigned i = 0; i < n->part.nr; i++) {
		unsigned page = n->part.pages[i];

		if (n->part.fates[i] == ROUND_AWAIT || (fault == SIM_FULL && sim_chance(s, 50)))
			continue;
		n->has[page] = true;
		n->paused[page] = false;
		sim_trace(s, "round %u node %u: stores %u%s", s->round, sim_number_of(s, n), page,
			  n->part.fates[i] == ROUND_PIN ? " for others, too" : "");
	}
	if (fault == SIM_FULL)
		return sim_is_flaw(s, SIM_ALWAYS_STORED) ? 0 : -ENOSPC;
	if (!sim_is_flaw(s, SIM_PINS_LATE))
		pin(n);
	if (sim_is_flaw(s, SIM_REFERS_EARLY)) {
		for (unsigned i = 0; i < n->part.nr; i++)
			if (n->part.fates[i] == ROUND_AWAIT)
				refer(s, n, i);
		acknowledge(s, n);
	}
	n->state = SIM_NODE_STORED;
	return 0;
}

/* The rest: `has_stored` is NULL if it has received none. */
void sim_finish(struct sim *s, struct sim_node *n, const bool *has_stored, enum sim_fault fault)
{
	static const bool all[SIM_NODES] = { true, true, true, true, true, true, true, true, true };
	bool received[SIM_NODES];

	if (!has_stored && sim_is_flaw(s, SIM_SILENCE_IS_CONSENT))
		has_stored = all;
	if (has_stored && sim_is_flaw(s, SIM_REFERS_LATE)) {
		memcpy(received, has_stored, sizeof(received));
		received[n->part.d.self] = true;
		has_stored = received;
	}
	round_settle(&n->part.d, has_stored, n->part.nr, n->part.fates);
	n->state = SIM_NODE_IDLE;
	if (sim_is_flaw(s, SIM_PINS_LATE))
		pin(n);
	for (unsigned i = 0; i < n->part.nr; i++)
		if (fault == SIM_FULL && n->part.fates[i] == ROUND_WRITE && n->paused[n->part.pages[i]])
			return; /* the commit fails; what is not here is still in memory */
	for (unsigned i = 0; i < n->part.nr; i++) {
		unsigned page = n->part.pages[i];

		if (n->part.fates[i] == ROUND_REMOTE)
			refer(s, n, i);
		else
			n->has[page] = true;
		n->paused[page] = false;
	}
	acknowledge(s, n);
}

void sim_unpin(struct sim *s, struct sim_node *n, const bool *referred)
{
	for (unsigned page = 0; page < SIM_PAGES; page++) {
		if (!n->pinned[page] || (referred[page] && !sim_is_flaw(s, SIM_UNPINS_REFERRED)))
			continue;
		n->pinned[page] = false;
		n->has[page] = n->file[page];
		s->result->nr_unpinned++;
		sim_trace(s, "round %u node %u: unpins %u", s->round, sim_number_of(s, n), page);
	}
}
