/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/cluster.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/nodes/answers.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica_receive.h"
#include "fs/mount_options.h"
#include "mpi-agent/daemon/replica/protect.h"
#include "mpi-agent/daemon/parity/stripes.h"
#include "mpi-agent/daemon/nodes/node_view.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/service.h"
#include "store/remote/cluster_calls.h"
#include "store/engine.h"

#define POPULAR_MIN (1u << 17) /* 5 MiB in the agent: all nodes together have more pending than one */

struct cluster {
	struct service *service;
	struct engine *engine; /* NULL: not started, as for the two below */
	struct fs *fs;
	struct answers *answers;
	char name[CLUSTER_NAME_LEN];
};

int cluster_new(struct cluster **ret)
{
	_cleanup_(freep) struct cluster *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	r = service_new(NULL, &c->service);
	if (r < 0)
		return r;
	*ret = TAKE(c);
	return 0;
}

const struct cluster_calls *cluster_engine_calls(struct cluster *c)
{
	return service_calls(c->service);
}

/* --- callbacks of the service to the engine --- */

static bool pending(void *userdata)
{
	return engine_cluster_pending(((struct cluster *)userdata)->engine);
}

static void commit(void *userdata)
{
	/* logs its failures; the next commit retries */
	engine_cluster_round(((struct cluster *)userdata)->engine);
}

static void shared(void *userdata)
{
	engine_cluster_is_shared(((struct cluster *)userdata)->engine);
}

static uint64_t deferred_ns(void *userdata)
{
	return engine_cluster_deferred_ns(((struct cluster *)userdata)->engine);
}

static int chunks(void *userdata, struct cluster_want *wants, size_t nr)
{
	return engine_cluster_chunks(((struct cluster *)userdata)->engine, wants, nr);
}

static int pin(void *userdata, const struct cluster_node *nodes, uint32_t nr_nodes, const struct fp *fps, size_t nr,
		bool *pinned)
{
	struct engine *e = ((struct cluster *)userdata)->engine;
	int r = engine_cluster_register_peers(e, nodes, nr_nodes);

	return r < 0 ? r : engine_cluster_pin(e, fps, nr, pinned);
}

static int answer_question(void *userdata, const void *question, size_t len, struct buf *ret)
{
	return answers_give(((struct cluster *)userdata)->answers, question, len, ret);
}

/* --- requests of other nodes to store something --- */

static int store_chunks(void *userdata, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
			uint8_t *kept)
{
	return replica_receive_chunks(((struct cluster *)userdata)->fs, put, nodes, nr_nodes, kept);
}

static struct stripe_io io_of(struct cluster *c)
{
	return (struct stripe_io){ c->fs, service_fetch_whole, c->service };
}

static int replicate(void *userdata, const struct link_replica *replica, const struct cluster_node *nodes,
		     uint32_t nr_nodes)
{
	struct cluster *c = userdata;
	struct stripe_io io = io_of(c);
	struct service_world w = { 0 };
	int r;

	if (replica->step == LINK_REPLICA_CREATE)
		return replica_receive_catalog(c->fs, replica, nodes, nr_nodes);
	r = service_world(c->service, &w);
	if (r == 0)
		r = replica->step == LINK_REPLICA_COVER ? replica_receive_cover(c->fs, replica, &io, &w) :
							  replica_receive_settle(c->fs, replica, &w);
	service_world_release(&w);
	return r;
}

static int drop_replica(void *userdata, const struct link_drop *d)
{
	struct cluster *c = userdata;
	struct service_world w = { 0 };
	int r = replica_receive_drop(c->fs, d);

	if (r == 0)
		r = service_world(c->service, &w);
	if (r == 0)
		r = replica_receive_uncover(c->fs, &w);
	service_world_release(&w);
	return r;
}

static int rebuild(void *userdata, struct cluster_want *wants, size_t nr)
{
	struct cluster *c = userdata;
	struct stripe_io io = io_of(c);
	struct service_world w = { 0 };
	int r = service_world(c->service, &w);

	if (r == 0)
		r = stripes_rebuild(c->fs->stripes, &io, &w, wants, nr);
	service_world_release(&w);
	return r;
}

static void peers_changed(void *userdata)
{
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	struct cluster *c = userdata;
	uint32_t nr = 0, self;

	service_nodes(c->service, &nodes, &nr, &self); /* on ENOMEM: none, which costs space */
	engine_cluster_present(c->engine, nodes, nr);
	if (nr == 0)
		return;
	engine_cluster_peers_changed(c->engine);
	protect_wake(c->fs->protect);
}

/* --- garbage collection by all nodes --- */

#define MOVE_BELOW 25 /* percent, as in ckptfs-gc */

static bool gc_goes_on(void *userdata, const struct gc_report *so_far)
{
	(void)so_far;
	return !service_stopping(((struct cluster *)userdata)->service);
}

/* A collection already running here (-EBUSY) serves the purpose. */
static int collect_here(struct cluster *c)
{
	const struct gc_conf conf = { .delete = true, .move_below = MOVE_BELOW, .step = gc_goes_on, .userdata = c };
	struct gc_report report;
	int r = engine_gc(c->engine, &conf, &report);

	return r == -EBUSY ? 0 : r;
}

static int prepare(struct cluster *c, const struct cluster_node *nodes, uint32_t nr_nodes, bool is_ours,
		   struct link_done *ret)
{
	struct cluster_node missing;
	int r = 0;

	if (!is_ours) { /* otherwise ckptfs-gc has just done so */
		view_trim(c->fs->view);
		r = collect_here(c);
	}
	if (r == 0)
		r = engine_cluster_register_peers(c->engine, nodes, nr_nodes);
	if (r < 0)
		return r;
	if (engine_cluster_missing(c->engine, nodes, nr_nodes, &missing) > 0)
		memcpy(ret->missing, missing.name, sizeof(ret->missing));
	ret->nr_referred = engine_cluster_nr_referred(c->engine);
	return 0;
}

static int unpin(struct cluster *c, const struct cluster_window *w, const struct link_step *step, struct link_done *ret)
{
	struct cluster_unpinned u;
	int r = engine_cluster_unpin(c->engine, w, step->filter, step->len, &u);

	if (r < 0)
		return r;
	ret->nr_kept = u.nr_kept;
	ret->kept_bytes = u.kept_bytes;
	ret->nr_dropped = u.nr_dropped;
	ret->dropped_bytes = u.dropped_bytes;
	return 0;
}

static int collect_step(void *userdata, const struct link_step *s, const struct cluster_node *nodes, uint32_t nr_nodes,
			bool is_ours, uint8_t *filter, struct link_done *ret)
{
	const struct cluster_window w = { s->window, s->nr_windows, s->seed };
	struct cluster *c = userdata;

	static_assert(LINK_FILTER_MIN == CLUSTER_FILTER_MIN && LINK_FILTER_MAX == CLUSTER_FILTER_MAX, "as they come");
	switch (s->kind) {
	case LINK_PREPARE:
		return prepare(c, nodes, nr_nodes, is_ours, ret);
	case LINK_MARK:
		return engine_cluster_mark(c->engine, &w, filter, s->len);
	case LINK_UNPIN:
		return unpin(c, &w, s, ret);
	}
	return -EOPNOTSUPP;
}

static void collection_ended(void *userdata, bool free_too)
{
	struct cluster *c = userdata;

	engine_cluster_end_collection(c->engine);
	if (free_too)
		collect_here(c); /* logs its failures; the next collection retries */
}

int cluster_collect(struct cluster *c, bool (*goes_on)(void *userdata), void *userdata, struct cluster_collection *ret)
{
	struct link_done d;
	int r;

	if (!c || !c->engine)
		return -EOPNOTSUPP;
	r = service_collect(c->service, goes_on, userdata, &d);
	if (r < 0)
		return r;
	*ret = (struct cluster_collection){ d.nr_kept, d.kept_bytes, d.nr_dropped, d.dropped_bytes, d.error, "" };
	static_assert(sizeof(ret->missing) == sizeof(d.missing), "as it comes");
	memcpy(ret->missing, d.missing, sizeof(ret->missing));
	return 0;
}

/* --- identity and start --- */

/*
 * The host name for readability, and a part of the id: a host may have several stores, and a store may move to another
 * host.
 */
static void node_name(const struct cluster_identity *id, char ret[LINK_NAME_LEN])
{
	char host[48] = "";

	gethostname(host, sizeof(host) - 1);
	for (char *p = host; *p; p++)
		if (*p <= ' ' || *p > '~' || *p == '/')
			*p = '-';
	snprintf(ret, LINK_NAME_LEN, "%s-%02x%02x%02x%02x", *host ? host : "node", id->id[0], id->id[1], id->id[2],
		 id->id[3]);
}

static struct link_welcome welcome_of(const struct cluster_identity *id, const struct options *o)
{
	struct link_welcome w = {
		.hash = id->hash,
		.incompat = id->incompat,
		.replicas = (uint32_t)o->replicas,
		.popular_max = MAX(o->engine.pending / o->engine.page, (uint64_t)POPULAR_MIN),
	};

	static_assert(sizeof(w.store_id) == sizeof(id->id) && sizeof(w.proof_key) == sizeof(id->proof_key),
		      "as they are");
	memcpy(w.store_id, id->id, sizeof(w.store_id));
	memcpy(w.proof_key, id->proof_key, sizeof(w.proof_key));
	node_name(id, w.name);
	return w;
}

static int await_agent(struct cluster *c, const struct cluster_identity *id, const char *store, const struct options *o)
{
	const struct service_store calls = {
		.userdata = c,
		.pending = pending,
		.commit = commit,
		.chunks = chunks,
		.pin = pin,
		.step = collect_step,
		.collection_ended = collection_ended,
		.answer = answer_question,
		.keep = store_chunks,
		.replicate = replicate,
		.drop = drop_replica,
		.peers_changed = peers_changed,
		.rebuild = rebuild,
		.shared = shared,
		.deferred_ns = deferred_ns,
	};
	struct link_welcome welcome = welcome_of(id, o);
	_cleanup_(freep) char *path = NULL;

	static_assert(sizeof(c->name) == sizeof(welcome.name), "as it is");
	memcpy(c->name, welcome.name, sizeof(c->name));
	if (o->agent)
		return service_start(c->service, o->agent, &welcome, &calls);
	if (asprintf(&path, "%s/agent.sock", store) < 0) {
		path = NULL; /* undefined after a failure */
		return -ENOMEM;
	}
	return service_start(c->service, path, &welcome, &calls);
}

int cluster_start(struct cluster *c, struct fs *fs, const char *store, const struct options *o)
{
	struct cluster_identity id;
	int r;

	if (engine_cluster_identity(fs->engine, &id) == 0) {
		if (o->protect != PROTECT_NONE)
			return log_cause(-EINVAL,
					 "option protect=: store %s was made without cluster=, so there is no other node",
					 store);
		if (o->compact_group > 0)
			return log_cause(
				-EINVAL,
				"option compact_group=: store %s was made without cluster=, so there is no other node",
				store);
		if (!o->agent)
			return 0;
		log_error("option agent=%s: store %s was made without cluster=, so it has no agent",
			  o->agent, store);
		return -EINVAL;
	}
	r = answers_new(fs, store, &c->answers);
	if (r < 0)
		return r;
	c->engine = fs->engine;
	c->fs = fs;
	r = await_agent(c, &id, store, o);
	if (r < 0 && !o->agent && r != -ENOMEM) {
		log_warning("store %s: no agent can connect, so remote chunks cannot be read; agent= sets another socket",
			    store);
		return 0; /* for instance, a store on a read-only disk */
	}
	return r;
}

void cluster_stop(struct cluster *c)
{
	if (!c || !c->engine)
		return;
	engine_sync(c->engine);
	service_stop(c->service);
	answers_free(TAKE(c->answers));
}

void cluster_free(struct cluster *c)
{
	if (!c)
		return;
	service_free(c->service);
	free(c);
}

struct service *cluster_service(struct cluster *c)
{
	return c && c->engine ? c->service : NULL;
}

bool cluster_stats(struct cluster *c, struct service_stats *ret)
{
	*ret = (struct service_stats){ 0 };
	if (!c || !c->engine)
		return false;
	service_stats(c->service, ret);
	return true;
}

void cluster_name(struct cluster *c, char ret[CLUSTER_NAME_LEN])
{
	memset(ret, 0, CLUSTER_NAME_LEN);
	if (c)
		memcpy(ret, c->name, CLUSTER_NAME_LEN);
}

int cluster_nodes(struct cluster *c, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self)
{
	if (c && c->engine)
		return service_nodes(c->service, ret, ret_nr, ret_self);
	*ret = NULL;
	*ret_nr = *ret_self = 0;
	return 0;
}

int cluster_register_peers(struct cluster *c)
{
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	uint32_t nr, self;
	int r;

	if (!c || !c->engine)
		return 0;
	r = cluster_nodes(c, &nodes, &nr, &self);
	return r < 0 || nr == 0 ? r : engine_cluster_register_peers(c->engine, nodes, nr);
}

int cluster_ask(struct cluster *c, const uint8_t *id, const void *question, size_t len, struct buf *ret)
{
	return c && c->engine ? service_ask(c->service, id, question, len, ret) : -ENOTCONN;
}
