/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Every option of RocksDB. Those that keep the view's memtable in memory are explained in db_write.c.
 */
#include "index/db_internal.h"

#include <errno.h>

#include "base/log.h"
#include "base/util.h"

#define CACHE_MIN MiB(8)
#define FILTER_BITS 10 /* as a bloom filter: 1 % of misses get through; 7 in fact */
#define MEMTABLE_SIZE (UINT64_C(1) << 60) /* see db_write.c */

static void set_table(rocksdb_options_t *o, rocksdb_cache_t *cache)
{
	rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

	rocksdb_block_based_options_set_format_version(t, 5);
	rocksdb_block_based_options_set_block_cache(t, cache);
	rocksdb_block_based_options_set_block_size(t, KiB(4));
	rocksdb_block_based_options_set_filter_policy(t, rocksdb_filterpolicy_create_ribbon(FILTER_BITS));
	rocksdb_block_based_options_set_whole_key_filtering(t, 1);
	/* Filters and indexes in pieces, in the cache: a table of any size costs only what is used of it. */
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
	rocksdb_block_based_options_set_pin_top_level_index_and_filter(t, 1);
	rocksdb_block_based_options_set_index_type(t, rocksdb_block_based_table_index_type_two_level_index_search);
	rocksdb_block_based_options_set_partition_filters(t, 1);
	rocksdb_block_based_options_set_metadata_block_size(t, KiB(32));
	rocksdb_options_set_block_based_table_factory(o, t);
	rocksdb_block_based_options_destroy(t);
}

static void set_common(struct db *db, rocksdb_options_t *o, const struct db_conf *conf)
{
	rocksdb_options_set_env(o, db->env);
	rocksdb_options_set_create_if_missing(o, conf->create);
	rocksdb_options_set_create_missing_column_families(o, 1); /* creation may have been cut short */
	rocksdb_options_set_paranoid_checks(o, 0);		  /* see db_write.c */
	rocksdb_options_set_max_open_files(o, 256);
	rocksdb_options_set_max_background_jobs(o, 3); /* a flush, a long and a short compaction */
	/*
	 * Logs at open only: a later line after the disk was full aborts the process (an assertion of RocksDB 7.8).
	 * Warnings that matter are returned as errors, or visible in its statistics.
	 */
	rocksdb_options_set_info_log_level(o, 5);
	rocksdb_options_set_keep_log_file_num(o, 1);
	if (conf->read_only)
		rocksdb_options_set_db_log_dir(o, "/dev/null"); /* no place for an info log: nothing in dir changes */
	rocksdb_options_set_stats_dump_period_sec(o, 0);
	rocksdb_options_set_stats_persist_period_sec(o, 0);
	rocksdb_options_set_bytes_per_sync(o, MiB(1)); /* no burst of dirty pages at the end of a file */
	/* No write stalls: the engine checks db_view_unflushed() instead. */
	rocksdb_options_set_level0_slowdown_writes_trigger(o, 1 << 20);
	rocksdb_options_set_level0_stop_writes_trigger(o, 1 << 20);
	rocksdb_options_set_soft_pending_compaction_bytes_limit(o, 0);
	rocksdb_options_set_hard_pending_compaction_bytes_limit(o, 0);
}

static void set_view(rocksdb_options_t *o, rocksdb_cache_t *cache)
{
	rocksdb_options_set_write_buffer_size(o, MEMTABLE_SIZE);
	rocksdb_options_set_max_write_buffer_number(o, 2 * DB_UNFLUSHED_NR_MAX);
	rocksdb_options_set_compression(o, rocksdb_lz4_compression);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
	rocksdb_options_set_prefix_extractor(o, rocksdb_slicetransform_create_fixed_prefix(DB_FILTER_PREFIX_LEN));
	set_table(o, cache);
}

/*
 * Measured with 10 million entries and 1.3 bytes of cache for each, in CPU time per look-up:
 *   blocks       lz4 4 KiB: 15.9 bytes per entry, hit 17 us; zstd: 13.4 bytes, 32 us; none: more than 22 bytes
 *   partitions   32 KiB: miss 2.8 us; 4 KiB: 1.5 times that, batches share few; 128 KiB: twice, the cache holds few
 *   compaction   universal: 25 s of CPU to insert all and come to rest; level: 34 s. Merging at 4 runs instead of
 *                8 costs 7 % of that, and every run that a miss has to ask costs it 1 us.
 * Compactions have normal CPU priority: at a lower one they starved next to busy writers, and runs piled up.
 */
static void set_fingerprints(rocksdb_options_t *o, rocksdb_cache_t *cache)
{
	rocksdb_options_set_compression(o, rocksdb_lz4_compression);
	rocksdb_options_set_compaction_style(o, rocksdb_universal_compaction);
	rocksdb_options_set_level0_file_num_compaction_trigger(o, 4);
	set_table(o, cache);
}

static unsigned char is_dropped(void *state, int level, const char *key, size_t key_len, const char *value, size_t len,
			       char **new_value, size_t *new_len, unsigned char *value_changed)
{
	struct db_filter *f = state;
	db_stale_fn *is_stale = atomic_load(&f->is_stale);

	(void)level;
	(void)new_value;
	(void)new_len;
	(void)value_changed;
	return is_stale && is_stale(f->userdata, key, key_len, value, len);
}

static const char *filter_name(void *state)
{
	(void)state;
	return "ckptfs.stale-fingerprints"; /* of both families by now */
}

static void keep_state(void *state)
{
	(void)state; /* the database's own, freed with it */
}

void db_set_stale(struct db *db, enum db_family family, db_stale_fn *fn, void *userdata)
{
	db->filter[family].userdata = userdata;
	atomic_store(&db->filter[family].is_stale, fn);
}

int db_options_make(struct db *db, const struct db_conf *conf)
{
	_cleanup_(db_err_freep) char *err = NULL;
	rocksdb_options_t *base;

	db->env = rocksdb_create_default_env();
	rocksdb_env_lower_thread_pool_io_priority(db->env); /* compactions; flushes have the other pool */
	db->cache = rocksdb_cache_create_lru(MAX(conf->cache, CACHE_MIN));
	db->read = rocksdb_readoptions_create();
	db->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_disable_WAL(db->write, 1);
	db->flush = rocksdb_flushoptions_create();
	rocksdb_flushoptions_set_wait(db->flush, 0);
	base = rocksdb_options_create();
	for (size_t i = 0; i < DB_NR_FAMILIES && !err; i++) {
		db->options[i] = rocksdb_options_create();
		/* The C API has no functions for these. */
		rocksdb_get_options_from_string(base, "avoid_flush_during_shutdown=true;max_bgerror_resume_count=0;"
						"manifest_preallocation_size=65536" /* not 4 MiB */,
						db->options[i], &err);
		set_common(db, db->options[i], conf);
	}
	rocksdb_options_destroy(base);
	if (err)
		return log_errno(-EOPNOTSUPP, "index %s: RocksDB does not support an option: %s", db->dir, err);
	set_view(db->options[DB_VIEW], db->cache);
	set_fingerprints(db->options[DB_FINGERPRINTS], db->cache);
	for (size_t i = 0; i < DB_NR_FAMILIES; i++) {
		db->filter[i].filter =
			rocksdb_compactionfilter_create(&db->filter[i], keep_state, is_dropped, filter_name);
		rocksdb_options_set_compaction_filter(db->options[i], db->filter[i].filter);
	}
	return 0;
}
