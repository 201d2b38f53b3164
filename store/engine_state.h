/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * An open store: what is constant, and the objects that the folders of store/ own. Each object has its own lock, and its
 * struct is visible in its folder only. docs/architecture.md lists the folders, docs/locking.md the order of the locks.
 */
#pragma once

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "base/cdc.h"
#include "base/epoch.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/engine.h"
#include "store/superblock.h"
#include "store/pack/pack.h"

struct backref_state;
struct buffers;
struct cut_hooks;
struct file_table;
struct collector;
struct dedup;
struct job_queue;
struct housekeeper;
struct io_rate;
struct journal;
struct pacer;
struct remote_hooks;
struct repairs;
struct scrub_record;
struct searches;
struct shares;
struct space;
struct txlog;
struct variables;
struct log_view;


/* Statistics; relaxed atomics. */
struct engine_counters {
	_Atomic uint64_t written, zero, champion, successor, memory, indexed, shifted, fresh, verified_different, read;
	_Atomic uint64_t in_vain; /* unsuccessful lookups in RocksDB, one per page */
	_Atomic uint64_t nr_commits, nr_commit_waiters, commit_ns_sum;
};

struct engine {
	/* constant after engine_open() */
	struct engine_conf conf;
	char *path;
	struct store_dirs dirs;
	bool is_unwanted; /* set by the thread that closes it next: remove the store then */
	struct fp_key key;
	struct cdc cdc;
	struct db *db;
	struct packs *packs;
	struct journal *journal;
	struct io_rate *read_rate, *write_rate;
	struct txlog *log; /* all changes, in order, and the commits of them */
	struct log_view *view; /* state of the view, and its lock */
	struct backref_state *backrefs; /* state of the back-reference table */
	struct file_table *files; /* files in memory */
	struct collector *gc; /* garbage collection, and moves of chunks */
	struct dedup *dedup; /* chunks known in memory, and frames being filled */
	struct buffers *buffers; /* memory for written data */
	struct job_queue *queue; /* written data on its way to the packs, and the workers */
	struct searches *searches; /* chunking=auto: memory to search for moved bytes */
	struct pacer *pacer; /* compress=auto: is there time to compress? */
	struct space *space; /* free, reserved and promised space */
	struct housekeeper *housekeeper; /* the background thread; NULL: not running */
	struct repairs *repairs; /* damaged chunks with a second copy */
	struct scrub_record *scrub;
	struct variables *variables; /* statistics of recoded variables */
	const struct remote_hooks *remote; /* NULL: all chunks are here, and for this store alone */
	const struct cut_hooks *cuts; /* NULL: pages of all files start at 0 */
	struct shares *shares; /* state of `remote` (store/remote/remote.h) */
	_Atomic bool has_away; /* files may have their bytes in a tier alone (store/file/away.c) */
	_Atomic bool read_only; /* refuses new content changes; changes already begun still reach the disk */

	struct epoch users; /* users of addresses not protected by a lock: jobs, readers, clones */

	struct engine_counters count;
};

static inline unsigned engine_processors(const struct engine *e)
{
	return e->conf.processors ? e->conf.processors : nr_processors();
}
