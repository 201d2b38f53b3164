/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Order of abandoning a directory:
 *   1. This node, and each node in step 2, stops creating replicas of it (peer_replicas_abandon()).
 *   2. Each connected node drops its replica.     crash, or a node fails: the remaining replicas stay visible, also
 *   3. This node drops its own, durably.          here; repeat the request
 * A node that is not connected meanwhile still has its replica when it returns, and it becomes visible again.
 */
#include "mpi-agent/daemon/replica/abandon.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "mpi-agent/daemon/cluster.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica_receive.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "fs/posix/permission.h"
#include "mpi-agent/daemon/replica/protect.h"
#include "mpi-agent/daemon/replica/replica_send.h"
#include "mpi-agent/daemon/nodes/node_view.h"
#include "mpi-agent/daemon/service.h"

#define PEERS_WAIT_NS UINT64_C(60000000000) /* for all nodes: dropping a replica of many files takes seconds */

struct patience {
	struct service *service;
	uint64_t until_ns;
};

static bool may_continue(void *userdata)
{
	const struct patience *p = userdata;

	return !service_stopping(p->service) && monotonic_ns() < p->until_ns;
}

static void set_node(struct buf *node, const char *name)
{
	buf_clear(node);
	buf_add(node, name, strlen(name));
}

static int find_replica(struct fs *fs, uint64_t top, const struct cred *cred, struct ns_replica *ret)
{
	_cleanup_(caller_release) struct caller caller = caller_of(cred);
	struct ns_inode in;
	int r = ns_get_replica(fs->db, top, ret);

	if (r > 0)
		r = attr_load(fs, top, &in);
	if (r <= 0)
		return r < 0 ? r : -EROFS;
	if (ret->state != NS_REPLICA_KEPT && ret->state != NS_REPLICA_CACHED)
		return -EROFS;
	return permission_owner(&caller, &in) ? 0 : -EPERM;
}

static int peers_drop(struct fs *fs, struct service *service, const struct service_world *w, const struct ns_replica *c,
		      struct buf *node)
{
	struct patience patience = { service, monotonic_ns() + PEERS_WAIT_NS };
	struct replica_target target = { fs, service, w, 0, may_continue, &patience };

	for (target.to = 0; target.to < w->nr; target.to++) {
		int r = target.to == w->self ? 0 : replica_send_drop(&target, c->store, c->name, c->ino, INT64_MAX, true);

		if (r == -EHOSTDOWN)
			return r;
		if (r < 0) {
			log_errno(r, "node %s: did not confirm the removal of its replica of %s of node %s",
				  w->nodes[target.to].name, *c->path ? c->path : "/", c->name);
			set_node(node, w->nodes[target.to].name);
			return r == -ECANCELED ? -ETIMEDOUT : -EREMOTEIO;
		}
	}
	return 0;
}

static int drop_here(struct fs *fs, const struct service_world *w, const struct ns_replica *c)
{
	struct nodes_origin from;
	int r;

	static_assert(sizeof(from.id) == sizeof(c->store) && sizeof(from.name) == sizeof(c->name), "as they are");
	memcpy(from.id, c->store, sizeof(from.id));
	memcpy(from.name, c->name, sizeof(from.name));
	r = nodes_drop(fs, &from, c->ino, INT64_MAX);
	view_changed(fs->view);
	if (r == 0 && w->nr > 0)
		r = replica_receive_uncover(fs, w);
	protect_wake(fs->protect);
	return r;
}

/* All nodes drop it, or none does if the preconditions fail. */
static int drop_all(struct fs *fs, const struct ns_replica *c, struct buf *node)
{
	struct service *service = cluster_service(fs->cluster);
	struct service_world w = { 0 };
	uint32_t number;
	int r = service ? service_world(service, &w) : 0;

	if (r < 0)
		return r == -ENOTCONN ? -ENOLINK : r;
	if (service_world_find(&w, c->store, &number))
		r = -EBUSY;
	else if (engine_cluster_is_expected(fs->engine, c->store))
		r = -EHOSTDOWN;
	if (r == 0) {
		view_abandon(fs->view, c->store, c->ino, true);
		r = peers_drop(fs, service, &w, c, node);
		if (r == 0)
			r = drop_here(fs, &w, c);
		else
			view_abandon(fs->view, c->store, c->ino, false);
	}
	service_world_release(&w);
	return r;
}

int abandon_replica(struct fs *fs, uint64_t top, const struct cred *cred, struct buf *node)
{
	static struct log_limit said;
	static atomic_flag busy = ATOMIC_FLAG_INIT;
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	int r = c ? find_replica(fs, top, cred, c) : -ENOMEM;

	if (r < 0)
		return r;
	set_node(node, c->name);
	if (atomic_flag_test_and_set(&busy))
		return -EAGAIN;
	r = drop_all(fs, c, node);
	atomic_flag_clear(&busy);
	if (r == 0)
		log_limited(&said, LOG_LEVEL_INFO, "replica of %s of lost node %s: removed",
			    *c->path ? c->path : "/", c->name);
	return r;
}
