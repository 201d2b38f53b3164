/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A daemon, as an agent sees it: mpi-agent/daemon/service_round.c without its threads, and the engine's part in a round
 * (node_stores.c). Whatever it says may be late, or the last that it says.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/remote/round.h"
#include "worlds_internal.h"

#define ROUND_NS (1000 * MS) /* that it waits for an agent, ... */
#define ANSWER_NS (800 * MS) /* which has an answer before, whatever others do: all that it waits for itself */

unsigned daemon_number(const struct daemon *d)
{
	return node_number(d->node);
}

static bool disk_is_full(void)
{
	return ws_faulty(DISK_FULL);
}

/* --- what it says --- */

void daemon_say(struct daemon *d, struct buf *b)
{
	uint64_t at_ns = ws->now_ns + ws_between(0, MS);

	if (ws_faulty(DAEMON_HANGS)) {
		ws_trace("daemon %u: hangs", daemon_number(d));
		d->is_hung = true;
	}
	if (ws_faulty(SLOW_WORD))
		at_ns += ws_between(MS, 2 * ws->waits.stored_ns);
	if (d->is_hung || !d->is_connected)
		buf_release(b);
	else
		wire_send(&d->out, at_ns, b);
	if (ws_faulty(DAEMON_CRASHES))
		daemon_crash(d);
}

static unsigned deferred_pages(const struct node *n, struct fp *ret)
{
	unsigned nr = 0;

	for (unsigned page = 0; page < NR_PAGES; page++)
		if (n->deferred[page])
			ret[nr++] = fp_of_page(page);
	return nr;
}

static void want(struct daemon *d)
{
	struct buf b = BUF_EMPTY;
	struct fp pages[NR_PAGES];

	if (!d->is_connected || !d->nodes || d->is_wanted || d->is_silent || d->begun != 0 || !d->node->is_up ||
	    d->node->state != NODE_IDLE || deferred_pages(d->node, pages) == 0)
		return;
	d->is_wanted = true;
	d->timeout_ns = ws->now_ns + ROUND_NS;
	link_encode_plain(LINK_WANT, 0, &b);
	daemon_say(d, &b);
}

static void announce(struct daemon *d)
{
	struct buf b = BUF_EMPTY;
	struct fp pages[NR_PAGES];
	uint32_t nr = 0;

	for (unsigned page = 0; page < NR_PAGES; page++)
		if (d->is_unannounced[page])
			pages[nr++] = fp_of_page(page);
	if (nr == 0 || !d->is_connected)
		return;
	memset(d->is_unannounced, 0, sizeof(d->is_unannounced));
	link_encode_announce(pages, nr, &b);
	daemon_say(d, &b);
}

static void say_stored(struct daemon *d, uint64_t round, int r)
{
	struct buf b = BUF_EMPTY;

	link_encode_stored(round, r, &b);
	daemon_say(d, &b);
}

/* --- its store --- */

static void commit_locally(struct daemon *d)
{
	bool was_deferred[NR_PAGES];

	memcpy(was_deferred, d->node->deferred, sizeof(was_deferred));
	node_commit(d->node, disk_is_full());
	for (unsigned page = 0; page < NR_PAGES; page++)
		d->is_unannounced[page] |= was_deferred[page] && d->node->has[page];
}

static void store(struct daemon *d, bool is_full, int *ret)
{
	*ret = node_store(d->node, is_full);
	for (unsigned i = 0; i < d->node->part.nr; i++) /* where nothing was when the window was marked */
		if (d->node->part.fates[i] == ROUND_PIN)
			d->is_marked[d->node->part.pages[i]] = false;
}

/* The round goes on without this node. */
static void leave_round(struct daemon *d)
{
	int r;

	d->begun = 0;
	d->offer_ns = d->store_ns = d->timeout_ns = NEVER;
	if (d->node->state == NODE_OFFERED)
		commit_locally(d);
	if (d->node->state == NODE_STORING)
		store(d, false, &r);
	if (d->node->state == NODE_STORED)
		node_finish(d->node, NULL, disk_is_full());
}

/* --- what it receives of rounds --- */

static void on_nodes(struct daemon *d, const void *body, size_t len)
{
	if (link_decode_nodes(body, len, &d->nodes, &d->nr_nodes, &d->self) < 0)
		abort();
	for (uint32_t i = 0; i < d->nr_nodes; i++) {
		memcpy(d->cluster[i].id, d->nodes[i].store_id, CLUSTER_ID_LEN);
		d->has_registered[d->nodes[i].store_id[1]] = true;
	}
}

static void on_begin(struct daemon *d, uint64_t round)
{
	leave_round(d);
	d->is_wanted = d->is_silent = false;
	d->left = 0;
	announce(d);
	d->begun = round;
	d->offer_ns = ws->now_ns + ws_between(0, 10 * MS);
	if (ws_faulty(SLOW_OFFER))
		d->offer_ns += ws_between(0, 2 * ws->waits.offer_ns);
}

static void offer(struct daemon *d)
{
	struct buf b = BUF_EMPTY;
	struct fp pages[NR_PAGES];
	unsigned nr = deferred_pages(d->node, pages);

	node_offer(d->node, d->begun);
	link_encode_offer(d->begun, pages, nr, &b);
	d->begun = 0;
	d->offer_ns = NEVER;
	d->timeout_ns = ws->now_ns + ROUND_NS;
	daemon_say(d, &b);
}

static struct received *received_of(uint64_t round)
{
	struct received *h = &ws->received[round % ARRAY_SIZE(ws->received)];

	if (h->round != round)
		*h = (struct received){ .round = round };
	return h;
}

/* What was not known to a node before is decided for all alike. */
static void compare_decision(const struct daemon *d, uint64_t round, const struct link_owners *o, unsigned page)
{
	struct received *h = received_of(round);

	if (o->nr == ws->nr_owners && o->has == (1u << o->nr) - 1)
		return;
	if (h->is_decided[page] && (h->owners[page].nr != o->nr || h->owners[page].has != o->has ||
				    memcmp(h->owners[page].owners, o->owners, sizeof(o->owners)) != 0))
		ws_wrong("round %ju: node %u receives another decision on page %u than others", (uintmax_t)round,
			 daemon_number(d), page);
	h->is_decided[page] = true;
	h->owners[page] = *o;
}

static void take_owners(struct daemon *d, struct node_part *p, uint32_t i, const struct link_owners *o)
{
	struct node_ref *ref = &p->refs[o->index];

	d->owners[i] = (struct cluster_owners){ .index = o->index, .nr = o->nr, .has = o->has };
	*ref = (struct node_ref){ .is = true, .nr = o->nr, .has = o->has };
	for (uint32_t k = 0; k < o->nr; k++) {
		d->owners[i].owners[k] = o->owners[k];
		ref->owners[k] = d->nodes[o->owners[k]].store_id[1];
	}
}

static void on_decision(struct daemon *d, uint64_t round, const void *body, size_t len)
{
	struct node *n = d->node;
	struct node_part p = { .round = round };
	struct link_owners *owners;
	uint32_t nr;

	if (round == d->left) {
		d->left = 0;
		say_stored(d, round, -ECANCELED);
		return;
	}
	if (n->state != NODE_OFFERED || round != n->part.round)
		return;
	if (link_decode_decision(body, len, n->part.nr, d->nr_nodes, &owners, &nr) < 0) {
		ws_wrong("node %u: a decision that is none", daemon_number(d));
		return;
	}
	for (uint32_t i = 0; i < nr; i++) {
		compare_decision(d, round, &owners[i], n->part.pages[owners[i].index]);
		take_owners(d, &p, i, &owners[i]);
	}
	free(owners);
	p.d = (struct cluster_decision){
		.nodes = d->cluster, .nr_nodes = d->nr_nodes, .self = d->self, .owners = d->owners, .nr = nr
	};
	node_decide(n, round, &p);
	d->timeout_ns = NEVER;
	d->store_ns = ws->now_ns + ws_between(0, 20 * MS);
	if (ws_faulty(SLOW_STORE))
		d->store_ns += ws_between(0, 3 * ws->waits.stored_ns);
}

static void store_now(struct daemon *d)
{
	int r;

	d->store_ns = NEVER;
	if (ws_faulty(DAEMON_CRASHES)) {
		daemon_crash(d);
		return;
	}
	store(d, disk_is_full(), &r);
	if (r < 0)
		d->node->state = NODE_IDLE;
	else
		d->timeout_ns = ws->now_ns + ROUND_NS;
	say_stored(d, d->node->part.round, r);
}

static void compare_settled(const struct daemon *d, uint64_t round, const uint8_t *stored)
{
	static const uint8_t none[WORLDS_NODES];
	struct received *h = received_of(round);

	if (memcmp(stored, none, d->nr_nodes) == 0)
		return; /* perhaps it was late */
	if (h->is_settled && memcmp(h->stored, stored, d->nr_nodes) != 0)
		ws_wrong("round %ju: node %u receives another end than others", (uintmax_t)round, daemon_number(d));
	h->is_settled = true;
	memcpy(h->stored, stored, d->nr_nodes);
	ws->result->nr_rounds++;
}

/* WORLDS_ONE_WILL_DO: the first owner that has stored a page stands for all. */
static void ask_one_owner(struct daemon *d, const bool *has_stored)
{
	for (size_t i = 0; i < d->node->part.d.nr; i++) {
		struct cluster_owners *o = &d->owners[i];

		for (unsigned k = 0; k < o->nr; k++)
			if (has_stored[o->owners[k]]) {
				o->owners[0] = o->owners[k];
				o->nr = 1;
			}
	}
}

static void on_settled(struct daemon *d, uint64_t round, const void *body, size_t len)
{
	bool has_stored[WORLDS_NODES];
	const uint8_t *stored;

	if (link_decode_settled(body, len, d->nr_nodes, &stored) < 0) {
		ws_wrong("node %u: an end of a round that is none", daemon_number(d));
		return;
	}
	if (d->node->state != NODE_STORED || round != d->node->part.round)
		return;
	compare_settled(d, round, stored);
	for (uint32_t i = 0; i < d->nr_nodes; i++)
		has_stored[i] = stored[i] == 1;
	if (ws_is_flaw(WORLDS_ONE_WILL_DO))
		ask_one_owner(d, has_stored);
	d->timeout_ns = NEVER;
	node_finish(d->node, has_stored, disk_is_full());
}

/* By an agent that has received it, and was there all the time. */
static bool is_neglected(const struct daemon *d)
{
	const struct agent *a = d->agent;

	return d->node->state != NODE_IDLE && d->is_connected && d->closed_ns == NEVER && !d->is_hung &&
	       !a->is_killed && ws->now_ns >= MAX(d->out.last_ns, a->stopped_ns) + ANSWER_NS;
}

static void time_out(struct daemon *d)
{
	if (ws->conf->faults_percent == 0 || is_neglected(d))
		ws_wrong("node %u waits in vain", daemon_number(d));
	ws_trace("daemon %u: does not wait any longer", daemon_number(d));
	if (d->node->state == NODE_OFFERED)
		d->left = d->node->part.round;
	if (d->node->state == NODE_IDLE)
		commit_locally(d);
	d->is_silent = true;
	leave_round(d);
}

/* --- what other nodes want --- */

static void on_pin(struct daemon *d, uint64_t number, const void *body, size_t len)
{
	struct buf b = BUF_EMPTY;
	struct node *n = d->node;
	struct fp *pages;
	uint8_t pinned[NR_PAGES];
	uint32_t nr;

	if (link_decode_pin(body, len, &pages, &nr) < 0 || nr > NR_PAGES)
		abort();
	for (uint32_t i = 0; i < nr; i++) {
		unsigned page = (unsigned)pages[i].hi - 1;

		pinned[i] = !d->is_collecting && (n->has[page] || ws_is_flaw(WORLDS_PINS_UNLOOKED));
		n->pinned[page] |= pinned[i] && n->has[page] && !ws_is_flaw(WORLDS_PINS_UNNOTED);
		ws->result->nr_pinned += pinned[i];
	}
	free(pages);
	link_encode_pinned(number, pinned, nr, &b);
	daemon_say(d, &b);
}

/* --- event by event --- */

static void receive(struct daemon *d, const struct buf *message)
{
	const uint8_t *body = message->data + sizeof(struct link_header_wire);
	struct link_header h;

	if (link_decode_header(message->data, sizeof(struct link_header_wire), &h) < 0)
		abort();
	ws_trace("%ju us daemon %u: receives %d of %ju", (uintmax_t)ws->now_ns / 1000, daemon_number(d), (int)h.type,
		 (uintmax_t)h.number);
	switch (h.type) {
	case LINK_NODES:
		on_nodes(d, body, h.len);
		break;
	case LINK_BEGIN:
		on_begin(d, h.number);
		break;
	case LINK_DECISION:
		on_decision(d, h.number, body, h.len);
		break;
	case LINK_SETTLED:
		on_settled(d, h.number, body, h.len);
		break;
	case LINK_PIN:
		on_pin(d, h.number, body, h.len);
		break;
	case LINK_STEP:
		daemon_on_step(d, h.number, body, h.len);
		break;
	case LINK_COLLECTED:
		daemon_on_collected(d, body, h.len);
		break;
	case LINK_SHARED:
		break;
	default:
		ws_wrong("node %u: receives %d", daemon_number(d), (int)h.type);
	}
}

/* Programs do something, and perhaps one wants all to collect. */
static void write_pages(struct daemon *d)
{
	struct node *n = d->node;
	struct buf b = BUF_EMPTY;

	d->write_ns = d->nr_writes > 1 ? ws->now_ns + ws_between(MS, 100 * MS) : NEVER;
	d->nr_writes--;
	if (n->state == NODE_IDLE) {
		if (!ws->conf->identical)
			node_delete_pages(n);
		node_write_pages(n);
		if (!ws->conf->identical && ws_chance(20))
			commit_locally(d); /* more than may be pending */
	}
	if (ws_chance(50))
		announce(d);
	if (ws_chance(30) && d->is_connected && d->nodes) {
		link_encode_plain(LINK_WANT_COLLECT, 0, &b);
		daemon_say(d, &b);
	}
}

void daemon_init(struct daemon *d, struct node *n)
{
	*d = (struct daemon){ .node = n, .closed_ns = NEVER };
	wire_init(&d->in);
	wire_init(&d->out);
	d->write_ns = d->offer_ns = d->store_ns = d->timeout_ns = d->mark_ns = NEVER;
}

void daemon_connect(struct daemon *d, struct agent *a)
{
	d->agent = a;
	wire_release(&d->in);
	wire_release(&d->out);
	d->is_connected = true;
	d->is_hung = false;
	d->closed_ns = d->offer_ns = d->store_ns = d->timeout_ns = d->mark_ns = NEVER;
	d->begun = 0;
	d->nr_writes = 1 + ws_below(5);
	d->write_ns = ws->now_ns + (ws->conf->identical ? 0 : ws_between(0, 20 * MS));
}

void daemon_disconnect(struct daemon *d)
{
	d->is_connected = false;
	d->closed_ns = d->write_ns = d->mark_ns = NEVER;
	wire_release(&d->in);
	free(TAKE(d->nodes));
	d->nr_nodes = 0;
	d->is_wanted = d->is_silent = d->is_collecting = false;
	d->left = 0;
	if (d->node->is_up)
		leave_round(d);
}

void daemon_crash(struct daemon *d)
{
	if (!d->node->is_up)
		return;
	node_crash(d->node);
	memset(d->is_unannounced, 0, sizeof(d->is_unannounced));
	d->offer_ns = d->store_ns = d->timeout_ns = NEVER;
	d->begun = 0;
	daemon_disconnect(d);
}

uint64_t daemon_next_ns(const struct daemon *d)
{
	const uint64_t all[] = { d->closed_ns, d->write_ns, d->offer_ns, d->store_ns, d->timeout_ns, d->mark_ns };
	uint64_t ns = wire_next_ns(&d->in);

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		ns = MIN(ns, all[i]);
	return d->node->is_up ? ns : NEVER;
}

bool daemon_is_busy(const struct daemon *d)
{
	struct fp pages[NR_PAGES];

	return d->node->is_up && (d->node->state != NODE_IDLE || d->begun != 0 || d->write_ns != NEVER ||
				  deferred_pages(d->node, pages) > 0);
}

void daemon_step(struct daemon *d)
{
	_cleanup_(buf_release) struct buf message = BUF_EMPTY;
	uint64_t now = ws->now_ns;

	if (wire_take(&d->in, now, &message))
		receive(d, &message);
	else if (d->closed_ns <= now)
		daemon_disconnect(d);
	else if (d->write_ns <= now)
		write_pages(d);
	else if (d->offer_ns <= now)
		offer(d);
	else if (d->store_ns <= now)
		store_now(d);
	else if (d->mark_ns <= now)
		daemon_mark(d);
	else if (d->timeout_ns <= now)
		time_out(d);
	want(d);
	nodes_check();
}
