#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "mpi-agent/known.h"
#include "mpi-agent/merge.h"
#include "store/engine/round.h"

#define PAGES 32u

/* A reference to other nodes, by their numbers in the simulation. */
struct ref {
	bool is;
	unsigned nr, expected; /* owners; 0: nobody knows how many there should be, as sets were cut */
	unsigned owners[CLUSTER_OWNERS_MAX];
	uint32_t has; /* bit i: owners[i] has had it before */
};

enum node_state { IDLE, OFFERED, STORING, STORED };

/* One commit's part in a round. */
struct part {
	uint64_t round;
	unsigned nr, pages[PAGES]; /* offered, by fingerprint */
	struct cluster_decision d;
	struct ref refs[PAGES]; /* of the pages offered, as decided */
	uint8_t fates[PAGES];
};

/* What has not come yet. */
struct late {
	bool begin, offer, decision, stored, settled;
	uint64_t begin_round, offer_round, decision_round, stored_round, settled_round;
	bool offered[PAGES];
	struct part part; /* of DECISION: what it says */
	bool has_stored[SIM_NODES];
};

struct node {
	unsigned host;
	uint8_t id[CLUSTER_ID_LEN];
	/* On its disk. */
	bool has[PAGES], lent[PAGES], acked[PAGES];
	struct ref elsewhere[PAGES];
	/* In its memory. */
	bool is_up;
	bool file[PAGES]; /* files as applications see them, of which `acked` are durable */
	bool held[PAGES]; /* new, and nowhere yet */
	enum node_state state;
	struct part part;
	struct late late;
};

/* The agents, who live and die together. */
struct world {
	bool lives;
	uint64_t round;
	unsigned nr, members[SIM_NODES]; /* by their number in a round */
	bool offered[SIM_NODES][PAGES]; /* in this round, by number in the simulation */
	bool has_stored[SIM_NODES];
	/* What agents know of others, by number in the simulation; what they know is by number in a round. */
	struct holders known[SIM_NODES][PAGES];
	bool entered[SIM_NODES][PAGES]; /* offered, and not had by as many as are to */
	bool is_told[SIM_NODES][PAGES]; /* to the page's home: who has stored it alone; by number in a round */
};

struct sim {
	const struct sim_conf *conf;
	struct sim_result *result;
	uint64_t seed;
	unsigned nr_nodes, nr_owners, round;
	size_t max; /* pages in a set */
	struct node nodes[SIM_NODES];
	struct world world;
	struct ref refs[PAGES]; /* as this round has decided, owners by their numbers in it */
};

/* --- the small things --- */

static uint64_t next_random(struct sim *s)
{
	uint64_t x = s->seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static unsigned below(struct sim *s, unsigned n)
{
	return (unsigned)(next_random(s) % n);
}

static bool chance(struct sim *s, unsigned percent)
{
	return below(s, 100) < percent;
}

static unsigned number_of(const struct sim *s, const struct node *n)
{
	return (unsigned)(n - s->nodes);
}

/* Ascending with the page: which order pages come in makes no difference to any of this. */
static struct fp fp_of_page(unsigned page)
{
	return (struct fp){ .lo = page * UINT64_C(0x9e3779b97f4a7c15), .hi = page + 1 };
}

_printf_(2, 3) static void trace(const struct sim *s, const char *fmt, ...)
{
	va_list args;

	if (!s->conf->trace)
		return;
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

_printf_(2, 3) static void wrong(struct sim *s, const char *fmt, ...)
{
	va_list args;

	if (s->result->failed)
		return;
	s->result->failed = true;
	va_start(args, fmt);
	vsnprintf(s->result->why, sizeof(s->result->why), fmt, args);
	va_end(args);
	trace(s, "WRONG: %s", s->result->why);
}

static bool is_flaw(const struct sim *s, enum sim_flaw flaw)
{
	return s->conf->flaw == flaw;
}

/* What happens to a node at a step. */
static enum sim_fault fault_at(struct sim *s, enum sim_step step, const struct node *n)
{
	const struct sim_conf *c = s->conf;
	enum sim_fault f = SIM_FINE;

	if (c->fault != SIM_FINE && c->step == step && c->round == s->round && c->node == number_of(s, n))
		f = c->fault;
	else if (c->faults_percent > 0 && chance(s, c->faults_percent))
		f = 1 + (enum sim_fault)below(s, SIM_FAULTS - 1);
	if (f == SIM_WORLD_DIES && c->fault == SIM_FINE && chance(s, 50))
		f = SIM_LOST; /* or hardly anything else would be seen */
	if (f != SIM_FINE) {
		s->result->nr_faults++;
		trace(s, "round %u node %u step %d: fault %d", s->round, number_of(s, n), (int)step, (int)f);
	}
	return f;
}

/* --- what must hold --- */

static void check_ref(struct sim *s, const struct node *n, unsigned page)
{
	const struct ref *ref = &n->elsewhere[page];

	if (ref->nr == 0 || (ref->expected > 0 && ref->nr != ref->expected))
		wrong(s, "round %u: node %u has page %u at %u others, not at %u", s->round, number_of(s, n), page,
		      ref->nr, ref->expected);
	for (unsigned i = 0; i < ref->nr; i++) {
		const struct node *owner = &s->nodes[ref->owners[i]];

		if (owner == n || !owner->has[page] || !owner->lent[page])
			wrong(s, "round %u: node %u has page %u at node %u, which %s", s->round, number_of(s, n), page,
			      ref->owners[i], owner->has[page] ? "may give it up" : "has it not");
		for (unsigned k = 0; k < i; k++)
			if (s->nodes[ref->owners[k]].host == owner->host)
				wrong(s, "round %u: two of the nodes that have page %u are on one host", s->round, page);
	}
}

static void check(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		const struct node *n = &s->nodes[i];

		for (unsigned page = 0; page < PAGES; page++) {
			if (n->elsewhere[page].is)
				check_ref(s, n, page);
			else if (n->acked[page] && !n->has[page])
				wrong(s, "round %u: node %u has lost page %u", s->round, i, page);
			if (n->lent[page] && !n->has[page])
				wrong(s, "round %u: node %u has given up page %u, which it has lent", s->round, i, page);
		}
	}
}

/* --- a store --- */

static void crash(struct sim *s, struct node *n)
{
	trace(s, "round %u node %u: dies", s->round, number_of(s, n));
	n->is_up = false;
	n->state = IDLE;
	memset(n->held, 0, sizeof(n->held));
	memset(&n->part, 0, sizeof(n->part));
	memset(&n->late, 0, sizeof(n->late));
	if (is_flaw(s, SIM_FORGETS_LENT))
		memset(n->lent, 0, sizeof(n->lent));
}

static void mount(struct sim *s, struct node *n)
{
	trace(s, "round %u node %u: comes back", s->round, number_of(s, n));
	n->is_up = true;
	memcpy(n->file, n->acked, sizeof(n->file));
}

/* Applications delete something, and what nobody needs is given back. Known pages are used again before that. */
static void delete_and_collect(struct sim *s, struct node *n)
{
	for (unsigned page = 0; page < PAGES; page++) {
		if (!n->file[page] || n->held[page] || !chance(s, 20))
			continue;
		n->file[page] = n->acked[page] = false; /* deleting is a commit of its own here */
		n->elsewhere[page].is = false;
		if (!n->lent[page] || is_flaw(s, SIM_FREES_LENT))
			n->has[page] = false;
		trace(s, "round %u node %u: deletes %u", s->round, number_of(s, n), page);
	}
}

static void write_pages(struct sim *s, struct node *n)
{
	for (unsigned page = 0; page < PAGES; page++) {
		if (n->file[page] || !(s->conf->identical || chance(s, 30 + 60 * (page % 2))))
			continue;
		n->file[page] = true;
		n->held[page] = !n->has[page] && !n->elsewhere[page].is;
	}
}

static void acknowledge(struct sim *s, struct node *n)
{
	memcpy(n->acked, n->file, sizeof(n->acked));
	n->state = IDLE;
	check(s);
}

/* Everything here: without a round, or without its end. */
static void commit_alone(struct sim *s, struct node *n, enum sim_fault fault)
{
	n->state = IDLE;
	if (fault == SIM_FULL)
		return; /* nobody is told that it is durable; it stays in memory */
	for (unsigned page = 0; page < PAGES; page++) {
		n->has[page] |= n->held[page];
		n->held[page] = false;
	}
	trace(s, "round %u node %u: commits alone", s->round, number_of(s, n));
	acknowledge(s, n);
}

/* --- a node's part in a round --- */

static void on_begin(struct sim *s, struct node *n, uint64_t round)
{
	(void)s;
	n->part = (struct part){ .round = round };
	for (unsigned page = 0; page < PAGES; page++)
		if (n->held[page])
			n->part.pages[n->part.nr++] = page;
	n->state = OFFERED;
}

static void on_decision(struct sim *s, struct node *n, uint64_t round, const struct part *p)
{
	struct cluster_node nodes[SIM_NODES];
	struct cluster_owners owners[PAGES];
	struct cluster_decision d = p->d;

	if (n->state != OFFERED || (round != n->part.round && !is_flaw(s, SIM_TAKES_STALE)))
		return;
	memcpy(nodes, p->d.nodes, p->d.nr_nodes * sizeof(*nodes));
	memcpy(owners, p->d.owners, p->d.nr * sizeof(*owners));
	d.nodes = nodes;
	d.owners = owners;
	if (round_decide(&d, n->id, n->part.nr, n->part.fates) < 0) {
		if (is_flaw(s, SIM_RIGHT))
			wrong(s, "round %u: node %u cannot make anything of what was decided", s->round, number_of(s, n));
		return;
	}
	n->part.d = p->d;
	memcpy(n->part.refs, p->refs, sizeof(n->part.refs));
	n->state = STORING;
}

static void refer(struct sim *s, struct node *n, unsigned i)
{
	unsigned page = n->part.pages[i];

	n->elsewhere[page] = n->part.refs[i];
	n->held[page] = false;
	s->result->nr_elsewhere++;
	trace(s, "round %u node %u: page %u is elsewhere", s->round, number_of(s, n), page);
}

static void lend(struct node *n)
{
	for (unsigned i = 0; i < n->part.nr; i++)
		if (n->part.fates[i] == ROUND_LEND)
			n->lent[n->part.pages[i]] = true;
}

/* What it is to store is on the disk, and noted there as lent. */
static int store(struct sim *s, struct node *n, enum sim_fault fault)
{
	for (unsigned i = 0; i < n->part.nr; i++) {
		unsigned page = n->part.pages[i];

		if (n->part.fates[i] == ROUND_AWAIT || (fault == SIM_FULL && chance(s, 50)))
			continue;
		n->has[page] = true;
		n->held[page] = false;
		trace(s, "round %u node %u: stores %u%s", s->round, number_of(s, n), page,
		      n->part.fates[i] == ROUND_LEND ? " for others, too" : "");
	}
	if (fault == SIM_FULL)
		return is_flaw(s, SIM_ALWAYS_STORED) ? 0 : -ENOSPC;
	if (!is_flaw(s, SIM_LENDS_LATE))
		lend(n);
	if (is_flaw(s, SIM_REFERS_EARLY)) {
		for (unsigned i = 0; i < n->part.nr; i++)
			if (n->part.fates[i] == ROUND_AWAIT)
				refer(s, n, i);
		acknowledge(s, n);
	}
	n->state = STORED;
	return 0;
}

/* The rest: `has_stored` is NULL if it has not heard. */
static void finish(struct sim *s, struct node *n, const bool *has_stored, enum sim_fault fault)
{
	static const bool all[SIM_NODES] = { true, true, true, true, true, true, true, true, true };

	if (!has_stored && is_flaw(s, SIM_SILENCE_IS_CONSENT))
		has_stored = all;
	round_settle(&n->part.d, has_stored, n->part.nr, n->part.fates);
	n->state = IDLE;
	if (is_flaw(s, SIM_LENDS_LATE))
		lend(n);
	for (unsigned i = 0; i < n->part.nr; i++)
		if (fault == SIM_FULL && n->part.fates[i] == ROUND_WRITE && n->held[n->part.pages[i]])
			return; /* the commit fails; what is not here is still in memory */
	for (unsigned i = 0; i < n->part.nr; i++) {
		unsigned page = n->part.pages[i];

		if (n->part.fates[i] == ROUND_ELSEWHERE)
			refer(s, n, i);
		else
			n->has[page] = true;
		n->held[page] = false;
	}
	acknowledge(s, n);
}

/* --- agents --- */

static void world_begin(struct sim *s)
{
	struct world *w = &s->world;

	*w = (struct world){ .lives = true };
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		memset(&s->nodes[i].late, 0, sizeof(s->nodes[i].late)); /* connections ended */
		if (s->nodes[i].is_up)
			w->members[w->nr++] = i;
	}
	for (unsigned i = w->nr; i > 1; i--) { /* ranks are in any order */
		unsigned k = below(s, i), m = w->members[i - 1];

		w->members[i - 1] = w->members[k];
		w->members[k] = m;
	}
	trace(s, "round %u: a world of %u", s->round, w->nr);
}

static void world_die(struct sim *s)
{
	trace(s, "round %u: the world dies", s->round);
	s->world.lives = false;
}

/* The node at that place of the round, if it hears its agent. */
static struct node *member(struct sim *s, unsigned rank)
{
	struct node *n = &s->nodes[s->world.members[rank]];

	return n->is_up ? n : NULL;
}

/* What happens to a message or a deed of the node before it does; false: it does not, or not now. */
static bool goes_well(struct sim *s, struct node *n, enum sim_fault f, bool *ret_late)
{
	*ret_late = false;
	if (f == SIM_WORLD_DIES)
		world_die(s);
	if (f == SIM_CRASH)
		crash(s, n);
	if (f == SIM_LATE)
		*ret_late = true;
	return s->world.lives && n->is_up && f != SIM_LOST && f != SIM_LATE;
}

static void goes_on(struct sim *s, struct node *n, enum sim_fault f)
{
	if (f == SIM_CRASH_AFTER && n->is_up)
		crash(s, n);
	check(s);
}

static void step_begin(struct sim *s)
{
	struct world *w = &s->world;

	w->round++;
	memset(w->offered, 0, sizeof(w->offered));
	memset(w->has_stored, 0, sizeof(w->has_stored));
	for (unsigned rank = 0; rank < w->nr; rank++) {
		struct node *n = member(s, rank);
		enum sim_fault f = n ? fault_at(s, SIM_BEGIN, n) : SIM_FINE;
		bool late;

		if (!n)
			continue;
		if (n->late.begin && w->lives) { /* BEGIN of a round that is over, and then perhaps of this one */
			on_begin(s, n, n->late.begin_round);
			n->late.begin = false;
		}
		if (goes_well(s, n, f, &late))
			on_begin(s, n, w->round);
		if (late) {
			n->late.begin = true;
			n->late.begin_round = w->round;
		}
		goes_on(s, n, f);
	}
}

static void take_offer(struct sim *s, struct node *n, uint64_t round, const bool *offered)
{
	if (round == s->world.round || is_flaw(s, SIM_TAKES_STALE))
		memcpy(s->world.offered[number_of(s, n)], offered, PAGES * sizeof(*offered));
}

static void step_offer(struct sim *s)
{
	struct world *w = &s->world;

	for (unsigned rank = 0; rank < w->nr && w->lives; rank++) {
		struct node *n = member(s, rank);
		bool offered[PAGES] = { false }, late;
		enum sim_fault f;

		if (!n)
			continue;
		if (n->late.offer)
			take_offer(s, n, n->late.offer_round, n->late.offered);
		n->late.offer = false;
		if (n->state != OFFERED)
			continue;
		f = fault_at(s, SIM_OFFER, n);
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

/* The lender looks, notes that it lends the page, and says so. */
static bool lends(struct sim *s, unsigned rank, unsigned page)
{
	struct node *n = member(s, rank);
	enum sim_fault f;
	bool late, yes;

	if (is_flaw(s, SIM_TRUSTS_HINTS))
		return true;
	if (!n)
		return false;
	f = fault_at(s, SIM_LEND, n);
	if (!goes_well(s, n, f, &late))
		return false;
	yes = n->has[page] || is_flaw(s, SIM_LENDS_UNLOOKED);
	n->lent[page] |= n->has[page] && !is_flaw(s, SIM_LENDS_UNNOTED);
	trace(s, "round %u node %u: %s page %u", s->round, number_of(s, n), yes ? "lends" : "does not have", page);
	goes_on(s, n, f);
	return yes && s->world.lives;
}

static struct merge_conf merge_conf(const struct sim *s, uint32_t hosts[SIM_NODES])
{
	for (unsigned rank = 0; rank < s->world.nr; rank++)
		hosts[rank] = s->nodes[s->world.members[rank]].host;
	return (struct merge_conf){ .max = s->max, .nr_owners = s->nr_owners, .nr_nodes = s->world.nr, .hosts = hosts };
}

/* As mpi-agent/rounds.c has it. */
static struct popular popular_of(const struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page)
{
	const struct holders *h = &s->world.known[s->world.members[rank]][page];
	struct popular p = { .fp = fp_of_page(page), .count = 1, .nr_owners = 1, .owners = { rank } };

	if (h->nr > 0)
		popular_is_had(conf, h->nodes, h->nr, &p);
	return p;
}

static bool is_had(const struct sim *s, const struct popular *p)
{
	return p->nr_owners == s->nr_owners && p->has == (1u << s->nr_owners) - 1;
}

static void ask(struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page)
{
	struct holders *h = &s->world.known[s->world.members[rank]][page], chosen = { 0 };

	for (unsigned k = 0; k < s->world.nr && chosen.nr < s->nr_owners && h->nr == 0; k++) {
		bool is_taken = k == rank || !s->world.is_told[k][page];

		for (unsigned i = 0; i < chosen.nr; i++)
			is_taken |= conf->hosts[chosen.nodes[i]] == conf->hosts[k];
		if (!is_taken)
			holders_add(&chosen, (uint16_t)k);
	}
	for (unsigned i = 0; i < chosen.nr && s->world.lives; i++)
		if (lends(s, chosen.nodes[i], page))
			holders_add(h, chosen.nodes[i]);
}

static void step_ask(struct sim *s)
{
	uint32_t hosts[SIM_NODES];
	struct merge_conf conf = merge_conf(s, hosts);
	struct world *w = &s->world;

	memset(w->entered, 0, sizeof(w->entered));
	for (unsigned rank = 0; rank < w->nr && w->lives; rank++)
		for (unsigned page = 0; page < PAGES && w->lives; page++) {
			struct popular p;

			if (!w->offered[w->members[rank]][page])
				continue;
			if (chance(s, 5))
				w->known[w->members[rank]][page].nr = 0; /* forgotten: nodes do not remember the same */
			ask(s, &conf, rank, page);
			p = popular_of(s, &conf, rank, page);
			w->entered[w->members[rank]][page] = !is_had(s, &p);
		}
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
		struct fp pages[PAGES];
		size_t nr_pages = 0;

		for (unsigned page = 0; page < PAGES; page++)
			if (entered[page])
				pages[nr_pages++] = fp_of_page(page);
		must(popular_of_node(conf, rank, pages, nr_pages, &sets[rank]));
		for (size_t i = 0; i < sets[rank].nr; i++)
			sets[rank].v[i] = popular_of(s, conf, rank, (unsigned)(sets[rank].v[i].fp.hi - 1));
	}
	while (nr > 1) {
		unsigned a = below(s, nr), b = (a + 1 + below(s, nr - 1)) % nr;
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

/* What is decided, for all alike: who stores each page that two or more have. */
static void references(struct sim *s, const struct popular_set *popular, struct ref refs[PAGES])
{
	for (size_t i = 0; i < popular->nr; i++) {
		const struct popular *p = &popular->v[i];
		struct ref *ref = &refs[p->fp.hi - 1];

		if (p->count < 2)
			continue;
		*ref = (struct ref){ .is = true, .nr = p->nr_owners, .has = p->has };
		if (s->max >= PAGES && p->has == 0)
			ref->expected = MIN(s->nr_owners, hosts_that_offer(s, (unsigned)(p->fp.hi - 1)));
		for (unsigned k = 0; k < p->nr_owners; k++)
			ref->owners[k] = p->owners[k];
	}
}

/* Where nothing has gone wrong and all have the same, it is spread evenly (as tests/unit/mpi-agent/test_merge.c has
 * it). */
static void check_loads(struct sim *s, const struct ref refs[PAGES])
{
	unsigned load[SIM_NODES] = { 0 }, total = 0;

	for (unsigned page = 0; page < PAGES; page++) {
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
			wrong(s, "round %u: of %u pages to be stored node %u has %u", s->round, total,
			      s->world.members[rank], load[rank]);
}

/* Of a page that the node need not ask about; or what all have decided. */
static struct ref ref_for(struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page,
			  const struct ref *decided)
{
	struct popular p;
	struct ref ref = { .is = true };

	if (s->world.entered[s->world.members[rank]][page])
		return *decided;
	p = popular_of(s, conf, rank, page);
	ref.nr = ref.expected = p.nr_owners;
	ref.has = p.has;
	for (unsigned k = 0; k < p.nr_owners; k++)
		ref.owners[k] = p.owners[k];
	return ref;
}

/* DECISION of one node; its arrays are `nodes` and `owners`. */
static struct part decision_for(struct sim *s, unsigned rank, const struct ref refs[PAGES], struct cluster_node *nodes,
				struct cluster_owners *owners)
{
	unsigned self = s->world.members[rank], index = 0;
	uint32_t hosts[SIM_NODES];
	struct merge_conf conf = merge_conf(s, hosts);
	struct part p = { .round = s->world.round };

	p.d = (struct cluster_decision){ .nodes = nodes, .nr_nodes = s->world.nr, .self = rank, .owners = owners };
	for (unsigned i = 0; i < s->world.nr; i++)
		memcpy(nodes[i].id, s->nodes[s->world.members[i]].id, CLUSTER_ID_LEN);
	for (unsigned page = 0; page < PAGES; page++) {
		struct cluster_owners *o = &owners[p.d.nr];
		struct ref ref;

		if (!s->world.offered[self][page])
			continue;
		ref = ref_for(s, &conf, rank, page, &refs[page]);
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

/* Those of a decision that has come late; and of the one that a node goes by until it is through. */
struct arrays {
	struct cluster_node nodes[SIM_NODES];
	struct cluster_owners owners[PAGES];
};

static void keep(struct part *p, struct arrays *a)
{
	memcpy(a->nodes, p->d.nodes, p->d.nr_nodes * sizeof(*a->nodes));
	memcpy(a->owners, p->d.owners, p->d.nr * sizeof(*a->owners));
	p->d.nodes = a->nodes;
	p->d.owners = a->owners;
}

static struct arrays current[SIM_NODES], late_arrays[SIM_NODES];

static void step_decision(struct sim *s)
{
	struct world *w = &s->world;
	uint32_t hosts[SIM_NODES];
	struct merge_conf conf = merge_conf(s, hosts);
	struct ref *refs = s->refs;
	struct popular_set popular;

	memset(s->refs, 0, sizeof(s->refs));
	if (!w->lives || w->nr == 0)
		return;
	popular = reduce(s, &conf);
	references(s, &popular, refs);
	popular_set_release(&popular);
	check_loads(s, refs);
	for (unsigned rank = 0; rank < w->nr && w->lives; rank++) {
		struct node *n = member(s, rank);
		struct arrays now;
		struct part p;
		enum sim_fault f;
		bool late;

		if (!n)
			continue;
		f = fault_at(s, SIM_DECISION, n);
		if (n->late.decision)
			on_decision(s, n, n->late.decision_round, &n->late.part);
		n->late.decision = false;
		p = decision_for(s, rank, refs, now.nodes, now.owners);
		if (goes_well(s, n, f, &late))
			on_decision(s, n, w->round, &p);
		if (n->state == STORING)
			keep(&n->part, &current[number_of(s, n)]);
		if (late) {
			n->late.decision = true;
			n->late.decision_round = w->round;
			n->late.part = p;
			keep(&n->late.part, &late_arrays[number_of(s, n)]);
		}
		goes_on(s, n, f);
	}
}

static void take_stored(struct sim *s, struct node *n, uint64_t round, bool stored)
{
	if (round == s->world.round || is_flaw(s, SIM_TAKES_STALE))
		s->world.has_stored[number_of(s, n)] |= stored;
}

/* Each at its own pace: who stores does not wait for the others. */
static void step_store(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct node *n = &s->nodes[i];
		enum sim_fault f;
		bool late;
		int r = 0;

		if (n->late.stored && s->world.lives)
			take_stored(s, n, n->late.stored_round, true);
		n->late.stored = false;
		if (!n->is_up || n->state != STORING)
			continue;
		f = fault_at(s, SIM_STORE, n);
		if (f == SIM_WORLD_DIES)
			world_die(s);
		if (f == SIM_CRASH)
			crash(s, n);
		if (n->is_up)
			r = store(s, n, f);
		goes_on(s, n, f);
		if (!n->is_up)
			continue;
		if (r < 0)
			n->state = IDLE; /* what it has is in memory still; and it says so */
		f = fault_at(s, SIM_STORED, n);
		if (goes_well(s, n, f, &late))
			take_stored(s, n, n->part.round, r == 0);
		if (late && r == 0) {
			n->late.stored = true;
			n->late.stored_round = n->part.round;
		}
		goes_on(s, n, f);
	}
}

static void on_settled(struct sim *s, struct node *n, uint64_t round, const bool *has_stored)
{
	enum sim_fault f;

	if (n->state != STORED || (round != n->part.round && !is_flaw(s, SIM_TAKES_STALE)))
		return;
	if (is_flaw(s, SIM_ONE_WILL_DO))
		for (size_t i = 0; i < n->part.d.nr; i++) {
			struct cluster_owners *o = &current[number_of(s, n)].owners[i];

			for (unsigned k = 0; k < o->nr; k++)
				if (has_stored[o->owners[k]]) {
					o->owners[0] = o->owners[k];
					o->nr = 1;
					break;
				}
		}
	f = fault_at(s, SIM_FINISH, n);
	if (f == SIM_CRASH)
		crash(s, n);
	else
		finish(s, n, has_stored, f);
	goes_on(s, n, f);
}

/* By their numbers in the round. What is known to the agents need not be known to each of them: a flag may be
 * missing. */
static void settled_for(struct sim *s, bool ret[SIM_NODES])
{
	for (unsigned rank = 0; rank < s->world.nr; rank++)
		ret[rank] = s->world.has_stored[s->world.members[rank]] &&
			    !(s->conf->faults_percent > 0 && chance(s, s->conf->faults_percent));
}

static void step_settled(struct sim *s)
{
	struct world *w = &s->world;

	for (unsigned rank = 0; rank < w->nr && w->lives; rank++) {
		struct node *n = member(s, rank);
		bool has_stored[SIM_NODES] = { false }, late;
		enum sim_fault f;

		if (!n)
			continue;
		if (n->late.settled)
			on_settled(s, n, n->late.settled_round, n->late.has_stored);
		n->late.settled = false;
		settled_for(s, has_stored);
		f = fault_at(s, SIM_SETTLED, n);
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

/* What agents keep of a round, when all have heard its end. */
static void step_remember(struct sim *s)
{
	struct world *w = &s->world;

	for (unsigned rank = 0; rank < w->nr && w->lives; rank++)
		for (unsigned page = 0; page < PAGES; page++) {
			const struct ref *ref = &s->refs[page];
			struct holders h = { 0 };

			for (unsigned k = 0; k < ref->nr; k++)
				if ((ref->has >> k & 1) || w->has_stored[w->members[ref->owners[k]]] ||
				    is_flaw(s, SIM_REMEMBERS_TOO_MUCH))
					holders_add(&h, (uint16_t)ref->owners[k]);
			if (h.nr > 0)
				w->known[w->members[rank]][page] = h;
			if (!ref->is && w->entered[w->members[rank]][page] && w->has_stored[w->members[rank]])
				w->is_told[rank][page] = true;
		}
}

/* Who has waited long enough goes on by itself. */
static void step_alone(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct node *n = &s->nodes[i];
		enum sim_fault f;

		if (!n->is_up)
			continue;
		f = fault_at(s, SIM_FINISH, n);
		if (f == SIM_CRASH)
			crash(s, n);
		else if (n->state == STORED)
			finish(s, n, NULL, f);
		else if (n->state != IDLE || chance(s, 50)) /* else it is not in a hurry */
			commit_alone(s, n, f);
		goes_on(s, n, f);
	}
}

static void run_round(struct sim *s)
{
	for (unsigned i = 0; i < s->nr_nodes; i++) {
		struct node *n = &s->nodes[i];

		if (!n->is_up && chance(s, 70))
			mount(s, n);
		if (!n->is_up)
			continue;
		if (s->round > 0)
			delete_and_collect(s, n);
		write_pages(s, n);
		check(s);
	}
	if (!s->world.lives || (s->conf->faults_percent > 0 && chance(s, 10)))
		world_begin(s);
	step_begin(s);
	step_offer(s);
	step_ask(s);
	step_decision(s);
	step_store(s);
	step_settled(s);
	step_remember(s);
	step_alone(s);
}

void sim_run(const struct sim_conf *conf, struct sim_result *ret)
{
	struct sim s = { .conf = conf, .result = ret, .seed = conf->seed };

	*ret = (struct sim_result){ 0 };
	s.nr_nodes = conf->nr_nodes ?: 1 + below(&s, SIM_NODES);
	s.nr_owners = 1 + below(&s, OWNERS_MAX);
	s.max = chance(&s, 20) ? 1 + below(&s, PAGES) : PAGES;
	for (unsigned i = 0; i < s.nr_nodes; i++) {
		s.nodes[i] = (struct node){ .is_up = true, .id = { 1, (uint8_t)i } };
		s.nodes[i].host = chance(&s, 25) ? below(&s, i + 1) : i;
	}
	trace(&s, "%u nodes, %u owners, %zu pages in a set", s.nr_nodes, s.nr_owners, s.max);
	for (s.round = 0; s.round < SIM_ROUNDS && !ret->failed; s.round++)
		run_round(&s);
}
