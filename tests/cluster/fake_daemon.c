/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: fake_daemon SOCKET [NAME=VALUE...]
 *
 * To an agent it looks like a daemon of ckptfs. It does what its arguments say, also what a daemon must not do, and
 * prints a line per event:
 *
 *   nodes NR SELF NAME...                decision ROUND PAGE:OWNER,OWNER*...   settled ROUND 1011
 *   chunk PAGE ok|missing|wrong          served PAGE...                        pinned PAGE...
 *   prepare NUMBER                       mark NUMBER WINDOW/NR                 unpin NUMBER WINDOW/NR KEPT-PAGE...
 *   collected NUMBER ERRNO NR_DROPPED MISSING                                  shared
 *   put NR, replicate, drop, question    a request of another store
 *   kept ERRNO, replicated ERRNO, dropped ERRNO, answer ERRNO                  the reply to a call of its own
 *   unanswered MESSAGE                   "silent" names this message
 *   places, taken                        chunks came in shared memory; the agent released some
 *   closed, done                         the agent hung up; this daemon did
 *
 * An owner with an asterisk had the page before the round.
 *
 * id=N, key=N, name=TEXT, hash=N, incompat=N, replicas=N, max=N
 *                  contents of WELCOME
 * pages=A-B,C/D    pages offered in the first round, the second, ...; none in later ones. One list without a slash is
 *                  offered in every round.
 * holds=A-B,C      chunks that it serves
 * lost=A-B,C       chunks offered in an earlier round that it does not pin
 * rounds=N         request N rounds, one after the other
 * collect=N        then request N collections; refers=A-B,C are its remote pages, pinned=A-B,C those pinned here,
 *                  referred=N the number of remote pages that it reports, missing=NAME an absent node that it reports
 * calls=put:ID,replicate:ID*N,drop:ID,query:ID
 *                  then send these calls to the stores with these ids, N of each, all at once; puts=A-B,C are the
 *                  chunks of each PUT (default: 1)
 * fetch=PAGE:ID.ID,A-B:...
 *                  and fetch these pages from the stores with these ids, times=N at once
 * tells=A-B,C      announce these pages at first, as stored without a round, the last one first; with shared=1 it
 *                  is not done before peers have announced the same
 * memory=1         serve many chunks in shared memory
 * quit=1           hang up when done; else it waits until the agent hangs up
 * silent=MESSAGE   do not answer this message
 * late=MS          answer BEGIN after this time
 * crosses=1        request each round again when BEGIN arrives, as if the two had crossed
 * stored=ERRNO     the result of storing
 * refused=ERRNO    answer HELLO with REFUSED
 * die=MESSAGE, kill=MESSAGE, term=MESSAGE, freeze=MESSAGE, garbage=MESSAGE
 *                  when this message arrives or has been sent: exit, kill the agent, terminate it, stop it for good,
 *                  or send garbage
 *
 * MESSAGE, received: hello nodes begin decision settled chunks places taken get pin prepare mark unpin collected shared
 * put kept replicate replicated drop dropped question answer; sent: offer stored tell put replicate drop query
 */
#include "tests/cluster/fake_daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"

#define LIFE_S 600 /* and not longer, whatever happens */
#define NS_PER_S UINT64_C(1000000000)

struct fake_daemon fake = {
	.times = 1,
	.welcome = { .hash = FP_CLMUL, .replicas = 1, .popular_max = 100000, .name = "node" },
};

_Noreturn void fake_fail(const char *what)
{
	fprintf(stderr, "fake_daemon %s: %s\n", fake.welcome.name, what);
	exit(1);
}

struct fp page_fp(unsigned page)
{
	return (struct fp){ .lo = page * UINT64_C(0x9e3779b97f4a7c15), .hi = page };
}

void page_fill(unsigned page, uint8_t *to)
{
	for (unsigned i = 0; i < CHUNK_LEN; i++)
		to[i] = (uint8_t)(page * 7 + i * 13 + (i >> 8));
}

bool has_page(const unsigned *pages, unsigned nr, unsigned page)
{
	for (unsigned i = 0; i < nr; i++)
		if (pages[i] == page)
			return true;
	return false;
}

const char *message_name(enum link_type type)
{
	static const char *const names[] = {
		[LINK_HELLO] = "hello",
		[LINK_NODES] = "nodes",
		[LINK_BEGIN] = "begin",
		[LINK_DECISION] = "decision",
		[LINK_SETTLED] = "settled",
		[LINK_CHUNKS] = "chunks",
		[LINK_GET] = "get",
		[LINK_PIN] = "pin",
		[LINK_COLLECTED] = "collected",
		[LINK_PLACES] = "places",
		[LINK_TAKEN] = "taken",
		[LINK_SHARED] = "shared",
		[LINK_PUT] = "put",
		[LINK_KEPT] = "kept",
		[LINK_REPLICATE] = "replicate",
		[LINK_REPLICATED] = "replicated",
		[LINK_DROP] = "drop",
		[LINK_DROPPED] = "dropped",
		[LINK_QUERY] = "query",
		[LINK_QUESTION] = "question",
		[LINK_ANSWER] = "answer",
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "unknown";
}

bool is_named(const char *when, const char *name)
{
	return when && strcmp(when, name) == 0;
}

static void signal_agent(int signal)
{
	struct ucred agent;
	socklen_t len = sizeof(agent);

	if (getsockopt(fake.link.fd, SOL_SOCKET, SO_PEERCRED, &agent, &len) < 0 || kill(agent.pid, signal) < 0)
		fake_fail("the agent cannot be reached");
}

static void misbehave(const char *name)
{
	if (is_named(fake.die, name)) {
		puts("gone");
		exit(0);
	}
	if (is_named(fake.kill, name))
		signal_agent(SIGKILL);
	if (is_named(fake.term, name))
		signal_agent(SIGTERM);
	if (is_named(fake.freeze, name))
		signal_agent(SIGSTOP);
	if (is_named(fake.garbage, name))
		buf_add(&fake.link.out, "0123456789abcdef0123456789abcdef", 32);
}

/* The agent has it, or will. */
void has_sent(const char *name)
{
	if (link_flush(&fake.link, monotonic_ns() + LIFE_S * NS_PER_S) == 0)
		misbehave(name);
}

void next_step(void)
{
	if (fake.nr_settled < fake.rounds)
		link_encode_plain(LINK_WANT, 0, &fake.link.out);
	else if (fake.nr_collected < fake.collections)
		link_encode_plain(LINK_WANT_COLLECT, 0, &fake.link.out);
	else if (fake.nr_calls > 0 || fake.nr_wants > 0)
		send_calls_and_fetches();
	else
		fake.is_done = fake.quit && (!fake.awaits_shared || fake.is_shared);
}

static void receive_nodes(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct link_node *nodes = NULL;
	uint32_t self;

	if (link_decode_nodes(body, h->len, &nodes, &fake.nr_nodes, &self) < 0)
		fake_fail("NODES");
	printf("nodes %" PRIu32 " %" PRIu32, fake.nr_nodes, self);
	for (uint32_t i = 0; i < fake.nr_nodes; i++)
		printf(" %s", nodes[i].name);
	puts("");
	announce();
	next_step();
}

static void receive(const struct link_header *h, const void *body)
{
	const char *name = h->type == LINK_STEP ? step_name(body, h->len) : message_name(h->type);

	misbehave(name);
	if (is_named(fake.silent, name)) {
		printf("unanswered %s\n", name);
		return;
	}
	switch (h->type) {
	case LINK_HELLO:
		if (link_decode_hello(body, h->len) < 0)
			fake_fail("HELLO");
		if (fake.memory)
			share_memory();
		if (fake.refused != 0)
			link_encode_plain(LINK_REFUSED, fake.refused, &fake.link.out);
		else
			link_encode_welcome(&fake.welcome, &fake.link.out);
		break;
	case LINK_NODES:
		receive_nodes(h, body);
		break;
	case LINK_BEGIN:
		usleep(fake.late_ms * 1000);
		if (fake.crosses)
			link_encode_plain(LINK_WANT, 0, &fake.link.out);
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
	case LINK_REPLICATE:
		receive_replicate(h, body);
		break;
	case LINK_DROP:
		receive_drop(h, body);
		break;
	case LINK_QUESTION:
		receive_question(h, body);
		break;
	case LINK_KEPT:
	case LINK_REPLICATED:
	case LINK_DROPPED:
	case LINK_ANSWER:
		receive_called(h, body);
		break;
	default:
		fake_fail("a message that is not for a daemon");
	}
}

static void run(void)
{
	struct link_header h;
	const void *body;

	while (!fake.is_done) {
		int r = link_receive(&fake.link, monotonic_ns() + LIFE_S * NS_PER_S, &h, &body);

		if (r == -EBADMSG)
			fake_fail("garbage");
		if (r < 0) {
			puts("closed");
			return;
		}
		receive(&h, body);
		fflush(stdout);
		if (link_flush(&fake.link, monotonic_ns() + LIFE_S * NS_PER_S) < 0) {
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
		fake_fail("usage");
	strcpy(at.sun_path, argv[1]);
	for (int i = 2; i < argc; i++)
		parse_argument(argv[i]);
	alarm(LIFE_S);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 1) < 0)
		fake_fail(strerror(errno));
	link_init(&fake.link, accept(fd, NULL, NULL));
	close(fd);
	run();
	link_release(&fake.link);
	return 0;
}
