/* The daemon's half of the link, with an agent that says what a test wants it to. Waiting has no limit of its own here:
 * a test that hangs has failed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/arena.h"
#include "mpi-agent/link.h"
#include "mpi-agent/link_format.h"
#include "mpi-agent/listen.h"
#include "mpi-agent/service.h"
#include "store/engine/cluster.h"

#define LONG_NS (UINT64_C(600) * 1000000000) /* longer than a test may take */
#define SHORT_NS (UINT64_C(20) * 1000000)

static const struct link_welcome welcome = {
	.hash = FP_CLMUL,
	.incompat = 3,
	.replicas = 2,
	.popular_max = 1000,
	.store_id = { 11 },
	.proof_key = { 1, 2, 3 },
	.name = "one",
};

static const struct link_node link_nodes[] = {
	{ .store_id = { 10 }, .host = 0, .name = "zero" },
	{ .store_id = { 11 }, .host = 1, .name = "one" },
	{ .store_id = { 12 }, .host = 2, .name = "two" },
};

static const struct fp pages[] = { { .lo = 1 }, { .lo = 2 }, { .lo = 3 } };

struct rig {
	char dir[64], path[128];
	struct service *s;
	const struct cluster_calls *calls;
	atomic_bool pending, commit_decides, commit_hangs;
	atomic_uint nr_commits;
	atomic_uint nr_steps, nr_over, nr_freed; /* of collections of all nodes */
	atomic_bool was_ours;
	atomic_uint nr_keeps, nr_met, nr_shared;
	atomic_bool writes; /* a program, what others may have, too */
	atomic_uint nr_looks; /* whether it does */
	atomic_bool holds_answers; /* until it does not */
	int agent; /* its end of the socket; -1: none */
};

static bool rig_pending(void *userdata)
{
	return ((struct rig *)userdata)->pending;
}

static void rig_commit(void *userdata)
{
	struct rig *rig = userdata;
	struct cluster_decision d;

	rig->nr_commits++;
	while (rig->commit_hangs)
		usleep(1000);
	if (rig->commit_decides && rig->calls->decide(rig->calls->userdata, pages, 2, &d) == 0)
		cluster_decision_release(&d);
}

/* Chunk `lo` is of bytes `lo`; those above 200 are not here, and 255 cannot be read. */
static int rig_chunk(void *userdata, struct fp fp, uint32_t len, void *buf)
{
	(void)userdata;
	if (fp.lo > 200)
		return fp.lo == 255 ? -EIO : 0;
	memset(buf, (int)fp.lo, len);
	return 1;
}

/* The same ones, unless one of them cannot be noted. */
static int rig_lend(void *userdata, const struct cluster_node *nodes, uint32_t nr_nodes, const struct fp *fps,
		    size_t nr, bool *lent)
{
	(void)userdata;
	assert_true(nodes && nr_nodes > 0);
	for (size_t i = 0; i < nr; i++) {
		lent[i] = fps[i].lo <= 200;
		if (fps[i].lo == 255)
			return -EIO;
	}
	return 0;
}

/* Marks one bit, and drops two chunks in each window. */
static int rig_step(void *userdata, const struct link_step *step, const struct cluster_node *nodes, uint32_t nr_nodes,
		    bool is_ours, uint8_t *filter, struct link_done *ret)
{
	struct rig *rig = userdata;

	rig->was_ours = is_ours;
	rig->nr_steps++;
	if (step->kind == LINK_PREPARE) {
		ret->nr_referred = nr_nodes;
		snprintf(ret->missing, sizeof(ret->missing), "%s", nodes[2].name);
	}
	if (step->kind == LINK_MARK)
		filter[step->window] = 8;
	if (step->kind == LINK_UNLEND)
		ret->nr_dropped = 2;
	return step->kind == LINK_UNLEND && step->filter[1] != 9 ? -EIO : 0;
}

static void rig_collected(void *userdata, bool free_too)
{
	struct rig *rig = userdata;

	rig->nr_freed += free_too;
	rig->nr_over++; /* last: a test waits for it, and then looks at the other */
}

static int rig_chunks(void *userdata, struct cluster_want *wants, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		wants[i].got = rig_chunk(userdata, wants[i].fp, wants[i].len, wants[i].buf) > 0;
	return 0;
}

/* "no" has none; else the question, twice. */
static int rig_answer(void *userdata, const void *question, size_t len, struct buf *ret)
{
	struct rig *rig = userdata;

	while (rig->holds_answers)
		sched_yield();
	if (len == 2 && memcmp(question, "no", 2) == 0)
		return -ENODATA;
	buf_add(ret, question, len);
	buf_add(ret, question, len);
	return 0;
}

/* Chunk `lo` above 200 is with others, and those above 250 are nowhere; one whose bytes are 'x' cannot be kept. */
static int rig_keep(void *userdata, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
		    uint8_t *kept)
{
	struct rig *rig = userdata;

	assert_int_equal(nr_nodes, ARRAY_SIZE(link_nodes));
	assert_memory_equal(nodes[2].id, link_nodes[2].store_id, CLUSTER_ID_LEN);
	rig->nr_keeps++;
	for (uint32_t i = 0; i < put->nr; i++) {
		uint64_t lo = put->wants[i].fp.lo;

		kept[i] = put->chunks[i] || lo <= 200 ? LINK_IS_HERE : lo <= 250 ? LINK_WITH_OTHERS : LINK_NOT_KEPT;
		if (put->chunks[i] && *(const char *)put->chunks[i] == 'x')
			return -ENOSPC;
	}
	return 0;
}

static int rig_copy(void *userdata, const struct link_copy *copy, const struct cluster_node *nodes, uint32_t nr_nodes)
{
	(void)userdata;
	assert_true(nodes && nr_nodes > 0);
	return strcmp(copy->path, "stale") == 0 ? -ESTALE : 0;
}

static int rig_drop(void *userdata, const struct link_drop *drop)
{
	(void)userdata;
	return drop->ino == 13 ? -EROFS : 0;
}

static void rig_met(void *userdata)
{
	((struct rig *)userdata)->nr_met++;
}

static void rig_shared(void *userdata)
{
	((struct rig *)userdata)->nr_shared++;
}

static uint64_t rig_held_ns(void *userdata)
{
	struct rig *rig = userdata;

	rig->nr_looks++;
	return rig->writes ? monotonic_ns() : 1;
}

static const struct service_limits patient = { LONG_NS, LONG_NS, LONG_NS, 0 };

static void rig_start(struct rig *rig)
{
	struct service_store store = {
		.userdata = rig,
		.pending = rig_pending,
		.commit = rig_commit,
		.chunks = rig_chunks,
		.lend = rig_lend,
		.step = rig_step,
		.collected = rig_collected,
		.keep = rig_keep,
		.copy = rig_copy,
		.drop = rig_drop,
		.met = rig_met,
		.answer = rig_answer,
		.shared = rig_shared,
		.held_ns = rig_held_ns,
	};

	assert_int_equal(service_start(rig->s, rig->path, &welcome, &store), 0);
}

static void rig_init(struct rig *rig, const struct service_limits *limits)
{
	*rig = (struct rig){ .dir = "/tmp/ckptfs-service.XXXXXX", .agent = -1 };
	assert_non_null(mkdtemp(rig->dir));
	snprintf(rig->path, sizeof(rig->path), "%s/agent.sock", rig->dir);
	assert_int_equal(service_new(limits, &rig->s), 0);
	rig->calls = service_calls(rig->s);
}

static void rig_release(struct rig *rig)
{
	closep(&rig->agent);
	service_free(rig->s);
	assert_int_equal(rmdir(rig->dir), 0); /* nothing is left in it */
}

static bool is_there(struct rig *rig)
{
	return rig->calls->is_there(rig->calls->userdata);
}

static void await_there(struct rig *rig, bool there)
{
	while (is_there(rig) != there)
		sched_yield();
}

/* --- the agent --- */

static int dial(struct rig *rig)
{
	int fd = listener_connect(rig->path), flags;

	assert_true(fd >= 0);
	flags = fcntl(fd, F_GETFL);
	assert_int_equal(fcntl(fd, F_SETFL, flags & ~O_NONBLOCK), 0);
	return fd;
}

static void say(struct rig *rig, struct buf *b)
{
	size_t sent = 0;

	assert_int_equal(buf_error(b), 0);
	while (sent < b->len) {
		ssize_t n = send(rig->agent, b->data + sent, b->len - sent, MSG_NOSIGNAL);

		assert_true(n > 0);
		sent += (size_t)n;
	}
	buf_release(b);
}

#define SAY(rig, kind, ...)                           \
	do {                                          \
		struct buf _b = BUF_EMPTY;            \
		link_encode_##kind(__VA_ARGS__, &_b); \
		say(rig, &_b);                        \
	} while (0)

static bool hear_bytes(int fd, void *p, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = recv(fd, (char *)p + got, len - got, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/* The next message. */
static struct link_header hear_any(int fd, struct buf *ret)
{
	uint8_t head[sizeof(struct link_header_wire)];
	struct link_header h;

	assert_true(hear_bytes(fd, head, sizeof(head)));
	assert_int_equal(link_decode_header(head, sizeof(head), &h), 0);
	buf_release(ret);
	assert_int_equal(buf_reserve(ret, h.len), 0);
	assert_true(hear_bytes(fd, ret->data, h.len));
	ret->len = h.len;
	return h;
}

/* It must be of this type. Its number. */
static uint64_t hear(int fd, enum link_type type, struct buf *ret)
{
	struct link_header h = hear_any(fd, ret);

	assert_int_equal(h.type, type);
	return h.number;
}

/* The next one of this type, whatever comes before. Its length. */
static size_t hear_until(struct rig *rig, enum link_type type)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	while (hear_any(rig->agent, &b).type != type)
		;
	return b.len;
}

static void hear_plain(struct rig *rig, enum link_type type, uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert_int_equal(hear(rig->agent, type, &b), number);
	assert_int_equal(b.len, 0);
}

static void hear_offer(struct rig *rig, uint64_t round, uint32_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *offered = NULL;
	uint32_t nr_offered;

	assert_int_equal(hear(rig->agent, LINK_OFFER, &b), round);
	assert_int_equal(link_decode_offer(b.data, b.len, &offered, &nr_offered), 0);
	assert_int_equal(nr_offered, nr);
	if (nr > 0)
		assert_memory_equal(offered, pages, nr * sizeof(*pages));
}

static void hear_stored(struct rig *rig, uint64_t round, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int stored;

	assert_int_equal(hear(rig->agent, LINK_STORED, &b), round);
	assert_int_equal(link_decode_stored(b.data, b.len, &stored), 0);
	assert_int_equal(stored, error);
}

static void hear_end(int fd)
{
	uint8_t byte;

	assert_false(hear_bytes(fd, &byte, 1));
}

static void say_nodes(struct rig *rig, uint32_t self)
{
	SAY(rig, nodes, link_nodes, ARRAY_SIZE(link_nodes), self);
}

static void greet(struct rig *rig)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct buf hello = BUF_EMPTY;
	struct link_welcome w;

	rig->agent = dial(rig);
	link_encode_hello(&hello);
	say(rig, &hello);
	hear(rig->agent, LINK_WELCOME, &b);
	assert_int_equal(link_decode_welcome(b.data, b.len, &w), 0);
	assert_memory_equal(&w, &welcome, sizeof(w));
}

static void come(struct rig *rig)
{
	greet(rig);
	say_nodes(rig, 1);
	await_there(rig, true);
}

static void go(struct rig *rig)
{
	closep(&rig->agent);
	rig->agent = -1;
	await_there(rig, false);
}

static void rig_with_agent(struct rig *rig, const struct service_limits *limits)
{
	rig_init(rig, limits);
	rig_start(rig);
	come(rig);
}

/* Of three pages: 1 is for node 0 and this one, 2 for node 2. */
static void say_decision(struct rig *rig, uint64_t round)
{
	static const struct link_owners owners[] = {
		{ .index = 1, .nr = 2, .owners = { 0, 1 } },
		{ .index = 2, .nr = 1, .owners = { 2 } },
	};

	SAY(rig, decision, round, owners, 2);
}

/* --- those who call --- */

struct call {
	struct rig *rig;
	pthread_t thread;
	int r;
	size_t nr;
	struct cluster_decision d;
	bool has_stored[3];
	struct cluster_want *wants;
};

static void start(struct call *c, void *(*run)(void *))
{
	assert_int_equal(pthread_create(&c->thread, NULL, run, c), 0);
}

static int finish(struct call *c)
{
	assert_int_equal(pthread_join(c->thread, NULL), 0);
	return c->r;
}

static void *run_decide(void *userdata)
{
	struct call *c = userdata;

	c->r = c->rig->calls->decide(c->rig->calls->userdata, pages, c->nr, &c->d);
	return NULL;
}

static void *run_settle(void *userdata)
{
	struct call *c = userdata;

	c->r = c->rig->calls->settle(c->rig->calls->userdata, &c->d, 0, c->has_stored);
	return NULL;
}

static void *run_fetch(void *userdata)
{
	struct call *c = userdata;

	c->r = c->rig->calls->fetch(c->rig->calls->userdata, c->wants, c->nr);
	return NULL;
}

/* A round up to its decision. */
static void decide(struct rig *rig, uint64_t round, struct call *ret)
{
	*ret = (struct call){ .rig = rig, .nr = 3 };
	start(ret, run_decide);
	hear_plain(rig, LINK_WANT, 0);
	SAY(rig, plain, LINK_BEGIN, round);
	hear_offer(rig, round, 3);
	say_decision(rig, round);
	assert_int_equal(finish(ret), 0);
}

static void settle(struct rig *rig, uint64_t round, struct call *c)
{
	static const uint8_t settled[] = { 1, 1, 0 };

	start(c, run_settle);
	hear_stored(rig, round, 0);
	SAY(rig, settled, round, settled, 3);
	assert_int_equal(finish(c), 0);
}

/* --- tests --- */

static void nobody_is_there_before_it_has_said_who_takes_part(void **state)
{
	struct call c;
	struct rig rig;

	(void)state;
	rig_init(&rig, &patient);
	c = (struct call){ .rig = &rig };
	assert_false(is_there(&rig));
	run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_start(&rig);
	run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	greet(&rig);
	assert_false(is_there(&rig));
	run_fetch(&c);
	assert_int_equal(c.r, -ENOTCONN);
	say_nodes(&rig, 1);
	await_there(&rig, true);
	go(&rig);
	come(&rig);
	service_stop(rig.s);
	assert_false(is_there(&rig));
	run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_release(&rig);
}

static void a_round_goes_from_want_to_settled(void **state)
{
	struct service_stats stats;
	struct rig rig;
	struct call c;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (uint64_t round = 1; round <= 3; round++) {
		decide(&rig, round * 10, &c);
		assert_int_equal(c.d.nr_nodes, 3);
		assert_int_equal(c.d.self, 1);
		assert_string_equal(c.d.nodes[2].name, "two");
		assert_memory_equal(c.d.nodes[0].id, link_nodes[0].store_id, CLUSTER_ID_LEN);
		assert_int_equal(c.d.nr, 2);
		assert_int_equal(c.d.owners[0].index, 1);
		assert_int_equal(c.d.owners[0].nr, 2);
		assert_int_equal(c.d.owners[0].owners[1], 1);
		assert_int_equal(c.d.owners[1].index, 2);
		assert_int_equal(c.d.owners[1].owners[0], 2);
		settle(&rig, round * 10, &c);
		assert_memory_equal(c.has_stored, ((bool[]){ true, true, false }), sizeof(c.has_stored));
		cluster_decision_release(&c.d);
	}
	service_stats(rig.s, &stats);
	assert_true(stats.is_connected);
	assert_int_equal(stats.nr_nodes, 3);
	assert_int_equal(stats.nr_rounds, 3);
	assert_int_equal(stats.nr_failed, 0);
	rig_release(&rig);
}

static void a_failure_to_store_is_told_and_not_waited_for(void **state)
{
	struct service_stats stats;
	struct rig rig;
	struct call c;

	(void)state;
	rig_with_agent(&rig, &patient);
	decide(&rig, 1, &c);
	assert_int_equal(rig.calls->settle(rig.calls->userdata, &c.d, -ENOSPC, NULL), 0);
	hear_stored(&rig, 1, -ENOSPC);
	service_stats(rig.s, &stats);
	assert_int_equal(stats.nr_rounds, 0);
	assert_int_equal(stats.nr_failed, 1);
	cluster_decision_release(&c.d);
	decide(&rig, 2, &c);
	settle(&rig, 2, &c);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void a_round_that_nothing_is_pending_for_is_answered_at_once(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (uint64_t round = 1; round <= 2; round++) {
		SAY(&rig, plain, LINK_BEGIN, round);
		hear_offer(&rig, round, 0);
		SAY(&rig, decision, round, NULL, 0);
		hear_stored(&rig, round, 0);
		SAY(&rig, settled, round, ((const uint8_t[]){ 1, 1, 1 }), 3);
	}
	assert_int_equal(rig.nr_commits, 0);
	rig_release(&rig);
}

static void a_round_has_what_is_pending_committed(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	rig.pending = rig.commit_decides = true;
	SAY(&rig, plain, LINK_BEGIN, 5);
	hear_offer(&rig, 5, 2);
	assert_int_equal(rig.nr_commits, 1);
	go(&rig);
	rig_release(&rig);
}

static void a_round_waits_for_a_program_that_still_writes(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	rig.pending = rig.commit_decides = rig.writes = true;
	SAY(&rig, plain, LINK_BEGIN, 5);
	while (rig.nr_looks < 3)
		usleep(1000);
	assert_int_equal(rig.nr_commits, 0);
	rig.writes = false;
	hear_offer(&rig, 5, 2);
	assert_int_equal(rig.nr_commits, 1);
	go(&rig);
	rig_release(&rig);
}

static void a_round_does_not_wait_for_ever_for_a_program(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, SHORT_NS, LONG_NS, 0 });
	rig.pending = rig.writes = true;
	SAY(&rig, plain, LINK_BEGIN, 5);
	hear_offer(&rig, 5, 0); /* a commit has come to no round, or time is up */
	SAY(&rig, decision, 5, NULL, 0);
	hear_stored(&rig, 5, 0);
	rig_release(&rig);
}

static void hear_told(struct rig *rig, const struct fp *fps, uint32_t nr_fps)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *back = NULL;
	uint32_t nr;

	assert_int_equal(hear(rig->agent, LINK_TELL, &b), 0);
	assert_int_equal(link_decode_tell(b.data, b.len, &back, &nr), 0);
	assert_int_equal(nr, nr_fps);
	assert_memory_equal(back, fps, nr_fps * sizeof(*fps));
}

static void pages_that_no_round_was_about_are_told(void **state)
{
	const struct fp in_any_order[] = { pages[2], pages[0], pages[1] };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ .tell_ns = 1 });
	rig.calls->stored(rig.calls->userdata, in_any_order, 2);
	hear_told(&rig, in_any_order, 2);
	SAY(&rig, plain, LINK_SHARED, 2);
	while (rig.nr_shared == 0)
		usleep(1000);
	go(&rig);
	rig.calls->stored(rig.calls->userdata, in_any_order, 2); /* nobody is there for it: the next one is told */
	rig.calls->stored(rig.calls->userdata, in_any_order + 2, 1);
	come(&rig);
	hear_told(&rig, in_any_order, 3);
	rig_release(&rig);
}

static void pages_that_were_to_be_told_later_are_told_before_a_round(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ .tell_ns = LONG_NS });
	rig.calls->stored(rig.calls->userdata, pages, 2);
	SAY(&rig, plain, LINK_BEGIN, 1);
	hear_told(&rig, pages, 2);
	assert_int_equal(hear(rig.agent, LINK_OFFER, &b), 1); /* nothing */
	assert_int_equal(b.len, 0);
	rig_release(&rig);
}

static void more_pages_than_a_message_holds_are_told_in_several(void **state)
{
	_cleanup_(freep) struct fp *many = calloc(LINK_TELL_MAX, sizeof(*many));
	struct rig rig;

	(void)state;
	assert_non_null(many);
	for (uint32_t i = 0; i < LINK_TELL_MAX; i++)
		many[i].lo = i;
	rig_with_agent(&rig, &(struct service_limits){ .tell_ns = LONG_NS });
	rig.calls->stored(rig.calls->userdata, pages, 1);
	rig.calls->stored(rig.calls->userdata, many, LINK_TELL_MAX);
	hear_told(&rig, pages, 1);
	SAY(&rig, plain, LINK_BEGIN, 1);
	hear_told(&rig, many, LINK_TELL_MAX);
	rig_release(&rig);
}

static void a_round_does_not_wait_for_ever_for_a_commit(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, SHORT_NS, LONG_NS, 0 });
	rig.pending = rig.commit_hangs = true;
	SAY(&rig, plain, LINK_BEGIN, 5);
	hear_offer(&rig, 5, 0);
	SAY(&rig, decision, 5, NULL, 0);
	hear_stored(&rig, 5, 0);
	rig.commit_hangs = false;
	rig_release(&rig);
}

static void a_commit_that_comes_to_no_round_does_not_hold_it_up(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	rig.pending = true; /* and somebody else takes it away */
	for (uint64_t round = 1; round <= 2; round++) {
		SAY(&rig, plain, LINK_BEGIN, round);
		hear_offer(&rig, round, 0);
		SAY(&rig, decision, round, NULL, 0);
		hear_stored(&rig, round, 0);
	}
	rig_release(&rig);
}

static void a_round_that_is_wanted_has_the_store_commit(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	rig.commit_decides = true;
	rig.calls->want(rig.calls->userdata);
	hear_plain(&rig, LINK_WANT, 0);
	SAY(&rig, plain, LINK_BEGIN, 1);
	hear_offer(&rig, 1, 2);
	assert_int_equal(rig.nr_commits, 1);
	go(&rig);
	rig.calls->want(rig.calls->userdata); /* nobody is there for it */
	come(&rig);
	assert_int_equal(rig.nr_commits, 1);
	rig_release(&rig);
}

static void nobody_waits_long_for_a_round_and_then_not_at_all(void **state)
{
	struct call c = { 0 };
	struct service_stats stats;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	c = (struct call){ .rig = &rig, .nr = 3 };
	run_decide(&c);
	assert_int_equal(c.r, -ETIMEDOUT);
	assert_false(is_there(&rig));
	service_stats(rig.s, &stats);
	assert_true(stats.is_silent);
	assert_int_equal(stats.nr_failed, 1);
	run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	hear_plain(&rig, LINK_WANT, 0);
	SAY(&rig, plain, LINK_BEGIN, 1); /* it speaks of rounds again */
	hear_offer(&rig, 1, 0);
	await_there(&rig, true);
	rig_release(&rig);
}

/* Begin a round that somebody asks for within a short time; on a slow machine it may take several. Its number. */
static uint64_t begin_in_time(struct rig *rig, struct call *c)
{
	for (uint64_t round = 1;; round++) {
		*c = (struct call){ .rig = rig, .nr = 3 };
		if (!is_there(rig)) { /* it was too slow the last time */
			SAY(rig, plain, LINK_BEGIN, round++);
			hear_until(rig, LINK_OFFER);
		}
		start(c, run_decide);
		hear_until(rig, LINK_WANT);
		SAY(rig, plain, LINK_BEGIN, round);
		if (hear_until(rig, LINK_OFFER) > 0)
			return round;
		finish(c); /* nobody was left to offer anything */
	}
}

static void a_late_decision_is_answered_by_an_error(void **state)
{
	uint64_t round;
	struct rig rig;
	struct call c;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	round = begin_in_time(&rig, &c);
	assert_int_equal(finish(&c), -ETIMEDOUT);
	assert_false(is_there(&rig));
	say_decision(&rig, round);
	hear_stored(&rig, round, -ECANCELED);
	rig_release(&rig);
}

static void nobody_waits_long_for_the_end_of_a_round(void **state)
{
	uint64_t round;
	struct rig rig;
	struct call c;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	do {
		round = begin_in_time(&rig, &c);
		say_decision(&rig, round);
	} while (finish(&c) != 0);
	run_settle(&c);
	assert_int_equal(c.r, -ETIMEDOUT);
	assert_false(is_there(&rig));
	hear_stored(&rig, round, 0);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void an_agent_that_goes_leaves_nobody_waiting(void **state)
{
	(void)state;
	for (int step = 0; step < 4; step++) {
		struct call c = { 0 };
		struct rig rig;

		rig_with_agent(&rig, &patient);
		c = (struct call){ .rig = &rig, .nr = 3 };
		if (step < 2)
			start(&c, run_decide);
		else
			decide(&rig, 1, &c);
		if (step < 2)
			hear_plain(&rig, LINK_WANT, 0);
		if (step == 1) {
			SAY(&rig, plain, LINK_BEGIN, 1);
			hear_offer(&rig, 1, 3);
		}
		if (step == 3) {
			start(&c, run_settle);
			hear_stored(&rig, 1, 0);
		}
		go(&rig);
		if (step == 2)
			run_settle(&c);
		else
			finish(&c);
		assert_int_equal(c.r, -ENOTCONN);
		cluster_decision_release(&c.d);
		come(&rig); /* and the next one finds everything as it should be */
		decide(&rig, 1, &c);
		settle(&rig, 1, &c);
		cluster_decision_release(&c.d);
		rig_release(&rig);
	}
}

static void a_new_agent_does_not_end_the_round_of_the_last(void **state)
{
	struct call old, new;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	decide(&rig, 1, &old);
	go(&rig);
	come(&rig);
	run_settle(&old);
	assert_int_equal(old.r, -ECANCELED);
	decide(&rig, 1, &new); /* by the same number */
	run_settle(&old);
	assert_int_equal(old.r, -ECANCELED);
	settle(&rig, 1, &new);
	cluster_decision_release(&old.d);
	cluster_decision_release(&new.d);
	rig_release(&rig);
}

static void what_is_late_is_thrown_away(void **state)
{
	static const uint8_t all[] = { 1, 1, 1 }, settled[] = { 0, 1, 0 };
	struct call c = { 0 };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	c = (struct call){ .rig = &rig, .nr = 3 };
	start(&c, run_decide);
	hear_plain(&rig, LINK_WANT, 0);
	say_decision(&rig, 0);
	SAY(&rig, plain, LINK_BEGIN, 2);
	hear_offer(&rig, 2, 3);
	say_decision(&rig, 1);
	SAY(&rig, settled, 2, all, 3);
	SAY(&rig, decision, 2, NULL, 0);
	assert_int_equal(finish(&c), 0);
	assert_int_equal(c.d.nr, 0);
	say_decision(&rig, 2);
	start(&c, run_settle);
	hear_stored(&rig, 2, 0);
	SAY(&rig, settled, 1, all, 3);
	SAY(&rig, settled, 2, settled, 3);
	assert_int_equal(finish(&c), 0);
	assert_memory_equal(c.has_stored, ((bool[]){ false, true, false }), sizeof(c.has_stored));
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void a_round_that_begins_ends_the_one_before(void **state)
{
	struct call c = { 0 };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	c = (struct call){ .rig = &rig, .nr = 3 };
	start(&c, run_decide);
	hear_plain(&rig, LINK_WANT, 0);
	SAY(&rig, plain, LINK_BEGIN, 1);
	hear_offer(&rig, 1, 3);
	SAY(&rig, plain, LINK_BEGIN, 2);
	assert_int_equal(finish(&c), -ECANCELED);
	hear_offer(&rig, 2, 0);
	decide(&rig, 3, &c);
	start(&c, run_settle);
	hear_stored(&rig, 3, 0);
	say_nodes(&rig, 1); /* and so does another world */
	assert_int_equal(finish(&c), -ECANCELED);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

/* One behind the other, in one piece, as an agent sends them where the next round is wanted already. */
static void an_answer_is_heard_though_the_next_round_begins(void **state)
{
	static const uint8_t settled[] = { 1, 1, 0 };

	(void)state;
	for (int i = 0; i < 50; i++) {
		struct buf b = BUF_EMPTY;
		struct rig rig;
		struct call c;

		rig_with_agent(&rig, &patient);
		decide(&rig, 1, &c);
		start(&c, run_settle);
		hear_stored(&rig, 1, 0);
		link_encode_settled(1, settled, 3, &b);
		link_encode_plain(LINK_BEGIN, 2, &b);
		say(&rig, &b);
		assert_int_equal(finish(&c), 0);
		assert_memory_equal(c.has_stored, ((bool[]){ true, true, false }), sizeof(c.has_stored));
		cluster_decision_release(&c.d);
		hear_offer(&rig, 2, 0);
		c = (struct call){ .rig = &rig, .nr = 3 };
		start(&c, run_decide);
		hear_plain(&rig, LINK_WANT, 0);
		SAY(&rig, plain, LINK_BEGIN, 3);
		hear_offer(&rig, 3, 3);
		link_encode_decision(3, NULL, 0, &b);
		link_encode_plain(LINK_BEGIN, 4, &b);
		say(&rig, &b);
		assert_int_equal(finish(&c), 0);
		hear_offer(&rig, 4, 0);
		run_settle(&c);
		assert_int_equal(c.r, -ECANCELED);
		cluster_decision_release(&c.d);
		rig_release(&rig);
	}
}

static void two_commits_take_a_round_each(void **state)
{
	struct call c[2];
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (int i = 0; i < 2; i++) {
		c[i] = (struct call){ .rig = &rig, .nr = 3 };
		start(&c[i], run_decide);
	}
	hear_plain(&rig, LINK_WANT, 0);
	SAY(&rig, plain, LINK_BEGIN, 1);
	for (int i = 0; i < 2; i++) { /* an offer, and WANT by the other, in some order */
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_header h = hear_any(rig.agent, &b);

		assert_true(h.type == LINK_OFFER || h.type == LINK_WANT);
	}
	say_decision(&rig, 1);
	SAY(&rig, plain, LINK_BEGIN, 2);
	hear_offer(&rig, 2, 3);
	say_decision(&rig, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(finish(&c[i]), 0);
		cluster_decision_release(&c[i].d);
	}
	rig_release(&rig);
}

/* --- chunks --- */

static struct cluster_want *wants_of(size_t nr, uint32_t len, uint64_t first)
{
	struct cluster_want *w = calloc(nr, sizeof(*w));

	assert_non_null(w);
	for (size_t i = 0; i < nr; i++) {
		w[i] = (struct cluster_want){ .fp = { .lo = first + i }, .len = len, .buf = malloc(len), .got = true };
		assert_non_null(w[i].buf);
		w[i].nr_owners = (uint32_t)(i % 3);
		for (uint32_t k = 0; k < w[i].nr_owners; k++)
			w[i].owners[k][0] = (uint8_t)(12 - (i + k) % 3);
	}
	return w;
}

static void wants_free(struct cluster_want *w, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free(w[i].buf);
	free(w);
}

struct fetch {
	uint64_t number;
	struct buf b;
	const uint8_t (*ids)[16];
	struct link_want *wants;
	uint32_t nr_ids, nr;
};

static void hear_fetch(struct rig *rig, struct fetch *ret)
{
	*ret = (struct fetch){ .b = BUF_EMPTY };
	ret->number = hear(rig->agent, LINK_FETCH, &ret->b);
	assert_int_equal(link_decode_fetch(ret->b.data, ret->b.len, &ret->ids, &ret->nr_ids, &ret->wants, &ret->nr), 0);
}

/* Chunk `lo` is of bytes `lo`; those that divide by 5 are nowhere. */
static void say_chunks(struct rig *rig, struct fetch *f)
{
	const void **chunks = calloc(f->nr, sizeof(*chunks));

	for (uint32_t i = 0; i < f->nr; i++)
		if (f->wants[i].fp.lo % 5 != 0) {
			void *p = malloc(f->wants[i].len);

			memset(p, (int)f->wants[i].fp.lo, f->wants[i].len);
			chunks[i] = p;
		}
	SAY(rig, chunks, f->number, f->wants, chunks, f->nr);
	for (uint32_t i = 0; i < f->nr; i++)
		free((void *)chunks[i]);
	free(chunks);
	free(f->wants);
	buf_release(&f->b);
}

static void check_wants(const struct cluster_want *w, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(w[i].got, w[i].fp.lo % 5 != 0);
		for (uint32_t at = 0; w[i].got && at < w[i].len; at += MAX(w[i].len / 16, 1u))
			assert_int_equal(((uint8_t *)w[i].buf)[at], (uint8_t)w[i].fp.lo);
	}
}

static void chunks_come_in_messages_that_are_not_too_large(void **state)
{
	static const struct {
		size_t nr;
		uint32_t len, in_first;
		unsigned nr_messages;
	} cases[] = {
		{ 1, 1, 1, 1 },
		{ 3, 4096, 3, 1 },
		{ 40, 1u << 20, 16, 3 },
		{ LINK_CHUNKS_MAX + 1, 16, LINK_CHUNKS_MAX, 2 },
	};
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct call c = { .rig = &rig, .nr = cases[i].nr, .wants = wants_of(cases[i].nr, cases[i].len, 1) };

		start(&c, run_fetch);
		for (unsigned m = 0; m < cases[i].nr_messages; m++) {
			struct fetch f;

			hear_fetch(&rig, &f);
			if (m == 0)
				assert_int_equal(f.nr, cases[i].in_first);
			for (uint32_t n = 0; m == 0 && n < f.nr; n++) {
				assert_int_equal(f.wants[n].nr_owners, c.wants[n].nr_owners);
				for (uint32_t k = 0; k < f.wants[n].nr_owners; k++)
					assert_memory_equal(f.ids[f.wants[n].owners[k]], c.wants[n].owners[k], 16);
			}
			say_chunks(&rig, &f);
		}
		assert_int_equal(finish(&c), 0);
		check_wants(c.wants, c.nr);
		wants_free(c.wants, c.nr);
	}
	rig_release(&rig);
}

static void answers_are_matched_by_their_numbers(void **state)
{
	struct service_stats stats;
	struct fetch f[4];
	struct call c[4];
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		c[i] = (struct call){ .rig = &rig, .nr = 6, .wants = wants_of(6, 100, 10 * i + 1) };
		start(&c[i], run_fetch);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++)
		hear_fetch(&rig, &f[i]);
	SAY(&rig, chunks, 1000, NULL, NULL, 0); /* nobody's */
	for (unsigned i = ARRAY_SIZE(f); i-- > 0;)
		say_chunks(&rig, &f[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		assert_int_equal(finish(&c[i]), 0);
		check_wants(c[i].wants, 6);
		wants_free(c[i].wants, 6);
	}
	service_stats(rig.s, &stats);
	assert_int_equal(stats.nr_fetched, 4 * 5);
	assert_int_equal(stats.fetched_bytes, 4 * 5 * 100);
	assert_int_equal(stats.nr_not_fetched, 4);
	rig_release(&rig);
}

static void chunks_that_do_not_come_are_not_waited_for(void **state)
{
	struct call c = { 0 };
	struct fetch f, late;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, LONG_NS, SHORT_NS, 0 });
	c = (struct call){ .rig = &rig, .nr = 3, .wants = wants_of(3, 10, 1) };
	run_fetch(&c);
	assert_int_equal(c.r, -ETIMEDOUT);
	for (int i = 0; i < 3; i++)
		assert_false(c.wants[i].got);
	hear_fetch(&rig, &late);
	say_chunks(&rig, &late);
	wants_free(c.wants, 3);
	c.wants = wants_of(40, 1u << 20, 1);
	c.nr = 40;
	start(&c, run_fetch);
	hear_fetch(&rig, &f);
	say_chunks(&rig, &f); /* unless that was late already, too */
	go(&rig);
	finish(&c);
	if (c.r == 0)
		check_wants(c.wants, 16);
	else
		assert_true(c.r == -ETIMEDOUT || c.r == -ENOTCONN);
	assert_false(c.wants[39].got);
	wants_free(c.wants, 40);
	rig_release(&rig);
}

static void an_agent_that_goes_leaves_no_reader_waiting(void **state)
{
	struct call c = { 0 };
	struct fetch f;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	c = (struct call){ .rig = &rig, .nr = 40, .wants = wants_of(40, 1u << 20, 1) };
	start(&c, run_fetch);
	hear_fetch(&rig, &f);
	go(&rig);
	assert_int_equal(finish(&c), -ENOTCONN);
	free(f.wants);
	buf_release(&f.b);
	wants_free(c.wants, 40);
	rig_release(&rig);
}

static void what_cannot_be_asked_for_is_not_there(void **state)
{
	struct call c = { 0 };
	struct fetch f;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	c = (struct call){ .rig = &rig, .nr = 3, .wants = wants_of(3, 10, 1) };
	c.wants[1].len = (1u << 20) + 1;
	start(&c, run_fetch);
	for (int i = 0; i < 2; i++) {
		hear_fetch(&rig, &f);
		assert_int_equal(f.nr, 1);
		say_chunks(&rig, &f);
	}
	assert_int_equal(finish(&c), 0);
	assert_true(c.wants[0].got && !c.wants[1].got && c.wants[2].got);
	c.nr = 0;
	run_fetch(&c);
	assert_int_equal(c.r, 0);
	wants_free(c.wants, 3);
	rig_release(&rig);
}

static void other_nodes_get_what_is_here(void **state)
{
	static const struct link_want wants[] = {
		{ .fp = { .lo = 1 }, .len = 1 },	{ .fp = { .lo = 201 }, .len = 4096 },
		{ .fp = { .lo = 7 }, .len = 4096 },	{ .fp = { .lo = 255 }, .len = 4096 },
		{ .fp = { .lo = 9 }, .len = 1u << 20 },
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const void *chunks[ARRAY_SIZE(wants)];
	struct service_stats stats;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (uint64_t n = 1; n <= 3; n++)
		SAY(&rig, get, n, wants, ARRAY_SIZE(wants));
	for (uint64_t n = 1; n <= 3; n++) {
		assert_int_equal(hear(rig.agent, LINK_CHUNKS, &b), n);
		assert_int_equal(link_decode_chunks(b.data, b.len, wants, ARRAY_SIZE(wants), chunks), 0);
		assert_null(chunks[1]);
		assert_null(chunks[3]);
		assert_int_equal(*(const uint8_t *)chunks[0], 1);
		assert_int_equal(((const uint8_t *)chunks[2])[4095], 7);
		assert_int_equal(((const uint8_t *)chunks[4])[(1u << 20) - 1], 9);
	}
	service_stats(rig.s, &stats);
	assert_int_equal(stats.nr_served, 9);
	assert_int_equal(stats.served_bytes, 3 * (1 + 4096 + (1u << 20)));
	rig_release(&rig);
}

/* --- memory that the agent shares --- */

/* It comes with some, and gets the daemon's. */
static struct arenas come_with_memory(struct rig *rig)
{
	struct arenas m = { 0 };
	struct buf b = BUF_EMPTY;
	uint8_t head[sizeof(struct link_header_wire) + sizeof(struct link_welcome_wire)];
	int passed = -1;
	ssize_t n;

	rig->agent = dial(rig);
	assert_int_equal(arena_new(ARENA_LEN, &m.own), 0);
	link_encode_hello(&b);
	assert_int_equal(link_send(rig->agent, b.data, b.len, arena_fd(m.own)), b.len);
	buf_release(&b);
	while ((n = link_recv(rig->agent, head, sizeof(head), &passed)) < 0)
		sched_yield();
	assert_int_equal(n, sizeof(head));
	assert_true(passed >= 0);
	assert_int_equal(arena_open(passed, &m.theirs), 0);
	say_nodes(rig, 1);
	await_there(rig, true);
	return m;
}

static void memory_release(struct arenas *m)
{
	arena_put(m->own);
	arena_put(m->theirs);
}

/* Many times as much as there is memory: what is taken is used again. */
static void other_nodes_get_what_lies_in_memory(void **state)
{
	static const struct link_want wants[] = { { .fp = { .lo = 1 }, .len = 1 },
						  { .fp = { .lo = 201 }, .len = 4096 },
						  { .fp = { .lo = 9 }, .len = 1u << 20 } };
	const void *chunks[ARRAY_SIZE(wants)];
	struct arenas m;
	struct rig rig;

	(void)state;
	rig_init(&rig, &patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	for (uint64_t n = 1; n <= 200; n++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		uint32_t len;
		uint64_t off;

		SAY(&rig, get, n, wants, ARRAY_SIZE(wants));
		assert_int_equal(hear(rig.agent, LINK_THERE, &b), n);
		assert_int_equal(link_decode_there(b.data, b.len, arena_len(m.theirs), &off, &len), 0);
		assert_int_equal(link_decode_chunks(arena_data(m.theirs) + off, len, wants, ARRAY_SIZE(wants), chunks),
				 0);
		assert_int_equal(*(const uint8_t *)chunks[0], 1);
		assert_null(chunks[1]);
		assert_int_equal(((const uint8_t *)chunks[2])[(1u << 20) - 1], 9);
		SAY(&rig, plain, LINK_TAKEN, n);
	}
	SAY(&rig, plain, LINK_TAKEN, 1); /* once more */
	hear_end(rig.agent);
	memory_release(&m);
	rig_release(&rig);
}

/* What is not taken leaves no room, and the rest goes through the socket; and so does what is short. */
static void without_room_chunks_go_through_the_socket(void **state)
{
	static const struct link_want wants[] = { { .fp = { .lo = 9 }, .len = 1u << 20 } },
				      few[] = { { .fp = { .lo = 7 }, .len = 100 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	unsigned nr_there = 0;
	struct arenas m;
	struct rig rig;

	(void)state;
	rig_init(&rig, &patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	SAY(&rig, get, 1, few, 1);
	hear(rig.agent, LINK_CHUNKS, &b);
	for (uint64_t n = 1; n <= 40; n++) {
		SAY(&rig, get, n, wants, 1);
		nr_there += hear_any(rig.agent, &b).type == LINK_THERE;
	}
	assert_in_range(nr_there, 20, 32); /* MiB, and a little for each */
	go(&rig);
	memory_release(&m);
	come(&rig); /* without any */
	SAY(&rig, get, 1, wants, 1);
	hear(rig.agent, LINK_CHUNKS, &b);
	rig_release(&rig);
}

/* Chunk `lo` is of bytes `lo`; those that divide by 5 are nowhere. */
static void say_places(struct rig *rig, struct arena *own, struct fetch *f)
{
	uint8_t *slot = arena_take(own, f->nr * f->wants[0].len + 1), *at = slot + 1;
	const void **chunks = calloc(f->nr, sizeof(*chunks));

	assert_non_null(slot);
	for (uint32_t i = 0; i < f->nr; i++, at += f->wants[0].len)
		if (f->wants[i].fp.lo % 5 != 0) {
			memset(at, (int)f->wants[i].fp.lo, f->wants[i].len);
			chunks[i] = at;
		}
	SAY(rig, places, f->number, arena_data(own), chunks, f->nr);
	free(chunks);
	free(f->wants);
	buf_release(&f->b);
}

/* Whoever waits for them, or nobody any more. */
static void chunks_are_taken_from_memory(void **state)
{
	struct arenas m;
	struct fetch f;
	struct call c;
	struct rig rig;

	(void)state;
	rig_init(&rig, &(struct service_limits){ LONG_NS, LONG_NS, LONG_NS, 0 });
	rig_start(&rig);
	m = come_with_memory(&rig);
	c = (struct call){ .rig = &rig, .nr = 6, .wants = wants_of(6, 4096, 1) };
	start(&c, run_fetch);
	hear_fetch(&rig, &f);
	say_places(&rig, m.own, &f);
	assert_int_equal(finish(&c), 0);
	check_wants(c.wants, 6);
	wants_free(c.wants, 6);
	hear_plain(&rig, LINK_TAKEN, f.number);
	SAY(&rig, places, f.number + 100, NULL, NULL, 0);
	hear_plain(&rig, LINK_TAKEN, f.number + 100);
	memory_release(&m);
	rig_release(&rig);
}

static void places_that_cannot_be_right_end_the_connection(void **state)
{
	struct arenas m;
	struct fetch f;
	struct call c;
	struct rig rig;

	(void)state;
	rig_init(&rig, &patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	c = (struct call){ .rig = &rig, .nr = 1, .wants = wants_of(1, 4096, 1) };
	start(&c, run_fetch);
	hear_fetch(&rig, &f);
	SAY(&rig, places, f.number, arena_data(m.own), ((const void *[]){ arena_data(m.own) + ARENA_LEN - 4095 }), 1);
	assert_int_equal(finish(&c), -ENOTCONN);
	wants_free(c.wants, 1);
	free(f.wants);
	buf_release(&f.b);
	memory_release(&m);
	go(&rig);
	rig_release(&rig);
}

/* Its memory could become shorter, and this process would die of it. */
static void an_agent_with_memory_that_is_not_safe_is_hung_up_on(void **state)
{
	struct buf b = BUF_EMPTY;
	struct rig rig;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	rig_init(&rig, &patient);
	rig_start(&rig);
	rig.agent = dial(&rig);
	link_encode_hello(&b);
	assert_int_equal(link_send(rig.agent, b.data, b.len, fd), b.len);
	buf_release(&b);
	hear_end(rig.agent);
	close(fd);
	rig_release(&rig);
}

static void chunks_are_lent(void **state)
{
	static const struct fp fps[] = { { .lo = 1 }, { .lo = 7 }, { .lo = 201 }, { .lo = 255 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const uint8_t *lent;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	SAY(&rig, lend, 1, fps, 3);
	SAY(&rig, lend, 2, fps, 4);
	SAY(&rig, lend, 3, fps, 0);
	assert_int_equal(hear(rig.agent, LINK_LENT, &b), 1);
	assert_int_equal(link_decode_lent(b.data, b.len, 3, &lent), 0);
	assert_memory_equal(lent, "\1\1\0", 3);
	assert_int_equal(hear(rig.agent, LINK_LENT, &b), 2);
	assert_int_equal(link_decode_lent(b.data, b.len, 4, &lent), 0);
	assert_memory_equal(lent, "\0\0\0\0", 4);
	assert_int_equal(hear(rig.agent, LINK_LENT, &b), 3);
	assert_int_equal(b.len, 0);
	rig_release(&rig);
}

/* More than it remembers, and nobody who takes the answers meanwhile. */
static void who_wants_too_much_is_told_that_it_is_not_here(void **state)
{
	enum { NR = 40 };
	struct link_want *wants = calloc(LINK_CHUNKS_MAX, sizeof(*wants));
	const void **chunks = calloc(LINK_CHUNKS_MAX, sizeof(*chunks));
	bool is_answered[NR + 1] = { false };
	struct buf b = BUF_EMPTY;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (uint32_t i = 0; i < LINK_CHUNKS_MAX; i++)
		wants[i] = (struct link_want){ .fp = { .lo = 1 + i % 200 }, .len = 4096 };
	for (uint64_t n = 1; n <= NR; n++)
		SAY(&rig, get, n, wants, LINK_CHUNKS_MAX);
	for (uint64_t n = 1; n <= NR; n++) {
		uint64_t number = hear(rig.agent, LINK_CHUNKS, &b);

		assert_true(number >= 1 && number <= NR && !is_answered[number]);
		is_answered[number] = true;
		assert_int_equal(link_decode_chunks(b.data, b.len, wants, LINK_CHUNKS_MAX, chunks), 0);
		for (uint32_t i = 1; i < LINK_CHUNKS_MAX; i++)
			assert_int_equal(chunks[i] != NULL, chunks[0] != NULL);
	}
	buf_release(&b);
	free(chunks);
	free(wants);
	rig_release(&rig);
}

/* --- who comes --- */

static void a_second_agent_is_told_that_there_is_one(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig rig;
	struct call c;
	int second;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (int i = 0; i < 3; i++) {
		second = dial(&rig);
		assert_int_equal(hear(second, LINK_REFUSED, &b), EBUSY);
		assert_int_equal(send(second, "HELLO", 5, MSG_NOSIGNAL), 5); /* it need not listen first */
		hear_end(second);
		close(second);
	}
	decide(&rig, 1, &c); /* the first does not mind */
	settle(&rig, 1, &c);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void another_users_agent_is_refused(void **state)
{
	struct rig rig;
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	rig_init(&rig, &patient);
	rig_start(&rig);
	assert_int_equal(chmod(rig.dir, 0755), 0);
	assert_int_equal(chmod(rig.path, 0666), 0); /* which nobody does */
	pid = fork();
	if (pid == 0) {
		uint8_t head[sizeof(struct link_header_wire)];
		struct link_header h;
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		strcpy(a.sun_path, rig.path);
		if (setgid(65534) < 0 || setuid(65534) < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		    !hear_bytes(fd, head, sizeof(head)) || link_decode_header(head, sizeof(head), &h) < 0)
			_exit(1);
		_exit(h.type == LINK_REFUSED && h.number == EACCES ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	rig_release(&rig);
}

static void who_does_not_keep_to_it_is_hung_up_on(void **state)
{
	static const struct {
		enum { STRANGER, GREETED, KNOWN } when;
		const char *name;
		uint8_t bytes[40];
		size_t len;
	} cases[] = {
		{ STRANGER, "BEGIN before HELLO", { 0, 0, 0, 0, LINK_BEGIN }, 16 },
		{ STRANGER, "another version", { 4, 0, 0, 0, LINK_HELLO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99 }, 20 },
		{ STRANGER, "garbage", "GET / HTTP/1.1\r\n\r\n", 18 },
		{ GREETED, "BEGIN before NODES", { 0, 0, 0, 0, LINK_BEGIN, 0, 0, 0, 1 }, 16 },
		{ GREETED, "HELLO again", { 4, 0, 0, 0, LINK_HELLO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }, 20 },
		{ GREETED, "no nodes", { 8, 0, 0, 0, LINK_NODES }, 24 },
		{ KNOWN, "a daemon's message", { 0, 0, 0, 0, LINK_WANT }, 16 },
		{ KNOWN, "too much", { 255, 255, 255, 255, LINK_DECISION }, 16 },
		{ KNOWN, "a type that is none", { 0, 0, 0, 0, 99 }, 16 },
		{ KNOWN, "half a GET", { 4, 0, 0, 0, LINK_GET }, 20 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf b = BUF_EMPTY;
		struct rig rig;

		rig_init(&rig, &patient);
		rig_start(&rig);
		if (cases[i].when == STRANGER)
			rig.agent = dial(&rig);
		else if (cases[i].when == GREETED)
			greet(&rig);
		else
			come(&rig);
		buf_add(&b, cases[i].bytes, cases[i].len);
		say(&rig, &b);
		hear_end(rig.agent);
		go(&rig);
		come(&rig); /* the next is welcome */
		rig_release(&rig);
	}
}

static void answers_that_cannot_be_right_end_the_connection(void **state)
{
	static const struct link_owners beyond[] = { { .index = 7, .nr = 1, .owners = { 0 } } };
	static const uint8_t five[5];
	struct call c = { 0 };
	struct fetch f;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	c = (struct call){ .rig = &rig, .nr = 3 };
	start(&c, run_decide);
	hear_plain(&rig, LINK_WANT, 0);
	SAY(&rig, plain, LINK_BEGIN, 1);
	hear_offer(&rig, 1, 3);
	SAY(&rig, decision, 1, beyond, 1);
	assert_int_equal(finish(&c), -ENOTCONN);
	go(&rig);
	come(&rig);
	decide(&rig, 1, &c);
	start(&c, run_settle);
	hear_stored(&rig, 1, 0);
	SAY(&rig, settled, 1, five, 5);
	assert_int_equal(finish(&c), -ENOTCONN);
	cluster_decision_release(&c.d);
	go(&rig);
	come(&rig);
	c = (struct call){ .rig = &rig, .nr = 3, .wants = wants_of(3, 10, 1) };
	start(&c, run_fetch);
	hear_fetch(&rig, &f);
	SAY(&rig, chunks, f.number, f.wants, ((const void *[]){ NULL, NULL }), 2);
	assert_int_equal(finish(&c), -ENOTCONN);
	wants_free(c.wants, 3);
	free(f.wants);
	buf_release(&f.b);
	go(&rig);
	rig_release(&rig);
}

static void an_agent_of_another_store_is_hung_up_on(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, &patient);
	rig_start(&rig);
	greet(&rig);
	say_nodes(&rig, 2);
	hear_end(rig.agent);
	rig_release(&rig);
}

static void who_says_nothing_makes_room_for_others(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	rig_start(&rig);
	rig.agent = dial(&rig);
	hear_end(rig.agent);
	close(rig.agent);
	come(&rig);
	rig_release(&rig);
}

static void stopping_leaves_nobody_waiting(void **state)
{
	struct call c[3];
	struct rig rig;
	struct fetch f;

	(void)state;
	rig_with_agent(&rig, &patient);
	decide(&rig, 1, &c[0]);
	start(&c[0], run_settle);
	hear_stored(&rig, 1, 0);
	c[1] = (struct call){ .rig = &rig, .nr = 3 };
	start(&c[1], run_decide);
	hear_plain(&rig, LINK_WANT, 0);
	c[2] = (struct call){ .rig = &rig, .nr = 1, .wants = wants_of(1, 10, 1) };
	start(&c[2], run_fetch);
	hear_fetch(&rig, &f);
	service_stop(rig.s);
	for (int i = 0; i < 3; i++)
		assert_int_equal(finish(&c[i]), -ENOTCONN);
	cluster_decision_release(&c[0].d);
	wants_free(c[2].wants, 1);
	free(f.wants);
	buf_release(&f.b);
	rig_release(&rig);
}

/* --- the socket --- */

static void the_socket_is_private_and_goes_with_the_service(void **state)
{
	struct stat st;
	struct rig rig;

	(void)state;
	rig_init(&rig, NULL);
	rig_start(&rig);
	assert_int_equal(lstat(rig.path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0600);
	service_stop(rig.s);
	assert_int_equal(lstat(rig.path, &st), -1);
	rig_release(&rig);
}

static void a_socket_is_taken_over_from_the_dead_alone(void **state)
{
	struct listener first = LISTENER_NONE, second = LISTENER_NONE;
	char dir[] = "/tmp/ckptfs-listen.XXXXXX", path[64], link[80];
	struct stat st;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(link, sizeof(link), "%s/kept", dir);
	assert_int_equal(listener_open(&first, path), 0);
	assert_int_equal(listener_open(&second, path), -EADDRINUSE);
	close(first.fd); /* dead: its name is still there */
	first.fd = -1;
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(listener_open(&second, path), 0);
	listener_close(&first); /* and does not take the other's name along */
	assert_int_equal(lstat(path, &st), 0);
	listener_close(&second);
	assert_int_equal(lstat(path, &st), -1);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(listener_open(&first, path), -EEXIST);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/none/s", dir);
	assert_int_equal(listener_open(&first, path), -ENOENT);
	snprintf(path, sizeof(path), "%s/", dir);
	assert_int_equal(listener_open(&first, path), -EISDIR);
	assert_int_equal(rmdir(dir), 0);
}

static void a_path_may_be_long(void **state)
{
	char dir[] = "/tmp/ckptfs-listen.XXXXXX", deep[200], path[220];
	struct listener l = LISTENER_NONE;
	struct stat st;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(deep, sizeof(deep), "%s/%0150d", dir, 0);
	assert_int_equal(mkdir(deep, 0700), 0);
	snprintf(path, sizeof(path), "%s/agent.sock", deep);
	assert_int_equal(listener_open(&l, path), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	fd = listener_connect(path);
	assert_true(fd >= 0);
	close(fd);
	listener_close(&l);
	assert_int_equal(rmdir(deep), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* --- collecting together --- */

static struct link_done hear_done(struct rig *rig, uint64_t number, struct buf *b)
{
	struct link_done d;

	assert_int_equal(hear(rig->agent, LINK_DONE, b), number);
	assert_int_equal(link_decode_done(b->data, b->len, &d), 0);
	return d;
}

static void await_over(struct rig *rig, unsigned nr)
{
	while (rig->nr_over < nr)
		sched_yield();
}

static void all_steps(struct rig *rig, uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	static uint8_t filter[LINK_FILTER_MIN] = { 0, 9 };
	struct link_step step = { .kind = LINK_PREPARE };
	struct link_done d;

	SAY(rig, step, number, &step);
	d = hear_done(rig, number, &b);
	assert_int_equal(d.kind, LINK_PREPARE);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.nr_referred, ARRAY_SIZE(link_nodes));
	assert_string_equal(d.missing, "two");
	step = (struct link_step){ .kind = LINK_MARK, .window = 3, .nr_windows = 5, .len = LINK_FILTER_MIN, .seed = 1 };
	SAY(rig, step, number, &step);
	d = hear_done(rig, number, &b);
	assert_int_equal(d.kind, LINK_MARK);
	assert_int_equal(d.window, 3);
	assert_int_equal(d.len, LINK_FILTER_MIN);
	assert_int_equal(d.filter[3], 8);
	step.kind = LINK_UNLEND;
	step.filter = filter;
	SAY(rig, step, number, &step);
	d = hear_done(rig, number, &b);
	assert_int_equal(d.kind, LINK_UNLEND);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.nr_dropped, 2);
}

static void a_collection_of_all_nodes_has_this_one_take_part(void **state)
{
	_cleanup_(rig_release) struct rig rig;

	(void)state;
	rig_init(&rig, &patient);
	rig_start(&rig);
	come(&rig);
	all_steps(&rig, 4);
	assert_false(rig.was_ours);
	SAY(&rig, done, LINK_COLLECTED, 4, &(struct link_done){ .nr_dropped = 2 });
	await_over(&rig, 1);
	assert_int_equal(rig.nr_freed, 1);
	/* Without an end nothing is freed. */
	all_steps(&rig, 5);
	closep(&rig.agent);
	await_over(&rig, 2);
	assert_int_equal(rig.nr_freed, 1);
}

static bool always(void *userdata)
{
	(void)userdata;
	return true;
}

static bool never(void *userdata)
{
	(void)userdata;
	return false;
}

static void *collect_with_all(void *rig)
{
	struct link_done d;
	int r = service_collect(((struct rig *)rig)->s, always, NULL, &d);

	return (void *)(intptr_t)(r < 0 ? r : (int)d.nr_dropped);
}

static void who_asks_for_a_collection_hears_of_its_end(void **state)
{
	_cleanup_(rig_release) struct rig rig;
	struct link_done d;
	pthread_t thread;
	void *result;

	(void)state;
	rig_init(&rig, &patient);
	assert_int_equal(service_collect(rig.s, always, NULL, &d), -ENOTCONN);
	rig_start(&rig);
	come(&rig);
	assert_int_equal(service_collect(rig.s, never, NULL, &d), -ECANCELED);
	hear_plain(&rig, LINK_WANT_COLLECT, 0);
	assert_int_equal(pthread_create(&thread, NULL, collect_with_all, &rig), 0);
	hear_plain(&rig, LINK_WANT_COLLECT, 0);
	all_steps(&rig, 4);
	assert_true(rig.was_ours);
	SAY(&rig, done, LINK_COLLECTED, 4, &(struct link_done){ .nr_dropped = 7 });
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 7);
	await_over(&rig, 1);
	assert_int_equal(rig.nr_freed, 0); /* who has asked for it does that */
	assert_int_equal(pthread_create(&thread, NULL, collect_with_all, &rig), 0);
	hear_plain(&rig, LINK_WANT_COLLECT, 0);
	closep(&rig.agent);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -ENOTCONN);
}

/* --- questions --- */

static void hear_answer(struct rig *rig, uint64_t number, int error, const char *text)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const void *p;
	size_t len;
	int said;

	assert_int_equal(hear(rig->agent, LINK_ANSWER, &b), number);
	assert_int_equal(link_decode_answer(b.data, b.len, &said, &p, &len), 0);
	assert_int_equal(said, error);
	assert_int_equal(len, strlen(text));
	if (len > 0)
		assert_memory_equal(p, text, len);
}

static void other_daemons_are_answered(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	SAY(&rig, body, LINK_QUESTION, 5, "who", 3);
	SAY(&rig, body, LINK_QUESTION, 6, "no", 2);
	hear_answer(&rig, 5, 0, "whowho");
	hear_answer(&rig, 6, -ENODATA, "");
	rig_release(&rig);
}

static void who_asks_too_much_is_told_so(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	rig.holds_answers = true;
	for (uint64_t i = 0; i < 66; i++) /* one is being answered, or about to be, and 64 wait */
		SAY(&rig, body, LINK_QUESTION, i, "x", 1);
	{
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		const void *p;
		size_t len;
		int error;

		assert_in_range(hear(rig.agent, LINK_ANSWER, &b), 64, 65);
		assert_int_equal(link_decode_answer(b.data, b.len, &error, &p, &len), 0);
		assert_int_equal(error, -EBUSY);
	}
	rig.holds_answers = false;
	rig_release(&rig);
}

struct asking {
	struct rig *rig;
	uint8_t id[16];
	struct buf answer;
};

static void *ask(void *userdata)
{
	struct asking *a = userdata;

	return (void *)(intptr_t)service_ask(a->rig->s, a->id, "what", 4, &a->answer);
}

static intptr_t finish_asking(pthread_t thread)
{
	void *result;

	pthread_join(thread, &result);
	return (intptr_t)result;
}

static uint64_t hear_query(struct rig *rig, uint8_t id)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint64_t number = hear(rig->agent, LINK_QUERY, &b);
	const uint8_t *who;
	const void *p;
	size_t len;

	assert_int_equal(link_decode_query(b.data, b.len, &who, &p, &len), 0);
	assert_int_equal(who[0], id);
	assert_int_equal(len, 4);
	assert_memory_equal(p, "what", 4);
	return number;
}

static void another_daemon_is_asked(void **state)
{
	struct asking a = { .id = { 12 } }, b = { .id = { 10 } };
	struct rig rig;
	pthread_t one, two;
	uint64_t number;

	(void)state;
	rig_with_agent(&rig, &patient);
	a.rig = b.rig = &rig;
	assert_int_equal(pthread_create(&one, NULL, ask, &a), 0);
	number = hear_query(&rig, 12);
	assert_int_equal(pthread_create(&two, NULL, ask, &b), 0);
	SAY(&rig, answer, hear_query(&rig, 10), -ENODATA, NULL, 0);
	SAY(&rig, chunks, number, NULL, NULL, 0); /* is no answer to it, ... */
	SAY(&rig, answer, number + 7, 0, "none", 4); /* nor is this */
	SAY(&rig, answer, number, 0, "that", 4);
	assert_int_equal(finish_asking(two), -ENODATA);
	assert_int_equal(finish_asking(one), 0);
	assert_int_equal(a.answer.len, 4);
	assert_memory_equal(a.answer.data, "that", 4);
	buf_release(&a.answer);
	assert_int_equal(pthread_create(&one, NULL, ask, &a), 0);
	hear_query(&rig, 12);
	go(&rig);
	assert_int_equal(finish_asking(one), -ENOTCONN);
	assert_int_equal((intptr_t)ask(&a), -ENOTCONN); /* nobody is there */
	come(&rig);
	assert_int_equal(pthread_create(&one, NULL, ask, &a), 0);
	number = hear_query(&rig, 12);
	SAY(&rig, settled, 1, (const uint8_t *)"", 0); /* of no round: thrown away */
	{
		struct buf bad = BUF_EMPTY;

		link_encode_answer(number, 0, "that", 4, &bad);
		bad.data[sizeof(struct link_header_wire)] = 5; /* an error, with bytes */
		say(&rig, &bad);
	}
	assert_int_equal(finish_asking(one), -ENOTCONN);
	go(&rig);
	rig_release(&rig);
}

static void an_answer_that_does_not_come_is_not_waited_for(void **state)
{
	struct asking a = { .id = { 12 } };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, LONG_NS, SHORT_NS, 0 });
	a.rig = &rig;
	assert_int_equal((intptr_t)ask(&a), -ETIMEDOUT);
	SAY(&rig, answer, hear_query(&rig, 12), 0, "late", 4);
	rig_release(&rig);
}

static void who_takes_part_is_told(void **state)
{
	struct cluster_node *nodes;
	uint32_t nr, self;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	assert_int_equal(service_nodes(rig.s, &nodes, &nr, &self), 0);
	assert_int_equal(nr, 3);
	assert_int_equal(self, 1);
	assert_string_equal(nodes[2].name, "two");
	free(nodes);
	go(&rig);
	assert_int_equal(service_nodes(rig.s, &nodes, &nr, &self), 0);
	assert_int_equal(nr, 0);
	free(nodes);
	rig_release(&rig);
}

/* --- what nodes keep for each other --- */

static void others_have_their_chunks_kept(void **state)
{
	static const struct link_want wants[] = { { .fp = { .lo = 1 }, .len = 4 },
						  { .fp = { .lo = 201 }, .len = 4 },
						  { .fp = { .lo = 251 }, .len = 4 },
						  { .fp = { .lo = 252 }, .len = 4 } };
	const void *const some[] = { NULL, NULL, NULL, "abcd" }, *const bad[] = { "xxxx", NULL, NULL, NULL };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct service_stats st;
	const uint8_t *kept;
	struct rig rig;
	int error;

	(void)state;
	rig_with_agent(&rig, &patient);
	SAY(&rig, put, 1, link_nodes[2].store_id, wants, some, 4);
	SAY(&rig, put, 2, link_nodes[2].store_id, wants, bad, 4);
	assert_int_equal(hear(rig.agent, LINK_KEPT, &b), 1);
	assert_int_equal(rig.nr_met, 1);
	assert_int_equal(link_decode_kept(b.data, b.len, 4, &error, &kept), 0);
	assert_int_equal(error, 0);
	assert_memory_equal(kept, "\1\2\0\1", 4);
	assert_int_equal(hear(rig.agent, LINK_KEPT, &b), 2);
	assert_int_equal(link_decode_kept(b.data, b.len, 4, &error, &kept), 0);
	assert_int_equal(error, -ENOSPC);
	service_stats(rig.s, &st);
	assert_int_equal(st.nr_kept, 1);
	assert_int_equal(st.kept_bytes, 4);
	rig_release(&rig);
}

static void say_copy(struct rig *rig, uint64_t number, const char *path)
{
	struct link_want chunk = { .fp = { .lo = 1 }, .len = 4 };
	struct link_copy c = { .name = "two", .ino = 5, .chunks = &chunk, .nr_chunks = 1 };

	strcpy(c.path, path);
	SAY(rig, copy, number, &c);
}

static void hear_error(struct rig *rig, enum link_type type, uint64_t number, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int got;

	assert_int_equal(hear(rig->agent, type, &b), number);
	assert_int_equal(link_decode_error(b.data, b.len, &got), 0);
	assert_int_equal(got, error);
}

static void others_have_their_directories_copied(void **state)
{
	struct link_drop d = { .name = "two", .ino = 5 };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	say_copy(&rig, 1, "job/1");
	say_copy(&rig, 2, "stale");
	SAY(&rig, drop, 3, &d);
	d.ino = 13;
	SAY(&rig, drop, 4, &d);
	hear_error(&rig, LINK_COPIED, 1, 0);
	hear_error(&rig, LINK_COPIED, 2, -ESTALE);
	hear_error(&rig, LINK_DROPPED, 3, 0);
	hear_error(&rig, LINK_DROPPED, 4, -EROFS);
	rig_release(&rig);
}

static void what_cannot_be_kept_ends_the_connection(void **state)
{
	static const enum link_type types[] = { LINK_PUT, LINK_COPY, LINK_DROP };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct rig rig;

		rig_with_agent(&rig, &patient);
		SAY(&rig, body, types[i], 1, "too short", 9);
		hear_end(rig.agent);
		assert_int_equal(rig.nr_keeps, 0);
		rig_release(&rig);
	}
}

static struct service_call *call_other(struct rig *rig, int expected)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const struct link_drop d = { .name = "two", .ino = 5 };
	struct service_call *c;

	assert_int_equal(service_call_new(rig->s, LINK_DROPPED, &c), 0);
	link_encode_drop(service_call_number(c), &d, &b);
	assert_int_equal(service_call_send(c, &b), expected);
	return c;
}

static void calls_to_other_nodes_are_answered_in_any_order(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, answer = BUF_EMPTY;
	struct service_call *calls[3];
	uint64_t numbers[3];
	struct rig rig;
	int error;

	(void)state;
	rig_with_agent(&rig, &patient);
	for (unsigned i = 0; i < 3; i++)
		calls[i] = call_other(&rig, 0);
	for (unsigned i = 0; i < 3; i++)
		numbers[i] = hear(rig.agent, LINK_DROP, &b);
	for (unsigned i = 3; i-- > 1;)
		SAY(&rig, error, LINK_DROPPED, numbers[i], -(int)i);
	SAY(&rig, error, LINK_DROPPED, numbers[2], -77); /* once more */
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(service_call_wait(calls[i], always, NULL, &answer), 0);
		assert_int_equal(link_decode_error(answer.data, answer.len, &error), 0);
		assert_int_equal(error, -(int)i);
		buf_release(&answer);
		service_call_free(calls[i]);
	}
	assert_int_equal(service_call_wait(calls[0], never, NULL, &answer), -ECANCELED);
	service_call_free(calls[0]);
	SAY(&rig, error, LINK_DROPPED, numbers[0], 0); /* nobody waits for it any more */
	rig_release(&rig);
}

static void an_agent_that_goes_leaves_no_caller_waiting(void **state)
{
	_cleanup_(buf_release) struct buf answer = BUF_EMPTY;
	struct service_world w;
	struct service_call *c;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &patient);
	assert_int_equal(service_world(rig.s, &w), 0);
	assert_int_equal(w.nr, 3);
	assert_int_equal(w.self, 1);
	assert_int_equal(w.hosts[2], 2);
	assert_string_equal(w.nodes[2].name, "two");
	service_world_release(&w);
	c = call_other(&rig, 0);
	closep(&rig.agent);
	assert_int_equal(service_call_wait(c, always, NULL, &answer), -ENOTCONN);
	service_call_free(c);
	await_there(&rig, false);
	service_call_free(call_other(&rig, -ENOTCONN));
	assert_int_equal(service_world(rig.s, &w), -ENOTCONN);
	rig_release(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_is_there_before_it_has_said_who_takes_part),
		cmocka_unit_test(a_round_goes_from_want_to_settled),
		cmocka_unit_test(a_failure_to_store_is_told_and_not_waited_for),
		cmocka_unit_test(a_round_that_nothing_is_pending_for_is_answered_at_once),
		cmocka_unit_test(a_round_has_what_is_pending_committed),
		cmocka_unit_test(a_round_waits_for_a_program_that_still_writes),
		cmocka_unit_test(a_round_does_not_wait_for_ever_for_a_program),
		cmocka_unit_test(pages_that_no_round_was_about_are_told),
		cmocka_unit_test(pages_that_were_to_be_told_later_are_told_before_a_round),
		cmocka_unit_test(more_pages_than_a_message_holds_are_told_in_several),
		cmocka_unit_test(a_round_does_not_wait_for_ever_for_a_commit),
		cmocka_unit_test(a_commit_that_comes_to_no_round_does_not_hold_it_up),
		cmocka_unit_test(a_round_that_is_wanted_has_the_store_commit),
		cmocka_unit_test(nobody_waits_long_for_a_round_and_then_not_at_all),
		cmocka_unit_test(a_late_decision_is_answered_by_an_error),
		cmocka_unit_test(nobody_waits_long_for_the_end_of_a_round),
		cmocka_unit_test(an_agent_that_goes_leaves_nobody_waiting),
		cmocka_unit_test(a_new_agent_does_not_end_the_round_of_the_last),
		cmocka_unit_test(what_is_late_is_thrown_away),
		cmocka_unit_test(a_round_that_begins_ends_the_one_before),
		cmocka_unit_test(an_answer_is_heard_though_the_next_round_begins),
		cmocka_unit_test(two_commits_take_a_round_each),
		cmocka_unit_test(chunks_come_in_messages_that_are_not_too_large),
		cmocka_unit_test(answers_are_matched_by_their_numbers),
		cmocka_unit_test(chunks_that_do_not_come_are_not_waited_for),
		cmocka_unit_test(an_agent_that_goes_leaves_no_reader_waiting),
		cmocka_unit_test(what_cannot_be_asked_for_is_not_there),
		cmocka_unit_test(other_nodes_get_what_is_here),
		cmocka_unit_test(other_nodes_get_what_lies_in_memory),
		cmocka_unit_test(without_room_chunks_go_through_the_socket),
		cmocka_unit_test(chunks_are_taken_from_memory),
		cmocka_unit_test(places_that_cannot_be_right_end_the_connection),
		cmocka_unit_test(an_agent_with_memory_that_is_not_safe_is_hung_up_on),
		cmocka_unit_test(chunks_are_lent),
		cmocka_unit_test(who_wants_too_much_is_told_that_it_is_not_here),
		cmocka_unit_test(a_second_agent_is_told_that_there_is_one),
		cmocka_unit_test(another_users_agent_is_refused),
		cmocka_unit_test(who_does_not_keep_to_it_is_hung_up_on),
		cmocka_unit_test(answers_that_cannot_be_right_end_the_connection),
		cmocka_unit_test(an_agent_of_another_store_is_hung_up_on),
		cmocka_unit_test(who_says_nothing_makes_room_for_others),
		cmocka_unit_test(stopping_leaves_nobody_waiting),
		cmocka_unit_test(the_socket_is_private_and_goes_with_the_service),
		cmocka_unit_test(a_socket_is_taken_over_from_the_dead_alone),
		cmocka_unit_test(a_path_may_be_long),
		cmocka_unit_test(a_collection_of_all_nodes_has_this_one_take_part),
		cmocka_unit_test(who_asks_for_a_collection_hears_of_its_end),
		cmocka_unit_test(other_daemons_are_answered),
		cmocka_unit_test(who_asks_too_much_is_told_so),
		cmocka_unit_test(another_daemon_is_asked),
		cmocka_unit_test(an_answer_that_does_not_come_is_not_waited_for),
		cmocka_unit_test(who_takes_part_is_told),
		cmocka_unit_test(others_have_their_chunks_kept),
		cmocka_unit_test(others_have_their_directories_copied),
		cmocka_unit_test(what_cannot_be_kept_ends_the_connection),
		cmocka_unit_test(calls_to_other_nodes_are_answered_in_any_order),
		cmocka_unit_test(an_agent_that_goes_leaves_no_caller_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
