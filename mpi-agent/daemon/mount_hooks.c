/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The cluster as a guest of fs/: the functions behind fs/cluster_hooks.h. */
#include "fs/cluster_hooks.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "mpi-agent/daemon/cluster.h"
#include "mpi-agent/daemon/nodes/node_view.h"
#include "mpi-agent/daemon/parity/stripes.h"
#include "mpi-agent/daemon/replica/abandon.h"
#include "mpi-agent/daemon/replica/protect.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/service.h"

/* --- the mount --- */

static int open_parts(struct fs *fs, const struct options *o)
{
	int r = protect_new(fs, o, &fs->protect);

	if (r == 0)
		r = stripes_new(fs, &fs->stripes);
	if (r == 0 && !fs->read_only)
		r = nodes_clear(fs);
	return r < 0 ? r : view_new(fs, &fs->view);
}

static int start(struct cluster *c, struct fs *fs, const char *store, const struct options *o)
{
	int r = cluster_start(c, fs, store, o);

	return r < 0 || !fs->hooks ? r : protect_start(fs->protect, cluster_service(c));
}

static void stop(struct cluster *c, struct fs *fs)
{
	if (fs)
		protect_stop(fs->protect);
	cluster_stop(c);
}

static void close_parts(struct fs *fs)
{
	protect_free(TAKE(fs->protect));
	stripes_free(TAKE(fs->stripes));
}

static void free_view(struct fs *fs)
{
	view_free(TAKE(fs->view));
}

/* --- names --- */

static bool has_name(struct fs *fs, uint64_t dir, const char *name)
{
	return view_has(fs->view, dir, name);
}

static int lookup(struct fs *fs, uint64_t dir, const char *name, uint64_t *ret)
{
	return view_lookup(fs->view, dir, name, ret);
}

static int stat_inode(struct fs *fs, uint64_t ino, struct stat *ret)
{
	return view_stat(fs->view, ino, ret);
}

static int read_link(struct fs *fs, uint64_t ino, struct buf *ret)
{
	return view_readlink(fs->view, ino, ret);
}

static int list(struct fs *fs, uint64_t ino, uint64_t *ret_parent, struct ns_dirent **ret, size_t *ret_nr)
{
	*ret_parent = view_parent(fs->view, ino);
	return view_list(fs->view, ino, ret, ret_nr);
}

static void set_invalidate(struct fs *fs, view_invalidate_fn *invalidate, void *userdata)
{
	view_set_invalidate(fs->view, invalidate, userdata);
}

/* --- sealed checkpoints --- */

/* While the store is being opened, unfinished seals are undone before there is anything to wake. */
static void seals_changed(struct fs *fs)
{
	if (fs->protect)
		protect_wake(fs->protect);
}

static int replica_of(struct fs *fs, uint64_t top, uint64_t *ret_ino, int64_t *ret_sealed_ns)
{
	return view_replica_of(fs->view, top, ret_ino, ret_sealed_ns);
}

static int next_replica(struct fs *fs, uint64_t after, uint64_t *ret_top, struct buf *path)
{
	return view_next_kept(fs->view, after, ret_top, path);
}

static int next_seal(struct fs *fs, uint64_t dir, uint64_t after, uint64_t *ret_ino, int64_t *ret_sealed_ns,
		     struct buf *path)
{
	return view_next_seal(fs->view, dir, after, ret_ino, ret_sealed_ns, path);
}

static int get_protect_state(struct fs *fs, uint64_t dir)
{
	return protect_state(fs->protect, dir);
}

static int get_gather_state(struct fs *fs, uint64_t dir)
{
	return protect_gathered(fs->protect, dir);
}

/* --- commands --- */

static int command(struct fs *fs, struct ckptfs_cluster *arg)
{
	struct protect_status s;
	int r = 0;

	if (arg->command == CKPTFS_CLUSTER_REPAIR)
		r = protect_repair(fs->protect, &arg->number);
	if (arg->command == CKPTFS_CLUSTER_FORGET)
		r = protect_forget(fs->protect, arg->node);
	protect_status(fs->protect, &s);
	arg->repaired = s.nr_repaired;
	arg->sealed = s.nr_sealed;
	arg->protected_dirs = s.nr_protected;
	arg->copies = s.nr_rereplicated;
	arg->chunks = s.chunks;
	arg->bytes = s.bytes;
	arg->error = -s.error;
	arg->is_busy = s.is_busy;
	arg->flags = s.has_no_agent ? CKPTFS_CLUSTER_NO_AGENT : 0;
	return r;
}

static int unprotected(struct fs *fs, struct ckptfs_unprotected *arg)
{
	struct protect_failure f;

	if (!protect_failed(fs->protect, arg->number, &f))
		return -ENOENT;
	arg->error = -f.error;
	static_assert(sizeof(arg->node) == sizeof(f.node) && sizeof(arg->path) == sizeof(f.path), "as they are");
	memcpy(arg->node, f.node, sizeof(arg->node));
	memcpy(arg->path, f.path, sizeof(arg->path));
	return 0;
}

static void figures(struct fs *fs, struct cluster_figures *ret)
{
	struct stripes_figures stripes = { 0 };
	struct protect_status protect;
	struct service_stats s;
	uint64_t top = 0;
	struct ns_replica c;

	*ret = (struct cluster_figures){ .is_member = cluster_stats(fs->cluster, &s) };
	ret->has_agent = s.is_connected;
	ret->agent_answers = s.is_connected && !s.is_silent;
	ret->nr_nodes = s.nr_nodes;
	ret->nr_rounds = s.nr_rounds;
	ret->nr_failed_rounds = s.nr_failed;
	ret->nr_fetched = s.nr_fetched;
	ret->fetched_bytes = s.fetched_bytes;
	ret->nr_not_fetched = s.nr_not_fetched;
	ret->nr_served = s.nr_served;
	ret->served_bytes = s.served_bytes;
	ret->nr_kept = s.nr_kept;
	ret->kept_bytes = s.kept_bytes;
	ret->nr_replicas_taken = s.nr_copied;
	while (nodes_next(fs, top, &top, &c) > 0) {
		ret->nr_replicas += c.state == NS_REPLICA_KEPT;
		ret->nr_cached_replicas += c.state == NS_REPLICA_CACHED;
	}
	protect_status(fs->protect, &protect);
	ret->protects = protect.mode != PROTECT_NONE;
	ret->nr_sealed = protect.nr_sealed;
	ret->nr_protected = protect.nr_protected;
	ret->unprotected_since_ns = protect.unprotected_since_ns;
	ret->nr_sent = protect.chunks;
	ret->sent_bytes = protect.bytes;
	ret->protect_error = protect.error;
	stripes_figures(fs->stripes, &stripes); /* zeros if they cannot be read, which it logs */
	ret->nr_stripes = stripes.nr;
	ret->stripe_parity_bytes = stripes.parity_bytes;
	ret->stripe_covered_bytes = stripes.covered_bytes;
}

static void trim_replicas(struct fs *fs)
{
	view_check(fs->view);
	view_trim(fs->view);
}

static int collect(struct fs *fs, bool (*goes_on)(void *userdata), void *userdata, struct cluster_collection *ret)
{
	return cluster_collect(fs->cluster, goes_on, userdata, ret);
}

const struct cluster_hooks *cluster_hooks(void)
{
	static const struct cluster_hooks hooks = {
		.new = cluster_new,
		.engine_calls = cluster_engine_calls,
		.open = open_parts,
		.start = start,
		.stop = stop,
		.close = close_parts,
		.free_view = free_view,
		.free = cluster_free,
		.has_name = has_name,
		.lookup = lookup,
		.stat = stat_inode,
		.readlink = read_link,
		.list = list,
		.set_invalidate = set_invalidate,
		.seals_changed = seals_changed,
		.abandon = abandon_replica,
		.replica_of = replica_of,
		.next_replica = next_replica,
		.next_seal = next_seal,
		.protect_state = get_protect_state,
		.gather_state = get_gather_state,
		.command = command,
		.unprotected = unprotected,
		.figures = figures,
		.trim_replicas = trim_replicas,
		.collect = collect,
	};

	return &hooks;
}
