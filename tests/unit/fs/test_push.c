/*
 * What is sealed goes to another node: two real stores, the thread that protects one of them and its half of the link;
 * in between, in place of agents, a thread that hands messages to the other store, loses them, or does something else
 * first. Waiting has no limit of its own here: a test that hangs has failed. An assertion that fails ends the program
 * (main()).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/catalog.h"
#include "fs/catalog_format.h"
#include "fs/file.h"
#include "fs/fs.h"
#include "fs/keeper.h"
#include "fs/namespace.h"
#include "fs/nodes.h"
#include "fs/options.h"
#include "fs/protect.h"
#include "fs/seal.h"
#include "fs/stripes.h"
#include "index/guards.h"
#include "mpi-agent/link_format.h"
#include "mpi-agent/listen.h"
#include "mpi-agent/service.h"
#include "store/engine/check.h"
#include "tests/unit/fs/rig.h"
#include "tests/unit/place.h"

#define BYTES (MiB(5) + 123) /* more than one message of chunks */

enum { HERE, PARTNER, NR_STORES, OTHER = NR_STORES, NR_NODES }; /* OTHER is not there but for what a test has it say */

struct world {
	char dir[64], path[NR_STORES][96], key[96], socket[96];
	struct options o[NR_STORES];
	struct fs *fs[NR_STORES];
	struct service *service;
	struct link_welcome welcome;
	struct link_node nodes[NR_NODES];
	uint32_t nr_nodes; /* of them that take part */
	uint8_t *bytes;
	uint64_t top;

	/* The agents. */
	pthread_t agent;
	int fd; /* -1: none */
	atomic_uint nr_met; /* worlds that were told of */
	atomic_uint nr_messages; /* requests that came, ... */
	unsigned lose_at; /* and the one at which the connection ends; 0: none */
	/* from which on they are answered with an error, so that trying again at once does no better; 0: none */
	unsigned fail_at;
	int error;
	int other_says; /* of all it is asked for: enum link_kept, or why not */
	atomic_uint nr_asked; /* chunks that it was */
	atomic_bool nobody_gives; /* what is to be fetched */
	atomic_bool collect_at_copy; /* nodes collect together before the first COPY, and only the catalog is left */
};

static const struct who owner = { .uid = 1000, .gid = 100 };

/* --- two stores --- */

static void mount(struct world *w, unsigned i)
{
	struct engine *e;

	assert_int_equal(engine_open(w->path[i], &w->o[i].engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o[i], NULL, &w->fs[i]), 0);
}

static void write_bytes(struct fs *fs, uint64_t dir, const char *name, const void *bytes, size_t len)
{
	struct names_new n = { .mode = S_IFREG | 0600 };
	struct stat st;
	struct file *f;
	bool changed;

	assert_int_equal(names_make(fs, dir, name, &n, &owner, &st), 0);
	assert_int_equal(file_open(fs, st.st_ino, O_RDWR, false, &changed, &f), 0);
	assert_int_equal(content_write(f->content, bytes, len, 0), 0);
	assert_int_equal(content_flush(f->content), 0);
	file_close(fs, f);
}

static void write_file(struct world *w, uint64_t dir, const char *name, size_t from)
{
	write_bytes(w->fs[HERE], dir, name, w->bytes + from, BYTES - from);
}

static void seal(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	assert_int_equal(seal_directory(w->fs[HERE], w->top, &owner, &s, &culprit), 0);
}

static void unseal(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	assert_int_equal(seal_undo(w->fs[HERE], w->top, &owner, &culprit), 0);
}

static int add(void *userdata, const void *p, size_t len)
{
	buf_add(userdata, p, len);
	return buf_error(userdata);
}

static unsigned nr_copies(struct world *w)
{
	struct ns_copy c;
	uint64_t top = 0;
	unsigned nr = 0;

	while (nodes_next(w->fs[PARTNER], top, &top, &c) > 0)
		nr++;
	return nr;
}

/* The partner has one copy, which tells the same as the directory itself, and all chunks of it. */
static void expect_copy(struct world *w)
{
	_cleanup_(buf_release) struct buf here = BUF_EMPTY, there = BUF_EMPTY;
	struct catalog_sink to_here = { add, &here }, to_there = { add, &there };
	uint8_t *got = malloc(BYTES);
	struct ns_dirent d;
	struct ns_copy c;
	struct content *content;
	uint64_t top;

	assert_int_equal(nr_copies(w), 1);
	assert_int_equal(nodes_next(w->fs[PARTNER], 0, &top, &c), 1);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_string_equal(c.path, "step");
	assert_string_equal(c.name, "here");
	assert_int_equal(catalog_write(w->fs[HERE], w->top, &to_here), 0);
	assert_int_equal(catalog_write(w->fs[PARTNER], top, &to_there), 0);
	assert_int_equal(here.len, there.len);
	assert_memory_equal(here.data, there.data, here.len);
	assert_int_equal(ns_find(w->fs[PARTNER]->db, w->fs[PARTNER]->key, top, "file", &d), 1);
	assert_int_equal(content_open(w->fs[PARTNER]->engine, d.ino, &content), 0);
	assert_int_equal(content_read(content, got, BYTES, 0), BYTES); /* nobody fetches anything here */
	assert_memory_equal(got, w->bytes, BYTES);
	content_close(content);
	free(got);
}

/* --- the agents --- */

static bool hear_bytes(int fd, void *p, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = recv(fd, (char *)p + got, len - got, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static bool hear(int fd, struct link_header *h, struct buf *body)
{
	uint8_t head[sizeof(struct link_header_wire)];

	buf_clear(body);
	if (!hear_bytes(fd, head, sizeof(head)))
		return false;
	assert_int_equal(link_decode_header(head, sizeof(head), h), 0);
	assert_int_equal(buf_reserve(body, h->len + 1), 0);
	body->len = h->len;
	return hear_bytes(fd, body->data, h->len);
}

static void say(int fd, struct buf *b)
{
	assert_int_equal(buf_error(b), 0);
	for (size_t sent = 0; sent < b->len;) {
		ssize_t n = send(fd, b->data + sent, b->len - sent, MSG_NOSIGNAL);

		if (n <= 0)
			break; /* it does not want to know any more */
		sent += (size_t)n;
	}
	buf_release(b);
}

/* All but the catalog is given up. */
static void collect_all_but(struct fs *fs, const struct link_copy *copy)
{
	struct cluster_chunk *chunks = calloc(copy->nr_chunks, sizeof(*chunks));

	for (uint32_t i = 0; i < copy->nr_chunks; i++) {
		void *bytes = malloc(copy->chunks[i].len);

		assert_int_equal(engine_cluster_chunk(fs->engine, copy->chunks[i].fp, copy->chunks[i].len, bytes), 1);
		chunks[i] = (struct cluster_chunk){ copy->chunks[i].fp, copy->chunks[i].len, bytes };
	}
	rig_collect(fs);
	assert_int_equal(engine_cluster_keep(fs->engine, chunks, copy->nr_chunks), 0);
	for (uint32_t i = 0; i < copy->nr_chunks; i++)
		free((void *)chunks[i].data);
	free(chunks);
}

static void do_put(struct world *w, uint64_t number, const struct buf *body, const struct cluster_node *nodes,
		   int error, struct buf *ret)
{
	struct link_put p;
	uint8_t *kept;
	int r;

	assert_int_equal(link_decode_put(body->data, body->len, &p), 0);
	kept = calloc(p.nr + 1, 1);
	if (memcmp(p.node, nodes[OTHER].id, CLUSTER_ID_LEN) == 0) {
		w->nr_asked += p.nr;
		r = MIN(w->other_says, 0);
		memset(kept, MAX(w->other_says, 0), p.nr);
	} else {
		assert_memory_equal(p.node, nodes[PARTNER].id, CLUSTER_ID_LEN);
		memcpy(p.node, nodes[HERE].id, CLUSTER_ID_LEN); /* as agents do */
		r = error < 0 ? error : keeper_keep(w->fs[PARTNER], &p, nodes, w->nr_nodes, kept);
	}
	link_encode_kept(number, r, kept, p.nr, ret);
	free(kept);
	free(p.wants);
	free(p.chunks);
}

static void do_fetch(struct world *w, uint64_t number, const struct buf *body, struct buf *ret)
{
	const uint8_t(*ids)[CLUSTER_ID_LEN];
	struct link_want *wants;
	uint32_t nr_ids, nr;
	void **chunks;

	assert_int_equal(link_decode_fetch(body->data, body->len, &ids, &nr_ids, &wants, &nr), 0);
	chunks = calloc(nr + 1, sizeof(*chunks));
	for (uint32_t i = 0; i < nr; i++) {
		if (w->nobody_gives)
			continue;
		chunks[i] = malloc(wants[i].len);
		assert_int_equal(engine_cluster_chunk(w->fs[PARTNER]->engine, wants[i].fp, wants[i].len, chunks[i]), 1);
	}
	link_encode_chunks(number, wants, (const void *const *)chunks, nr, ret);
	for (uint32_t i = 0; i < nr; i++)
		free(chunks[i]);
	free(chunks);
	free(wants);
}

static int fetch_from_here(void *userdata, struct cluster_want *wants, size_t nr)
{
	return engine_cluster_chunks(((struct world *)userdata)->fs[HERE]->engine, wants, nr);
}

static int do_step(struct world *w, const struct link_copy *c, struct cluster_node *nodes)
{
	const struct stripe_io io = { w->fs[PARTNER], fetch_from_here, w };
	uint32_t hosts[] = { 0, 1 };
	const struct service_world now = { nodes, hosts, NR_STORES, PARTNER };

	return c->step == LINK_COPY_COVER ? keeper_cover(w->fs[PARTNER], c, &io, &now) :
					    keeper_settle(w->fs[PARTNER], c, &now);
}

static void do_copy(struct world *w, uint64_t number, const struct buf *body, const struct cluster_node *nodes,
		    int error, struct buf *ret)
{
	struct link_copy *c = malloc(sizeof(*c));
	int r;

	assert_int_equal(link_decode_copy(body->data, body->len, c), 0);
	memcpy(c->node, nodes[HERE].id, CLUSTER_ID_LEN);
	if (w->collect_at_copy)
		collect_all_but(w->fs[PARTNER], c);
	w->collect_at_copy = false;
	r = error < 0		      ? error :
	    c->step == LINK_COPY_MAKE ? keeper_copy(w->fs[PARTNER], c, nodes, w->nr_nodes) :
					do_step(w, c, (struct cluster_node *)nodes);
	link_encode_error(LINK_COPIED, number, r, ret);
	free(c->chunks);
	free(c);
}

static void do_drop(struct world *w, uint64_t number, const struct buf *body, const struct cluster_node *nodes,
		    int error, struct buf *ret)
{
	struct link_drop d;
	int r;

	assert_int_equal(link_decode_drop(body->data, body->len, &d), 0);
	r = error < 0 ? error : keeper_drop(w->fs[PARTNER], &d);
	if (r == 0)
		r = keeper_uncover(w->fs[PARTNER], &(struct service_world){ (struct cluster_node *)nodes,
									    (uint32_t[]){ 0, 1 }, NR_STORES, PARTNER });
	link_encode_error(LINK_DROPPED, number, r, ret);
}

static void answer(struct world *w, const struct link_header *h, const struct buf *body)
{
	struct cluster_node nodes[NR_NODES] = { 0 };
	struct buf b = BUF_EMPTY;
	int error = w->fail_at > 0 && w->nr_messages >= w->fail_at ? w->error : 0;

	for (unsigned i = 0; i < NR_NODES; i++) {
		memcpy(nodes[i].id, w->nodes[i].store_id, CLUSTER_ID_LEN);
		memcpy(nodes[i].name, w->nodes[i].name, sizeof(nodes[i].name));
	}
	if (h->type == LINK_PUT)
		do_put(w, h->number, body, nodes, error, &b);
	else if (h->type == LINK_FETCH)
		do_fetch(w, h->number, body, &b);
	else if (h->type == LINK_COPY)
		do_copy(w, h->number, body, nodes, error, &b);
	else
		do_drop(w, h->number, body, nodes, error, &b);
	say(w->fd, &b);
}

static void *run_agent(void *userdata)
{
	_cleanup_(buf_release) struct buf body = BUF_EMPTY;
	struct world *w = userdata;
	struct buf b = BUF_EMPTY;
	struct link_header h;

	link_encode_hello(&b);
	say(w->fd, &b);
	assert_true(hear(w->fd, &h, &body));
	assert_int_equal(h.type, LINK_WELCOME);
	link_encode_nodes(w->nodes, w->nr_nodes, HERE, &b);
	say(w->fd, &b);
	while (hear(w->fd, &h, &body)) {
		assert_true(h.type == LINK_PUT || h.type == LINK_COPY || h.type == LINK_DROP || h.type == LINK_FETCH);
		if (++w->nr_messages == w->lose_at)
			break;
		answer(w, &h, &body);
	}
	shutdown(w->fd, SHUT_RDWR);
	return NULL;
}

static void agent_comes(struct world *w)
{
	unsigned before = w->nr_met;
	int flags;

	do
		w->fd = listener_connect(w->socket);
	while (w->fd < 0);
	flags = fcntl(w->fd, F_GETFL);
	assert_int_equal(fcntl(w->fd, F_SETFL, flags & ~O_NONBLOCK), 0);
	w->nr_messages = 0;
	assert_int_equal(pthread_create(&w->agent, NULL, run_agent, w), 0);
	while (w->nr_met == before)
		sched_yield();
}

static void agent_goes(struct world *w)
{
	struct service_stats s;

	shutdown(w->fd, SHUT_RDWR);
	pthread_join(w->agent, NULL);
	close(w->fd);
	w->fd = -1;
	do {
		sched_yield();
		service_stats(w->service, &s);
	} while (s.is_connected);
}

static int state_of(struct world *w)
{
	return protect_state(w->fs[HERE]->protect, w->top);
}

/* What has come of it while this agent is there: an error is told until the next attempt has ended, so -ENOTCONN and
 * `before` may be of the time before it. */
static int await_state_after(struct world *w, int before)
{
	int r;

	while ((r = state_of(w)) == -EAGAIN || r == -ENOTCONN || (r < 0 && r == before))
		sched_yield();
	return r;
}

static int await_state(struct world *w)
{
	return await_state_after(w, 0);
}

/* Is it protected, or is the agent lost before? */
static bool await_end(struct world *w)
{
	int r;

	while ((r = state_of(w)) < 0 && w->nr_messages < w->lose_at) {
		assert_true(r == -EAGAIN || r == -ENOTCONN); /* nobody else fails */
		sched_yield();
	}
	return r == 0;
}

/* --- a world --- */

static bool nothing_pends(void *userdata _unused_)
{
	return false;
}

static void met(void *userdata)
{
	struct world *w = userdata;
	struct service_stats s;

	service_stats(w->service, &s);
	protect_wake(w->fs[HERE]->protect);
	w->nr_met += s.nr_nodes > 0;
}

static void start(struct world *w)
{
	const struct service_store store = { .userdata = w, .pending = nothing_pends, .met = met };

	assert_int_equal(service_new(NULL, &w->service), 0);
	assert_int_equal(service_start(w->service, w->socket, &w->welcome, &store), 0);
	assert_int_equal(protect_start(w->fs[HERE]->protect, w->service), 0);
}

static void stop(struct world *w)
{
	if (w->fd >= 0)
		agent_goes(w);
	protect_stop(w->fs[HERE]->protect);
	service_free(w->service);
}

static int set_up_for(void **state, enum protect_mode mode)
{
	struct world *w = calloc(1, sizeof(*w));
	struct names_new dir = { .mode = S_IFDIR | 0700 };
	uint64_t x = 1;
	struct stat st;
	FILE *f;

	w->fd = -1;
	snprintf(w->dir, sizeof(w->dir), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->key, sizeof(w->key), "%s/key", w->dir);
	snprintf(w->socket, sizeof(w->socket), "%s/agent.sock", w->dir);
	f = fopen(w->key, "w");
	assert_non_null(f);
	fprintf(f, "%s", "thirty-two bytes and a few more of a key");
	fclose(f);
	for (unsigned i = 0; i < NR_STORES; i++) {
		snprintf(w->path[i], sizeof(w->path[i]), "%s/%u", w->dir, i);
		assert_int_equal(options_init(&w->o[i]), 0);
		w->o[i].store = w->o[i].mountpoint = w->path[i];
		w->o[i].engine.cluster = w->key;
		w->o[i].protect = mode;
		mount(w, i);
		w->nodes[i].host = i;
		snprintf(w->nodes[i].name, sizeof(w->nodes[i].name), "%s", i == HERE ? "here" : "partner");
		memcpy(w->nodes[i].store_id, engine_store_id(w->fs[i]->engine), 16);
	}
	w->nodes[OTHER] = (struct link_node){ .host = OTHER, .name = "other" };
	memcpy(w->nodes[OTHER].store_id, w->nodes[PARTNER].store_id, 16);
	/* right behind the partner in the order of ids, and so nobody's */
	for (unsigned i = 16; i-- > 0 && ++w->nodes[OTHER].store_id[i] == 0;)
		;
	w->nr_nodes = NR_STORES;
	w->welcome = (struct link_welcome){ .hash = FP_CLMUL, .replicas = 1, .popular_max = 1, .name = "here" };
	memcpy(w->welcome.store_id, w->nodes[HERE].store_id, 16);
	w->bytes = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i++) {
		x = x * UINT64_C(6364136223846793005) + 1; /* no page is like another */
		w->bytes[i] = (uint8_t)(x >> 56);
	}
	assert_int_equal(names_make(w->fs[HERE], NS_ROOT_INO, "step", &dir, &owner, &st), 0);
	w->top = st.st_ino;
	write_file(w, w->top, "file", 0);
	start(w);
	*state = w;
	return 0;
}

static int set_up(void **state)
{
	return set_up_for(state, PROTECT_PARTNER);
}

static int set_up_parity(void **state)
{
	return set_up_for(state, PROTECT_XOR);
}

static int tear_down(void **state)
{
	const struct check_conf conf = { .cache = MiB(16), .read_data = true };
	struct world *w = *state;
	struct check_result res;
	char command[128];

	stop(w);
	for (unsigned i = 0; i < NR_STORES; i++) {
		assert_int_equal(fs_close(w->fs[i]), 0);
		options_release(&w->o[i]);
		assert_int_equal(check_store(w->path[i], &conf, &res), 0);
		assert_int_equal(res.nr_left, 0);
	}
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	free(w->bytes);
	free(w);
	return 0;
}

/* --- tests --- */

static void what_is_sealed_is_with_the_partner(void **state)
{
	struct world *w = *state;
	struct protect_status s;

	agent_comes(w);
	assert_int_equal(state_of(w), -ENODATA);
	seal(w);
	assert_int_equal(await_state(w), 0);
	expect_copy(w);
	do
		protect_status(w->fs[HERE]->protect, &s);
	while (s.is_busy);
	assert_int_equal(s.nr_sealed, 1);
	assert_int_equal(s.nr_protected, 1);
	assert_in_range(s.bytes, BYTES, BYTES + BYTES / 50);

	/* Sealed again with one more file of the same: next to nothing is sent. */
	unseal(w);
	write_file(w, w->top, "more", MiB(1));
	seal(w);
	assert_int_equal(await_state(w), 0);
	expect_copy(w);
	protect_status(w->fs[HERE]->protect, &s);
	assert_in_range(s.bytes, BYTES, BYTES + BYTES / 25);
}

static void without_an_agent_it_waits(void **state)
{
	struct world *w = *state;

	seal(w);
	assert_int_equal(state_of(w), -ENOTCONN);
	agent_comes(w);
	assert_int_equal(await_state(w), 0);
	expect_copy(w);
}

static void who_is_on_the_same_host_is_no_partner(void **state)
{
	struct world *w = *state;

	w->nodes[PARTNER].host = w->nodes[HERE].host;
	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), -EHOSTUNREACH);
	assert_int_equal(w->nr_messages, 0);
}

/* Whatever message is the last one. The partner has all of it or nothing, and what comes later makes up for it. */
static void agents_may_go_at_any_message(void **state)
{
	struct world *w = *state;
	unsigned last = 0;

	for (w->lose_at = 1; last == 0; w->lose_at++) {
		agent_comes(w);
		seal(w);
		last = await_end(w) ? w->lose_at : 0;
		agent_goes(w);
		assert_int_equal(nr_copies(w), last > 0);
		if (last == 0) {
			unseal(w); /* so that there is something to be dropped, perhaps */
			write_file(w, w->top, (char[]){ (char)('a' + w->lose_at), '\0' }, BYTES - 4096 * w->lose_at);
		}
	}
	assert_in_range(last, 5, 60);
	expect_copy(w);
}

static void an_error_of_the_partner_is_told_and_tried_again(void **state)
{
	static const int errors[] = { -ENOSPC, -EDQUOT }; /* by turns, so that it is seen which agent's it is */
	struct world *w = *state;
	int r, before = 0;

	seal(w);
	do {
		w->error = errors[w->fail_at++ % 2];
		agent_comes(w);
		r = await_state_after(w, before);
		assert_true(r == 0 || r == w->error);
		assert_int_equal(nr_copies(w), r == 0);
		agent_goes(w);
		before = w->error;
	} while (r < 0);
	assert_true(w->fail_at > 3);
	expect_copy(w);
}

static void what_was_collected_meanwhile_is_sent_again(void **state)
{
	struct world *w = *state;

	w->collect_at_copy = true;
	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), 0);
	assert_false(w->collect_at_copy);
	expect_copy(w);
	rig_collect(w->fs[PARTNER]); /* that is lent no more; but the copy has it */
	expect_copy(w);
}

#define REFERRED 10u

/* A file here is made of pages that the partner has; this node has been told that another one does. */
static void refer(struct world *w, struct cluster_piece pieces[REFERRED])
{
	struct cluster_node other = { .name = "other" };
	struct names_new n = { .mode = S_IFREG | 0600 };
	struct cluster_chunk chunks[REFERRED];
	uint8_t bytes[REFERRED][4096];
	struct content *c;
	struct stat st;

	memcpy(other.id, w->nodes[OTHER].store_id, sizeof(other.id));
	for (unsigned i = 0; i < REFERRED; i++) {
		memset(bytes[i], (int)i + 1, sizeof(bytes[i]));
		chunks[i] = (struct cluster_chunk){ fp_of(w->fs[PARTNER]->key, bytes[i], sizeof(bytes[i])),
						    sizeof(bytes[i]), bytes[i] };
		pieces[i] = (struct cluster_piece){ .fp = chunks[i].fp,
						    .chunk_len = sizeof(bytes[i]),
						    .len = sizeof(bytes[i]) };
	}
	assert_int_equal(engine_cluster_keep(w->fs[PARTNER]->engine, chunks, REFERRED), 0);
	assert_int_equal(names_make(w->fs[HERE], w->top, "referred", &n, &owner, &st), 0);
	assert_int_equal(content_open(w->fs[HERE]->engine, st.st_ino, &c), 0);
	assert_int_equal(engine_cluster_refer(c, 0, pieces, REFERRED, &other), 0);
	assert_int_equal(content_sync(c, NULL), 0);
	content_close(c);
}

static unsigned nr_here(struct world *w, const struct cluster_piece pieces[REFERRED])
{
	uint8_t bytes[4096];
	unsigned nr = 0;

	for (unsigned i = 0; i < REFERRED; i++)
		nr += engine_cluster_chunk(w->fs[HERE]->engine, pieces[i].fp, pieces[i].chunk_len, bytes) == 1;
	return nr;
}

static void protect_referred(struct world *w, int other_says)
{
	w->other_says = other_says;
	w->nr_asked = 0;
	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), 0);
	agent_goes(w);
	assert_int_equal(w->nr_asked, REFERRED);
	expect_copy(w);
}

static void who_is_said_to_have_a_chunk_is_asked(void **state)
{
	struct cluster_piece pieces[REFERRED];
	struct world *w = *state;

	w->nr_nodes = NR_NODES;
	refer(w, pieces);
	protect_referred(w, LINK_IS_HERE);
	assert_int_equal(nr_here(w, pieces), 0);
	unseal(w);
	protect_referred(w, -EBUSY);
	assert_int_equal(nr_here(w, pieces), REFERRED);
}

/* It has a copy of a directory, perhaps, whose chunks are with the partner, which would have been the only one. */
static void who_only_refers_to_a_chunk_does_not_count(void **state)
{
	struct cluster_piece pieces[REFERRED];
	struct world *w = *state;

	w->nr_nodes = NR_NODES;
	refer(w, pieces);
	protect_referred(w, LINK_WITH_OTHERS);
	assert_int_equal(nr_here(w, pieces), REFERRED);
}

static bool has_note(struct world *w)
{
	struct guard g;

	return guard_get(w->fs[HERE]->db, w->top, &g) > 0;
}

static void what_is_unsealed_is_dropped_there(void **state)
{
	struct world *w = *state;

	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), 0);
	unseal(w);
	while (has_note(w))
		sched_yield();
	assert_int_equal(nr_copies(w), 0);

	/* Also later, when nobody was there. */
	seal(w);
	assert_int_equal(await_state(w), 0);
	agent_goes(w);
	unseal(w);
	assert_int_equal(nr_copies(w), 1);
	assert_true(has_note(w));
	agent_comes(w);
	while (has_note(w))
		sched_yield();
	assert_int_equal(nr_copies(w), 0);
}

static struct protect_status heal(struct world *w)
{
	struct protect_status s;
	uint64_t number;

	assert_int_equal(protect_heal(w->fs[HERE]->protect, &number), 0);
	do {
		sched_yield();
		protect_status(w->fs[HERE]->protect, &s);
	} while (s.nr_healed < number);
	return s;
}

static void healing_gives_the_partner_what_it_has_lost(void **state)
{
	const struct nodes_origin from = { .name = "here" };
	struct world *w = *state;
	struct nodes_origin origin = from;

	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), 0);
	memcpy(origin.id, w->nodes[HERE].store_id, sizeof(origin.id));
	for (int collects = 0; collects < 2; collects++) { /* while nodes collect together it takes a second try */
		assert_int_equal(nodes_drop(w->fs[PARTNER], &origin, w->top), 0);
		w->collect_at_copy = collects;
		assert_int_equal(heal(w).nr_protected, 1);
		expect_copy(w);
	}
}

static ssize_t read_catalog(void *userdata, void *buf, size_t len)
{
	struct cursor *c = userdata;
	size_t n = MIN(len, (size_t)(c->end - c->p));

	memcpy(buf, c->p, n);
	c->p += n;
	return (ssize_t)n;
}

/* Node "other", which is lost, has sealed "theirs"; a copy of it is here, and its chunks with the partner, if anybody
 * gives them. */
static void take_copy_of_other(struct world *w)
{
	_cleanup_(buf_release) struct buf catalog = BUF_EMPTY, head = BUF_EMPTY, culprit = BUF_EMPTY;
	struct nodes_seal s = { .from.name = "other", .path = "theirs" };
	struct cluster_node other = { .name = "other" };
	struct names_new dir = { .mode = S_IFDIR | 0700 };
	struct fs *there = w->fs[PARTNER];
	struct catalog_head theirs;
	struct ns_seal sealed;
	struct cursor c;
	struct stat st;

	assert_int_equal(names_make(there, NS_ROOT_INO, "theirs", &dir, &owner, &st), 0);
	write_bytes(there, st.st_ino, "file", "of the lost node", 16);
	assert_int_equal(seal_directory(there, st.st_ino, &owner, &sealed, &culprit), 0);
	assert_int_equal(catalog_write(there, st.st_ino, &(struct catalog_sink){ add, &catalog }), 0);
	s.ino = theirs.ino = st.st_ino;
	s.sealed_ns = theirs.sealed_ns = sealed.sealed_ns;
	memcpy(s.from.id, w->nodes[OTHER].store_id, sizeof(s.from.id));
	memcpy(theirs.store, s.from.id, sizeof(theirs.store));
	catalog_head_encode(&theirs, &head);
	memcpy(catalog.data, head.data, head.len);
	c = cursor_of(catalog.data, catalog.len);
	memcpy(other.id, s.from.id, sizeof(other.id));
	assert_int_equal(nodes_take(w->fs[HERE], &s, &(struct nodes_source){ read_catalog, &c }, &other), 0);
}

static void what_no_node_has_any_more_is_told_by_name(void **state)
{
	struct world *w = *state;
	struct protect *p = w->fs[HERE]->protect;
	struct protect_failure f;
	struct protect_status s;

	take_copy_of_other(w);
	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), 0);
	w->nobody_gives = true;
	s = heal(w);
	assert_int_equal(s.nr_protected, 1); /* the others are healed */
	assert_int_equal(s.error, -EIO);
	assert_int_equal(protect_failed(p, 0, &f), 1);
	assert_int_equal(f.error, -EIO);
	assert_string_equal(f.node, "other");
	assert_string_equal(f.path, "theirs");
	assert_int_equal(protect_failed(p, 1, &f), 0);

	assert_int_equal(protect_forget(p, "other"), 0);
	assert_int_equal(heal(w).error, 0); /* nobody waits for it any more */
	assert_int_equal(protect_failed(p, 0, &f), 0);
	w->nobody_gives = false;
	assert_int_equal(heal(w).nr_copies, 1); /* and if somebody should have it after all it is protected */
}

/* What the partner covers, of the one file that all directories here are made of. */
static void expect_covered(struct world *w, bool is_whole)
{
	struct stripes_figures f;

	assert_int_equal(stripes_figures(w->fs[PARTNER]->stripes, &f), 0);
	if (is_whole) /* its last chunk may be here as the end of an older parity */
		assert_in_range(f.covered_bytes, BYTES - 123, BYTES + 4096);
	assert_true(f.parity_bytes >= f.covered_bytes); /* of one node alone parity is a copy */
}

static void parity_may_be_cut_off_at_any_message(void **state)
{
	struct world *w = *state;
	unsigned last = 0;
	bool held = false;

	for (w->lose_at = 1; last == 0; w->lose_at++) {
		agent_comes(w);
		seal(w);
		last = await_end(w) ? w->lose_at : 0;
		agent_goes(w);
		expect_covered(w, last > 0);
		held |= last == 0 && nr_copies(w) > 0; /* a copy that is not covered yet does not count */
		if (last == 0)
			unseal(w);
	}
	assert_true(held);
	assert_in_range(last, 5, 60);
	assert_int_equal(nr_copies(w), 1);
}

static void parity_goes_with_the_seal(void **state)
{
	struct stripes_figures f;
	struct world *w = *state;

	agent_comes(w);
	seal(w);
	assert_int_equal(await_state(w), 0);
	expect_covered(w, true);
	rig_collect(w->fs[PARTNER]); /* the catalog; neither parity nor what is lent here */
	expect_covered(w, true);
	unseal(w);
	while (has_note(w))
		sched_yield();
	assert_int_equal(nr_copies(w), 0);
	assert_int_equal(stripes_figures(w->fs[PARTNER]->stripes, &f), 0);
	assert_int_equal(f.nr, 0);
}

int main(void)
{
#define with_world(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		with_world(what_is_sealed_is_with_the_partner),
		with_world(without_an_agent_it_waits),
		with_world(who_is_on_the_same_host_is_no_partner),
		with_world(agents_may_go_at_any_message),
		with_world(an_error_of_the_partner_is_told_and_tried_again),
		with_world(what_was_collected_meanwhile_is_sent_again),
		with_world(who_is_said_to_have_a_chunk_is_asked),
		with_world(who_only_refers_to_a_chunk_does_not_count),
		with_world(what_is_unsealed_is_dropped_there),
		with_world(healing_gives_the_partner_what_it_has_lost),
		with_world(what_no_node_has_any_more_is_told_by_name),
		cmocka_unit_test_setup_teardown(parity_may_be_cut_off_at_any_message, set_up_parity, tear_down),
		cmocka_unit_test_setup_teardown(parity_goes_with_the_seal, set_up_parity, tear_down),
	};

	/* As the agent's thread has assertions of its own, from which there is no way back into a test. */
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	return cmocka_run_group_tests_name("push", tests, NULL, NULL);
}
