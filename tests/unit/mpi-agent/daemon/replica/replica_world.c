/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/daemon/replica/replica_world.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/posix/file.h"
#include "fs/posix/namespace.h"
#include "fs/seal/seal.h"
#include "mpi-agent/daemon/parity/stripes.h"
#include "fs/seal/seal_catalog.h"
#include "mpi-agent/daemon/replica/protect.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/replica/replica_receive.h"
#include "mpi-agent/daemon/service.h"
#include "store/check/check.h"
#include "tests/unit/fs/rig.h"
#include "tests/unit/mpi-agent/daemon/dial.h"
#include "tests/unit/place.h"

const struct cred replica_owner = { .uid = 1000, .gid = 100 };

/* --- two stores --- */

static void mount(struct replica_world *w, unsigned i)
{
	struct engine *e;

	assert_int_equal(engine_open(w->path[i], &w->o[i].engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o[i], NULL, &w->fs[i]), 0);
}

void replica_write_bytes(struct fs *fs, uint64_t dir, const char *name, const void *bytes, size_t len)
{
	struct names_new n = { .mode = S_IFREG | 0600 };
	struct stat st;
	struct file *f;

	assert_int_equal(names_make(fs, dir, name, &n, &replica_owner, &st), 0);
	assert_int_equal(file_open(fs, st.st_ino, O_RDWR, &f), 0);
	assert_int_equal(content_write(f->content, bytes, len, 0), 0);
	assert_int_equal(content_flush(f->content), 0);
	file_close(fs, f);
}

void replica_write_file(struct replica_world *w, uint64_t dir, const char *name, size_t from)
{
	replica_write_bytes(w->fs[HERE], dir, name, w->bytes + from, REPLICA_BYTES - from);
}

void replica_seal(struct replica_world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	assert_int_equal(seal_directory(w->fs[HERE], w->top, &replica_owner, &s, &culprit), 0);
}

void replica_unseal(struct replica_world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	assert_int_equal(seal_undo(w->fs[HERE], w->top, &replica_owner, &culprit), 0);
}

int replica_add(void *userdata, const void *p, size_t len)
{
	buf_add(userdata, p, len);
	return buf_error(userdata);
}

unsigned replica_nr_copies(struct replica_world *w)
{
	struct ns_replica c;
	uint64_t top = 0;
	unsigned nr = 0;

	while (nodes_next(w->fs[PARTNER], top, &top, &c) > 0)
		nr++;
	return nr;
}

void replica_expect_copy(struct replica_world *w)
{
	_cleanup_(buf_release) struct buf here = BUF_EMPTY, there = BUF_EMPTY;
	struct catalog_sink to_here = { replica_add, &here }, to_there = { replica_add, &there };
	uint8_t *got = malloc(REPLICA_BYTES);
	struct ns_dirent d;
	struct ns_replica c;
	struct content *content;
	uint64_t top;

	assert_int_equal(replica_nr_copies(w), 1);
	assert_int_equal(nodes_next(w->fs[PARTNER], 0, &top, &c), 1);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_string_equal(c.path, "step");
	assert_string_equal(c.name, "here");
	assert_int_equal(catalog_write(w->fs[HERE], w->top, &to_here), 0);
	assert_int_equal(catalog_write(w->fs[PARTNER], top, &to_there), 0);
	assert_int_equal(here.len, there.len);
	assert_memory_equal(here.data, there.data, here.len);
	assert_int_equal(ns_find(w->fs[PARTNER]->db, w->fs[PARTNER]->key, top, "file", &d), 1);
	assert_int_equal(content_open(w->fs[PARTNER]->engine, d.ino, &content), 0);
	assert_int_equal(content_read(content, got, REPLICA_BYTES, 0), REPLICA_BYTES); /* nothing is fetched here */
	assert_memory_equal(got, w->bytes, REPLICA_BYTES);
	content_close(content);
	free(got);
}

/* --- the agents --- */

static bool receive_bytes(int fd, void *p, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = recv(fd, (char *)p + got, len - got, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static bool receive(int fd, struct link_header *h, struct buf *body)
{
	uint8_t head[sizeof(struct link_header_wire)];

	buf_clear(body);
	if (!receive_bytes(fd, head, sizeof(head)))
		return false;
	assert_int_equal(link_decode_header(head, sizeof(head), h), 0);
	assert_int_equal(buf_reserve(body, h->len + 1), 0);
	body->len = h->len;
	return receive_bytes(fd, body->data, h->len);
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

/* All but the catalog is dropped. */
static void collect_all_but(struct fs *fs, const struct link_replica *copy)
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

static void do_put(struct replica_world *w, uint64_t number, const struct buf *body, const struct cluster_node *nodes,
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
		r = error < 0 ? error : replica_receive_chunks(w->fs[PARTNER], &p, nodes, w->nr_nodes, kept);
	}
	link_encode_kept(number, r, kept, p.nr, ret);
	free(kept);
	free(p.wants);
	free(p.chunks);
}

static void do_fetch(struct replica_world *w, uint64_t number, const struct buf *body, struct buf *ret)
{
	const uint8_t(*ids)[CLUSTER_ID_LEN];
	struct link_want *wants;
	uint32_t nr_ids, nr;
	void **chunks;

	assert_int_equal(link_decode_fetch(body->data, body->len, &ids, &nr_ids, &wants, &nr), 0);
	chunks = calloc(nr + 1, sizeof(*chunks));
	for (uint32_t i = 0; i < nr; i++) {
		if (w->no_node_serves)
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
	return engine_cluster_chunks(((struct replica_world *)userdata)->fs[HERE]->engine, wants, nr);
}

static int do_step(struct replica_world *w, const struct link_replica *c, struct cluster_node *nodes)
{
	const struct stripe_io io = { w->fs[PARTNER], fetch_from_here, w };
	uint32_t hosts[] = { 0, 1 };
	const struct service_world now = { nodes, hosts, NR_STORES, PARTNER };

	return c->step == LINK_REPLICA_COVER ? replica_receive_cover(w->fs[PARTNER], c, &io, &now) :
					       replica_receive_settle(w->fs[PARTNER], c, &now);
}

static void do_copy(struct replica_world *w, uint64_t number, const struct buf *body, const struct cluster_node *nodes,
		    int error, struct buf *ret)
{
	struct link_replica *c = malloc(sizeof(*c));
	int r;

	assert_int_equal(link_decode_replica(body->data, body->len, c), 0);
	memcpy(c->node, nodes[HERE].id, CLUSTER_ID_LEN);
	if (w->collect_at_copy)
		collect_all_but(w->fs[PARTNER], c);
	w->collect_at_copy = false;
	r = error < 0			   ? error :
	    c->step == LINK_REPLICA_CREATE ? replica_receive_catalog(w->fs[PARTNER], c, nodes, w->nr_nodes) :
					     do_step(w, c, (struct cluster_node *)nodes);
	link_encode_error(LINK_REPLICATED, number, r, ret);
	free(c->chunks);
	free(c);
}

static void do_drop(struct replica_world *w, uint64_t number, const struct buf *body, const struct cluster_node *nodes,
		    int error, struct buf *ret)
{
	struct link_drop d;
	int r;

	assert_int_equal(link_decode_drop(body->data, body->len, &d), 0);
	r = error < 0 ? error : replica_receive_drop(w->fs[PARTNER], &d);
	if (r == 0)
		r = replica_receive_uncover(w->fs[PARTNER], &(struct service_world){ (struct cluster_node *)nodes,
									    (uint32_t[]){ 0, 1 }, NR_STORES, PARTNER });
	link_encode_error(LINK_DROPPED, number, r, ret);
}

static void answer(struct replica_world *w, const struct link_header *h, const struct buf *body)
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
	else if (h->type == LINK_REPLICATE)
		do_copy(w, h->number, body, nodes, error, &b);
	else
		do_drop(w, h->number, body, nodes, error, &b);
	say(w->fd, &b);
}

static void *run_agent(void *userdata)
{
	_cleanup_(buf_release) struct buf body = BUF_EMPTY;
	struct replica_world *w = userdata;
	struct buf b = BUF_EMPTY;
	struct link_header h;

	link_encode_hello(&b);
	say(w->fd, &b);
	assert_true(receive(w->fd, &h, &body));
	assert_int_equal(h.type, LINK_WELCOME);
	link_encode_nodes(w->nodes, w->nr_nodes, HERE, &b);
	say(w->fd, &b);
	while (receive(w->fd, &h, &body)) {
		assert_true(h.type == LINK_PUT || h.type == LINK_REPLICATE || h.type == LINK_DROP ||
			    h.type == LINK_FETCH);
		if (++w->nr_messages == w->lose_at)
			break;
		answer(w, &h, &body);
	}
	shutdown(w->fd, SHUT_RDWR);
	return NULL;
}

void replica_agent_comes(struct replica_world *w)
{
	unsigned before = w->nr_peers_changed;

	do
		w->fd = dial(w->socket);
	while (w->fd < 0);
	w->nr_messages = 0;
	assert_int_equal(pthread_create(&w->agent, NULL, run_agent, w), 0);
	while (w->nr_peers_changed == before)
		sched_yield();
}

void replica_agent_goes(struct replica_world *w)
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

int replica_state_of(struct replica_world *w)
{
	return protect_state(w->fs[HERE]->protect, w->top);
}

int replica_await_state_after(struct replica_world *w, int before)
{
	int r;

	while ((r = replica_state_of(w)) == -EAGAIN || r == -ENOTCONN || (r < 0 && r == before))
		sched_yield();
	return r;
}

int replica_await_state(struct replica_world *w)
{
	return replica_await_state_after(w, 0);
}

bool replica_await_end(struct replica_world *w)
{
	int r;

	while ((r = replica_state_of(w)) < 0 && w->nr_messages < w->lose_at) {
		assert_true(r == -EAGAIN || r == -ENOTCONN); /* no other error */
		sched_yield();
	}
	return r == 0;
}

/* --- a world --- */

static bool nothing_pends(void *userdata _unused_)
{
	return false;
}

static void peers_changed(void *userdata)
{
	struct replica_world *w = userdata;
	struct service_stats s;

	service_stats(w->service, &s);
	protect_wake(w->fs[HERE]->protect);
	w->nr_peers_changed += s.nr_nodes > 0;
}

static void start(struct replica_world *w)
{
	const struct service_store store = { .userdata = w, .pending = nothing_pends, .peers_changed = peers_changed };

	assert_int_equal(service_new(NULL, &w->service), 0);
	assert_int_equal(service_start(w->service, w->socket, &w->welcome, &store), 0);
	assert_int_equal(protect_start(w->fs[HERE]->protect, w->service), 0);
}

static void stop(struct replica_world *w)
{
	if (w->fd >= 0)
		replica_agent_goes(w);
	protect_stop(w->fs[HERE]->protect);
	service_free(w->service);
}

static int set_up_for(void **state, enum protect_mode mode)
{
	struct replica_world *w = calloc(1, sizeof(*w));
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
	/* right behind the partner in the order of ids, and so of no node */
	for (unsigned i = 16; i-- > 0 && ++w->nodes[OTHER].store_id[i] == 0;)
		;
	w->nr_nodes = NR_STORES;
	w->welcome = (struct link_welcome){ .hash = FP_CLMUL, .replicas = 1, .popular_max = 1, .name = "here" };
	memcpy(w->welcome.store_id, w->nodes[HERE].store_id, 16);
	w->bytes = malloc(REPLICA_BYTES);
	for (size_t i = 0; i < REPLICA_BYTES; i++) {
		x = x * UINT64_C(6364136223846793005) + 1; /* no page is like another */
		w->bytes[i] = (uint8_t)(x >> 56);
	}
	assert_int_equal(names_make(w->fs[HERE], NS_ROOT_INO, "step", &dir, &replica_owner, &st), 0);
	w->top = st.st_ino;
	replica_write_file(w, w->top, "file", 0);
	start(w);
	*state = w;
	return 0;
}

int replica_set_up(void **state)
{
	return set_up_for(state, PROTECT_PARTNER);
}

int replica_set_up_parity(void **state)
{
	return set_up_for(state, PROTECT_XOR);
}

int replica_tear_down(void **state)
{
	const struct check_conf conf = { .cache = MiB(16), .read_data = true };
	struct replica_world *w = *state;
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
