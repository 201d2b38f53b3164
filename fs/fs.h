/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One mounted store: the state shared by all parts of fs/ below the requests.
 *
 * Lock order: fs.names, then the lock of the inode table, then those of the engine. fs.names is held across lookups in
 * the view and across engine_tx_apply(), which may have to sync on a full disk; never across content I/O, any other
 * sync, or sending a reply.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "store/engine.h"

struct aggregator;
struct attr_cache;
struct away;
struct autoseal;
struct cluster;
struct cluster_hooks;
struct collect;
struct compactor;
struct control;
struct dir_names;
struct file;
struct flusher;
struct freezes;
struct making; /* delta.c: the commit of a delta */
struct inodes;
struct inquiries;
struct ns_replica;
struct options;
struct protect;
struct reaper;
struct scrubber;
struct series;
struct stripes;
struct view;

struct fs {
	/* Constant after fs_open(). */
	struct engine *engine;
	struct db *db;
	const struct fp_key *key;
	struct inodes *inodes;
	struct attr_cache *attrs;
	struct dir_names *dir_names; /* where names of directories are */
	struct freezes *freezes; /* trees being sealed or unsealed */
	struct series *series;
	struct control *control;
	struct collect *collect;
	struct scrubber *scrubber;
	struct compactor *compactor;
	struct aggregator *aggregator; /* NULL: no automatic recoding */
	struct inquiries *inquiries;
	struct autoseal *autoseal; /* NULL: no automatic seals */
	struct flusher *flusher; /* NULL: no tier beneath the store */
	struct away *away; /* content that is in the tier alone; NULL: no tier */
	struct reaper *reaper; /* NULL: opened read-only */
	const struct cluster_hooks *hooks; /* NULL: the store belongs to no cluster; so are the next four */
	struct cluster *cluster; /* borrowed */
	struct protect *protect;
	struct stripes *stripes;
	struct view *view; /* node directory view; NULL: there is none */
	/* Drop the replica of another node's directory from the kernel's caches after it was removed; NULL: the kernel
	 * has none. The same for a name in a replica: while its file is open, the kernel would keep it even if the
	 * directory is dropped. */
	void (*replica_gone)(struct fs *fs, const struct ns_replica *c);
	void (*copied_name_gone)(struct fs *fs, uint64_t dir, const char *name);
	bool opened_read_only, nodiratime;
	bool sync; /* every change of names is durable before the reply */
	bool writeback; /* the kernel caches writes, sizes and times (ops/flush.h); constant after INIT */

	/*
	 * Shared: lookups that need several keys to be consistent. Exclusive: every change of names, attributes and
	 * extended attributes, so that each of them is one read, one decision and one transaction. Held across a look-up in
	 * RocksDB, but not a search for the next name, whose time grows with the number of removed names.
	 */
	struct rwlock names;
	int64_t last_seal_ns GUARDED_BY(names); /* time of the latest seal */
	atomic_bool shared_hash; /* INODE_SHARED_HASH */
	/* Before `names`: held by the one seal that takes `names` in steps, for a step and the pause of a few milliseconds
	 * after it. One at a time, because `names` prefers writers. */
	struct mutex seal_steps;

	atomic_bool end_when_detached; /* CKPTFS_MOUNT_END */
	struct mutex remount_lock; /* outermost; held across a sync */
	atomic_bool read_only, noatime; /* changed under remount_lock */

	_Atomic uint64_t nr_opendirs; /* since the mount; numbers for ops_holder() */

	/* Versions made from deltas since the mount, their bytes, and the bytes contained in the delta objects. */
	_Atomic uint64_t nr_deltas, delta_bytes, delta_payload_bytes;

	/* Sealed directories of this store (not replicas): their number, and the time of the newest seal, 0: none. Seals
	 * made since the mount, the bytes of their files, and the stored bytes new with each. Only fs/seal writes them. */
	_Atomic uint64_t nr_sealed, newest_seal_ns, nr_seals, sealed_bytes, sealed_new_bytes;

	/* Memory for tables of delta objects: reserved before it is allocated, waiting if necessary. */
	uint64_t delta_tables_max; /* for all concurrent commits; constant */
	struct mutex delta_tables_lock; /* leaf */
	struct cond delta_tables_freed;
	struct making *delta_counted GUARDED_BY(delta_tables_lock); /* commits with reserved memory */

	struct mutex handles_lock; /* inside no other lock; outside that of the inode table */
	void *handles GUARDED_BY(handles_lock); /* open files that have a handle: a tree of tsearch(3) */

	struct mutex open_files_lock; /* leaf */
	struct file *open_files GUARDED_BY(open_files_lock);
};

/* The caller of a request: its filesystem ids, and the thread that waits for the reply (permission.h). */
struct cred {
	uint32_t uid, gid;
	uint32_t umask;
	int32_t pid; /* 0: not visible in the daemon's pid namespace */
};
#define PID_ANSWERED (-1) /* pid of a caller for work that is done after the reply */

/* Is this name, or any name in that directory, part of the node directory view? */
bool fs_is_in_view(struct fs *fs, uint64_t dir, const char *name);

/* engine_tx_apply(). If it fails, clears the attribute cache, which may have changes of the transaction. Requires
 * `names`, exclusive. */
int fs_apply(struct fs *fs, struct engine_tx *tx);

/* The descriptor with this ops_holder() is closed: stop the work that is done for it. */
void fs_release_holder(struct fs *fs, uint64_t holder);

/* Change flags while mounted. -EROFS: the store was opened read-only; -EBUSY: a collection or recoding is running. When
 * it has become read-only, everything is durable; on failure nothing has changed. */
int fs_set_flags(struct fs *fs, bool read_only, bool noatime);

/* Takes ownership of the engine on success (fs_close() closes it). Removes unnamed inodes that a crash left, and
 * creates the root. `cluster` is borrowed; NULL is fine. */
int fs_open(struct engine *e, const struct options *o, struct cluster *cluster, struct fs **ret);
/* Writes what is still cached in memory, then closes the engine. Returns the last error. NULL is fine. */
int fs_close(struct fs *fs);
