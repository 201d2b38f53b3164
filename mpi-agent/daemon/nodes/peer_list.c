/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/nodes/peer_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/seal/seal_catalog.h"
#include "mpi-agent/daemon/cluster.h"
#include "mpi-agent/daemon/nodes/peer_query.h"
#include "mpi-agent/daemon/nodes/peer_replicas.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "mpi-agent/daemon/replica/replica.h"

#define LISTING_NS (UINT64_C(1) * 1000000000)
#define LISTINGS_MAX 16u /* number of nodes with a cached listing */
#define SEALS_MAX (1u << 14) /* limits of a listing: number of seals, ... */
#define PATHS_MAX (4u << 20) /* bytes, ... */
#define PARTS_MAX 4096u /* and answers; the rest is ignored */

struct listing {
	uint8_t id[NS_STORE_ID_LEN];
	uint64_t when_ns; /* 0: empty */
	struct peer_list_seals seals; /* its complete listing */
};

struct peer_list {
	struct fs *fs; /* constant, as the next two */
	struct peer_query *query;
	struct peer_replicas *replicas;
	struct mutex lock; /* leaf */
	struct listing listing[LISTINGS_MAX] GUARDED_BY(lock);
};

int peer_list_new(struct fs *fs, struct peer_list **ret)
{
	struct peer_list *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->fs = fs;
	mutex_init(&o->lock);
	r = peer_query_new(fs->cluster, &o->query);
	if (r == 0)
		r = peer_replicas_new(fs, o->query, &o->replicas);
	if (r < 0) {
		peer_list_free(o);
		return r;
	}
	*ret = o;
	return 0;
}

void peer_list_free(struct peer_list *o)
{
	if (!o)
		return;
	for (unsigned i = 0; i < LISTINGS_MAX; i++)
		peer_list_seals_release(&o->listing[i].seals);
	mutex_release(&o->lock);
	peer_replicas_free(o->replicas);
	peer_query_free(o->query);
	free(o);
}

/* --- listings --- */

void peer_list_seals_release(struct peer_list_seals *s)
{
	for (size_t i = 0; i < s->nr; i++)
		free(s->v[i].path);
	free(s->v);
	*s = (struct peer_list_seals){ 0 };
}

/* Copies the path. */
static int add_seal(struct peer_list_seals *l, const struct peer_list_seal *s)
{
	char *path = strdup(s->path);

	if (path && l->nr == l->room) {
		size_t room = MAX(2 * l->room, (size_t)16);
		struct peer_list_seal *more = reallocarray(l->v, room, sizeof(*more));

		if (more) {
			l->v = more;
			l->room = room;
		}
	}
	if (!path || l->nr == l->room) {
		free(path);
		return -ENOMEM;
	}
	l->v[l->nr] = *s;
	l->v[l->nr++].path = path;
	return 0;
}

static int add_all(struct peer_list_seals *l, const struct peer_list_seals *from)
{
	int r = 0;

	l->is_cut |= from->is_cut;
	for (size_t i = 0; i < from->nr && r == 0; i++)
		r = add_seal(l, &from->v[i]);
	return r;
}

static bool is_id(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, NS_STORE_ID_LEN) == 0;
}

static bool is_same(const struct peer_list_seal *a, const struct peer_list_seal *b)
{
	return a->ino == b->ino && a->sealed_ns == b->sealed_ns && is_id(a->store, b->store);
}

static bool contains_seal(const struct peer_list_seals *l, const struct peer_list_seal *s)
{
	for (size_t i = 0; i < l->nr; i++)
		if (is_same(&l->v[i], s))
			return true;
	return false;
}

static int by_path(const void *a, const void *b)
{
	const struct peer_list_seal *x = a, *y = b;
	int r = strcmp(x->path, y->path);

	return r != 0 ? r : (x->sealed_ns < y->sealed_ns) - (x->sealed_ns > y->sealed_ns);
}

static void sort(struct peer_list_seals *l)
{
	size_t kept = 0;

	if (l->nr > 0)
		qsort(l->v, l->nr, sizeof(*l->v), by_path);
	for (size_t i = 0; i < l->nr; i++)
		if (kept > 0 && strcmp(l->v[kept - 1].path, l->v[i].path) == 0)
			free(l->v[i].path);
		else
			l->v[kept++] = l->v[i];
	l->nr = kept;
}

/* --- queries --- */

static int take_list(const uint8_t *holder, const struct buf *answer, struct question *q, struct peer_list_seals *ret)
{
	struct cursor c = cursor_of(answer->data, answer->len);
	struct question before = *q;
	struct answer_seal t;
	int r = answer_head_decode(&c, &q->seals_after, &q->replicas_after);

	while (r >= 0 && (r = answer_seal_next(&c, &t)) > 0) {
		struct peer_list_seal s = { .ino = t.ino, .sealed_ns = t.sealed_ns, .path = t.path, .access = t.access };

		memcpy(s.store, t.store, sizeof(s.store));
		memcpy(s.holder, holder, sizeof(s.holder));
		memcpy(s.name, t.name, sizeof(s.name));
		r = add_seal(ret, &s);
	}
	if (r == 0 && q->seals_after == before.seals_after && q->replicas_after == before.replicas_after)
		return -EBADMSG; /* would loop forever */
	return r;
}

static int request_seals(struct peer_list *o, const uint8_t *id, struct peer_list_seals *ret)
{
	struct question q = { .kind = QUESTION_SEALS };
	size_t bytes = 0;
	int r = 0;

	for (unsigned i = 0; r == 0 && (q.seals_after != QUESTION_AT_END || q.replicas_after != QUESTION_AT_END); i++) {
		_cleanup_(buf_release) struct buf answer = BUF_EMPTY;

		if (i == PARTS_MAX || ret->nr > SEALS_MAX || bytes > PATHS_MAX) {
			log_warning("a node has too many sealed directories: only %zu are shown", ret->nr);
			ret->is_cut = true;
			return 0;
		}
		r = peer_query_ask(o->query, id, &q, &answer);
		if (r == 0)
			r = take_list(id, &answer, &q, ret);
		bytes += answer.len;
	}
	return r;
}

static void remember(struct peer_list *o, const uint8_t *id, const struct peer_list_seals *l) REQUIRES(o->lock)
{
	struct listing *h = &o->listing[0];

	for (unsigned i = 0; i < LISTINGS_MAX; i++) {
		if (is_id(o->listing[i].id, id)) {
			h = &o->listing[i];
			break;
		}
		if (o->listing[i].when_ns < h->when_ns)
			h = &o->listing[i];
	}
	peer_list_seals_release(&h->seals);
	h->when_ns = 0;
	if (add_all(&h->seals, l) < 0)
		return; /* the node is asked again */
	memcpy(h->id, id, sizeof(h->id));
	h->when_ns = monotonic_ns();
}

/* Get the complete listing of a node, from the cache if recent. */
static int list_seals(struct peer_list *o, const uint8_t *id, struct peer_list_seals *ret)
{
	bool is_fresh = false;
	int r = 0;

	mutex_lock(&o->lock);
	for (unsigned i = 0; i < LISTINGS_MAX && !is_fresh; i++) {
		const struct listing *h = &o->listing[i];

		is_fresh = h->when_ns > 0 && is_id(h->id, id) && monotonic_ns() - h->when_ns < LISTING_NS;
		if (is_fresh)
			r = add_all(ret, &h->seals);
	}
	mutex_unlock(&o->lock);
	if (is_fresh)
		return r;
	r = request_seals(o, id, ret);
	if (r == -EBADMSG)
		log_warning("a node sent a malformed list of sealed directories; asked again at the next lookup");
	if (r < 0)
		return r;
	mutex_lock(&o->lock);
	remember(o, id, ret);
	mutex_unlock(&o->lock);
	return 0;
}

void peer_list_forget(struct peer_list *o)
{
	mutex_lock(&o->lock);
	for (unsigned i = 0; i < LISTINGS_MAX; i++)
		o->listing[i].when_ns = 0;
	mutex_unlock(&o->lock);
}

/* --- nodes --- */

struct node_list {
	struct peer_list_node *v;
	size_t nr, room;
};

static bool has_node(const struct node_list *l, const uint8_t *id)
{
	for (size_t i = 0; i < l->nr; i++)
		if (is_id(l->v[i].id, id))
			return true;
	return false;
}

static int add_node(struct peer_list *o, struct node_list *l, const uint8_t *id, const char *name, bool is_live)
{
	if (is_id(id, engine_store_id(o->fs->engine)) || has_node(l, id))
		return 0;
	if (l->nr == l->room) {
		size_t room = MAX(2 * l->room, (size_t)16);
		struct peer_list_node *more = reallocarray(l->v, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->v = more;
		l->room = room;
	}
	memcpy(l->v[l->nr].id, id, sizeof(l->v->id));
	snprintf(l->v[l->nr].name, sizeof(l->v->name), "%s", name);
	l->v[l->nr++].is_live = is_live;
	return 0;
}

static int add_live(struct peer_list *o, struct node_list *l)
{
	_cleanup_(freep) struct cluster_node *nodes = NULL;
	uint32_t nr, self;
	int r = cluster_nodes(o->fs->cluster, &nodes, &nr, &self);

	for (uint32_t i = 0; r == 0 && i < nr; i++)
		r = add_node(o, l, nodes[i].id, nodes[i].name, true);
	return r;
}

static int add_replicated_nodes(struct peer_list *o, struct node_list *l)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = nodes_next(o->fs, top, &top, &c)) > 0) {
		r = add_node(o, l, c.store, c.name, false);
		if (r < 0)
			return r;
	}
	return r;
}

/* Add nodes of which connected nodes have replicas. Unresponsive nodes are skipped. */
static int add_reported(struct peer_list *o, struct node_list *l)
{
	size_t nr_live = 0;
	int r = 0;

	while (nr_live < l->nr && l->v[nr_live].is_live)
		nr_live++;
	for (size_t i = 0; i < nr_live && r == 0; i++) {
		_cleanup_(peer_list_seals_release) struct peer_list_seals reported = { 0 };

		if (list_seals(o, l->v[i].id, &reported) < 0)
			continue;
		for (size_t k = 0; k < reported.nr && r == 0; k++)
			r = add_node(o, l, reported.v[k].store, reported.v[k].name, false);
	}
	return r;
}

static int list_nodes(struct peer_list *o, bool asks, struct node_list *l)
{
	int r = add_live(o, l);

	if (r == 0)
		r = add_replicated_nodes(o, l);
	if (r == 0 && asks)
		r = add_reported(o, l);
	return r;
}

int peer_list_nodes(struct peer_list *o, struct peer_list_node **ret, size_t *ret_nr)
{
	struct node_list l = { 0 };
	int r = list_nodes(o, true, &l);

	if (r < 0) {
		free(l.v);
		return r;
	}
	*ret = l.v;
	*ret_nr = l.nr;
	return 0;
}

void peer_list_long_name(const struct peer_list_node *n, char ret[PEER_LIST_NAME_MAX + 1])
{
	int at = snprintf(ret, PEER_LIST_NAME_MAX + 1, "%s~", n->name);

	for (unsigned i = 0; i < sizeof(n->id); i++)
		at += snprintf(ret + at, (size_t)(PEER_LIST_NAME_MAX + 1 - at), "%02x", n->id[i]);
}

void peer_list_shown_name(const struct peer_list_node *all, size_t nr, size_t i, char ret[PEER_LIST_NAME_MAX + 1])
{
	for (size_t k = 0; k < nr; k++)
		if (k != i && strcmp(all[k].name, all[i].name) == 0) {
			peer_list_long_name(&all[i], ret);
			return;
		}
	snprintf(ret, PEER_LIST_NAME_MAX + 1, "%s", all[i].name);
}

static bool matches_name(const struct peer_list_node *n, const char *name, bool *ret_exactly)
{
	char full[PEER_LIST_NAME_MAX + 1];

	peer_list_long_name(n, full);
	*ret_exactly = strcmp(full, name) == 0;
	return *ret_exactly || strcmp(n->name, name) == 0;
}

/* 1; 0: none; -EEXIST: ambiguous, both among connected nodes and among all. */
static int find_named(const struct node_list *l, const char *name, struct peer_list_node *ret)
{
	unsigned nr = 0, nr_live = 0;
	bool exactly;

	for (size_t i = 0; i < l->nr; i++) {
		if (!matches_name(&l->v[i], name, &exactly))
			continue;
		if (exactly) {
			*ret = l->v[i];
			return 1;
		}
		nr++;
		nr_live += l->v[i].is_live;
		if (nr == 1 || l->v[i].is_live)
			*ret = l->v[i];
	}
	return nr == 1 || nr_live == 1 ? 1 : nr == 0 ? 0 : -EEXIST;
}

/* Peers are queried only if the name is not known here. */
int peer_list_find(struct peer_list *o, const char *name, struct peer_list_node *ret)
{
	struct node_list l = { 0 };
	int r = list_nodes(o, false, &l);

	if (r == 0)
		r = find_named(&l, name, ret);
	if (r == 0)
		r = add_reported(o, &l);
	if (r == 0)
		r = find_named(&l, name, ret);
	free(l.v);
	return r == -EEXIST ? 0 : r;
}

/* --- sealed directories of a node --- */

/* The node itself has answered, so the listing is complete. */
static int match_replicas(struct peer_list *o, const uint8_t *id, struct peer_list_seals *l)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = nodes_next(o->fs, top, &top, &c)) > 0) {
		bool is_reported = false;

		for (size_t i = 0; i < l->nr; i++)
			if (l->v[i].ino == c.ino && l->v[i].sealed_ns == c.sealed_ns && is_id(c.store, id)) {
				l->v[i].top = top;
				is_reported = true;
				r = l->v[i].access ? nodes_set_access(o->fs, top, l->v[i].access & CATALOG_ACCESS) : 0;
				if (r < 0)
					return r; /* rather than keep access that was revoked */
			}
		if (!is_reported && is_id(c.store, id) && c.state == NS_REPLICA_CACHED && !l->is_cut)
			peer_replica_drop(o->fs, top, &c);
	}
	return r;
}

static int add_replicas(struct peer_list *o, const uint8_t *id, struct peer_list_seals *l)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = nodes_next(o->fs, top, &top, &c)) > 0) {
		struct peer_list_seal s = { .ino = c.ino, .sealed_ns = c.sealed_ns, .top = top, .path = c.path };

		if (!is_id(c.store, id))
			continue;
		memcpy(s.store, c.store, sizeof(s.store));
		memcpy(s.name, c.name, sizeof(s.name));
		r = add_seal(l, &s);
		if (r < 0)
			return r;
	}
	return r;
}

static int add_of_node(const struct peer_list_seals *from, const uint8_t *id, struct peer_list_seals *ret)
{
	int r = 0;

	ret->is_cut |= from->is_cut;
	for (size_t i = 0; i < from->nr && r == 0; i++)
		if (is_id(from->v[i].store, id) && !contains_seal(ret, &from->v[i]))
			r = add_seal(ret, &from->v[i]);
	return r;
}

/* The node is not connected: use the replicas of this store and of others. */
static int seals_of_absent(struct peer_list *o, const uint8_t *id, const struct node_list *live,
			   struct peer_list_seals *ret)
{
	int r = add_replicas(o, id, ret);

	for (size_t i = 0; i < live->nr && r == 0; i++) {
		_cleanup_(peer_list_seals_release) struct peer_list_seals reported = { 0 };

		if (!is_id(live->v[i].id, id) && list_seals(o, live->v[i].id, &reported) == 0)
			r = add_of_node(&reported, id, ret);
	}
	return r;
}

int peer_list_seals(struct peer_list *o, const uint8_t *id, struct peer_list_seals *ret)
{
	_cleanup_(peer_list_seals_release) struct peer_list_seals reported = { 0 };
	struct node_list live = { 0 };
	int r = add_live(o, &live);

	if (r == 0 && has_node(&live, id) && list_seals(o, id, &reported) == 0) {
		r = add_of_node(&reported, id, ret);
		if (r == 0)
			r = match_replicas(o, id, ret);
	} else if (r == 0) {
		r = seals_of_absent(o, id, &live, ret);
	}
	free(live.v);
	if (r == 0)
		sort(ret);
	return r;
}

/* --- replicas --- */

int peer_list_open(struct peer_list *o, const struct peer_list_seal *s, uint64_t *ret_top)
{
	int r;

	if (s->top != 0) {
		*ret_top = s->top;
		return 0;
	}
	r = peer_replicas_open(o->replicas, s, ret_top);
	if (r == -ENOENT)
		peer_list_forget(o);
	return r;
}

void peer_list_abandon(struct peer_list *o, const uint8_t *store, uint64_t ino, bool yes)
{
	peer_replicas_abandon(o->replicas, store, ino, yes);
}

bool peer_list_is_abandoned(struct peer_list *o, const uint8_t *store, uint64_t ino)
{
	return peer_replicas_is_abandoned(o->replicas, store, ino);
}

/* Is there also a kept replica of the same? 1/0/<0 */
static int is_kept(struct peer_list *o, const struct ns_replica *of)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r;

	while ((r = nodes_next(o->fs, top, &top, &c)) > 0)
		if (c.state == NS_REPLICA_KEPT && c.ino == of->ino && c.sealed_ns == of->sealed_ns &&
		    is_id(c.store, of->store))
			return 1;
	return r;
}

/* Not in use, and either available again from its node or also kept here. */
static bool is_expendable(struct peer_list *o, const struct node_list *live, uint64_t top, const struct ns_replica *c)
{
	return c->state == NS_REPLICA_CACHED && !nodes_is_looked_at(o->fs, top) &&
	       (has_node(live, c->store) || is_kept(o, c) > 0);
}

int peer_list_trim(struct peer_list *o)
{
	struct node_list live = { 0 };
	struct ns_replica c;
	uint64_t top = 0;
	int r = add_live(o, &live), nr = 0;

	while (r >= 0 && (r = nodes_next(o->fs, top, &top, &c)) > 0)
		if (is_expendable(o, &live, top, &c))
			nr += peer_replica_drop(o->fs, top, &c);
	free(live.v);
	return r < 0 ? r : nr;
}

/* Count the cached replicas, and list their nodes (NULL: count only). */
static int count_cached(struct peer_list *o, struct node_list *ret_of)
{
	struct ns_replica c;
	uint64_t top = 0;
	int r, nr = 0;

	while ((r = nodes_next(o->fs, top, &top, &c)) > 0) {
		if (c.state != NS_REPLICA_CACHED)
			continue;
		nr++;
		r = ret_of ? add_node(o, ret_of, c.store, c.name, false) : 0;
		if (r < 0)
			break;
	}
	return r < 0 ? r : nr;
}

int peer_list_check(struct peer_list *o)
{
	struct node_list of = { 0 };
	int before = count_cached(o, &of), after;

	peer_list_forget(o);
	for (size_t i = 0; i < of.nr && before > 0; i++) {
		_cleanup_(peer_list_seals_release) struct peer_list_seals reported = { 0 };

		(void)peer_list_seals(o, of.v[i].id, &reported); /* drops those that are gone */
	}
	free(of.v);
	after = before > 0 ? count_cached(o, NULL) : before;
	return before < 0 || after < 0 ? MIN(before, after) : MAX(before - after, 0);
}
