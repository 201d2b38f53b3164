/*
 * RocksDB with everything that it likes to do by itself tamed.
 *
 * The view must reach disk only where db_view_flush_start() cut it. What else would write a memtable
 * out, and why it does not:
 *   memtable full        its limit is the largest that RocksDB takes (64 GiB)
 *   close                avoid_flush_during_shutdown
 *   recovery from error  With paranoid_checks a failed flush stops the database, and RocksDB, as soon as
 *                        it sees enough free space, flushes *all* memtables to get going again. Without,
 *                        the memtable just stays, writes go on and the next flush takes both. So it is
 *                        off, and check_files() does at open what it would have done. A failed write of
 *                        the MANIFEST still stops the database: then note_stopped() ends its background
 *                        work for good, before it can recover, and only a reopen helps.
 *   manual compaction    compact_range() flushes first, suggest_compact_range() does not
 *   ingestion            flushes the family it goes to, and that one has no memtable
 *
 * RocksDB tells nobody about a flush that failed, so db_view_flush_wait() watches: the memtable is pending
 * again, nothing runs, and errors have been counted.
 *
 * A crash leaves: the view of the last finished flush; ingest/ with files nobody refers to, removed at open.
 */
#include "index/db.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <rocksdb/c.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"

#define NR_FAMILIES 2
#define CACHE_MIN MiB(8)
#define MEMTABLE_SIZE GiB(64)
#define UNFLUSHED_NR_MAX 32 /* memtables that wait after failed flushes */
#define FLUSH_MARGIN MiB(8) /* free space wanted beside the memtables' own */
#define FLUSH_STUCK_NS (500 * UINT64_C(1000000))
#define GET_BATCH 256

struct db {
	/* constant after db_open() */
	char *dir, *ingest_dir;
	rocksdb_t *rocks;
	rocksdb_column_family_handle_t *cf[NR_FAMILIES];
	rocksdb_options_t *options[NR_FAMILIES];
	rocksdb_cache_t *cache;
	rocksdb_env_t *env;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;
	rocksdb_flushoptions_t *flush;

	atomic_uint next_ingest;
	atomic_int stopped; /* errno that RocksDB stopped writing for, or 0 */

	struct mutex lock; /* leaf; held across the start of a flush, which does no I/O */
	uint64_t errors_before GUARDED_BY(lock); /* background errors when the last flush was started */
	int flush_error GUARDED_BY(lock);	 /* of the last flush that was waited for */
};

struct db_batch {
	struct db *db;
	rocksdb_writebatch_t *batch;
};

struct db_snapshot {
	struct db *db;
	const rocksdb_snapshot_t *snapshot;
};

struct db_iter {
	struct db *db;
	rocksdb_readoptions_t *read;
	rocksdb_iterator_t *it;
	bool started;
	uint8_t end[]; /* RocksDB borrows it */
};

static const char *const family_names[NR_FAMILIES] = { "default", "fingerprints" };

/* RocksDB's messages are the only form in which the C API gives its codes. */
static int errno_of(const char *err)
{
	static const struct {
		const char *text;
		int r;
	} table[] = {
		{ "No space left on device", -ENOSPC },
		{ "Corruption", -EBADMSG },
		{ "No such file or directory", -EBADMSG }, /* one that the MANIFEST names */
		{ "While lock file", -EBUSY },
		{ "lock hold by current process", -EBUSY },
		{ "Not supported operation in read only mode", -EROFS },
		{ "Keys must be added in strict ascending order", -EINVAL },
		{ "Cannot allocate memory", -ENOMEM },
		{ "Too many open files", -EMFILE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (strstr(err, table[i].text))
			return table[i].r;
	return -EIO;
}

static void rocks_freep(char **p)
{
	if (*p)
		rocksdb_free(*p);
}

static uint64_t property(struct db *db, enum db_family family, const char *name)
{
	uint64_t n = 0;

	if (rocksdb_property_int_cf(db->rocks, db->cf[family], name, &n) != 0)
		log_error("index %s: RocksDB has no property %s", db->dir, name);
	return n;
}

/* ---- opening ---- */

static void set_table(rocksdb_options_t *o, rocksdb_cache_t *cache, size_t block_size, double bits_per_key)
{
	rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

	rocksdb_block_based_options_set_format_version(t, 5);
	rocksdb_block_based_options_set_block_cache(t, cache);
	rocksdb_block_based_options_set_block_size(t, block_size);
	rocksdb_block_based_options_set_filter_policy(t, rocksdb_filterpolicy_create_ribbon(bits_per_key));
	rocksdb_block_based_options_set_whole_key_filtering(t, 1);
	/* Filters and indexes in pieces, in the cache: a table of any size costs only what is used of it. */
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
	rocksdb_block_based_options_set_pin_top_level_index_and_filter(t, 1);
	rocksdb_block_based_options_set_index_type(t, rocksdb_block_based_table_index_type_two_level_index_search);
	rocksdb_block_based_options_set_partition_filters(t, 1);
	rocksdb_block_based_options_set_metadata_block_size(t, KiB(4));
	rocksdb_options_set_block_based_table_factory(o, t);
	rocksdb_block_based_options_destroy(t);
}

static void set_common(struct db *db, rocksdb_options_t *o, const struct db_conf *conf)
{
	rocksdb_options_set_env(o, db->env);
	rocksdb_options_set_create_if_missing(o, conf->create);
	rocksdb_options_set_create_missing_column_families(o, 1); /* creation may have been cut short */
	rocksdb_options_set_paranoid_checks(o, 0);		  /* see the top */
	rocksdb_options_set_max_open_files(o, 256);
	rocksdb_options_set_max_background_jobs(o, 2);
	rocksdb_options_set_info_log_level(o, 2); /* warnings */
	rocksdb_options_set_keep_log_file_num(o, 1);
	rocksdb_options_set_max_log_file_size(o, MiB(1));
	rocksdb_options_set_stats_dump_period_sec(o, 0);
	rocksdb_options_set_stats_persist_period_sec(o, 0);
	rocksdb_options_set_bytes_per_sync(o, MiB(1)); /* no burst of dirty pages at the end of a file */
	/* No delays and stops: the engine looks at db_view_unflushed() and decides. */
	rocksdb_options_set_level0_slowdown_writes_trigger(o, 1 << 20);
	rocksdb_options_set_level0_stop_writes_trigger(o, 1 << 20);
	rocksdb_options_set_soft_pending_compaction_bytes_limit(o, 0);
	rocksdb_options_set_hard_pending_compaction_bytes_limit(o, 0);
}

static void set_view(rocksdb_options_t *o, rocksdb_cache_t *cache)
{
	rocksdb_options_set_write_buffer_size(o, MEMTABLE_SIZE);
	rocksdb_options_set_max_write_buffer_number(o, 2 * UNFLUSHED_NR_MAX);
	rocksdb_options_set_compression(o, rocksdb_lz4_compression);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
	set_table(o, cache, KiB(4), 10);
}

static void set_fingerprints(rocksdb_options_t *o, rocksdb_cache_t *cache)
{
	rocksdb_options_set_compression(o, rocksdb_zstd_compression);
	rocksdb_options_set_compaction_style(o, rocksdb_universal_compaction);
	rocksdb_options_set_level0_file_num_compaction_trigger(o, 8);
	set_table(o, cache, KiB(8), 10);
}

static int make_options(struct db *db, const struct db_conf *conf)
{
	_cleanup_(rocks_freep) char *err = NULL;
	rocksdb_options_t *base;

	db->env = rocksdb_create_default_env();
	rocksdb_env_lower_thread_pool_cpu_priority(db->env); /* compactions; flushes have the other pool */
	rocksdb_env_lower_thread_pool_io_priority(db->env);
	db->cache = rocksdb_cache_create_lru(MAX(conf->cache, CACHE_MIN));
	db->read = rocksdb_readoptions_create();
	db->write = rocksdb_writeoptions_create();
	rocksdb_writeoptions_disable_WAL(db->write, 1);
	db->flush = rocksdb_flushoptions_create();
	rocksdb_flushoptions_set_wait(db->flush, 0);
	base = rocksdb_options_create();
	for (size_t i = 0; i < NR_FAMILIES && !err; i++) {
		db->options[i] = rocksdb_options_create();
		/* The C API has no function for this one. */
		rocksdb_get_options_from_string(base, "avoid_flush_during_shutdown=true", db->options[i], &err);
		set_common(db, db->options[i], conf);
	}
	rocksdb_options_destroy(base);
	if (err)
		return log_errno(-EOPNOTSUPP, "index %s: RocksDB takes no option: %s", db->dir, err);
	set_view(db->options[DB_VIEW], db->cache);
	set_fingerprints(db->options[DB_FINGERPRINTS], db->cache);
	return 0;
}

/* Tell apart what is missing, what is damaged and what can be made, before RocksDB touches anything. */
static int check_dir(const char *dir, const struct db_conf *conf)
{
	_cleanup_(freep) char *current = NULL;
	struct stat st;
	int r;

	if (stat(dir, &st) < 0) {
		if (errno != ENOENT || !conf->create)
			return log_errno(-errno, "index %s: cannot open", dir);
		r = io_mkdir(AT_FDCWD, dir, 0700);
		return r < 0 ? log_errno(r, "index %s: cannot create", dir) : 0;
	}
	if (!S_ISDIR(st.st_mode))
		return log_errno(-EBADMSG, "index %s: not a directory", dir);
	if (conf->create)
		return 0;
	if (asprintf(&current, "%s/CURRENT", dir) < 0)
		return -ENOMEM;
	if (access(current, F_OK) < 0)
		return log_errno(-errno, "index %s: holds no database", dir);
	return 0;
}

/* Remove what an ingestion that was cut short left behind. */
static int clean_ingest_dir(struct db *db)
{
	struct dirent *de;
	DIR *d;
	int r;

	r = io_mkdir(AT_FDCWD, db->ingest_dir, 0700);
	if (r == 0)
		return 0;
	if (r != -EEXIST)
		return log_errno(r, "index %s: cannot create", db->ingest_dir);
	d = opendir(db->ingest_dir);
	if (!d)
		return log_errno(-errno, "index %s: cannot open", db->ingest_dir);
	while ((de = readdir(d)) != NULL) {
		if (de->d_name[0] == '.')
			continue;
		r = io_unlink(dirfd(d), de->d_name);
		if (r < 0)
			log_warning("index %s: stale %s cannot be removed: %s", db->ingest_dir, de->d_name,
				    strerror(-r));
	}
	closedir(d);
	return 0;
}

/* All files that the MANIFEST names are there and as long as it says. */
static int check_files(struct db *db)
{
	const rocksdb_livefiles_t *files = rocksdb_livefiles(db->rocks);
	int n = rocksdb_livefiles_count(files), r = 0;

	for (int i = 0; i < n && r == 0; i++) {
		const char *name = rocksdb_livefiles_name(files, i); /* with a slash in front */
		uint64_t size = rocksdb_livefiles_size(files, i);
		char path[PATH_MAX];
		struct stat st;

		snprintf(path, sizeof(path), "%s%s", db->dir, name);
		if (stat(path, &st) < 0)
			r = log_errno(errno == ENOENT ? -EBADMSG : -errno, "index %s: table missing", path);
		else if ((uint64_t)st.st_size != size)
			r = log_errno(-EBADMSG, "index %s: %" PRIu64 " bytes, expected %" PRIu64, path,
				      (uint64_t)st.st_size, size);
	}
	rocksdb_livefiles_destroy(files);
	return r;
}

static int open_rocks(struct db *db, const struct db_conf *conf)
{
	_cleanup_(rocks_freep) char *err = NULL;
	int r;

	if (conf->read_only)
		db->rocks = rocksdb_open_for_read_only_column_families(
			db->options[DB_VIEW], db->dir, NR_FAMILIES, family_names,
			(const rocksdb_options_t *const *)db->options, db->cf, 0, &err);
	else
		db->rocks = rocksdb_open_column_families(db->options[DB_VIEW], db->dir, NR_FAMILIES, family_names,
							 (const rocksdb_options_t *const *)db->options, db->cf, &err);
	if (!err)
		return check_files(db);
	r = errno_of(err);
	/* What RocksDB cannot make sense of is damage, unless the system was in its way. */
	if (strncmp(err, "IO error", strlen("IO error")) != 0)
		r = -EBADMSG;
	return log_errno(r, "index %s: cannot open: %s", db->dir, err);
}

static void db_closep(struct db **db)
{
	db_close(*db);
}

int db_open(const char *dir, const struct db_conf *conf, struct db **ret)
{
	_cleanup_(db_closep) struct db *db = calloc(1, sizeof(*db));
	int r;

	if (!db)
		return -ENOMEM;
	mutex_init(&db->lock);
	db->dir = strdup(dir);
	if (!db->dir || asprintf(&db->ingest_dir, "%s/ingest", dir) < 0)
		return -ENOMEM;
	r = check_dir(dir, conf);
	if (r < 0)
		return r;
	r = make_options(db, conf);
	if (r < 0)
		return r;
	r = open_rocks(db, conf);
	if (r < 0)
		return r;
	if (!conf->read_only) {
		r = clean_ingest_dir(db);
		if (r < 0)
			return r;
	}
	*ret = TAKE(db);
	return 0;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	for (size_t i = 0; i < NR_FAMILIES; i++)
		if (db->cf[i])
			rocksdb_column_family_handle_destroy(db->cf[i]);
	if (db->rocks)
		rocksdb_close(db->rocks);
	for (size_t i = 0; i < NR_FAMILIES; i++)
		if (db->options[i])
			rocksdb_options_destroy(db->options[i]);
	if (db->flush)
		rocksdb_flushoptions_destroy(db->flush);
	if (db->write)
		rocksdb_writeoptions_destroy(db->write);
	if (db->read)
		rocksdb_readoptions_destroy(db->read);
	if (db->cache)
		rocksdb_cache_destroy(db->cache);
	if (db->env)
		rocksdb_env_destroy(db->env);
	mutex_release(&db->lock);
	free(db->ingest_dir);
	free(db->dir);
	free(db);
}

/* ---- reading ---- */

int db_get(struct db *db, enum db_family family, const void *key, size_t key_len, struct buf *ret)
{
	_cleanup_(rocks_freep) char *err = NULL;
	rocksdb_pinnableslice_t *value;
	const char *p;
	size_t len;

	value = rocksdb_get_pinned_cf(db->rocks, db->read, db->cf[family], key, key_len, &err);
	if (err)
		return log_errno(errno_of(err), "index %s: cannot read: %s", db->dir, err);
	if (!value)
		return 0;
	if (ret) {
		p = rocksdb_pinnableslice_value(value, &len);
		buf_add(ret, p, len);
	}
	rocksdb_pinnableslice_destroy(value);
	return ret && buf_error(ret) < 0 ? -ENOMEM : 1;
}

/* Copies one answer out. Frees `value` and `err`. */
static int take_answer(struct db *db, rocksdb_pinnableslice_t *value, char *err, void *ret, size_t value_len)
{
	size_t len;
	const char *p;
	int r = 0;

	if (err) {
		r = log_errno(errno_of(err), "index %s: cannot read: %s", db->dir, err);
		rocksdb_free(err);
	} else if (value) {
		p = rocksdb_pinnableslice_value(value, &len);
		if (len == value_len) {
			memcpy(ret, p, len);
			r = 1;
		} else {
			r = log_errno(-EBADMSG, "index %s: value of %zu bytes, expected %zu", db->dir, len, value_len);
		}
		rocksdb_pinnableslice_destroy(value);
	}
	return r;
}

int db_get_many(struct db *db, enum db_family family, const void *keys, size_t key_len, size_t n, void *values,
		size_t value_len, uint8_t *found)
{
	rocksdb_pinnableslice_t *value[GET_BATCH];
	const char *key[GET_BATCH];
	size_t len[GET_BATCH];
	char *err[GET_BATCH];
	int r = 0, answer;

	for (size_t done = 0; done < n && r == 0; done += GET_BATCH) {
		size_t nr = MIN(n - done, (size_t)GET_BATCH);

		for (size_t i = 0; i < nr; i++) {
			key[i] = (const char *)keys + (done + i) * key_len;
			len[i] = key_len;
		}
		rocksdb_batched_multi_get_cf(db->rocks, db->read, db->cf[family], nr, key, len, value, err, false);
		for (size_t i = 0; i < nr; i++) {
			answer = take_answer(db, value[i], err[i], (uint8_t *)values + (done + i) * value_len,
					     value_len);
			found[done + i] = answer > 0;
			if (answer < 0 && r == 0)
				r = answer;
		}
	}
	return r;
}

/* The first key after all that start with `prefix`, in `ret`; its length, or 0 if there is no such key. */
static size_t prefix_end(const void *prefix, size_t len, uint8_t *ret)
{
	memcpy(ret, prefix, len);
	while (len > 0 && ret[len - 1] == 0xff)
		len--;
	if (len > 0)
		ret[len - 1]++;
	return len;
}

static int key_cmp(const void *a, size_t a_len, const void *b, size_t b_len)
{
	int c = memcmp(a, b, MIN(a_len, b_len));

	return c != 0 ? c : (a_len > b_len) - (a_len < b_len);
}

int db_iter_new(struct db *db, const struct db_snapshot *snapshot, const void *prefix, size_t prefix_len,
		const void *from, size_t from_len, struct db_iter **ret)
{
	struct db_iter *it = calloc(1, sizeof(*it) + prefix_len);
	size_t end_len;

	if (!it)
		return -ENOMEM;
	it->db = db;
	it->read = rocksdb_readoptions_create();
	if (snapshot)
		rocksdb_readoptions_set_snapshot(it->read, snapshot->snapshot);
	end_len = prefix_end(prefix, prefix_len, it->end);
	if (end_len > 0)
		rocksdb_readoptions_set_iterate_upper_bound(it->read, (const char *)it->end, end_len);
	it->it = rocksdb_create_iterator_cf(db->rocks, it->read, db->cf[DB_VIEW]);
	if (from && key_cmp(from, from_len, prefix, prefix_len) > 0)
		rocksdb_iter_seek(it->it, from, from_len);
	else
		rocksdb_iter_seek(it->it, prefix, prefix_len);
	*ret = it;
	return 0;
}

int db_iter_next(struct db_iter *it, const void **key, size_t *key_len, const void **value, size_t *value_len)
{
	_cleanup_(rocks_freep) char *err = NULL;

	if (it->started && rocksdb_iter_valid(it->it))
		rocksdb_iter_next(it->it);
	it->started = true;
	if (!rocksdb_iter_valid(it->it)) {
		rocksdb_iter_get_error(it->it, &err);
		return err ? log_errno(errno_of(err), "index %s: cannot read: %s", it->db->dir, err) : 0;
	}
	*key = rocksdb_iter_key(it->it, key_len);
	*value = rocksdb_iter_value(it->it, value_len);
	return 1;
}

void db_iter_free(struct db_iter *it)
{
	if (!it)
		return;
	rocksdb_iter_destroy(it->it);
	rocksdb_readoptions_destroy(it->read);
	free(it);
}

int db_snapshot_new(struct db *db, struct db_snapshot **ret)
{
	struct db_snapshot *s = malloc(sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->db = db;
	s->snapshot = rocksdb_create_snapshot(db->rocks);
	*ret = s;
	return 0;
}

void db_snapshot_free(struct db_snapshot *s)
{
	if (!s)
		return;
	rocksdb_release_snapshot(s->db->rocks, s->snapshot);
	free(s);
}

/* ---- writing ---- */

int db_batch_new(struct db *db, struct db_batch **ret)
{
	struct db_batch *b = malloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->db = db;
	b->batch = rocksdb_writebatch_create();
	*ret = b;
	return 0;
}

void db_batch_put(struct db_batch *b, const void *key, size_t key_len, const void *value, size_t value_len)
{
	rocksdb_writebatch_put(b->batch, key, key_len, value, value_len);
}

void db_batch_del(struct db_batch *b, const void *key, size_t key_len)
{
	rocksdb_writebatch_delete(b->batch, key, key_len);
}

void db_batch_del_range(struct db_batch *b, const void *from, size_t from_len, const void *to, size_t to_len)
{
	rocksdb_writebatch_delete_range(b->batch, from, from_len, to, to_len);
}

/*
 * RocksDB refuses writes: it has stopped over a failed write of its MANIFEST. End its background work
 * before it recovers by writing out memtables that nobody cut.
 */
static int note_stopped(struct db *db, const char *err)
{
	int r = errno_of(err), none = 0;

	if (!atomic_compare_exchange_strong(&db->stopped, &none, r))
		return none;
	rocksdb_cancel_all_background_work(db->rocks, 0);
	return log_errno(r, "index %s: stopped, works again after the next mount: %s", db->dir, err);
}

static int write_batch(struct db *db, rocksdb_writebatch_t *batch)
{
	_cleanup_(rocks_freep) char *err = NULL;
	int r = atomic_load(&db->stopped);

	if (r < 0)
		return r;
	rocksdb_write(db->rocks, db->write, batch, &err);
	return err ? note_stopped(db, err) : 0;
}

int db_batch_apply(struct db_batch *b)
{
	int r = write_batch(b->db, b->batch);

	if (r == 0)
		rocksdb_writebatch_clear(b->batch);
	return r;
}

void db_batch_free(struct db_batch *b)
{
	if (!b)
		return;
	rocksdb_writebatch_destroy(b->batch);
	free(b);
}

/* After a failure in the background: can RocksDB still write? An empty batch asks. */
static int check_stopped(struct db *db)
{
	rocksdb_writebatch_t *empty = rocksdb_writebatch_create();
	int r = write_batch(db, empty);

	rocksdb_writebatch_destroy(empty);
	return r;
}

uint64_t db_view_unflushed(struct db *db)
{
	return property(db, DB_VIEW, "rocksdb.cur-size-all-mem-tables");
}

static uint64_t background_errors(struct db *db)
{
	return property(db, DB_VIEW, "rocksdb.background-errors");
}

static uint64_t nr_waiting(struct db *db)
{
	return property(db, DB_VIEW, "rocksdb.num-immutable-mem-table");
}

static bool has_space(struct db *db)
{
	struct statvfs st;

	if (statvfs(db->dir, &st) < 0)
		return true;
	return (geteuid() == 0 ? st.f_bfree : st.f_bavail) * st.f_frsize >= db_view_unflushed(db) + FLUSH_MARGIN;
}

int db_view_flush_start(struct db *db)
{
	_cleanup_(rocks_freep) char *err = NULL;
	int r;

	r = atomic_load(&db->stopped);
	if (r < 0)
		return r;
	mutex_lock(&db->lock);
	/* Each try adds a memtable to those that wait: try only when it can succeed. */
	if (db->flush_error < 0 && (!has_space(db) || nr_waiting(db) >= UNFLUSHED_NR_MAX)) {
		r = db->flush_error;
	} else {
		db->errors_before = background_errors(db);
		rocksdb_flush_cf(db->rocks, db->flush, db->cf[DB_VIEW], &err);
	}
	mutex_unlock(&db->lock);
	if (err)
		return log_errno(errno_of(err), "index %s: cannot flush: %s", db->dir, err);
	return r;
}

/* The memtable is to be written, but nobody is at it and something has failed. */
static bool flush_is_stuck(struct db *db)
{
	uint64_t before;

	mutex_lock(&db->lock);
	before = db->errors_before;
	mutex_unlock(&db->lock);
	return background_errors(db) > before && property(db, DB_VIEW, "rocksdb.mem-table-flush-pending") &&
	       property(db, DB_VIEW, "rocksdb.num-running-flushes") == 0;
}

static int flush_result(struct db *db, bool failed)
{
	int r = 0;

	if (failed) {
		r = check_stopped(db);
		if (r == 0)
			r = log_errno(has_space(db) ? -EIO : -ENOSPC, "index %s: flush failed; kept in memory",
				      db->dir);
	}
	mutex_lock(&db->lock);
	db->flush_error = r;
	mutex_unlock(&db->lock);
	return r;
}

int db_view_flush_wait(struct db *db)
{
	uint64_t pause_ns = 100000, stuck_since = 0;

	while (nr_waiting(db) > 0) {
		if (!flush_is_stuck(db))
			stuck_since = 0;
		else if (stuck_since == 0)
			stuck_since = monotonic_ns();
		else if (monotonic_ns() - stuck_since > FLUSH_STUCK_NS)
			return flush_result(db, true);
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause_ns }, NULL);
		pause_ns = MIN(2 * pause_ns, UINT64_C(4000000));
	}
	return flush_result(db, false);
}

/* ---- fingerprints ---- */

static int write_table(struct db *db, const char *path, const char *keys, size_t key_len, const char *values,
		       size_t value_len, size_t n)
{
	_cleanup_(rocks_freep) char *err = NULL;
	rocksdb_envoptions_t *env = rocksdb_envoptions_create();
	rocksdb_sstfilewriter_t *w = rocksdb_sstfilewriter_create(env, db->options[DB_FINGERPRINTS]);

	rocksdb_sstfilewriter_open(w, path, &err);
	for (size_t i = 0; i < n && !err; i++)
		rocksdb_sstfilewriter_put(w, keys + i * key_len, key_len, values + i * value_len, value_len, &err);
	if (!err)
		rocksdb_sstfilewriter_finish(w, &err);
	rocksdb_sstfilewriter_destroy(w);
	rocksdb_envoptions_destroy(env);
	return err ? log_errno(errno_of(err), "index %s: cannot write: %s", path, err) : 0;
}

static int ingest_table(struct db *db, const char *path)
{
	_cleanup_(rocks_freep) char *err = NULL;
	rocksdb_ingestexternalfileoptions_t *o = rocksdb_ingestexternalfileoptions_create();

	rocksdb_ingestexternalfileoptions_set_move_files(o, 1);
	rocksdb_ingest_external_file_cf(db->rocks, db->cf[DB_FINGERPRINTS], &path, 1, o, &err);
	rocksdb_ingestexternalfileoptions_destroy(o);
	if (!err)
		return 0;
	check_stopped(db);
	return log_errno(errno_of(err), "index %s: cannot ingest: %s", path, err);
}

int db_ingest(struct db *db, const void *keys, size_t key_len, const void *values, size_t value_len, size_t n)
{
	_cleanup_(freep) char *path = NULL;
	int r;

	if (n == 0)
		return 0;
	if (asprintf(&path, "%s/%u.sst", db->ingest_dir, atomic_fetch_add(&db->next_ingest, 1)) < 0)
		return -ENOMEM;
	r = write_table(db, path, keys, key_len, values, value_len, n);
	if (r == 0)
		r = ingest_table(db, path);
	if (r < 0)
		unlink(path);
	return r;
}

int db_compact(struct db *db, enum db_family family)
{
	_cleanup_(rocks_freep) char *err = NULL;
	uint64_t before = background_errors(db);

	if (family == DB_FINGERPRINTS) {
		rocksdb_compact_range_cf(db->rocks, db->cf[family], NULL, 0, NULL, 0);
	} else {
		rocksdb_suggest_compact_range_cf(db->rocks, db->cf[family], "", 0, "\xff", 1, &err);
		if (err)
			return log_errno(errno_of(err), "index %s: cannot compact: %s", db->dir, err);
		while (background_errors(db) == before && (property(db, family, "rocksdb.compaction-pending") ||
							   property(db, family, "rocksdb.num-running-compactions")))
			nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	if (background_errors(db) > before)
		return log_errno(has_space(db) ? -EIO : -ENOSPC, "index %s: compaction failed", db->dir);
	return 0;
}

void db_stats(struct db *db, struct db_stats *ret)
{
	*ret = (struct db_stats){
		.view_disk = property(db, DB_VIEW, "rocksdb.total-sst-files-size"),
		.fingerprints_disk = property(db, DB_FINGERPRINTS, "rocksdb.total-sst-files-size"),
		.fingerprints_nr = property(db, DB_FINGERPRINTS, "rocksdb.estimate-num-keys"),
		.memory = property(db, DB_VIEW, "rocksdb.size-all-mem-tables") +
			  rocksdb_cache_get_usage(db->cache) +
			  property(db, DB_VIEW, "rocksdb.estimate-table-readers-mem") +
			  property(db, DB_FINGERPRINTS, "rocksdb.estimate-table-readers-mem"),
	};
}
