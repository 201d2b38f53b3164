/*
 * State of an open store, shared by the folders of store/. Only they include this header. The functions of each part are
 * in its own header.
 *
 * docs/architecture.md lists the folders; the opening comment of each file describes its part.
 *
 * Lock order (docs/locking.md): view_lock (shared or exclusive), or map_lock of a content > content.lock (two: by
 * inode) > file_table.lock, txlog.lock, append_lock, and the locks of buffers, job_queue, repairs, pacer and scrub_record.
 * These are leaves except append_lock > locks inside packs and txlog.lock > RocksDB. gc_lock and backrefs.lock, followed
 * by view.flush_lock, come before all of these; absorb_lock comes before append_lock.
 */
#pragma once

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "base/cdc.h"
#include "base/epoch.h"
#include "base/mutex.h"
#include "index/fingerprint_filter.h"
#include "store/engine.h"
#include "store/dedup/fptable.h"
#include "store/superblock.h"
#include "store/pack/pack.h"

struct backrefs;
struct buffers;
struct cut_hooks;
struct file_table;
struct collector;
struct job_queue;
struct keeper;
struct io_rate;
struct journal;
struct pacer;
struct remote_hooks;
struct repairs;
struct scrub_record;
struct searches;
struct shares;
struct txlog;
struct variables;
struct log_view;

#define NR_UNWRITTEN_MAX 8	   /* frames kept in memory after a failed write */

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
	struct fp_key key;
	struct cdc cdc;
	struct db *db;
	struct packs *packs;
	struct journal *journal;
	struct io_rate *read_rate, *write_rate;
	struct txlog *log; /* all changes, in order, and the commits of them */
	struct log_view *view; /* state of the view, and its lock */
	struct backrefs *backrefs; /* state of the back-reference table */
	struct file_table *files; /* files in memory */
	struct collector *gc; /* garbage collection, and moves of chunks */
	struct buffers *buffers; /* memory for written data */
	struct job_queue *queue; /* written data on its way to the packs, and the workers */
	struct searches *searches; /* chunking=auto: memory to search for moved bytes */
	struct pacer *pacer; /* compress=auto: is there time to compress? */
	struct keeper *keeper; /* the background thread; NULL: not running */
	struct repairs *repairs; /* damaged chunks with a second copy */
	struct scrub_record *scrub;
	struct variables *variables; /* statistics of recoded variables */
	const struct remote_hooks *remote; /* NULL: all chunks are here, and for this store alone */
	const struct cut_hooks *cuts; /* NULL: pages of all files start at 0 */
	struct shares *shares; /* state of `remote` (store/remote/remote.h) */
	_Atomic bool read_only; /* refuses new content changes; changes already begun still reach the disk */

	struct epoch users; /* users of addresses not protected by a lock: jobs, readers, clones */
	struct mutex absorb_lock; /* held while `frozen` and `kept` are read without append_lock */
	struct mutex append_lock;
	struct fptable recent, frozen, kept GUARDED_BY(append_lock); /* not yet absorbed; being absorbed; absorbed */
	struct pack_marks frozen_marks GUARDED_BY(append_lock);
	struct {
		size_t nr; /* entries of `recent` at the last check */
		uint64_t since_ns; /* unchanged since */
	} quiet GUARDED_BY(append_lock);
	uint64_t absorb_generation GUARDED_BY(append_lock);
	struct {
		/* in_use is changed, and both filters are installed, under append_lock, by the background thread. */
		struct fingerprint_filter in_use, next;
		uint64_t nr_good, scan_from; /* used by the background thread only */
	} filter;
	/* frames shared by jobs: for a few pages; for chunks cut by content */
	struct pack_frame *small, *varied GUARDED_BY(append_lock);
	struct fp small_tweak, varied_tweak GUARDED_BY(append_lock); /* tweak of the first chunk in each */
	/* a job may exceed the limit by two */
	struct pack_frame *unwritten[NR_UNWRITTEN_MAX + 4] GUARDED_BY(append_lock);
	unsigned nr_unwritten GUARDED_BY(append_lock);
	int unwritten_error GUARDED_BY(append_lock);
	unsigned nr_filling GUARDED_BY(append_lock); /* small frames that left `small` and are being written */
	struct cond filling_cond;

	_Atomic uint64_t space_avail, space_checked_ns;
	struct {
		struct mutex lock; /* leaf; also held while the file is resized */
		int fd GUARDED_BY(lock); /* the file `promised`; -1: not made yet */
		_Atomic uint64_t held; /* its size; changed under the lock */
		_Atomic uint64_t bytes; /* reserved by content_allocate(), and no job stores them yet */
	} promised;
	_Atomic uint64_t reserve_held; /* bytes of the reserve that this mount has allocated or found */
	_Atomic bool quota_is_used_up; /* a commit failed with EDQUOT; statvfs() does not report quotas */
	struct engine_counters count;
};
