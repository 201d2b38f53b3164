/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Hooks of a mount for the cluster. mpi-agent/daemon implements them; fs/ knows it by this table alone. fs.hooks points
 * to it if the store was made with cluster=, and is NULL in all others, so every call reads
 *
 *	if (fs->hooks)
 *		fs->hooks->seals_changed(fs);
 *
 * A build without the cluster (-Dmpi=disabled) has no such table.
 *
 * No hook is called with a lock held, except where it says so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct buf;
struct ckptfs_cluster;
struct ckptfs_unprotected;
struct cluster;
struct cluster_calls;
struct fs;
struct ns_dirent;
struct options;
struct cred;

/* Inodes of the node directory view (mpi-agent/daemon/nodes/node_view.h) have numbers that no store assigns. */
#define VIEW_FIRST_INO (UINT64_C(1) << 63)
static inline bool view_is(uint64_t ino)
{
	return ino >= VIEW_FIRST_INO;
}

/* Invalidates a name of a directory of that view in the kernel. Must not wait for a request. */
typedef void view_invalidate_fn(void *userdata, uint64_t dir, const char *name);

/* Result of a collection by all nodes. */
struct cluster_collection {
	uint64_t nr_kept, kept_bytes; /* pinned chunks that other nodes refer to */
	uint64_t nr_dropped, dropped_bytes; /* chunks unpinned because no node refers to them */
	int error; /* of a node; 0 or negative */
	/* a node that is not connected and may refer to chunks of others: nothing was unpinned. Empty: none */
	char missing[64];
};

/* Figures since the mount, for ckptfs-stat and metrics. All zeros in a store of no cluster. */
struct cluster_figures {
	bool is_member; /* the store was made with cluster=, and listens for an agent */
	bool has_agent, agent_answers;
	uint32_t nr_nodes;
	uint64_t nr_rounds, nr_failed_rounds;
	uint64_t nr_fetched, fetched_bytes, nr_not_fetched; /* chunks of other nodes */
	uint64_t nr_served, served_bytes; /* chunks read for other nodes */
	uint64_t nr_kept, kept_bytes; /* chunks stored for other nodes */
	uint64_t nr_replicas, nr_cached_replicas, nr_replicas_taken; /* of other nodes' directories */
	bool protects;
	uint64_t nr_sealed, nr_protected; /* directories */
	uint64_t unprotected_since_ns; /* the oldest seal without a replica; 0: none, or none requested */
	uint64_t nr_sent, sent_bytes; /* chunks sent to partners */
	int protect_error; /* 0 or negative */
	uint64_t nr_stripes, stripe_parity_bytes, stripe_covered_bytes;
};

struct cluster_hooks {
	/* --- the mount (fs/main.c), in this order --- */

	/* Before the engine is opened. `cluster_new` is called for every store: whether it is one of a cluster is known
	 * once it is open. */
	int (*new)(struct cluster **ret);
	const struct cluster_calls *(*engine_calls)(struct cluster *c);
	/* Opens the parts that belong to an fs; fs_close() closes them, also half-built. */
	int (*open)(struct fs *fs, const struct options *o);
	/* Listens for the agent. -EINVAL: options for a cluster, and the store belongs to none. Logs. */
	int (*start)(struct cluster *c, struct fs *fs, const char *store, const struct options *o);
	/* Commits deferred data, with a round if an agent is connected, then disconnects it. fs NULL: never opened. */
	void (*stop)(struct cluster *c, struct fs *fs);
	void (*close)(struct fs *fs); /* ends the work that needs the engine; idempotent */
	void (*free_view)(struct fs *fs); /* the rest, once no request is answered any more */
	void (*free)(struct cluster *c); /* after the engine is closed; NULL is fine */

	/* --- names (fs/posix, fs/ops) --- */

	/* Is this name, or any name in that directory, part of the node directory view? Any locks. */
	bool (*has_name)(struct fs *fs, uint64_t dir, const char *name);
	/* The inode of such a name, synthetic or of a replica. May query peers and block as long. -ENOENT */
	int (*lookup)(struct fs *fs, uint64_t dir, const char *name, uint64_t *ret);
	/* For a synthetic inode (view_is()). -ENOENT */
	int (*stat)(struct fs *fs, uint64_t ino, struct stat *ret);
	int (*readlink)(struct fs *fs, uint64_t ino, struct buf *ret);
	/* Its parent, and its names, sorted by cookie, which the caller frees. Their `ino` is arbitrary. */
	int (*list)(struct fs *fs, uint64_t ino, uint64_t *ret_parent, struct ns_dirent **ret, size_t *ret_nr);
	void (*set_invalidate)(struct fs *fs, view_invalidate_fn *invalidate, void *userdata); /* NULL: none */

	/* --- sealed checkpoints (fs/seal, fs/ops) --- */

	void (*seals_changed)(struct fs *fs); /* a directory was sealed or unsealed. Returns at once; any locks */
	/* Replicas of a lost node's directory are removed on all nodes. *node: a node that this fails on. */
	int (*abandon)(struct fs *fs, uint64_t top, const struct cred *cred, struct buf *node);
	/* For the top of a replica: the inode of the original directory, and the time of its seal. 1/0/<0 */
	int (*replica_of)(struct fs *fs, uint64_t top, uint64_t *ret_ino, int64_t *ret_sealed_ns);
	/* The first replica after `after` that this store holds for another node, and its path in the view: 1/0/<0 */
	int (*next_replica)(struct fs *fs, uint64_t after, uint64_t *ret_top, struct buf *path);
	/* The first directory after `after` that the node of `dir` has sealed: 1/0/<0. -ENODATA: it is of no node. */
	int (*next_seal)(struct fs *fs, uint64_t dir, uint64_t after, uint64_t *ret_ino, int64_t *ret_sealed_ns,
			 struct buf *path);
	/* Is it protected against the loss of this node? 0; -EOPNOTSUPP: not requested; others say what is missing. */
	int (*protect_state)(struct fs *fs, uint64_t dir);
	int (*gather_state)(struct fs *fs, uint64_t dir); /* likewise: have the gathering nodes of its group got it? */

	/* --- commands (fs/ops, fs/background) --- */

	int (*command)(struct fs *fs, struct ckptfs_cluster *arg); /* CKPTFS_CLUSTER, from a permitted caller */
	int (*unprotected)(struct fs *fs, struct ckptfs_unprotected *arg); /* CKPTFS_UNPROTECTED, likewise */
	void (*figures)(struct fs *fs, struct cluster_figures *ret);
	void (*trim_replicas)(struct fs *fs); /* drops those that are no longer needed */
	/* Collects with all nodes. -ENOTCONN: no agent is connected; -ECANCELED: goes_on() returned false. Long. */
	int (*collect)(struct fs *fs, bool (*goes_on)(void *userdata), void *userdata, struct cluster_collection *ret);
};

/* NULL: this program was built without the cluster. */
const struct cluster_hooks *cluster_hooks(void);
