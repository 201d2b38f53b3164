/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "node_stores.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "store/remote/round.h"
#include "worlds_internal.h"

unsigned node_number(const struct node *n)
{
	return (unsigned)(n - ws->nodes);
}

/* Ascending with the page: the order of pages makes no difference to a round. */
struct fp fp_of_page(unsigned page)
{
	return (struct fp){ .lo = page * UINT64_C(0x9e3779b97f4a7c15), .hi = page + 1 };
}

/* --- what must hold --- */

static void check_ref(const struct node *n, unsigned page)
{
	const struct node_ref *ref = &n->remote[page];

	if (ref->nr == 0)
		ws_wrong("node %u refers to page %u on no node", node_number(n), page);
	for (unsigned i = 0; i < ref->nr; i++) {
		const struct node *owner = &ws->nodes[ref->owners[i]];

		if (owner == n || !owner->has[page] || !owner->pinned[page])
			ws_wrong("node %u refers to page %u on node %u, which %s", node_number(n), page, ref->owners[i],
				 owner->has[page] ? "has not pinned it" : "does not have it");
		for (unsigned k = 0; k < i; k++)
			if (ws->nodes[ref->owners[k]].host == owner->host)
				ws_wrong("two owners of page %u are on one host", page);
	}
}

void nodes_check(void)
{
	for (unsigned i = 0; i < ws->nr_nodes; i++) {
		const struct node *n = &ws->nodes[i];

		for (unsigned page = 0; page < NR_PAGES; page++) {
			if (n->remote[page].is)
				check_ref(n, page);
			else if (n->acked[page] && !n->has[page])
				ws_wrong("node %u has lost page %u", i, page);
			if (n->pinned[page] && !n->has[page])
				ws_wrong("node %u dropped page %u, which it has pinned", i, page);
		}
	}
}

/* --- a store --- */

void node_crash(struct node *n)
{
	ws_trace("node %u: crashes", node_number(n));
	n->is_up = false;
	n->state = NODE_IDLE;
	memset(n->deferred, 0, sizeof(n->deferred));
	memset(&n->part, 0, sizeof(n->part));
	if (ws_is_flaw(WORLDS_FORGETS_PINNED))
		memset(n->pinned, 0, sizeof(n->pinned));
}

void node_mount(struct node *n)
{
	ws_trace("node %u: is mounted", node_number(n));
	n->is_up = true;
	memcpy(n->file, n->acked, sizeof(n->file));
}

/* Applications delete some files, and the space of pages that no file needs is freed. */
void node_delete_pages(struct node *n)
{
	for (unsigned page = 0; page < NR_PAGES; page++) {
		if (!n->file[page] || n->deferred[page] || !ws_chance(20))
			continue;
		n->file[page] = n->acked[page] = false; /* deleting is a commit of its own here */
		n->remote[page].is = false;
		if (!n->pinned[page] || ws_is_flaw(WORLDS_FREES_PINNED))
			n->has[page] = false;
		ws_trace("node %u: deletes %u", node_number(n), page);
	}
}

void node_write_pages(struct node *n)
{
	for (unsigned page = 0; page < NR_PAGES; page++) {
		if (n->file[page] || !(ws->conf->identical || ws_chance(30 + 60 * (page % 2))))
			continue;
		n->file[page] = true;
		n->deferred[page] = !n->has[page] && !n->remote[page].is;
	}
}

static void acknowledge(struct node *n)
{
	memcpy(n->acked, n->file, sizeof(n->acked));
	n->state = NODE_IDLE;
	nodes_check();
}

void node_commit(struct node *n, bool is_full)
{
	n->state = NODE_IDLE;
	if (is_full)
		return; /* the commit fails */
	for (unsigned page = 0; page < NR_PAGES; page++) {
		n->has[page] |= n->deferred[page];
		n->deferred[page] = false;
	}
	ws_trace("node %u: commits without a round", node_number(n));
	acknowledge(n);
}

/* --- a node's part in a round --- */

void node_offer(struct node *n, uint64_t round)
{
	n->part = (struct node_part){ .round = round };
	for (unsigned page = 0; page < NR_PAGES; page++)
		if (n->deferred[page])
			n->part.pages[n->part.nr++] = page;
	n->state = NODE_OFFERED;
}

void node_decide(struct node *n, uint64_t round, const struct node_part *p)
{
	if (n->state != NODE_OFFERED || round != n->part.round)
		return;
	if (round_decide(&p->d, n->id, n->part.nr, n->part.fates) < 0) {
		if (ws_is_flaw(WORLDS_RIGHT))
			ws_wrong("node %u: the decision of round %ju is malformed", node_number(n), (uintmax_t)round);
		return;
	}
	n->part.d = p->d;
	memcpy(n->part.refs, p->refs, sizeof(n->part.refs));
	n->state = NODE_STORING;
}

static void refer(struct node *n, unsigned i)
{
	unsigned page = n->part.pages[i];

	n->remote[page] = n->part.refs[i];
	n->deferred[page] = false;
	ws->result->nr_remote++;
	ws_trace("node %u: page %u is remote", node_number(n), page);
}

static void pin(struct node *n)
{
	for (unsigned i = 0; i < n->part.nr; i++)
		if (n->part.fates[i] == ROUND_PIN)
			n->pinned[n->part.pages[i]] = true;
}

/* Stores this node's share, durable and pinned. */
int node_store(struct node *n, bool is_full)
{
	for (unsigned i = 0; i < n->part.nr; i++) {
		unsigned page = n->part.pages[i];

		if (n->part.fates[i] == ROUND_AWAIT || (is_full && ws_chance(50)))
			continue;
		n->has[page] = true;
		n->deferred[page] = false;
		ws_trace("node %u: stores %u%s", node_number(n), page,
			 n->part.fates[i] == ROUND_PIN ? " for peers, too" : "");
	}
	if (is_full)
		return ws_is_flaw(WORLDS_ALWAYS_STORED) ? 0 : -ENOSPC;
	if (!ws_is_flaw(WORLDS_PINS_LATE))
		pin(n);
	if (ws_is_flaw(WORLDS_REFERS_EARLY)) {
		for (unsigned i = 0; i < n->part.nr; i++)
			if (n->part.fates[i] == ROUND_AWAIT)
				refer(n, i);
		acknowledge(n);
	}
	n->state = NODE_STORED;
	return 0;
}

void node_finish(struct node *n, const bool *has_stored, bool is_full)
{
	bool all[WORLDS_NODES], received[WORLDS_NODES];

	memset(all, true, sizeof(all));
	if (!has_stored && ws_is_flaw(WORLDS_SILENCE_IS_CONSENT))
		has_stored = all;
	if (has_stored && ws_is_flaw(WORLDS_REFERS_LATE)) {
		memcpy(received, has_stored, sizeof(received));
		received[n->part.d.self] = true;
		has_stored = received;
	}
	round_settle(&n->part.d, has_stored, n->part.nr, n->part.fates);
	n->state = NODE_IDLE;
	if (ws_is_flaw(WORLDS_PINS_LATE))
		pin(n);
	for (unsigned i = 0; i < n->part.nr; i++)
		if (is_full && n->part.fates[i] == ROUND_WRITE && n->deferred[n->part.pages[i]])
			return; /* the commit fails; what is not stored is still in memory */
	for (unsigned i = 0; i < n->part.nr; i++) {
		unsigned page = n->part.pages[i];

		if (n->part.fates[i] == ROUND_REMOTE)
			refer(n, i);
		else
			n->has[page] = true;
		n->deferred[page] = false;
	}
	acknowledge(n);
}
