/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/nodes/peer_replicas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/cluster.h"
#include "mpi-agent/daemon/nodes/peer_list.h"
#include "mpi-agent/daemon/nodes/peer_query.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "mpi-agent/daemon/replica/replica.h"

#define ABANDONED_NS (UINT64_C(120) * 1000000000) /* twice the time that abandoning waits for other nodes */
#define ABANDONED_MAX 256u /* entries */

/* A replica being created. On the stack of the creating thread. */
struct opening {
	const struct peer_list_seal *seal;
	struct opening *next;
};

struct abandoned {
	uint8_t store[NS_STORE_ID_LEN];
	uint64_t ino;
	uint64_t until_ns; /* 0: empty */
};

struct peer_replicas {
	struct fs *fs; /* constant, as the next one */
	struct peer_query *query;
	struct mutex lock; /* leaf */
	struct cond changed; /* signalled when the creation of a replica has ended */
	struct opening *opening GUARDED_BY(lock);
	struct abandoned abandoned[ABANDONED_MAX] GUARDED_BY(lock);
	unsigned next_abandoned GUARDED_BY(lock);
};

int peer_replicas_new(struct fs *fs, struct peer_query *query, struct peer_replicas **ret)
{
	struct peer_replicas *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->fs = fs;
	o->query = query;
	mutex_init(&o->lock);
	cond_init(&o->changed);
	*ret = o;
	return 0;
}

void peer_replicas_free(struct peer_replicas *o)
{
	if (!o)
		return;
	cond_release(&o->changed);
	mutex_release(&o->lock);
	free(o);
}

static bool is_id(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, NS_STORE_ID_LEN) == 0;
}

static bool is_same(const struct peer_list_seal *a, const struct peer_list_seal *b)
{
	return a->ino == b->ino && a->sealed_ns == b->sealed_ns && is_id(a->store, b->store);
}

/* --- abandoned directories --- */

static struct abandoned *find_abandoned(struct peer_replicas *o, const uint8_t *store, uint64_t ino) REQUIRES(o->lock)
{
	for (unsigned i = 0; i < ABANDONED_MAX; i++)
		if (o->abandoned[i].until_ns > 0 && o->abandoned[i].ino == ino && is_id(o->abandoned[i].store, store))
			return &o->abandoned[i];
	return NULL;
}

void peer_replicas_abandon(struct peer_replicas *o, const uint8_t *store, uint64_t ino, bool yes)
{
	struct abandoned *a;

	mutex_lock(&o->lock);
	a = find_abandoned(o, store, ino);
	if (!a && yes)
		a = &o->abandoned[o->next_abandoned++ % ABANDONED_MAX];
	if (a) {
		*a = (struct abandoned){ .ino = ino, .until_ns = yes ? monotonic_ns() + ABANDONED_NS : 0 };
		memcpy(a->store, store, sizeof(a->store));
	}
	mutex_unlock(&o->lock);
}

bool peer_replicas_is_abandoned(struct peer_replicas *o, const uint8_t *store, uint64_t ino)
{
	const struct abandoned *a;
	bool yes;

	mutex_lock(&o->lock);
	a = find_abandoned(o, store, ino);
	yes = a && monotonic_ns() < a->until_ns;
	mutex_unlock(&o->lock);
	return yes;
}

/* --- one replica --- */

/* 1/0/<0: the top of a complete replica of exactly this seal. */
static int find_replica(struct peer_replicas *o, const struct peer_list_seal *s, uint64_t *ret_top)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = nodes_next(o->fs, top, &top, &c)) > 0)
		if (c.ino == s->ino && c.sealed_ns == s->sealed_ns && is_id(c.store, s->store)) {
			*ret_top = top;
			return 1;
		}
	return r;
}

bool peer_replica_drop(struct fs *fs, uint64_t top, const struct ns_replica *c)
{
	static struct log_limit said;

	if (nodes_drop_replica(fs, top) < 0)
		return false;
	log_limited(&said, LOG_LEVEL_INFO, "node %s, %s: replica dropped", c->name, *c->path ? c->path : "/");
	return true;
}

/* A catalog received in parts. */
struct receiving {
	struct peer_replicas *o;
	const struct peer_list_seal *seal;
	uint64_t off; /* end of `part` */
	struct buf part; /* the answer, ... */
	const uint8_t *at; /* and its unread rest */
	size_t left;
	bool is_last;
};

static struct question question_about(enum question_kind kind, const struct peer_list_seal *s)
{
	struct question q = { .kind = kind, .ino = s->ino, .sealed_ns = s->sealed_ns };

	memcpy(q.store, s->store, sizeof(q.store));
	return q;
}

static int receive_part(struct receiving *rc)
{
	struct question q = question_about(QUESTION_CATALOG, rc->seal);
	const void *p;
	int r;

	q.off = rc->off;
	r = peer_query_ask(rc->o->query, rc->seal->holder, &q, &rc->part);
	if (r == 0)
		r = answer_catalog_decode(rc->part.data, rc->part.len, &rc->is_last, &p, &rc->left);
	if (r < 0)
		return r;
	rc->at = p;
	rc->off += rc->left;
	return 0;
}

static ssize_t receive(void *userdata, void *buf, size_t len)
{
	struct receiving *rc = userdata;
	size_t n;
	int r;

	if (rc->left == 0 && !rc->is_last) {
		r = receive_part(rc);
		if (r < 0)
			return r;
	}
	n = MIN(rc->left, len);
	if (n > 0)
		memcpy(buf, rc->at, n);
	rc->at += n;
	rc->left -= n;
	return (ssize_t)n;
}

/*
 * The node to fetch chunks from first: the owner of the directory. The node that sent the catalog may only refer to the
 * chunks itself, and a node recorded as a location of a chunk is assumed to have it
 * (mpi-agent/daemon/replica/replica_send.h).
 */
static struct cluster_node owner_of(const struct peer_list_seal *s)
{
	struct cluster_node n = { 0 };

	memcpy(n.id, s->store, sizeof(n.id));
	memcpy(n.name, s->name, sizeof(n.name));
	return n;
}

/* Also creates one if a kept replica arrives meanwhile. On failure only the replica created here is dropped. */
static int make_replica(struct peer_replicas *o, const struct peer_list_seal *s)
{
	struct nodes_seal seal = { .ino = s->ino, .sealed_ns = s->sealed_ns, .path = s->path, .cached = true };
	struct receiving rc = { .o = o, .seal = s };
	struct question hold = question_about(QUESTION_HOLD, s);
	_cleanup_(buf_release) struct buf nothing = BUF_EMPTY;
	struct cluster_node owner = owner_of(s);
	uint64_t top;
	int r;

	memcpy(seal.from.id, s->store, sizeof(seal.from.id));
	memcpy(seal.from.name, s->name, sizeof(seal.from.name));
	r = nodes_take(o->fs, &seal, &(struct nodes_source){ receive, &rc }, &owner, &top);
	buf_release(&rc.part);
	if (r == -EEXIST)
		return 0;
	if (r == -ENODATA || r == -ESTALE)
		return -ENOENT;
	if (r < 0)
		return log_errno(r, "node %s, %s: cannot fetch", s->name, *s->path ? s->path : "/");
	r = peer_query_ask(o->query, s->holder, &hold, &nothing);
	if (peer_replicas_is_abandoned(o, s->store, s->ino)) /* abandoned while it was created */
		r = -ESTALE;
	if (r == -ENODATA || r == -ESTALE) {
		nodes_drop_replica(o->fs, top);
		return -ENOENT;
	}
	if (r < 0)
		log_warning("node %s, %s: not all of its chunks are pinned (%s); chunks deleted there meanwhile cannot be read here",
			    s->name, *s->path ? s->path : "/", strerror(-r));
	return 0;
}

/* Only one thread creates a replica of the same directory; others wait for it. */
int peer_replicas_open(struct peer_replicas *o, const struct peer_list_seal *s, uint64_t *ret_top)
{
	struct opening op = { s, NULL };
	int r;

	mutex_lock(&o->lock);
	for (struct opening *i = o->opening; i;)
		if (is_same(i->seal, s)) {
			cond_wait(&o->changed, &o->lock);
			i = o->opening;
		} else {
			i = i->next;
		}
	op.next = o->opening;
	o->opening = &op;
	mutex_unlock(&o->lock);
	r = find_replica(o, s, ret_top);
	if (r == 0 && peer_replicas_is_abandoned(o, s->store, s->ino))
		r = -ENOENT;
	if (r == 0) {
		r = make_replica(o, s);
		if (r == 0)
			r = find_replica(o, s, ret_top);
		if (r == 0)
			r = -ENOENT;
	}
	mutex_lock(&o->lock);
	for (struct opening **at = &o->opening; *at; at = &(*at)->next)
		if (*at == &op) {
			*at = op.next;
			break;
		}
	cond_broadcast(&o->changed);
	mutex_unlock(&o->lock);
	return MIN(r, 0);
}
