/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "worlds_internal.h"

#define WORLDS 3u /* one after the other, in a run */
#define END_NS (10000 * MS) /* within which an agent without a daemon has ended */
#define LOAD_SLACK 1u /* pages above the average */
#define TURNS_MAX 1000000u /* of all agents of a world */

struct worlds *ws;

/* --- chance --- */

static uint64_t next_random(void)
{
	uint64_t x = ws->seed += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

unsigned ws_below(unsigned n)
{
	return (unsigned)(next_random() % n);
}

bool ws_chance(unsigned percent)
{
	return ws_below(100) < percent;
}

uint64_t ws_between(uint64_t least, uint64_t most)
{
	return least + ((uint64_t)ws_below(1u << 30) * (most - least) >> 30);
}

bool ws_faulty(enum worlds_fault f)
{
	if (ws->conf->nth > 0) {
		bool is_now = f == ws->conf->fault && ++ws->nr_occasions == ws->conf->nth;

		ws->result->nr_faults += is_now;
		return is_now;
	}
	if (ws->per_100000[f] == 0 || ws_below(100000) >= ws->per_100000[f])
		return false;
	ws->result->nr_faults++;
	return true;
}

void ws_trace(const char *fmt, ...)
{
	va_list args;

	if (!ws->conf->trace)
		return;
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

void ws_wrong(const char *fmt, ...)
{
	va_list args;

	if (ws->result->failed)
		return;
	ws->result->failed = true;
	va_start(args, fmt);
	vsnprintf(ws->result->why, sizeof(ws->result->why), fmt, args);
	va_end(args);
	ws_trace("WRONG: %s", ws->result->why);
}

bool ws_is_flaw(enum worlds_flaw flaw)
{
	return ws->conf->flaw == flaw;
}

/* What an agent takes for random is, too, but the same each time. */
ssize_t __wrap_getrandom(void *p, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t len, unsigned flags)
{
	(void)flags;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)p)[i] = (uint8_t)ws_below(256);
	return (ssize_t)len;
}

/* --- a world --- */

static unsigned choose_members(unsigned *members)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < ws->nr_nodes; i++) {
		struct node *n = &ws->nodes[i];

		if (!n->is_up)
			node_mount(n);
		if (nr + ws->nr_nodes - i <= 2 || !ws_faulty(NODE_ABSENT))
			members[nr++] = i;
	}
	for (unsigned i = nr; i > 1; i--) { /* ranks are in any order */
		unsigned k = ws_below(i), m = members[i - 1];

		members[i - 1] = members[k];
		members[k] = m;
	}
	return nr;
}

static void agent_init(struct agent *a, unsigned rank, const unsigned *members)
{
	*a = (struct agent){ .daemon = &ws->daemons[members[rank]], .wake_ns = ws->now_ns };
	a->w = (struct world){ .rank = rank,
			       .nr = ws->nr,
			       .rounds = mpi_comm(0),
			       .messages = mpi_comm(1),
			       .nodes = a->nodes,
			       .hosts = a->hosts,
			       .by_store = a->by_store,
			       .replicas = ws->nr_owners,
			       .popular_max = ws->popular_max };
	for (unsigned i = 0; i < ws->nr; i++) {
		const struct node *n = &ws->nodes[members[i]];

		a->hosts[i] = a->nodes[i].host = n->host;
		memcpy(a->nodes[i].store_id, n->id, sizeof(a->nodes[i].store_id));
		snprintf(a->nodes[i].name, sizeof(a->nodes[i].name), "n%u", members[i]);
	}
	memset(&a->w.message_key, 1, sizeof(a->w.message_key));
	memset(&a->w.set_key, 2, sizeof(a->w.set_key));
	memset(&a->w.stored_key, 3, sizeof(a->w.stored_key));
	link_init(&a->link, 1000); /* never used as one */
	daemon_connect(a->daemon, a);
	agent_begin(a);
}

static void world_begin(void)
{
	unsigned members[WORLDS_NODES];

	ws->nr = choose_members(members);
	ws->is_dead = false;
	ws->died_ns = NEVER;
	memset(ws->received, 0, sizeof(ws->received));
	mpi_begin();
	for (unsigned rank = 0; rank < ws->nr; rank++)
		agent_init(&ws->agents[rank], rank, members);
	ws->result->nr_worlds++;
	ws_trace("%ju us: a world of %u", (uintmax_t)ws->now_ns / 1000, ws->nr);
}

/* The end of processes: agents have their last turns, in which nothing works. */
static void world_end(void)
{
	ws->is_dead = true;
	for (unsigned i = 0; i < ws->nr; i++) {
		struct agent *a = &ws->agents[i];

		for (unsigned n = 0; !a->is_over; n++) {
			if (n > 10)
				abort();
			agent_turn(a);
		}
		if (a->daemon->is_connected)
			daemon_disconnect(a->daemon);
		wire_release(&a->daemon->out);
	}
	memory_free_all();
	nodes_check();
}

static uint64_t agent_next_ns(const struct agent *a)
{
	uint64_t ns = a->wake_ns;

	if (a->is_over || a->is_killed)
		return NEVER;
	if (a->link.fd >= 0)
		ns = MIN(ns, a->daemon->is_connected ? wire_next_ns(&a->daemon->out) : ws->now_ns);
	return MAX(ns, a->stopped_ns);
}

static void kill_agent(struct agent *a)
{
	ws_trace("agent %u: dies", a->w.rank);
	a->is_killed = true;
	ws->died_ns = MIN(ws->died_ns, ws->now_ns);
	if (a->daemon->is_connected)
		a->daemon->closed_ns = MAX(a->daemon->in.last_ns, ws->now_ns + ws_between(0, MS));
}

static void look_at_end(struct agent *a)
{
	if (a->is_over) {
		ws_trace("%ju us agent %u: is over: %d", (uintmax_t)ws->now_ns / 1000, a->w.rank, a->result);
		if (ws->conf->faults_percent == 0 && a->result != 0)
			ws_wrong("rank %u ends with error %d", a->w.rank, a->result);
		return;
	}
	if (a->link.fd < 0 && a->ending_ns == 0)
		a->ending_ns = ws->now_ns;
	if (a->ending_ns > 0 && ws->now_ns > MAX(a->ending_ns, a->stopped_ns) + END_NS)
		ws_wrong("rank %u has no daemon, and does not end", a->w.rank);
	if (ws->died_ns != NEVER && ws->now_ns > MAX(ws->died_ns, a->stopped_ns) + END_NS)
		ws_wrong("rank %u goes on without one that has died", a->w.rank);
}

/* The next that happens. false: nothing ever will */
static bool event(void)
{
	unsigned first = ws_below(ws->nr);
	uint64_t ns = NEVER;
	struct agent *a = NULL;
	struct daemon *d = NULL;

	for (unsigned i = 0; i < ws->nr; i++) {
		struct agent *x = &ws->agents[(first + i) % ws->nr];

		if (agent_next_ns(x) < ns) {
			ns = agent_next_ns(x);
			a = x;
			d = NULL;
		}
		if (daemon_next_ns(x->daemon) < ns) {
			ns = daemon_next_ns(x->daemon);
			d = x->daemon;
		}
	}
	if (ns == NEVER)
		return false;
	ws->now_ns = MAX(ws->now_ns, ns);
	if (d) {
		daemon_step(d);
	} else if (ws_faulty(AGENT_DIES)) {
		kill_agent(a);
	} else {
		agent_turn(a);
		look_at_end(a);
	}
	return true;
}

static bool is_any(bool (*is)(const struct agent *a))
{
	bool any = false;

	for (unsigned i = 0; i < ws->nr; i++)
		any |= is(&ws->agents[i]);
	return any;
}

static bool runs(const struct agent *a)
{
	return !a->is_over && !a->is_killed;
}

static bool is_busy(const struct agent *a)
{
	return daemon_is_busy(a->daemon);
}

/* One daemon is unmounted. */
static void begin_end(void)
{
	struct daemon *d = ws->agents[ws_below(ws->nr)].daemon;

	ws_trace("%ju us: daemon %u is unmounted", (uintmax_t)ws->now_ns / 1000, node_number(d->node));
	daemon_disconnect(d);
}

static void world_run(void)
{
	uint64_t life_ns = ws_chance(80) ? ws_between(10 * MS, 400 * MS) : ws_between(400 * MS, 2500 * MS);
	uint64_t end_ns = ws->now_ns + life_ns, kill_ns = NEVER, turns = ws->result->nr_turns;

	world_begin();
	if (ws_faulty(WORLD_DIES))
		kill_ns = ws->now_ns + ws_between(0, 400 * MS);
	while (!ws->result->failed && is_any(runs) && ws->now_ns < kill_ns && event()) {
		if (ws->now_ns >= end_ns && ws->died_ns == NEVER && (ws->conf->faults_percent > 0 || !is_any(is_busy))) {
			begin_end();
			end_ns = NEVER;
		}
		if (ws->result->nr_turns - turns > TURNS_MAX)
			ws_wrong("a world goes on for ever");
	}
	if (ws->now_ns >= kill_ns)
		ws_trace("%ju us: the world dies", (uintmax_t)ws->now_ns / 1000);
	world_end();
}

/* --- a run --- */

/* Where nothing goes wrong, and all nodes bring the same pages: what one node stores of them. */
static unsigned nr_stored(const struct node *n)
{
	unsigned nr = 0;

	for (unsigned page = 0; page < NR_PAGES; page++)
		nr += n->has[page];
	return nr;
}

/* Likewise: nodes on hosts of their own store as much as others do. */
static void check_loads(void)
{
	unsigned total = 0;

	for (unsigned i = 0; i < ws->nr_nodes; i++)
		total += nr_stored(&ws->nodes[i]);
	for (unsigned i = 0; i < ws->nr_nodes; i++)
		if (nr_stored(&ws->nodes[i]) > total / ws->nr_nodes + LOAD_SLACK)
			ws_wrong("node %u stores %u of %u pages", i, nr_stored(&ws->nodes[i]), total);
}

/* Likewise: each page is stored as often as it is to be, and no more. */
static void check_copies(void)
{
	unsigned nr_hosts = 0;

	for (unsigned i = 0; i < ws->nr_nodes; i++) {
		bool is_first = true;

		for (unsigned k = 0; k < i; k++)
			is_first &= ws->nodes[k].host != ws->nodes[i].host;
		nr_hosts += is_first;
	}
	for (unsigned page = 0; page < NR_PAGES; page++) {
		unsigned nr = 0;

		for (unsigned i = 0; i < ws->nr_nodes; i++)
			nr += ws->nodes[i].has[page];
		if (nr != MIN(ws->nr_owners, nr_hosts))
			ws_wrong("page %u is on %u nodes, not on %u", page, nr, MIN(ws->nr_owners, nr_hosts));
	}
	if (nr_hosts == ws->nr_nodes)
		check_loads();
}

/* In each run other things go wrong, some of them often: one that ends everything hides what would come later. */
static void choose_faults(struct worlds *w)
{
	static const unsigned usual[NR_FAULTS] = { /* of 100,000, for each per cent of the configuration */
		[SLOW_MESSAGE] = 3,  [AGENT_STOPS] = 2,	    [AGENT_DIES] = 1,	[NODE_ABSENT] = 2000,
		[WORLD_DIES] = 5000, [SLOW_WORD] = 100,	    [SLOW_OFFER] = 100, [SLOW_STORE] = 100,
		[DAEMON_HANGS] = 60, [DAEMON_CRASHES] = 60, [DISK_FULL] = 100,
	};
	static const unsigned times[] = { 0, 0, 1, 1, 8 };

	for (enum worlds_fault f = ANY_FAULT + 1; f < NR_FAULTS; f++)
		w->per_100000[f] = usual[f] * w->conf->faults_percent * times[ws_below(ARRAY_SIZE(times))];
	if (w->conf->fault == ANY_FAULT)
		return;
	memset(w->per_100000, 0, sizeof(w->per_100000));
	w->per_100000[w->conf->fault] = 1000 * w->conf->faults_percent;
}

/* So that in some runs others are not waited for, though nothing is wrong with them. */
static void shorten(uint64_t *ns)
{
	if (ws_chance(30))
		*ns = ws_between(MS, *ns);
}

static void set_up(struct worlds *w)
{
	w->nr_nodes = 2 + ws_below(WORLDS_NODES - 1);
	w->nr_owners = 1 + ws_below(OWNERS_MAX);
	w->now_ns = 1000000 * MS;
	w->popular_max = !w->conf->identical && ws_chance(20) ? 1 + ws_below(NR_PAGES) : 4 * NR_PAGES;
	w->rounds_conf.lookup = ws_chance(80);
	w->rounds_conf.remember = ws_chance(80) ? 64 << 10 : ws_below(4) << 10;
	w->waits = (struct waits){ .offer_ns = 60 * MS,
				   .lookup_ns = 40 * MS,
				   .stored_ns = 80 * MS,
				   .ask_ns = 50 * MS,
				   .fetch_ns = 100 * MS,
				   .stall_ns = 300 * MS,
				   .prepare_ns = 200 * MS,
				   .window_ns = 200 * MS,
				   .keep_ns = 200 * MS,
				   .end_ns = 200 * MS };
	choose_faults(w);
	if (w->conf->faults_percent > 0) {
		shorten(&w->waits.lookup_ns);
		shorten(&w->waits.stored_ns);
		shorten(&w->waits.prepare_ns);
		shorten(&w->waits.window_ns);
	}
	for (unsigned i = 0; i < w->nr_nodes; i++) {
		w->nodes[i] = (struct node){ .is_up = true, .id = { 1, (uint8_t)i } };
		w->nodes[i].host = ws_chance(25) ? ws_below(i + 1) : i;
		daemon_init(&w->daemons[i], &w->nodes[i]);
	}
	ws_trace("%u nodes, %u owners, %ju pages in a set, %zu bytes to remember%s", w->nr_nodes, w->nr_owners,
		 (uintmax_t)w->popular_max, w->rounds_conf.remember, w->rounds_conf.lookup ? ", look-ups" : "");
}

static void no_log(void *userdata, enum log_level level, const char *line)
{
	(void)level;
	(void)userdata;
	ws_trace("log: %s", line);
}

void worlds_run(const struct worlds_conf *conf, struct worlds_result *ret)
{
	struct worlds w = { .conf = conf, .result = ret, .seed = conf->seed };

	*ret = (struct worlds_result){ 0 };
	ws = &w;
	log_to_function(no_log, NULL);
	set_up(&w);
	for (unsigned i = 0; i < WORLDS && !ret->failed; i++)
		world_run();
	if (conf->identical && conf->faults_percent == 0)
		check_copies();
	ws = NULL;
}
