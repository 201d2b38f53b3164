/*
 * One mounted store as the daemon sees it: what every part of fs/ below the requests shares.
 *
 * Order of locks: fs.names, then the inode table's, then those of the engine. fs.names is held across look-ups in
 * the view and across engine_tx_apply(), which on a full disk may have to sync; never across content I/O, another sync
 * or a reply of its own.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "store/engine/engine.h"

struct aggregator;
struct attr_cache;
struct autoseal;
struct cluster;
struct collect;
struct compactor;
struct control;
struct file;
struct inodes;
struct inquiries;
struct ns_copy;
struct options;
struct protect;
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
	struct series *series;
	struct control *control;
	struct collect *collect;
	struct scrubber *scrubber;
	struct compactor *compactor;
	struct aggregator *aggregator; /* NULL: nothing is compacted by itself */
	struct inquiries *inquiries;
	struct autoseal *autoseal; /* NULL: nothing is sealed by itself */
	struct cluster *cluster; /* borrowed */
	struct view *view; /* NULL: there is none */
	/* A copy of another node's directory is gone, and the kernel is to forget it; NULL: it does not know of any. So is
	 * a name in one, which it would not forget with the directory while somebody has it open. */
	void (*copy_gone)(struct fs *fs, const struct ns_copy *c);
	void (*copied_name_gone)(struct fs *fs, uint64_t dir, const char *name);
	struct protect *protect;
	struct stripes *stripes;
	bool read_only, noatime;
	bool sync; /* every change of names is durable before it is answered */

	/*
	 * Shared: look-ups that need several keys to agree. Exclusive: every change of names, attributes and
	 * extended attributes, so each of them is one read, one decision and one transaction.
	 */
	struct rwlock names;
	int64_t last_seal_ns GUARDED_BY(names); /* no seal is of a later time */
	atomic_bool shared_hash; /* INODE_SHARED_HASH */

	_Atomic uint64_t nr_opendirs; /* since the mount; numbers for ops_holder() */

	/* Versions made from deltas since the mount, their bytes, and those of them that came with the objects. */
	_Atomic uint64_t nr_deltas, delta_bytes, delta_payload_bytes;

	struct mutex handles_lock; /* inside nothing, around the inode table's */
	struct file *handles GUARDED_BY(handles_lock); /* open files that have a handle */
};

/* Who asks, as far as it matters to new entries. */
struct who {
	uint32_t uid, gid;
	uint32_t umask;
};

/* engine_tx_apply(), and if it fails, nothing that was stored in the transaction is remembered. Under names,
 * exclusive. */
int fs_apply(struct fs *fs, struct engine_tx *tx);

/* A descriptor is closed, ops_holder() of which this is: what is done for it ends soon. */
void fs_let_go(struct fs *fs, uint64_t holder);

/* Takes the engine over (closed by fs_close()) if it succeeds. Removes what a crash left without a name, and makes
 * the root. `cluster` is borrowed, and NULL is fine. */
int fs_open(struct engine *e, const struct options *o, struct cluster *cluster, struct fs **ret);
/* Writes what is still kept in memory, then closes the engine: its last error. NULL is fine. */
int fs_close(struct fs *fs);
