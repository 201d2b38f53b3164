/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/daemon/service_rig.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/mpi-agent/daemon/dial.h"

static const struct link_welcome welcome = {
	.hash = FP_CLMUL,
	.incompat = 3,
	.replicas = 2,
	.popular_max = 1000,
	.store_id = { 11 },
	.proof_key = { 1, 2, 3 },
	.name = "one",
};

const struct link_node rig_nodes[3] = {
	{ .store_id = { 10 }, .host = 0, .name = "zero" },
	{ .store_id = { 11 }, .host = 1, .name = "one" },
	{ .store_id = { 12 }, .host = 2, .name = "two" },
};

const struct fp rig_pages[3] = { { .lo = 1 }, { .lo = 2 }, { .lo = 3 } };

const struct service_limits rig_patient = { LONG_NS, LONG_NS, LONG_NS, 0 };

/* --- the store --- */

static bool store_pending(void *userdata)
{
	return ((struct rig *)userdata)->pending;
}

static void store_commit(void *userdata)
{
	struct rig *rig = userdata;
	struct cluster_decision d;

	rig->nr_commits++;
	while (rig->commit_hangs)
		usleep(1000);
	if (rig->commit_decides && rig->calls->decide(rig->calls->userdata, rig_pages, 2, &d) == 0)
		cluster_decision_release(&d);
}

/* Chunk `lo` is of bytes `lo`; those above 200 are not here, and 255 cannot be read. */
static int store_chunk(void *userdata, struct fp fp, uint32_t len, void *buf)
{
	(void)userdata;
	if (fp.lo > 200)
		return fp.lo == 255 ? -EIO : 0;
	memset(buf, (int)fp.lo, len);
	return 1;
}

/* The same ones, unless one of them cannot be noted. */
static int store_pin(void *userdata, const struct cluster_node *nodes, uint32_t nr_nodes, const struct fp *fps,
		      size_t nr, bool *pinned)
{
	(void)userdata;
	assert_true(nodes && nr_nodes > 0);
	for (size_t i = 0; i < nr; i++) {
		pinned[i] = fps[i].lo <= 200;
		if (fps[i].lo == 255)
			return -EIO;
	}
	return 0;
}

/* Marks one bit, and drops two chunks in each window. */
static int store_step(void *userdata, const struct link_step *step, const struct cluster_node *nodes, uint32_t nr_nodes,
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
	if (step->kind == LINK_UNPIN)
		ret->nr_dropped = 2;
	return step->kind == LINK_UNPIN && step->filter[1] != 9 ? -EIO : 0;
}

static void store_collection_ended(void *userdata, bool free_too)
{
	struct rig *rig = userdata;

	rig->nr_freed += free_too;
	rig->nr_over++; /* last: a test waits for it, and then looks at the other */
}

static int store_chunks(void *userdata, struct cluster_want *wants, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		wants[i].got = store_chunk(userdata, wants[i].fp, wants[i].len, wants[i].buf) > 0;
		((struct rig *)userdata)->nr_as_is += wants[i].as_is;
	}
	return 0;
}

/* "no" has none; else the question, twice. */
static int store_answer(void *userdata, const void *question, size_t len, struct buf *ret)
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

/* Chunk `lo` above 200 is with others, and those above 250 are nowhere; one with the bytes 'x' cannot be kept. */
static int store_keep(void *userdata, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
		      uint8_t *kept)
{
	struct rig *rig = userdata;

	assert_int_equal(nr_nodes, ARRAY_SIZE(rig_nodes));
	assert_memory_equal(nodes[2].id, rig_nodes[2].store_id, CLUSTER_ID_LEN);
	rig->nr_keeps++;
	for (uint32_t i = 0; i < put->nr; i++) {
		uint64_t lo = put->wants[i].fp.lo;

		kept[i] = put->chunks[i] || lo <= 200 ? LINK_IS_HERE : lo <= 250 ? LINK_ON_PEERS : LINK_NOT_KEPT;
		if (put->chunks[i] && *(const char *)put->chunks[i] == 'x')
			return -ENOSPC;
	}
	return 0;
}

static int store_replicate(void *userdata, const struct link_replica *replica, const struct cluster_node *nodes,
			   uint32_t nr_nodes)
{
	(void)userdata;
	assert_true(nodes && nr_nodes > 0);
	return strcmp(replica->path, "stale") == 0 ? -ESTALE : 0;
}

static int store_drop(void *userdata, const struct link_drop *drop)
{
	(void)userdata;
	return drop->ino == 13 ? -EROFS : 0;
}

static void store_peers_changed(void *userdata)
{
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	struct rig *rig = userdata;
	uint32_t nr, self;

	assert_int_equal(service_nodes(rig->s, &nodes, &nr, &self), 0);
	rig->nr_present = nr;
	rig->nr_peers_changed++; /* last: a test waits for it */
}

static void store_shared(void *userdata)
{
	((struct rig *)userdata)->nr_shared++;
}

static uint64_t store_deferred_ns(void *userdata)
{
	struct rig *rig = userdata;

	rig->nr_looks++;
	return rig->writes ? monotonic_ns() : 1;
}

/* --- the service --- */

void rig_start(struct rig *rig)
{
	struct service_store store = {
		.userdata = rig,
		.pending = store_pending,
		.commit = store_commit,
		.chunks = store_chunks,
		.pin = store_pin,
		.step = store_step,
		.collection_ended = store_collection_ended,
		.keep = store_keep,
		.replicate = store_replicate,
		.drop = store_drop,
		.peers_changed = store_peers_changed,
		.answer = store_answer,
		.shared = store_shared,
		.deferred_ns = store_deferred_ns,
	};

	assert_int_equal(service_start(rig->s, rig->path, &welcome, &store), 0);
}

void rig_init(struct rig *rig, const struct service_limits *limits)
{
	*rig = (struct rig){ .dir = "/tmp/ckptfs-service.XXXXXX", .agent = -1 };
	assert_non_null(mkdtemp(rig->dir));
	snprintf(rig->path, sizeof(rig->path), "%s/agent.sock", rig->dir);
	assert_int_equal(service_new(limits, &rig->s), 0);
	rig->calls = service_calls(rig->s);
}

void rig_release(struct rig *rig)
{
	closep(&rig->agent);
	service_free(rig->s);
	assert_int_equal(rmdir(rig->dir), 0); /* nothing is left in it */
}

void rig_with_agent(struct rig *rig, const struct service_limits *limits)
{
	rig_init(rig, limits);
	rig_start(rig);
	rig_come(rig);
}

bool rig_is_there(struct rig *rig)
{
	return rig->calls->is_there(rig->calls->userdata);
}

void rig_await_there(struct rig *rig, bool there)
{
	while (rig_is_there(rig) != there)
		sched_yield();
}

/* --- the agent --- */

int rig_dial(struct rig *rig)
{
	int fd = dial(rig->path);

	assert_true(fd >= 0);
	return fd;
}

void rig_say(struct rig *rig, struct buf *b)
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

bool rig_receive_bytes(int fd, void *p, size_t len)
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

struct link_header rig_receive_any(int fd, struct buf *ret)
{
	uint8_t head[sizeof(struct link_header_wire)];
	struct link_header h;

	assert_true(rig_receive_bytes(fd, head, sizeof(head)));
	assert_int_equal(link_decode_header(head, sizeof(head), &h), 0);
	buf_release(ret);
	assert_int_equal(buf_reserve(ret, h.len), 0);
	assert_true(rig_receive_bytes(fd, ret->data, h.len));
	ret->len = h.len;
	return h;
}

uint64_t rig_receive(int fd, enum link_type type, struct buf *ret)
{
	struct link_header h = rig_receive_any(fd, ret);

	assert_int_equal(h.type, type);
	return h.number;
}

void rig_receive_plain(struct rig *rig, enum link_type type, uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert_int_equal(rig_receive(rig->agent, type, &b), number);
	assert_int_equal(b.len, 0);
}

void rig_receive_offer(struct rig *rig, uint64_t round, uint32_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *offered = NULL;
	uint32_t nr_offered;

	assert_int_equal(rig_receive(rig->agent, LINK_OFFER, &b), round);
	assert_int_equal(link_decode_offer(b.data, b.len, &offered, &nr_offered), 0);
	assert_int_equal(nr_offered, nr);
	if (nr > 0)
		assert_memory_equal(offered, rig_pages, nr * sizeof(*rig_pages));
}

void rig_receive_stored(struct rig *rig, uint64_t round, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int stored;

	assert_int_equal(rig_receive(rig->agent, LINK_STORED, &b), round);
	assert_int_equal(link_decode_stored(b.data, b.len, &stored), 0);
	assert_int_equal(stored, error);
}

void rig_receive_end(int fd)
{
	uint8_t byte;

	assert_false(rig_receive_bytes(fd, &byte, 1));
}

void rig_say_nodes(struct rig *rig, uint32_t self)
{
	RIG_SAY(rig, nodes, rig_nodes, ARRAY_SIZE(rig_nodes), self);
}

void rig_greet(struct rig *rig)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct buf hello = BUF_EMPTY;
	struct link_welcome w;

	rig->agent = rig_dial(rig);
	link_encode_hello(&hello);
	rig_say(rig, &hello);
	rig_receive(rig->agent, LINK_WELCOME, &b);
	assert_int_equal(link_decode_welcome(b.data, b.len, &w), 0);
	assert_memory_equal(&w, &welcome, sizeof(w));
}

void rig_come(struct rig *rig)
{
	rig_greet(rig);
	rig_say_nodes(rig, 1);
	rig_await_there(rig, true);
}

void rig_go(struct rig *rig)
{
	closep(&rig->agent);
	rig->agent = -1;
	rig_await_there(rig, false);
}

void rig_say_decision(struct rig *rig, uint64_t round)
{
	static const struct link_owners owners[] = {
		{ .index = 1, .nr = 2, .owners = { 0, 1 } },
		{ .index = 2, .nr = 1, .owners = { 2 } },
	};

	RIG_SAY(rig, decision, round, owners, 2);
}

/* --- callers --- */

void rig_call_start(struct rig_call *c, void *(*run)(void *))
{
	assert_int_equal(pthread_create(&c->thread, NULL, run, c), 0);
}

int rig_call_finish(struct rig_call *c)
{
	assert_int_equal(pthread_join(c->thread, NULL), 0);
	return c->r;
}

void *rig_run_decide(void *call)
{
	struct rig_call *c = call;

	c->r = c->rig->calls->decide(c->rig->calls->userdata, rig_pages, c->nr, &c->d);
	return NULL;
}

void *rig_run_settle(void *call)
{
	struct rig_call *c = call;

	c->r = c->rig->calls->settle(c->rig->calls->userdata, &c->d, 0, c->has_stored);
	return NULL;
}

void *rig_run_fetch(void *call)
{
	struct rig_call *c = call;

	c->r = c->rig->calls->fetch(c->rig->calls->userdata, c->wants, c->nr);
	return NULL;
}

void rig_decide(struct rig *rig, uint64_t round, struct rig_call *ret)
{
	*ret = (struct rig_call){ .rig = rig, .nr = 3 };
	rig_call_start(ret, rig_run_decide);
	rig_receive_plain(rig, LINK_WANT, 0);
	RIG_SAY(rig, plain, LINK_BEGIN, round);
	rig_receive_offer(rig, round, 3);
	rig_say_decision(rig, round);
	assert_int_equal(rig_call_finish(ret), 0);
}

void rig_settle(struct rig *rig, uint64_t round, struct rig_call *c)
{
	static const uint8_t settled[] = { 1, 1, 0 };

	rig_call_start(c, rig_run_settle);
	rig_receive_stored(rig, round, 0);
	RIG_SAY(rig, settled, round, settled, 3);
	assert_int_equal(rig_call_finish(c), 0);
}

/* --- chunks --- */

struct cluster_want *rig_wants_of(size_t nr, uint32_t len, uint64_t first)
{
	struct cluster_want *w = calloc(nr, sizeof(*w));

	assert_non_null(w);
	for (size_t i = 0; i < nr; i++) {
		w[i] = (struct cluster_want){ .fp = { .lo = first + i }, .len = len, .buf = malloc(len), .got = true };
		assert_non_null(w[i].buf);
		w[i].nr_owners = (uint32_t)(i % 3);
		w[i].as_is = i % 2;
		for (uint32_t k = 0; k < w[i].nr_owners; k++)
			w[i].owners[k][0] = (uint8_t)(12 - (i + k) % 3);
	}
	return w;
}

void rig_wants_free(struct cluster_want *w, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free(w[i].buf);
	free(w);
}

void rig_start_fetch(struct rig *rig, size_t nr, uint32_t len, uint64_t first, struct rig_call *ret)
{
	*ret = (struct rig_call){ .rig = rig, .nr = nr, .wants = rig_wants_of(nr, len, first) };
	rig_call_start(ret, rig_run_fetch);
}

void rig_fetch_release(struct rig_fetch *f)
{
	free(f->wants);
	buf_release(&f->b);
}

void rig_receive_fetch(struct rig *rig, struct rig_fetch *ret)
{
	*ret = (struct rig_fetch){ .b = BUF_EMPTY };
	ret->number = rig_receive(rig->agent, LINK_FETCH, &ret->b);
	assert_int_equal(link_decode_fetch(ret->b.data, ret->b.len, &ret->ids, &ret->nr_ids, &ret->wants, &ret->nr), 0);
}
