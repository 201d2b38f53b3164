/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Shared by the files of db, which are the only ones that include rocksdb/c.h:
 *   db.c          open and close, reading, statistics
 *   db_options.c  all options, and their reasons
 *   db_write.c    batches, flushes, ingestion, compaction
 */
#pragma once

#include <stdatomic.h>

#include <rocksdb/c.h>

#include "base/mutex.h"
#include "index/db.h"
#include "index/overlay.h"

#define DB_NR_FAMILIES 2
#define DB_UNFLUSHED_NR_MAX 32 /* memtables kept after failed flushes */
/* Iterators with at least this prefix length use the filters: for the 16 cookies of one hash (namespace_table.c). */
#define DB_FILTER_PREFIX_LEN 16

struct db {
	/* constant after db_open() */
	char *dir, *ingest_dir;
	rocksdb_t *rocks;
	rocksdb_column_family_handle_t *cf[DB_NR_FAMILIES];
	rocksdb_options_t *options[DB_NR_FAMILIES];
	rocksdb_cache_t *cache;
	rocksdb_env_t *env;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;
	rocksdb_flushoptions_t *flush;

	struct db_filter {
		rocksdb_compactionfilter_t *filter;
		db_stale_fn *_Atomic is_stale; /* NULL: nothing is */
		void *userdata; /* set before is_stale */
	} filter[DB_NR_FAMILIES];

	struct overlay *overlay; /* changes of the view that are not in RocksDB yet */

	atomic_uint next_ingest;
	_Atomic uint64_t nr_reads; /* db_stats.nr_reads */
	atomic_int stopped; /* errno that RocksDB stopped writing for, or 0 */

	struct mutex compaction_lock; /* leaf; only taken by trylock, so no thread waits for the I/O under it */
	bool compaction_off GUARDED_BY(compaction_lock);
	uint64_t compaction_errors GUARDED_BY(compaction_lock);	  /* counted when it was last turned on */
	uint64_t compaction_pause_ns GUARDED_BY(compaction_lock); /* off until then, or 0 */

	struct mutex lock; /* leaf; held across the start of a flush, which does no I/O */
	uint64_t errors_before GUARDED_BY(lock); /* background errors when the last flush was started */
	bool lacked_space GUARDED_BY(lock); /* the disk was full when the last flush of the view was requested */
	int flush_error GUARDED_BY(lock);	 /* of the last flush that was waited for */
};

struct db_snapshot {
	struct db *db;
	const rocksdb_snapshot_t *snapshot;
	rocksdb_readoptions_t *read; /* of it */
};

/* Fills in everything down to `flush`. db_close() frees it, also when this fails. */
int db_options_make(struct db *db, const struct db_conf *conf);

/* For the overlay: one batch into the memtable. */
int db_write_changes(void *db, const struct overlay_change *changes, size_t n);

/* The C API reports error codes only as text. */
int db_errno_of(const char *err);
uint64_t db_property(struct db *db, enum db_family family, const char *name);

static inline void db_err_freep(char **err)
{
	if (*err)
		rocksdb_free(*err);
}
