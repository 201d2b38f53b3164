/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: fake_daemon SOCKET [NAME=VALUE...]
 *
 * A daemon that an agent cannot tell from a real one, and that does what it is told, also what is wrong. What happens
 * is told on standard output, a line each:
 *
 *   nodes NR SELF NAME...          decision ROUND PAGE:OWNER,OWNER*...         settled ROUND 1011
 *   chunk PAGE ok|missing|wrong    served PAGE...    lent PAGE...              closed
 *   prepare NUMBER                 mark NUMBER WINDOW/NR                       unlend NUMBER WINDOW/NR PAGE...: those that are kept
 *   collected NUMBER ERRNO NR_DROPPED MISSING                                 shared
 *   put NR, copy, drop, question   that others want of it                     kept ERRNO, copied ERRNO, dropped ERRNO, answer ERRNO
 *   unanswered MESSAGE: it was silent
 *
 * An owner with an asterisk has the page already.
 *
 * id=N, key=N, name=TEXT, hash=N, incompat=N, replicas=N, max=N      what it says in WELCOME
 * pages=A-B,C/D    that it offers in a round, in the next, ...; in all others nothing, but without a slash always the same
 * holds=A-B,C      chunks it has for others               lost=A-B,C     of what it has offered in a round that is over, chunks it does not lend
 * rounds=N         it wants so many, one after the other; then it fetches
 * fetch=PAGE:ID.ID,A-B:...    of stores with these ids, times=N at once; then it is done
 * collect=N        it wants so many collections after the rounds; refers=A-B,C are pages that it has elsewhere, lent=A-B,C those it has lent,
 * referred=N       is how many it says they are, missing=NAME a node that it knows of and is not here
 * calls=put:ID,copy:ID*N,drop:ID,query:ID    it wants of stores with these ids, so many of each, all at once and before it fetches; then it is done, if it does
 *                  not fetch; puts=A-B,C are the chunks of each PUT, 1 if nothing is said
 * tells=A-B,C      that it has stored without a round, the last one first; shared=1: it is not done before it hears that others have told the same
 * memory=1         chunks lie in memory that it shares with the agent, if they are many; "taken" when the agent has done with some
 * quit=1           hang up when it is done; else it goes on until the agent hangs up
 * silent=MESSAGE   of that kind it answers none          late=MS        it takes so long to answer BEGIN
 * crosses=1        it has wanted each round that it hears of, before it heard of it
 * stored=ERRNO     is how it has stored                  refused=ERRNO  is what it says instead of WELCOME
 * die=MESSAGE, kill=MESSAGE, term=MESSAGE, freeze=MESSAGE, garbage=MESSAGE
 *                  when it hears that: it is gone, it kills its agent, has it end, stops it for ever, or sends nonsense
 *
 * MESSAGE: hello nodes begin decision settled chunks places taken get lend prepare mark unlend collected shared put kept copy copied drop dropped question
 * answer; or one that it has just sent: offer stored tell put copy drop query
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/wire/link.h"

#define PAGES_MAX 100000u
#define ROUNDS_MAX 8u
#define CHUNK_LEN 4096u
#define GIVEN_MAX 64u
#define FETCHES_MAX LINK_CHUNKS_MAX
#define IDS_MAX 1024u
#define CALLS_MAX 64u
#define LIFE_S 600 /* and not longer, whatever happens */
#define NS_PER_S UINT64_C(1000000000)

static struct {
	struct link_welcome welcome;
	struct pages {
		unsigned v[PAGES_MAX], nr;
	} pages[ROUNDS_MAX];
	unsigned nr_lists; /* of these */
	unsigned holds[PAGES_MAX], nr_holds;
	unsigned lost[PAGES_MAX], nr_lost;
	unsigned announces[PAGES_MAX], nr_reports;
	bool awaits_shared, is_shared;
	bool crosses;
	unsigned refers[PAGES_MAX], nr_refers;
	unsigned pinned[PAGES_MAX], nr_pinned;
	unsigned collections, nr_collected, referred;
	const char *missing;
	unsigned rounds, late_ms, refused;
	bool quit, memory;
	int stored;
	const char *silent, *die, *kill, *term, *freeze, *garbage;

	uint8_t ids[IDS_MAX][16];
	unsigned nr_ids;
	struct link_want wants[FETCHES_MAX];
	unsigned fetch_pages[FETCHES_MAX], nr_wants, times, nr_answers;

	struct call {
		enum link_type type;
		uint8_t id[16];
	} calls[CALLS_MAX];
	unsigned nr_calls, nr_called;
	struct pages puts;

	struct link link;
	struct arenas shared;
	struct given {
		uint64_t number;
		uint8_t *slot;
		size_t len;
	} given[GIVEN_MAX];
	unsigned nr_given;
	uint32_t nr_nodes;
	unsigned nr_settled;
	bool is_done;
} d = { .times = 1, .welcome = { .hash = FP_CLMUL, .replicas = 1, .popular_max = 100000, .name = "node" } };

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "fake_daemon %s: %s\n", d.welcome.name, what);
	exit(1);
}

/* --- pages --- */

/* Ascending with the page, so that an offer is in order. */
static struct fp fp_of_page(unsigned page)
{
	return (struct fp){ .lo = page * UINT64_C(0x9e3779b97f4a7c15), .hi = page };
}

static void fill(unsigned page, uint8_t *to)
{
	for (unsigned i = 0; i < CHUNK_LEN; i++)
		to[i] = (uint8_t)(page * 7 + i * 13 + (i >> 8));
}

static bool has(const unsigned *pages, unsigned nr, unsigned page)
{
	for (unsigned i = 0; i < nr; i++)
		if (pages[i] == page)
			return true;
	return false;
}

static bool holds(unsigned page)
{
	return has(d.holds, d.nr_holds, page);
}

/* --- what it is told to be --- */

static void parse_pages(const char *s, unsigned *pages, unsigned *nr)
{
	while (*s) {
		char *end;
		unsigned long from = strtoul(s, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to; from++) {
			if (*nr == PAGES_MAX)
				fail("too many pages");
			pages[(*nr)++] = (unsigned)from;
		}
		s = *end == ',' ? end + 1 : end;
	}
}

static void parse_lists(char *s)
{
	for (char *list; (list = strsep(&s, "/")); d.nr_lists++) {
		if (d.nr_lists == ROUNDS_MAX)
			fail("too many rounds");
		parse_pages(list, d.pages[d.nr_lists].v, &d.pages[d.nr_lists].nr);
	}
}

static const struct pages *pages_of(uint64_t round)
{
	static const struct pages none;

	if (d.nr_lists == 1)
		return &d.pages[0];
	return round >= 1 && round <= d.nr_lists ? &d.pages[round - 1] : &none;
}

static void add_fetch(unsigned page, const struct link_want *owners)
{
	struct link_want *w = &d.wants[d.nr_wants];

	if (d.nr_wants == FETCHES_MAX)
		fail("too many fetches");
	*w = *owners;
	w->fp = fp_of_page(page);
	w->len = CHUNK_LEN;
	d.fetch_pages[d.nr_wants++] = page;
}

static void parse_fetch(char *s)
{
	char *save;

	for (char *item = strtok_r(s, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		unsigned long from = strtoul(item, &item, 10), to = *item == '-' ? strtoul(item + 1, &item, 10) : from;
		struct link_want owners = { 0 };

		while (*item == ':' || *item == '.') {
			if (d.nr_ids == IDS_MAX)
				fail("too many owners");
			memset(d.ids[d.nr_ids], (int)strtoul(item + 1, &item, 10), 16);
			owners.owners[owners.nr_owners++] = (uint16_t)d.nr_ids++;
		}
		for (; from <= to; from++)
			add_fetch((unsigned)from, &owners);
	}
}

static const char *name_of(enum link_type type)
{
	static const char *const names[] = {
		[LINK_HELLO] = "hello",	      [LINK_NODES] = "nodes",	    [LINK_BEGIN] = "begin",
		[LINK_DECISION] = "decision", [LINK_SETTLED] = "settled",   [LINK_CHUNKS] = "chunks",
		[LINK_GET] = "get",	      [LINK_PIN] = "lend",	    [LINK_COLLECTED] = "collected",
		[LINK_PLACES] = "places",     [LINK_TAKEN] = "taken",	    [LINK_SHARED] = "shared",
		[LINK_PUT] = "put",	      [LINK_KEPT] = "kept",	    [LINK_COPY] = "copy",
		[LINK_COPIED] = "copied",     [LINK_DROP] = "drop",	    [LINK_DROPPED] = "dropped",
		[LINK_QUERY] = "query",	      [LINK_QUESTION] = "question", [LINK_ANSWER] = "answer",
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "unknown";
}

static bool is(const char *when, const char *name)
{
	return when && strcmp(when, name) == 0;
}

static void parse_calls(char *s)
{
	char *save;

	for (char *item = strtok_r(s, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *id = strchr(item, ':');
		struct call c = { .type = LINK_PUT };
		unsigned long nr;

		if (!id)
			fail("a call without a store");
		*id++ = '\0';
		while (c.type <= LINK_QUERY && !is(item, name_of(c.type)))
			c.type++;
		memset(c.id, (int)strtoul(id, &id, 10), sizeof(c.id));
		nr = *id == '*' ? strtoul(id + 1, NULL, 10) : 1;
		if (c.type > LINK_QUERY || nr > CALLS_MAX - d.nr_calls)
			fail("no such call, or too many");
		while (nr-- > 0)
			d.calls[d.nr_calls++] = c;
	}
}

static void parse(char *arg)
{
	char *value = strchr(arg, '=');

	if (!value)
		fail(arg);
	*value++ = '\0';
	if (strcmp(arg, "id") == 0)
		memset(d.welcome.store_id, atoi(value), sizeof(d.welcome.store_id));
	else if (strcmp(arg, "key") == 0)
		memset(d.welcome.proof_key, atoi(value), sizeof(d.welcome.proof_key));
	else if (strcmp(arg, "name") == 0)
		snprintf(d.welcome.name, sizeof(d.welcome.name), "%s", value);
	else if (strcmp(arg, "hash") == 0)
		d.welcome.hash = (uint32_t)atoi(value);
	else if (strcmp(arg, "incompat") == 0)
		d.welcome.incompat = (uint32_t)atoi(value);
	else if (strcmp(arg, "replicas") == 0)
		d.welcome.replicas = (uint32_t)atoi(value);
	else if (strcmp(arg, "max") == 0)
		d.welcome.popular_max = (uint64_t)atoll(value);
	else if (strcmp(arg, "pages") == 0)
		parse_lists(value);
	else if (strcmp(arg, "holds") == 0)
		parse_pages(value, d.holds, &d.nr_holds);
	else if (strcmp(arg, "lost") == 0)
		parse_pages(value, d.lost, &d.nr_lost);
	else if (strcmp(arg, "refers") == 0)
		parse_pages(value, d.refers, &d.nr_refers);
	else if (strcmp(arg, "lent") == 0)
		parse_pages(value, d.pinned, &d.nr_pinned);
	else if (strcmp(arg, "referred") == 0)
		d.referred = (unsigned)atoi(value);
	else if (strcmp(arg, "missing") == 0)
		d.missing = value;
	else if (strcmp(arg, "collect") == 0)
		d.collections = (unsigned)atoi(value);
	else if (strcmp(arg, "fetch") == 0)
		parse_fetch(value);
	else if (strcmp(arg, "calls") == 0)
		parse_calls(value);
	else if (strcmp(arg, "puts") == 0)
		parse_pages(value, d.puts.v, &d.puts.nr);
	else if (strcmp(arg, "rounds") == 0)
		d.rounds = (unsigned)atoi(value);
	else if (strcmp(arg, "late") == 0)
		d.late_ms = (unsigned)atoi(value);
	else if (strcmp(arg, "crosses") == 0)
		d.crosses = atoi(value) != 0;
	else if (strcmp(arg, "refused") == 0)
		d.refused = (unsigned)atoi(value);
	else if (strcmp(arg, "tells") == 0)
		parse_pages(value, d.announces, &d.nr_reports);
	else if (strcmp(arg, "shared") == 0)
		d.awaits_shared = atoi(value) != 0;
	else if (strcmp(arg, "quit") == 0)
		d.quit = atoi(value) != 0;
	else if (strcmp(arg, "memory") == 0)
		d.memory = atoi(value) != 0;
	else if (strcmp(arg, "stored") == 0)
		d.stored = -atoi(value);
	else if (strcmp(arg, "silent") == 0)
		d.silent = value;
	else if (strcmp(arg, "die") == 0)
		d.die = value;
	else if (strcmp(arg, "kill") == 0)
		d.kill = value;
	else if (strcmp(arg, "times") == 0)
		d.times = (unsigned)atoi(value);
	else if (strcmp(arg, "term") == 0)
		d.term = value;
	else if (strcmp(arg, "freeze") == 0)
		d.freeze = value;
	else if (strcmp(arg, "garbage") == 0)
		d.garbage = value;
	else
		fail(arg);
}

/* --- when it fails --- */

static void signal_agent(int signal)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(d.link.fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || kill(who.pid, signal) < 0)
		fail("the agent cannot be reached");
}

static void misbehave(const char *name)
{
	if (is(d.die, name)) {
		puts("gone");
		exit(0);
	}
	if (is(d.kill, name))
		signal_agent(SIGKILL);
	if (is(d.term, name))
		signal_agent(SIGTERM);
	if (is(d.freeze, name))
		signal_agent(SIGSTOP);
	if (is(d.garbage, name))
		buf_add(&d.link.out, "0123456789abcdef0123456789abcdef", 32);
}

/* The agent has it, or will. */
static void has_said(const char *name)
{
	if (link_flush(&d.link, monotonic_ns() + LIFE_S * NS_PER_S) == 0)
		misbehave(name);
}

/* --- what it says --- */

static void offer(uint64_t round)
{
	const struct pages *p = pages_of(round);
	_cleanup_(freep) struct fp *pages = calloc(p->nr + 1, sizeof(*pages));

	if (!pages)
		fail("memory");
	for (unsigned i = 0; i < p->nr; i++)
		pages[i] = fp_of_page(p->v[i]);
	link_encode_offer(round, pages, p->nr, &d.link.out);
	has_said("offer");
}

static void announce(void)
{
	_cleanup_(freep) struct fp *pages = calloc(d.nr_reports + 1, sizeof(*pages));

	if (!pages)
		fail("memory");
	for (unsigned i = 0; i < d.nr_reports; i++)
		pages[i] = fp_of_page(d.announces[d.nr_reports - 1 - i]);
	if (d.nr_reports == 0)
		return;
	link_encode_announce(pages, d.nr_reports, &d.link.out);
	has_said("tell");
}

static void say_put(uint64_t number, const uint8_t id[16])
{
	static const struct pages one = { { 1 }, 1 };
	const struct pages *p = d.puts.nr > 0 ? &d.puts : &one;
	_cleanup_(freep) struct link_want *wants = calloc(p->nr, sizeof(*wants));
	_cleanup_(freep) const void **chunks = calloc(p->nr, sizeof(*chunks));
	_cleanup_(freep) uint8_t *bytes = malloc((size_t)p->nr * CHUNK_LEN);

	if (!wants || !chunks || !bytes)
		fail("memory");
	for (unsigned i = 0; i < p->nr; i++) {
		wants[i] = (struct link_want){ .fp = fp_of_page(p->v[i]), .len = CHUNK_LEN };
		chunks[i] = bytes + (size_t)i * CHUNK_LEN;
		fill(p->v[i], bytes + (size_t)i * CHUNK_LEN);
	}
	link_encode_put(number, id, wants, chunks, p->nr, &d.link.out);
}

static void say_copy(uint64_t number, const uint8_t id[16])
{
	struct link_want catalog = { .fp = fp_of_page(1), .len = CHUNK_LEN };
	struct link_copy c = { .name = "of", .path = "step", .ino = 7, .nr_chunks = 1, .chunks = &catalog };

	memcpy(c.node, id, sizeof(c.node));
	link_encode_copy(number, &c, &d.link.out);
}

static void say_drop(uint64_t number, const uint8_t id[16])
{
	struct link_drop drop = { .name = "of", .ino = 7 };

	memcpy(drop.node, id, sizeof(drop.node));
	link_encode_drop(number, &drop, &d.link.out);
}

static void call(uint64_t number, const struct call *c)
{
	if (c->type == LINK_PUT)
		say_put(number, c->id);
	else if (c->type == LINK_COPY)
		say_copy(number, c->id);
	else if (c->type == LINK_DROP)
		say_drop(number, c->id);
	else
		link_encode_query(number, c->id, "what", 4, &d.link.out);
	has_said(name_of(c->type));
}

static void call_and_fetch(void)
{
	for (unsigned i = 0; i < d.nr_calls; i++)
		call(i + 1, &d.calls[i]);
	for (unsigned i = 1; d.nr_wants > 0 && i <= d.times; i++)
		link_encode_fetch(i, d.ids, d.nr_ids, d.wants, d.nr_wants, &d.link.out);
}

static void next_step(void)
{
	if (d.nr_settled < d.rounds)
		link_encode_plain(LINK_WANT, 0, &d.link.out);
	else if (d.nr_collected < d.collections)
		link_encode_plain(LINK_WANT_COLLECT, 0, &d.link.out);
	else if (d.nr_calls > 0 || d.nr_wants > 0)
		call_and_fetch();
	else
		d.is_done = d.quit && (!d.awaits_shared || d.is_shared);
}

/* --- what it hears --- */

static void receive_nodes(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct link_node *nodes = NULL;
	uint32_t self;

	if (link_decode_nodes(body, h->len, &nodes, &d.nr_nodes, &self) < 0)
		fail("NODES");
	printf("nodes %" PRIu32 " %" PRIu32, d.nr_nodes, self);
	for (uint32_t i = 0; i < d.nr_nodes; i++)
		printf(" %s", nodes[i].name);
	puts("");
	announce();
	next_step();
}

static void receive_shared(void)
{
	puts("shared");
	d.is_shared = true;
	if (d.awaits_shared)
		next_step();
}

static void receive_decision(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct link_owners *owners = NULL;
	const struct pages *p = pages_of(h->number);
	uint32_t nr;

	if (link_decode_decision(body, h->len, p->nr, d.nr_nodes, &owners, &nr) < 0)
		fail("DECISION");
	printf("decision %" PRIu64, h->number);
	for (uint32_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < owners[i].nr; k++)
			printf(k == 0 ? " %u:%u%s" : "%.0u,%u%s", k == 0 ? p->v[owners[i].index] : 0,
			       owners[i].owners[k], owners[i].has >> k & 1 ? "*" : "");
	puts("");
	link_encode_stored(h->number, d.stored, &d.link.out);
	has_said("stored");
}

static void receive_settled(const struct link_header *h, const void *body)
{
	const uint8_t *has_stored;

	if (link_decode_settled(body, h->len, d.nr_nodes, &has_stored) < 0)
		fail("SETTLED");
	printf("settled %" PRIu64 " ", h->number);
	for (uint32_t i = 0; i < d.nr_nodes; i++)
		putchar('0' + has_stored[i]);
	puts("");
	if (++d.nr_settled <= d.rounds)
		next_step();
}

static void receive_chunks(const struct link_header *h, const void *body)
{
	static const void *chunks[FETCHES_MAX];
	uint8_t expected[CHUNK_LEN];

	if (h->type == LINK_CHUNKS && link_decode_chunks(body, h->len, d.wants, d.nr_wants, chunks) < 0)
		fail("CHUNKS");
	if (h->type == LINK_PLACES &&
	    (!d.shared.theirs || link_decode_places(body, h->len, d.wants, d.nr_wants, arena_data(d.shared.theirs),
						    arena_len(d.shared.theirs), chunks) < 0))
		fail("PLACES");
	for (unsigned i = 0; i < d.nr_wants; i++) {
		fill(d.fetch_pages[i], expected);
		printf("chunk %u %s\n", d.fetch_pages[i],
		       !chunks[i]				   ? "missing" :
		       memcmp(chunks[i], expected, CHUNK_LEN) == 0 ? "ok" :
								     "wrong");
	}
	if (h->type == LINK_PLACES) {
		puts("places");
		link_encode_plain(LINK_TAKEN, h->number, &d.link.out);
	}
	d.is_done = ++d.nr_answers == d.times && d.quit;
}

/* Both ends, or none. */
static void share_memory(void)
{
	int fd = d.link.passed;

	d.link.passed = -1;
	if (fd < 0 || arena_open(fd, &d.shared.theirs) < 0 || arena_new(ARENA_LEN, &d.shared.own) < 0)
		fail("memory of the agent");
	d.link.passes = arena_fd(d.shared.own);
}

/* false: there is no room for it */
static bool say_there(uint64_t number, const struct link_want *wants, const void *const *chunks, uint32_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct given *g = &d.given[d.nr_given];
	size_t len;

	link_encode_chunks(number, wants, chunks, nr, &b);
	len = b.len - sizeof(struct link_header_wire);
	if (len < ARENA_MIN || d.nr_given == GIVEN_MAX)
		return false;
	*g = (struct given){ number, arena_take(d.shared.own, len), len };
	if (!g->slot)
		return false;
	d.nr_given++;
	memcpy(g->slot, b.data + sizeof(struct link_header_wire), len);
	link_encode_there(number, (uint64_t)(g->slot - arena_data(d.shared.own)), (uint32_t)len, &d.link.out);
	return true;
}

/* It is written over: the agent is not to look there any more. */
static void receive_taken(uint64_t number)
{
	for (unsigned i = 0; i < d.nr_given; i++)
		if (d.given[i].number == number) {
			puts("taken");
			memset(d.given[i].slot, 0xa5, d.given[i].len);
			arena_give_back(d.shared.own, d.given[i].slot, d.given[i].len);
			d.given[i] = d.given[--d.nr_given];
			return;
		}
	fail("TAKEN of what was not given");
}

static void receive_get(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct link_want *wants = NULL;
	_cleanup_(freep) const void **chunks = NULL;
	_cleanup_(freep) uint8_t *bytes = NULL;
	uint32_t nr;

	if (link_decode_get(body, h->len, &wants, &nr) < 0)
		fail("GET");
	chunks = calloc(nr + 1, sizeof(*chunks));
	bytes = malloc((size_t)(nr + 1) * CHUNK_LEN);
	if (!chunks || !bytes)
		fail("memory");
	printf("served");
	for (uint32_t i = 0; i < nr; i++) {
		unsigned page = (unsigned)wants[i].fp.hi;

		if (!holds(page) || wants[i].len != CHUNK_LEN)
			continue;
		printf(" %u", page);
		fill(page, bytes + i * CHUNK_LEN);
		chunks[i] = bytes + i * CHUNK_LEN;
	}
	puts("");
	if (!d.memory || !say_there(h->number, wants, chunks, nr))
		link_encode_chunks(h->number, wants, chunks, nr, &d.link.out);
}

/* As if all of them had been stored here that were offered. */
static bool pins(unsigned page)
{
	if (has(d.lost, d.nr_lost, page))
		return false;
	for (uint64_t round = 1; round <= d.nr_settled; round++)
		if (has(pages_of(round)->v, pages_of(round)->nr, page))
			return true;
	return has(d.announces, d.nr_reports, page);
}

static void receive_pin(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct fp *pages = NULL;
	_cleanup_(freep) uint8_t *pinned = NULL;
	uint32_t nr;

	if (link_decode_pin(body, h->len, &pages, &nr) < 0)
		fail("PIN");
	pinned = calloc(nr + 1, 1);
	if (!pinned)
		fail("memory");
	printf("lent");
	for (uint32_t i = 0; i < nr; i++) {
		pinned[i] = pins((unsigned)pages[i].hi);
		if (pinned[i])
			printf(" %u", (unsigned)pages[i].hi);
	}
	puts("");
	link_encode_pinned(h->number, pinned, nr, &d.link.out);
}

/* --- what others want it to keep, or to tell --- */

static void receive_put(const struct link_header *h, const void *body)
{
	_cleanup_(freep) uint8_t *kept = NULL;
	struct link_put p;

	if (link_decode_put(body, h->len, &p) < 0)
		fail("PUT");
	printf("put %" PRIu32 "\n", p.nr);
	kept = malloc(p.nr + 1);
	if (!kept)
		fail("memory");
	memset(kept, d.stored < 0 ? LINK_NOT_KEPT : LINK_IS_HERE, p.nr);
	link_encode_kept(h->number, d.stored, kept, p.nr, &d.link.out);
	free(p.wants);
	free(p.chunks);
}

static void receive_copy(const struct link_header *h, const void *body)
{
	struct link_copy c;

	if (link_decode_copy(body, h->len, &c) < 0)
		fail("COPY");
	free(c.chunks);
	puts("copy");
	link_encode_error(LINK_COPIED, h->number, d.stored, &d.link.out);
}

static void receive_drop(const struct link_header *h, const void *body)
{
	struct link_drop drop;

	if (link_decode_drop(body, h->len, &drop) < 0)
		fail("DROP");
	puts("drop");
	link_encode_error(LINK_DROPPED, h->number, d.stored, &d.link.out);
}

static void receive_question(const struct link_header *h, const void *body)
{
	if (link_decode_question(body, h->len) < 0)
		fail("QUESTION");
	puts("question");
	link_encode_answer(h->number, d.stored, "this", d.stored < 0 ? 0 : 4, &d.link.out);
}

/* KEPT, COPIED, DROPPED, ANSWER: to the call of that number. */
static void receive_called(const struct link_header *h, const void *body)
{
	const uint8_t *kept;
	const void *said;
	size_t len;
	int error, r;

	r = h->type == LINK_KEPT   ? link_decode_kept(body, h->len, MAX(d.puts.nr, 1u), &error, &kept) :
	    h->type == LINK_ANSWER ? link_decode_answer(body, h->len, &error, &said, &len) :
				     link_decode_error(body, h->len, &error);
	if (r < 0)
		fail(name_of(h->type));
	printf("%s %d\n", name_of(h->type), -error);
	if (++d.nr_called == d.nr_calls && d.nr_wants == 0)
		d.is_done = d.quit;
}

/* --- collecting: a page is a bit --- */

static bool is_page_of(unsigned page, const struct link_step *s)
{
	return page % s->nr_windows == s->window;
}

static void receive_step(const struct link_header *h, const void *body)
{
	_cleanup_(freep) uint8_t *filter = NULL;
	struct link_done done = { 0 };
	struct link_step s;

	if (link_decode_step(body, h->len, &s) < 0)
		fail("STEP");
	done.kind = s.kind;
	done.window = s.window;
	filter = calloc(1, s.len + 1);
	if (!filter)
		fail("memory");
	switch (s.kind) {
	case LINK_PREPARE:
		printf("prepare %" PRIu64 "\n", h->number);
		done.nr_referred = d.referred ? d.referred : d.nr_refers;
		if (d.missing)
			snprintf(done.missing, sizeof(done.missing), "%s", d.missing);
		break;
	case LINK_MARK:
		printf("mark %" PRIu64 " %" PRIu32 "/%" PRIu32 "\n", h->number, s.window, s.nr_windows);
		for (unsigned i = 0; i < d.nr_refers; i++)
			if (is_page_of(d.refers[i], &s))
				filter[d.refers[i] / 8 % s.len] |= (uint8_t)(1u << d.refers[i] % 8);
		done.len = s.len;
		done.filter = filter;
		break;
	case LINK_UNPIN:
		printf("unlend %" PRIu64 " %" PRIu32 "/%" PRIu32, h->number, s.window, s.nr_windows);
		for (unsigned i = 0; i < d.nr_pinned; i++) {
			if (!is_page_of(d.pinned[i], &s))
				continue;
			if (s.filter[d.pinned[i] / 8 % s.len] >> d.pinned[i] % 8 & 1) {
				printf(" %u", d.pinned[i]);
				done.nr_kept++;
			} else {
				done.nr_dropped++;
			}
		}
		puts("");
		break;
	}
	done.error = d.stored;
	if (done.error < 0)
		done.len = 0;
	link_encode_done(LINK_DONE, h->number, &done, &d.link.out);
}

static void receive_collected(const struct link_header *h, const void *body)
{
	struct link_done done;

	if (link_decode_done(body, h->len, &done) < 0)
		fail("COLLECTED");
	printf("collected %" PRIu64 " %d %" PRIu64 " %s\n", h->number, -done.error, done.nr_dropped, done.missing);
	if (++d.nr_collected <= d.collections)
		next_step();
}

static const char *name_of_step(const void *body, size_t len)
{
	struct link_step s;

	if (link_decode_step(body, len, &s) < 0)
		fail("STEP");
	return s.kind == LINK_PREPARE ? "prepare" : s.kind == LINK_MARK ? "mark" : "unlend";
}

static void receive(const struct link_header *h, const void *body)
{
	const char *name = h->type == LINK_STEP ? name_of_step(body, h->len) : name_of(h->type);

	misbehave(name);
	if (is(d.silent, name)) {
		printf("unanswered %s\n", name);
		return;
	}
	switch (h->type) {
	case LINK_HELLO:
		if (link_decode_hello(body, h->len) < 0)
			fail("HELLO");
		if (d.memory)
			share_memory();
		if (d.refused != 0)
			link_encode_plain(LINK_REFUSED, d.refused, &d.link.out);
		else
			link_encode_welcome(&d.welcome, &d.link.out);
		break;
	case LINK_NODES:
		receive_nodes(h, body);
		break;
	case LINK_BEGIN:
		usleep(d.late_ms * 1000);
		if (d.crosses)
			link_encode_plain(LINK_WANT, 0, &d.link.out);
		offer(h->number);
		break;
	case LINK_DECISION:
		receive_decision(h, body);
		break;
	case LINK_SETTLED:
		receive_settled(h, body);
		break;
	case LINK_CHUNKS:
	case LINK_PLACES:
		receive_chunks(h, body);
		break;
	case LINK_TAKEN:
		receive_taken(h->number);
		break;
	case LINK_GET:
		receive_get(h, body);
		break;
	case LINK_PIN:
		receive_pin(h, body);
		break;
	case LINK_STEP:
		receive_step(h, body);
		break;
	case LINK_COLLECTED:
		receive_collected(h, body);
		break;
	case LINK_SHARED:
		receive_shared();
		break;
	case LINK_PUT:
		receive_put(h, body);
		break;
	case LINK_COPY:
		receive_copy(h, body);
		break;
	case LINK_DROP:
		receive_drop(h, body);
		break;
	case LINK_QUESTION:
		receive_question(h, body);
		break;
	case LINK_KEPT:
	case LINK_COPIED:
	case LINK_DROPPED:
	case LINK_ANSWER:
		receive_called(h, body);
		break;
	default:
		fail("a message that is not for a daemon");
	}
}

static void run(void)
{
	struct link_header h;
	const void *body;

	while (!d.is_done) {
		int r = link_receive(&d.link, monotonic_ns() + LIFE_S * NS_PER_S, &h, &body);

		if (r == -EBADMSG)
			fail("garbage");
		if (r < 0) {
			puts("closed");
			return;
		}
		receive(&h, body);
		fflush(stdout);
		if (link_flush(&d.link, monotonic_ns() + LIFE_S * NS_PER_S) < 0) {
			puts("closed");
			return;
		}
	}
	puts("done");
}

int main(int argc, char **argv)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc < 2 || strlen(argv[1]) >= sizeof(at.sun_path))
		fail("usage");
	strcpy(at.sun_path, argv[1]);
	for (int i = 2; i < argc; i++)
		parse(argv[i]);
	alarm(LIFE_S);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 1) < 0)
		fail(strerror(errno));
	link_init(&d.link, accept(fd, NULL, NULL));
	close(fd);
	run();
	link_release(&d.link);
	return 0;
}
