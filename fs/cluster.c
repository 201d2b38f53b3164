#include "fs/cluster.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/options.h"
#include "mpi-agent/link_format.h"
#include "mpi-agent/service.h"
#include "store/engine/cluster.h"

#define POPULAR_MIN (1u << 17) /* 5 MiB in the agent: what is pending on all nodes together is more than on one */

struct cluster {
	struct service *service;
	struct engine *engine; /* NULL: not started */
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

/* --- what the service wants of the engine --- */

static bool pending(void *userdata)
{
	return engine_cluster_pending(((struct cluster *)userdata)->engine);
}

static void commit(void *userdata)
{
	engine_sync(((struct cluster *)userdata)->engine); /* logged where it fails, and tried again by the timer */
}

static int chunk(void *userdata, struct fp fp, uint32_t len, void *buf)
{
	return engine_cluster_chunk(((struct cluster *)userdata)->engine, fp, len, buf);
}

static int lend(void *userdata, const struct fp *fps, size_t nr, bool *lent)
{
	return engine_cluster_lend(((struct cluster *)userdata)->engine, fps, nr, lent);
}

/* --- who this is --- */

/* The host for people, and a part of the id: there may be several stores on a host, and a store may come to another one. */
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
	const struct service_store calls = { c, pending, commit, chunk, lend };
	struct link_welcome welcome = welcome_of(id, o);
	_cleanup_(freep) char *path = NULL;

	if (o->agent)
		return service_start(c->service, o->agent, &welcome, &calls);
	if (asprintf(&path, "%s/agent.sock", store) < 0) {
		path = NULL; /* it may be anything */
		return -ENOMEM;
	}
	return service_start(c->service, path, &welcome, &calls);
}

int cluster_start(struct cluster *c, struct engine *e, const char *store, const struct options *o)
{
	struct cluster_identity id;
	int r;

	if (engine_cluster_identity(e, &id) == 0) {
		if (!o->agent)
			return 0;
		log_error("option agent=%s: store %s was made without cluster=, so no other store knows its fingerprints",
			  o->agent, store);
		return -EINVAL;
	}
	c->engine = e;
	r = await_agent(c, &id, store, o);
	if (r < 0 && !o->agent && r != -ENOMEM) {
		log_warning("store %s: no agent can come; what is on other nodes cannot be read. agent= names another place",
			    store);
		return 0; /* a store on a disk that cannot be written, for instance */
	}
	return r;
}

void cluster_stop(struct cluster *c)
{
	if (!c || !c->engine)
		return;
	engine_sync(c->engine);
	service_stop(c->service);
}

void cluster_free(struct cluster *c)
{
	if (!c)
		return;
	service_free(c->service);
	free(c);
}

bool cluster_stats(struct cluster *c, struct service_stats *ret)
{
	*ret = (struct service_stats){ 0 };
	if (!c || !c->engine)
		return false;
	service_stats(c->service, ret);
	return true;
}
