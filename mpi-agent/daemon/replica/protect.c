/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Order of protecting a directory:
 *   1. A guard record names the node that is to hold it.   crash: it is sent again, or dropped there if it is no longer
 *                                                          sealed
 *   2. Chunks, then the replica, are durable there.        crash: likewise
 *   3. The record is marked as done.
 * Records are in the log like all changes of names, after the seal and before its removal. So a node that holds a
 * replica, complete or partial, stays recorded until it has confirmed the drop. Losing the update of step 3 costs
 * checking all chunks once more.
 *
 * The thread scans all seals and all records: after each change, when nodes have connected, and some time after a
 * failure.
 */
#include "mpi-agent/daemon/replica/protect.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/gather_group.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "fs/mount_options.h"
#include "mpi-agent/daemon/replica/partners.h"
#include "mpi-agent/daemon/replica/replica_send.h"
#include "fs/seal/seal.h"
#include "index/guards.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/service.h"

#define RETRY_NS (UINT64_C(30) * 1000000000)
#define SOON_NS (UINT64_C(1) * 1000000000) /* retry interval while all nodes collect */
#define SOON_MAX 60u /* consecutive retries */
#define LAG_NS (UINT64_C(1) * 1000000000) /* interval of note_lag() while directories are sent */
#define FAILURES 64u

struct failure {
	uint64_t dir; /* 0: empty */
	int error;
};

struct protect {
	/* Constant once it has started. */
	struct fs *fs;
	enum protect_mode mode;
	uint32_t group, replicas; /* with PROTECT_GATHER */
	struct service *service; /* NULL: inactive */
	pthread_t thread;
	bool has_thread;

	struct mutex lock; /* leaf */
	struct cond changed;
	bool stop GUARDED_BY(lock), wanted GUARDED_BY(lock);
	uint64_t nr_repairs_wanted GUARDED_BY(lock);
	struct protect_status status GUARDED_BY(lock);
	struct failure failures[FAILURES] GUARDED_BY(lock); /* indexed by number of the directory */
	struct protect_failure *failed GUARDED_BY(lock); /* of the last pass */
	uint32_t nr_failed GUARDED_BY(lock);
};

/* --- guard records --- */

static int note(struct fs *fs, uint64_t dir, const struct guard *g)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	if (g)
		guard_encode(g, &value);
	if (buf_error(&value) < 0)
		return -ENOMEM;
	if (g)
		engine_tx_put(&tx, guard_key(dir), value.data, value.len);
	else
		engine_tx_del(&tx, guard_key(dir));
	rwlock_lock(&fs->names);
	r = fs_apply(fs, &tx);
	rwlock_unlock(&fs->names);
	return r;
}

static void report_failure(struct protect *p, uint64_t dir, int error)
{
	mutex_lock(&p->lock);
	p->failures[dir % FAILURES] = (struct failure){ error < 0 ? dir : 0, error };
	if (error < 0)
		p->status.error = error;
	mutex_unlock(&p->lock);
}

/* --- one pass --- */

struct pass {
	struct protect *p;
	struct service_world world;
	bool repairs;
	uint64_t nr_sealed, nr_protected, nr_rereplicated;
	int error; /* the last one */
	struct protect_failure *failed;
	uint32_t nr_failed;
	bool soon; /* a failure that may succeed soon */
	bool tried; /* to send a directory */
	uint64_t lag_noted_ns; /* monotonic */
};

static bool may_continue(void *userdata)
{
	struct protect *p = userdata;
	bool stop;

	mutex_lock(&p->lock);
	stop = p->stop;
	mutex_unlock(&p->lock);
	return !stop;
}

static void count_sent(struct protect *p, const struct replica_sent *f)
{
	mutex_lock(&p->lock);
	p->status.chunks += f->chunks;
	p->status.bytes += f->bytes;
	mutex_unlock(&p->lock);
}

static struct replica_target target_of(const struct pass *s, uint32_t to)
{
	return (struct replica_target){ s->p->fs, s->p->service, &s->world, to, may_continue, s->p };
}

static struct guard guard_of(const struct pass *s, const struct link_replica *replica, const uint32_t *holders,
			     uint32_t nr)
{
	struct guard g = { .state = GUARD_BEGUN, .ino = replica->ino, .sealed_ns = replica->sealed_ns, .nr_more = nr - 1 };

	static_assert(PARTNERS_MAX - 1 == GUARD_MORE_MAX && PARTNERS_MAX == LINK_SLOTS_MAX,
		      "sizes on disk and on the wire");
	memcpy(g.holder, s->world.nodes[holders[0]].id, sizeof(g.holder));
	memcpy(g.holder_name, s->world.nodes[holders[0]].name, sizeof(g.holder_name));
	memcpy(g.origin, replica->origin, sizeof(g.origin));
	memcpy(g.origin_name, replica->name, sizeof(g.origin_name));
	for (uint32_t i = 1; i < nr; i++) {
		memcpy(g.more[i - 1].id, s->world.nodes[holders[i]].id, sizeof(g.more[i - 1].id));
		memcpy(g.more[i - 1].name, s->world.nodes[holders[i]].name, sizeof(g.more[i - 1].name));
	}
	return g;
}

static int note_done(struct pass *s, uint64_t dir, struct guard *g)
{
	g->state = GUARD_DONE;
	return note(s->p->fs, dir, g);
}

/*
 * 1: dropped there, or it is this node; 0: that node is not connected. For a directory of another node, only seals up
 * to the recorded one are dropped: its owner may have sealed it again meanwhile and sent the new one to the same node.
 */
static int drop_replica(struct pass *s, const struct guard *g, const uint8_t *holder)
{
	bool is_own = memcmp(g->origin, s->world.nodes[s->world.self].id, sizeof(g->origin)) == 0;
	int64_t sealed_ns = is_own ? INT64_MAX : g->sealed_ns;
	struct replica_target target;
	uint32_t node;
	int r;

	if (!service_world_find(&s->world, holder, &node))
		return 0;
	target = target_of(s, node);
	r = node == s->world.self ? 0 : replica_send_drop(&target, g->origin, g->origin_name, g->ino, sealed_ns, false);
	return r < 0 ? r : 1;
}

static bool is_among(const struct pass *s, const uint32_t *group, uint32_t nr, const uint8_t *id)
{
	for (uint32_t i = 0; i < nr; i++)
		if (memcmp(s->world.nodes[group[i]].id, id, CLUSTER_ID_LEN) == 0)
			return true;
	return false;
}

/* Drop the replicas of previous holders that are not in the group any more, if connected. */
static int drop_from_peers(struct pass *s, const struct guard *before, const uint32_t *group, uint32_t nr)
{
	int r = is_among(s, group, nr, before->holder) ? 0 : drop_replica(s, before, before->holder);

	for (uint32_t i = 0; r >= 0 && i < before->nr_more; i++)
		r = is_among(s, group, nr, before->more[i].id) ? 0 : drop_replica(s, before, before->more[i].id);
	return MIN(r, 0);
}

/* Send everything to one other node. */
static int protect_by_replica(struct pass *s, uint64_t dir, struct link_replica *replica, const struct guard *before)
{
	static struct log_limit said;
	struct replica_sent figures = { 0 };
	struct guard g;
	struct replica_target target;
	uint32_t to;
	int r = 0;

	if (!before || !service_world_find(&s->world, before->holder, &to) ||
	    s->world.hosts[to] == s->world.hosts[s->world.self])
		r = partners_first(&s->world, replica->origin, &to);
	if (r < 0)
		return r;
	g = guard_of(s, replica, &to, 1);
	r = note(s->p->fs, dir, &g);
	if (r < 0)
		return r;
	target = target_of(s, to);
	r = replica_send_directory(&target, dir, replica, &figures);
	count_sent(s->p, &figures);
	if (r == 0 && before)
		r = drop_from_peers(s, before, &to, 1);
	if (r == 0)
		r = note_done(s, dir, &g);
	if (r == 0)
		log_limited(&said, LOG_LEVEL_INFO,
			    "%s of node %s: replicated on node %s; sent %" PRIu64 " of %" PRIu64 " chunks, %" PRIu64
			    " bytes",
			    replica->path, replica->name, g.holder_name, figures.chunks, figures.asked, figures.bytes);
	return r;
}

/* Send the catalog to several nodes, each of which covers a part of the chunks that only this node has. */
static int protect_by_parity(struct pass *s, uint64_t dir, struct link_replica *replica, const struct guard *before)
{
	static struct log_limit said;
	uint32_t group[PARTNERS_MAX], nr = partners_group(&s->world, replica->origin, group);
	struct replica_sent figures = { 0 };
	struct replica_target target;
	struct guard g;
	int r;

	if (nr == 0)
		return -EHOSTUNREACH;
	g = guard_of(s, replica, group, nr);
	r = note(s->p->fs, dir, &g);
	replica->nr_slots = nr;
	for (replica->slot = 0; r == 0 && replica->slot < nr; replica->slot++) {
		target = target_of(s, group[replica->slot]);
		r = replica_send_catalog(&target, dir, replica, &figures);
	}
	count_sent(s->p, &figures);
	target = target_of(s, group[0]);
	if (r == 0)
		r = replica_pin_sources(&target, dir, replica);
	for (replica->slot = 0; r == 0 && replica->slot < nr; replica->slot++) {
		target = target_of(s, group[replica->slot]);
		r = replica_send_cover(&target, replica);
	}
	for (replica->slot = 0; r == 0 && replica->slot < nr; replica->slot++) {
		target = target_of(s, group[replica->slot]);
		r = replica_send_settle(&target, replica);
	}
	if (r == 0 && before)
		r = drop_from_peers(s, before, group, nr);
	if (r == 0)
		r = note_done(s, dir, &g);
	if (r == 0)
		log_limited(&said, LOG_LEVEL_INFO, "%s of node %s: covered by %" PRIu32 " other nodes", replica->path,
			    replica->name, nr);
	return r;
}

/* --- gathering --- */

/* The nodes that already have it, if all are connected; else chosen for the current world. Their number; <0. */
static int find_collectors(const struct pass *s, const struct guard *before, uint32_t ret[CLUSTER_OWNERS_MAX])
{
	uint32_t nr = before ? 1 + before->nr_more : 0;

	if (before && before->state == GUARD_RELEASED && nr == s->p->replicas &&
	    service_world_find(&s->world, before->holder, &ret[0])) {
		uint32_t i = 1;

		while (i < nr && service_world_find(&s->world, before->more[i - 1].id, &ret[i]))
			i++;
		if (i == nr)
			return (int)nr;
	}
	return gather_group_nodes(&s->world, s->p->group, s->p->replicas, ret);
}

/* All except this node. */
static uint32_t find_targets(const struct pass *s, const uint32_t *gatherers, uint32_t nr, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nr; i++)
		if (gatherers[i] != s->world.self)
			ret[n++] = gatherers[i];
	return n;
}

/* Send everything to the gathering nodes; then release the local chunks, unless this node is one of them. */
static int gather_directory(struct pass *s, uint64_t dir, struct link_replica *replica, const struct guard *before)
{
	static struct log_limit said;
	uint32_t gatherers[CLUSTER_OWNERS_MAX], targets[CLUSTER_OWNERS_MAX], nr_targets = 0;
	int nr = find_collectors(s, before, gatherers), r = MIN(nr, 0);
	struct replica_sent figures = { 0 };
	struct cluster_released gone = { 0 };
	struct guard g;

	if (nr > 0)
		nr_targets = find_targets(s, gatherers, (uint32_t)nr, targets);
	if (nr_targets == 0)
		return r; /* this node has it, and no other needs it */
	g = guard_of(s, replica, targets, nr_targets);
	r = note(s->p->fs, dir, &g);
	for (uint32_t i = 0; i < nr_targets && r == 0; i++) {
		struct replica_target target = target_of(s, targets[i]);

		r = replica_send_to_gatherer(&target, dir, replica, &figures);
	}
	count_sent(s->p, &figures);
	if (r == 0 && before)
		r = drop_from_peers(s, before, targets, nr_targets);
	if (r == 0 && nr_targets == (uint32_t)nr) {
		struct replica_target target = target_of(s, targets[0]);

		r = gather_group_release(&target, targets, nr_targets, dir, &gone);
	}
	if (r == 0) {
		g.state = nr_targets == (uint32_t)nr ? GUARD_RELEASED : GUARD_DONE;
		r = note(s->p->fs, dir, &g);
	}
	if (r == 0)
		log_limited(&said, LOG_LEVEL_INFO,
			    "%s of node %s: gathered on node %s; sent %" PRIu64 " of %" PRIu64
			    " chunks, released %" PRIu64 " bytes",
			    replica->path, replica->name, g.holder_name, figures.chunks, figures.asked, gone.bytes);
	return r;
}

static bool is_done(const struct pass *s, const struct guard *g, int64_t sealed_ns)
{
	return (g->state == GUARD_DONE || (g->state == GUARD_RELEASED && s->p->mode == PROTECT_GATHER)) &&
	       g->sealed_ns == sealed_ns && !s->repairs;
}

/* At least two nodes have all of it. */
static bool is_protected(const struct guard *g)
{
	return g->state == GUARD_DONE || (g->state == GUARD_RELEASED && g->nr_more > 0);
}

static bool wants_replicas(const struct protect *p)
{
	return p->mode != PROTECT_NONE && (p->mode != PROTECT_GATHER || p->replicas > 1);
}

/* A pass may send for hours, or find no agent: so it looks for the oldest seal at its start, and again as it goes on. */
static int note_lag(struct pass *s)
{
	uint64_t dir = 0, oldest = 0;
	struct ns_seal seal;
	struct guard g;
	int r;

	s->lag_noted_ns = monotonic_ns();
	if (!wants_replicas(s->p))
		return 0;
	while ((r = ns_next_seal(s->p->fs->db, dir, &dir, &seal)) > 0) {
		uint64_t ns = (uint64_t)MAX(seal.sealed_ns, INT64_C(1));

		r = guard_get(s->p->fs->db, dir, &g);
		if (r < 0)
			return r;
		if (seal.is_complete && !(r > 0 && is_protected(&g) && g.sealed_ns == seal.sealed_ns))
			oldest = oldest > 0 ? MIN(oldest, ns) : ns;
	}
	if (r < 0)
		return r;
	mutex_lock(&s->p->lock);
	s->p->status.unprotected_since_ns = oldest;
	mutex_unlock(&s->p->lock);
	return 0;
}

/* Without memory the failure is only logged. */
static void note_failure(struct pass *s, const struct link_replica *replica, int error)
{
	struct protect_failure *f = s->nr_failed < PROTECT_FAILED_MAX ?
					    reallocarray(s->failed, s->nr_failed + 1, sizeof(*f)) :
					    NULL;

	if (!f)
		return;
	s->failed = f;
	f += s->nr_failed++;
	*f = (struct protect_failure){ .error = error };
	static_assert(sizeof(f->node) >= sizeof(replica->name) && sizeof(f->path) >= sizeof(replica->path),
		      "as they come");
	memcpy(f->node, replica->name, sizeof(replica->name));
	memcpy(f->path, replica->path, sizeof(replica->path));
}

/* Record and log a failure, which is retried. <0: the others would fail in the same way. */
static int note_result(struct pass *s, uint64_t dir, const struct link_replica *replica, int r)
{
	if (r == -ENODATA) /* no longer sealed */
		return 0;
	s->soon |= r == -EAGAIN || r == -ESTALE;
	if (r < 0 && r != -ECANCELED && r != -EAGAIN && r != -ESTALE) {
		s->error = r;
		note_failure(s, replica, r);
		log_warning("%s of node %s: %s: %s", replica->path, replica->name,
			    s->p->mode == PROTECT_GATHER ? "not gathered" : "not protected, no other node has a replica",
			    r == -EHOSTUNREACH ? "no connected node is on another host" :
			    r == -EIO	       ? "no connected node has some of its chunks" :
						 strerror(-r));
	}
	/* -ENOTCONN is reported by the state of the agent instead */
	report_failure(s->p, dir, r == -EAGAIN || r == -ESTALE || r == -ECANCELED || r == -ENOTCONN ? 0 : r);
	return r == -ENOTCONN || r == -ECANCELED ? r : 0;
}

static int protect_seal(struct pass *s, uint64_t dir, const struct ns_seal *seal, const struct buf *path,
			struct link_replica *replica)
{
	const struct cluster_node *self = &s->world.nodes[s->world.self];
	struct guard g;
	int r = guard_get(s->p->fs->db, dir, &g);

	if (r < 0)
		return r;
	s->nr_sealed++;
	if (r > 0 && (s->p->mode == PROTECT_NONE || is_done(s, &g, seal->sealed_ns))) {
		s->nr_protected += is_protected(&g) && g.sealed_ns == seal->sealed_ns;
		return 0;
	}
	if (s->p->mode == PROTECT_NONE)
		return 0;
	*replica = (struct link_replica){ .ino = dir, .sealed_ns = seal->sealed_ns };
	memcpy(replica->origin, self->id, sizeof(replica->origin));
	memcpy(replica->name, self->name, sizeof(replica->name));
	if (path->len > 0)
		memcpy(replica->path, path->data, MIN(path->len, (size_t)LINK_PATH_MAX));
	if (path->len > LINK_PATH_MAX)
		r = -ENAMETOOLONG;
	else
		r = (s->p->mode == PROTECT_GATHER ? gather_directory :
		     s->p->mode == PROTECT_XOR	  ? protect_by_parity :
						    protect_by_replica)(s, dir, replica, r > 0 ? &g : NULL);
	s->nr_protected += r == 0 && wants_replicas(s->p);
	s->tried = true;
	return note_result(s, dir, replica, r);
}

static int protect_seals(struct pass *s, struct link_replica *replica)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct ns_seal seal;
	uint64_t dir = 0;
	int r;

	while ((r = seal_next(s->p->fs, dir, 0, &dir, &seal, &path)) > 0) {
		r = protect_seal(s, dir, &seal, &path, replica);
		if (r == 0 && s->tried && monotonic_ns() - s->lag_noted_ns >= LAG_NS)
			r = note_lag(s);
		if (r < 0)
			return r;
		buf_clear(&path);
	}
	return r;
}

/*
 * When the sender of a covered directory is lost, the node with slot 0 takes its place and holds all of it from then
 * on.
 */
static bool is_to_protect(const struct pass *s, const struct ns_replica *c)
{
	uint32_t node;

	return c->nr_slots == 0 || (c->slot == 0 && !service_world_find(&s->world, c->sender, &node));
}

/* Replicas of directories that lost nodes have sealed. */
static int protect_replicas(struct pass *s, struct link_replica *replica)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top = 0;
	uint32_t node;
	int r = c ? 0 : -ENOMEM;

	while (r == 0 && (r = nodes_next(s->p->fs, top, &top, c)) > 0) {
		struct guard g;

		r = 0;
		if (c->state != NS_REPLICA_KEPT || service_world_find(&s->world, c->store, &node) || !is_to_protect(s, c))
			continue;
		r = guard_get(s->p->fs->db, top, &g);
		if (r < 0)
			return r;
		*replica = (struct link_replica){ .ino = c->ino, .sealed_ns = c->sealed_ns };
		memcpy(replica->origin, c->store, sizeof(replica->origin));
		memcpy(replica->name, c->name, sizeof(replica->name));
		memcpy(replica->path, c->path, sizeof(replica->path));
		r = (c->nr_slots > 0 ? protect_by_parity : protect_by_replica)(s, top, replica, r > 0 ? &g : NULL);
		s->nr_rereplicated += r == 0;
		if (r == -EIO && engine_cluster_is_forgotten(s->p->fs->engine, c->store)) {
			log_info("%s of forgotten node %s: no node has some of its chunks", c->path,
				 c->name);
			r = 0;
		}
		r = note_result(s, top, replica, r);
	}
	return r;
}

/* Does the directory of this record still exist? 1/0/<0 */
static int is_wanted(struct fs *fs, uint64_t dir)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	struct ns_seal seal;
	int r = c ? ns_get_seal(fs->db, dir, &seal) : -ENOMEM;

	if (r == 0) {
		r = ns_get_replica(fs->db, dir, c);
		r = r > 0 ? c->state == NS_REPLICA_KEPT : r;
	}
	return r;
}

/* 1: all holders have dropped it; 0: some are not connected */
static int drop_replicas(struct pass *s, const struct guard *g)
{
	int r = drop_replica(s, g, g->holder), all = r;

	for (uint32_t i = 0; r >= 0 && i < g->nr_more; i++) {
		r = drop_replica(s, g, g->more[i].id);
		all = MIN(all, r);
	}
	return r < 0 ? r : all;
}

/* Drop replicas of directories that are no longer sealed; on nodes that are not connected, when they return. */
static int drop_rest(struct pass *s)
{
	struct guard g;
	uint64_t dir = 0;
	int r;

	while ((r = guard_next(s->p->fs->db, dir, &dir, &g)) > 0) {
		r = is_wanted(s->p->fs, dir);
		if (r < 0)
			return r;
		if (r > 0)
			continue;
		r = drop_replicas(s, &g);
		if (r == -ENOTCONN || r == -ECANCELED)
			return r;
		if (r < 0) {
			s->error = r;
			log_warning("directory %" PRIu64 ": cannot remove its obsolete replica on node %s: %s",
				    dir, g.nr_more > 0 ? "(several)" : g.holder_name, strerror(-r));
			continue;
		}
		r = r > 0 ? note(s->p->fs, dir, NULL) : 0;
		if (r < 0)
			return r;
	}
	return r;
}

static int run_pass(struct pass *s)
{
	struct link_replica *replica = malloc(sizeof(*replica));
	int r = replica ? note_lag(s) : -ENOMEM;

	if (r == 0)
		r = service_world(s->p->service, &s->world);
	if (r == 0)
		r = drop_rest(s);
	if (r == 0)
		r = protect_seals(s, replica);
	if (r == 0 && s->tried)
		r = note_lag(s);
	if (r == 0 && s->repairs)
		r = protect_replicas(s, replica);
	service_world_release(&s->world);
	free(replica);
	return r;
}

/* --- the thread --- */

/* `repair`: number of protect_repair() requests completed by this pass. */
static void note_status(struct protect *p, struct pass *s, int r, uint64_t repair) REQUIRES(p->lock)
{
	p->status.is_busy = false;
	if (r < 0) {
		free(s->failed);
		return;
	}
	free(p->failed);
	p->failed = TAKE(s->failed);
	p->nr_failed = s->nr_failed;
	p->status.nr_sealed = s->nr_sealed;
	p->status.nr_protected = s->nr_protected;
	if (repair > p->status.nr_repaired) {
		p->status.nr_repaired = repair;
		p->status.nr_rereplicated += s->nr_rereplicated;
	}
	if (s->error == 0)
		p->status.error = s->soon && repair >= p->nr_repairs_wanted ? -EAGAIN : 0;
}

/* Failures of the last pass stay visible while the next one runs. */
static void *run(void *userdata)
{
	struct protect *p = userdata;
	unsigned nr_soon = 0;

	pthread_setname_np(pthread_self(), "ckptfs-protect");
	mutex_lock(&p->lock);
	while (!p->stop) {
		struct pass s = { .p = p, .repairs = p->status.nr_repaired < p->nr_repairs_wanted };
		uint64_t repair = p->nr_repairs_wanted;
		int r;

		p->wanted = false;
		p->status.is_busy = true;
		mutex_unlock(&p->lock);
		r = run_pass(&s);
		if (r < 0 && r != -ENOTCONN && r != -ECANCELED)
			log_errno(r, "sealed directories: cannot protect them");
		mutex_lock(&p->lock);
		nr_soon = s.soon ? nr_soon + 1 : 0;
		/* not complete while a retry may succeed soon */
		note_status(p, &s, r, s.soon && nr_soon < SOON_MAX ? p->status.nr_repaired : repair);
		while (!p->stop && !p->wanted) {
			if (s.error < 0 || s.soon || (r < 0 && r != -ENOTCONN)) {
				cond_wait_for(&p->changed, &p->lock, s.soon && nr_soon < SOON_MAX ? SOON_NS : RETRY_NS);
				break;
			}
			cond_wait(&p->changed, &p->lock);
		}
	}
	mutex_unlock(&p->lock);
	return NULL;
}

int protect_new(struct fs *fs, const struct options *o, struct protect **ret)
{
	struct protect *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->fs = fs;
	p->mode = p->status.mode = o->compact_group > 1 ? PROTECT_GATHER : (enum protect_mode)o->protect;
	p->group = (uint32_t)o->compact_group;
	p->replicas = (uint32_t)o->replicas;
	mutex_init(&p->lock);
	cond_init(&p->changed);
	*ret = p;
	return 0;
}

int protect_start(struct protect *p, struct service *service)
{
	int r;

	if (!service || p->fs->read_only)
		return 0;
	p->service = service;
	r = pthread_create(&p->thread, NULL, run, p);
	p->has_thread = r == 0;
	return r == 0 ? 0 : log_errno(-r, "sealed directories: cannot start the thread that protects them");
}

void protect_stop(struct protect *p)
{
	if (!p || !p->has_thread)
		return;
	mutex_lock(&p->lock);
	p->stop = true;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	p->has_thread = false;
}

void protect_free(struct protect *p)
{
	if (!p)
		return;
	protect_stop(p);
	cond_release(&p->changed);
	mutex_release(&p->lock);
	free(p->failed);
	free(p);
}

void protect_wake(struct protect *p)
{
	mutex_lock(&p->lock);
	p->wanted = true;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
}

int protect_repair(struct protect *p, uint64_t *ret)
{
	struct service_world w = { 0 };
	int r = p->has_thread ? service_world(p->service, &w) : -EOPNOTSUPP;

	service_world_release(&w);
	if (r < 0)
		return r;
	mutex_lock(&p->lock);
	*ret = ++p->nr_repairs_wanted;
	p->wanted = true;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	return 0;
}

int protect_failed(struct protect *p, uint32_t number, struct protect_failure *ret)
{
	bool is_there;

	mutex_lock(&p->lock);
	is_there = number < p->nr_failed;
	if (is_there)
		*ret = p->failed[number];
	mutex_unlock(&p->lock);
	return is_there;
}

/* 1: it was a holder and has been removed. */
static int remove_holder(struct guard *g, const char *name)
{
	for (uint32_t i = 0; i < g->nr_more; i++)
		if (strcmp(g->more[i].name, name) == 0) {
			g->more[i] = g->more[--g->nr_more];
			return 1;
		}
	if (g->nr_more == 0 || strcmp(g->holder_name, name) != 0)
		return 0;
	g->nr_more--;
	memcpy(g->holder, g->more[g->nr_more].id, sizeof(g->holder));
	memcpy(g->holder_name, g->more[g->nr_more].name, sizeof(g->holder_name));
	return 1;
}

/*
 * Remove a lost node from all records: its replicas are created on other nodes, and it need not drop any. 1: it
 * had some
 */
static int drop_notes_of(struct fs *fs, const char *holder)
{
	struct guard g;
	uint64_t dir = 0;
	int r, any = 0;

	while ((r = guard_next(fs->db, dir, &dir, &g)) > 0) {
		if (remove_holder(&g, holder) > 0) {
			g.state = GUARD_BEGUN;
			any = 1;
			r = note(fs, dir, &g);
		} else if (strcmp(g.holder_name, holder) == 0) {
			any = 1;
			r = note(fs, dir, NULL);
		}
		if (r < 0)
			return r;
	}
	return r < 0 ? r : any;
}

int protect_forget(struct protect *p, const char *name)
{
	struct service_world w = { 0 };
	int r = p->has_thread ? 0 : -EOPNOTSUPP;

	if (r == 0 && service_world(p->service, &w) == 0)
		for (uint32_t i = 0; i < w.nr && r == 0; i++)
			r = strcmp(w.nodes[i].name, name) == 0 ? -EBUSY : 0;
	service_world_release(&w);
	if (r == 0)
		r = engine_cluster_forget(p->fs->engine, name);
	if (r == 0 || r == -ENOENT) {
		int had = drop_notes_of(p->fs, name); /* it need not have taken part in a round */

		r = had < 0 ? had : had > 0 ? 0 : r;
	}
	if (r == 0)
		protect_wake(p);
	return r;
}

/* 1/0/<0; -ENODATA: not sealed */
static int get_guard(struct protect *p, uint64_t dir, struct guard *ret)
{
	struct ns_seal seal;
	int r = ns_get_seal(p->fs->db, dir, &seal);

	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	r = guard_get(p->fs->db, dir, ret);
	return r > 0 ? ret->sealed_ns == seal.sealed_ns : r;
}

/* The missing precondition, or the result of the last attempt. */
static int protection_error(struct protect *p, uint64_t dir)
{
	struct service_world w = { 0 };
	int r = service_world(p->service, &w);

	service_world_release(&w);
	if (r < 0)
		return r;
	mutex_lock(&p->lock);
	r = p->failures[dir % FAILURES].dir == dir ? p->failures[dir % FAILURES].error : -EAGAIN;
	mutex_unlock(&p->lock);
	return r;
}

/* Are all holders connected? Without an agent this is unknown, and the record counts. */
static int check_holders_connected(struct protect *p, const struct guard *g)
{
	struct service_world w = { 0 };
	uint32_t node;
	int r = 0;

	if (p->service && service_world(p->service, &w) == 0) {
		r = service_world_find(&w, g->holder, &node) ? 0 : -EHOSTDOWN;
		for (uint32_t i = 0; i < g->nr_more && r == 0; i++)
			r = service_world_find(&w, g->more[i].id, &node) ? 0 : -EHOSTDOWN;
	}
	service_world_release(&w);
	return r;
}

int protect_state(struct protect *p, uint64_t dir)
{
	struct guard g;
	int r = get_guard(p, dir, &g);

	if (r < 0)
		return r;
	if (r > 0 && is_protected(&g))
		return check_holders_connected(p, &g);
	if (p->mode == PROTECT_NONE || (p->mode == PROTECT_GATHER && p->replicas == 1) || !p->service)
		return -EOPNOTSUPP;
	return protection_error(p, dir);
}

/* Is this node the only gathering node of its group? */
static bool is_only_gatherer(struct protect *p)
{
	uint32_t gatherers[CLUSTER_OWNERS_MAX];
	struct service_world w = { 0 };
	bool is_only = service_world(p->service, &w) == 0 &&
		     gather_group_nodes(&w, p->group, p->replicas, gatherers) == 1 && gatherers[0] == w.self;

	service_world_release(&w);
	return is_only;
}

int protect_gathered(struct protect *p, uint64_t dir)
{
	struct guard g;
	int r = get_guard(p, dir, &g);

	if (r < 0)
		return r;
	if (p->mode != PROTECT_GATHER || !p->service)
		return -EOPNOTSUPP;
	if ((r > 0 && g.state != GUARD_BEGUN) || is_only_gatherer(p))
		return 0;
	return protection_error(p, dir);
}

void protect_status(struct protect *p, struct protect_status *ret)
{
	struct service_stats agent = { 0 };

	if (p->has_thread)
		service_stats(p->service, &agent);
	mutex_lock(&p->lock);
	*ret = p->status;
	mutex_unlock(&p->lock);
	ret->has_no_agent = agent.nr_nodes == 0;
}
