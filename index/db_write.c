/*
 * RocksDB with everything that it likes to do by itself tamed.
 *
 * The view must reach disk only where db_view_flush_start() cut it. What else would write a memtable
 * out, and why it does not:
 *   memtable full        no limit: RocksDB makes 64 GiB of what db_options.c asks for
 *   close                avoid_flush_during_shutdown
 *   recovery from error  With paranoid_checks a failed flush stops the database, and as soon as there is
 *                        space RocksDB flushes *all* memtables to get going again. Without, the memtable
 *                        just stays, writes go on and the next flush takes both: so it is off, and
 *                        check_files() does at open what it would have done. A failed write of the
 *                        MANIFEST still stops the database. It stays so until it is opened again, since
 *                        RocksDB waits for free space of the size of a full memtable, as asked for: 1 EiB.
 *   manual compaction    compact_range() flushes first, suggest_compact_range() does not
 *   ingestion            flushes the family it goes to, and that one has no memtable
 *
 * RocksDB tells nobody about a flush that failed, so db_view_flush_wait() watches: the memtable is pending
 * again, nothing runs, and errors have been counted, or the database has stopped before it was asked.
 *
 * A crash leaves: the view of the last finished flush; ingest/ with files nobody refers to, removed at open.
 */
#include "index/db_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"

#define SPACE_MARGIN MiB(8) /* free space wanted beside what is to be written */
#define FLUSH_STUCK_NS (500 * UINT64_C(1000000))
#define VIEW_LEVEL0_FILES "4" /* then they are merged; RocksDB's default */
#define COMPACTION_ERRORS_MAX 3
#define COMPACTION_PAUSE_NS (600 * UINT64_C(1000000000))
#define RUNS_MAX 10
#define CATCH_UP_NS (2000 * UINT64_C(1000000)) /* per ingestion at most */

struct db_batch {
	struct db *db;
	struct buf changes;
};

int db_batch_new(struct db *db, struct db_batch **ret)
{
	struct db_batch *b = malloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	*b = (struct db_batch){ db, BUF_EMPTY };
	*ret = b;
	return 0;
}

void db_batch_put(struct db_batch *b, const void *key, size_t key_len, const void *value, size_t value_len)
{
	overlay_add(&b->changes, &(struct overlay_change){ key, value, key_len, value_len, false });
}

void db_batch_del(struct db_batch *b, const void *key, size_t key_len)
{
	overlay_add(&b->changes, &(struct overlay_change){ key, NULL, key_len, 0, true });
}

int db_stopped(const struct db *db)
{
	return atomic_load(&db->stopped);
}

/* RocksDB refuses writes: it has stopped over a failed write of its MANIFEST. Tell it once. */
static int note_stopped(struct db *db, const char *err)
{
	int r = db_errno_of(err), none = 0;

	if (!atomic_compare_exchange_strong(&db->stopped, &none, r))
		return none;
	return log_errno(r, "index %s: stopped, works again after the next mount: %s", db->dir, err);
}

static int write_batch(struct db *db, rocksdb_writebatch_t *batch)
{
	_cleanup_(db_err_freep) char *err = NULL;
	int r = atomic_load(&db->stopped);

	if (r < 0)
		return r;
	rocksdb_write(db->rocks, db->write, batch, &err);
	return err ? note_stopped(db, err) : 0;
}

int db_write_changes(void *userdata, const struct overlay_change *changes, size_t n)
{
	rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
	int r;

	for (const struct overlay_change *c = changes; c < changes + n; c++) {
		if (c->deleted)
			rocksdb_writebatch_delete(batch, c->key, c->key_len);
		else
			rocksdb_writebatch_put(batch, c->key, c->key_len, c->value, c->value_len);
	}
	r = write_batch(userdata, batch);
	rocksdb_writebatch_destroy(batch);
	return r;
}

int db_batch_apply(struct db_batch *b)
{
	int r = atomic_load(&b->db->stopped);

	if (r == 0)
		r = buf_error(&b->changes);
	if (r == 0)
		r = overlay_apply(b->db->overlay, &b->changes);
	if (r == 0)
		buf_clear(&b->changes);
	return r;
}

int db_batch_apply_through(struct db_batch *b)
{
	int r = db_batch_apply(b);

	if (r == 0)
		(void)overlay_drain(b->db->overlay); /* it is applied; what cannot go on is tried again */
	return r;
}

void db_batch_free(struct db_batch *b)
{
	if (!b)
		return;
	buf_release(&b->changes);
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
	return overlay_bytes(db->overlay) + db_property(db, DB_VIEW, "rocksdb.cur-size-all-mem-tables");
}

static uint64_t background_errors(struct db *db)
{
	return db_property(db, DB_VIEW, "rocksdb.background-errors");
}

static uint64_t nr_waiting(struct db *db)
{
	return db_property(db, DB_VIEW, "rocksdb.num-immutable-mem-table");
}

static uint64_t free_space(struct db *db)
{
	struct statvfs st;

	if (statvfs(db->dir, &st) < 0)
		return UINT64_MAX;
	return (geteuid() == 0 ? st.f_bfree : st.f_bavail) * st.f_frsize;
}

static bool has_space(struct db *db)
{
	return free_space(db) >= db_view_unflushed(db) + SPACE_MARGIN;
}

/*
 * A compaction that fails is tried again every second, each time from its start: out of space it fills the disk up
 * first, and over a damaged block it never ends. So none is started unless it could write everything once more, and
 * after a few failures there is a pause.
 */
static bool may_compact(struct db *db, uint64_t errors) REQUIRES(db->compaction_lock);
static bool may_compact(struct db *db, uint64_t errors)
{
	uint64_t size = db_property(db, DB_VIEW, "rocksdb.live-sst-files-size") +
			db_property(db, DB_FINGERPRINTS, "rocksdb.live-sst-files-size");

	if (free_space(db) < size + SPACE_MARGIN)
		return false;
	if (db->compaction_pause_ns > 0)
		return monotonic_ns() >= db->compaction_pause_ns;
	if (db->compaction_off) /* for want of space, and there is some again */
		return true;
	if (errors - db->compaction_errors < COMPACTION_ERRORS_MAX)
		return true;
	log_warning("index %s: compaction fails, next try in 10 minutes; fsck.ckptfs --rebuild makes the index anew",
		    db->dir);
	db->compaction_pause_ns = monotonic_ns() + COMPACTION_PAUSE_NS;
	return false;
}

static void watch_compaction(struct db *db)
{
	static const char *const keys[] = { "disable_auto_compactions" };
	_cleanup_(db_err_freep) char *err = NULL;
	uint64_t errors = background_errors(db);
	bool on;

	if (!mutex_trylock(&db->compaction_lock))
		return;
	on = may_compact(db, errors);
	for (size_t i = 0; i < DB_NR_FAMILIES && on == db->compaction_off && !err; i++)
		rocksdb_set_options_cf(db->rocks, db->cf[i], 1, keys, (const char *[]){ on ? "false" : "true" }, &err);
	if (!err && on == db->compaction_off) {
		db->compaction_off = !on;
		if (on) {
			db->compaction_errors = errors;
			db->compaction_pause_ns = 0;
		}
	}
	mutex_unlock(&db->compaction_lock);
	if (err)
		log_warning("index %s: cannot turn compaction %s: %s", db->dir, on ? "on" : "off", err);
}

int db_view_flush_start(struct db *db)
{
	_cleanup_(db_err_freep) char *err = NULL;
	int r;

	r = atomic_load(&db->stopped);
	if (r < 0)
		return r;
	watch_compaction(db);
	r = overlay_drain(db->overlay);
	if (r < 0)
		return r;
	mutex_lock(&db->lock);
	/* Each try adds a memtable to those that wait: try only when it can succeed. */
	if (db->flush_error < 0 && (!has_space(db) || nr_waiting(db) >= DB_UNFLUSHED_NR_MAX)) {
		r = db->flush_error;
	} else {
		db->errors_before = background_errors(db);
		rocksdb_flush_cf(db->rocks, db->flush, db->cf[DB_VIEW], &err);
	}
	mutex_unlock(&db->lock);
	if (err)
		return log_errno(db_errno_of(err), "index %s: cannot flush: %s", db->dir, err);
	return r;
}

static bool has_new_errors(struct db *db)
{
	uint64_t before;

	mutex_lock(&db->lock);
	before = db->errors_before;
	mutex_unlock(&db->lock);
	return background_errors(db) > before;
}

/* The memtable is to be written, but nobody is at it. */
static bool is_idle(struct db *db)
{
	return db_property(db, DB_VIEW, "rocksdb.mem-table-flush-pending") &&
	       db_property(db, DB_VIEW, "rocksdb.num-running-flushes") == 0;
}

static int flush_result(struct db *db, int r)
{
	mutex_lock(&db->lock);
	db->flush_error = r;
	mutex_unlock(&db->lock);
	return r;
}

int db_view_flush_wait(struct db *db)
{
	uint64_t pause_ns = 100000, idle_since = 0;
	int r;

	while (nr_waiting(db) > 0) {
		bool failed = has_new_errors(db), stuck;

		if (!is_idle(db))
			idle_since = 0;
		else if (idle_since == 0)
			idle_since = monotonic_ns();
		stuck = idle_since > 0 && monotonic_ns() - idle_since > FLUSH_STUCK_NS;
		/* What stopped it may have happened before the flush was asked for: RocksDB then does not begin it. */
		r = failed || stuck ? check_stopped(db) : 0;
		/* The error may be a compaction's, and the flush may be about to start. */
		if (r == 0 && failed && stuck)
			r = log_errno(has_space(db) ? -EIO : -ENOSPC, "index %s: flush failed; kept in memory", db->dir);
		if (r < 0)
			return flush_result(db, r);
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause_ns }, NULL);
		pause_ns = MIN(2 * pause_ns, UINT64_C(4000000));
	}
	return flush_result(db, 0);
}

static int write_table(struct db *db, const char *path, const char *keys, size_t key_len, const char *values,
		       size_t value_len, size_t n)
{
	_cleanup_(db_err_freep) char *err = NULL;
	rocksdb_envoptions_t *env = rocksdb_envoptions_create();
	rocksdb_sstfilewriter_t *w = rocksdb_sstfilewriter_create(env, db->options[DB_FINGERPRINTS]);

	rocksdb_sstfilewriter_open(w, path, &err);
	for (size_t i = 0; i < n && !err; i++)
		rocksdb_sstfilewriter_put(w, keys + i * key_len, key_len, values + i * value_len, value_len, &err);
	if (!err)
		rocksdb_sstfilewriter_finish(w, &err);
	rocksdb_sstfilewriter_destroy(w);
	rocksdb_envoptions_destroy(env);
	return err ? log_errno(db_errno_of(err), "index %s: cannot write: %s", path, err) : 0;
}

/* Tables that RocksDB takes for empty. */
static int nr_unbounded(struct db *db)
{
	const rocksdb_livefiles_t *files = rocksdb_livefiles(db->rocks);
	int n = rocksdb_livefiles_count(files), nr = 0;

	for (int i = 0; i < n; i++) {
		size_t len;

		rocksdb_livefiles_largestkey(files, i, &len);
		nr += len == 0;
	}
	rocksdb_livefiles_destroy(files);
	return nr;
}

/*
 * RocksDB 7.8 ingests a table whose first block it cannot read as one without keys. No look-up finds anything in it
 * until it is compacted, so it is an error here. The snapshot has every table get a sequence number of its own: else
 * such a one gets none, iterators meet its keys once more in other tables, and abort.
 */
static int ingest_table(struct db *db, const char *path)
{
	_cleanup_(db_err_freep) char *err = NULL;
	rocksdb_ingestexternalfileoptions_t *o = rocksdb_ingestexternalfileoptions_create();
	const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(db->rocks);
	int unbounded = nr_unbounded(db);

	rocksdb_ingestexternalfileoptions_set_move_files(o, 1);
	rocksdb_ingest_external_file_cf(db->rocks, db->cf[DB_FINGERPRINTS], &path, 1, o, &err);
	rocksdb_ingestexternalfileoptions_destroy(o);
	rocksdb_release_snapshot(db->rocks, snapshot);
	if (err) {
		check_stopped(db);
		return log_errno(db_errno_of(err), "index %s: cannot ingest: %s", path, err);
	}
	if (nr_unbounded(db) > unbounded)
		return log_errno(-EIO, "index %s: cannot ingest: RocksDB could not read it", path);
	return 0;
}

/* Tables of fingerprints that every look-up has to ask. */
static uint64_t nr_runs(struct db *db)
{
	_cleanup_(db_err_freep) char *n = NULL;

	n = rocksdb_property_value_cf(db->rocks, db->cf[DB_FINGERPRINTS], "rocksdb.num-files-at-level0");
	return n ? strtoull(n, NULL, 10) : 0;
}

/* Give compaction time to catch up. */
static void wait_for_compaction(struct db *db)
{
	uint64_t start = monotonic_ns(), errors = background_errors(db);

	while (nr_runs(db) >= RUNS_MAX && db_property(db, DB_FINGERPRINTS, "rocksdb.num-running-compactions") > 0 &&
	       background_errors(db) == errors && monotonic_ns() - start < CATCH_UP_NS)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

int db_ingest(struct db *db, const void *keys, size_t key_len, const void *values, size_t value_len, size_t n)
{
	_cleanup_(freep) char *path = NULL;
	int r = atomic_load(&db->stopped);

	if (r < 0 || n == 0)
		return r;
	watch_compaction(db);
	wait_for_compaction(db);
	if (asprintf(&path, "%s/%u.sst", db->ingest_dir, atomic_fetch_add(&db->next_ingest, 1)) < 0)
		return -ENOMEM;
	r = write_table(db, path, keys, key_len, values, value_len, n);
	if (r == 0)
		r = ingest_table(db, path);
	if (r < 0)
		unlink(path);
	return r;
}

static bool compaction_is_off(struct db *db)
{
	bool off;

	if (!mutex_trylock(&db->compaction_lock))
		return false; /* somebody is just about to change it: ask again */
	off = db->compaction_off;
	mutex_unlock(&db->compaction_lock);
	return off;
}

/* Of how many files level 0 of the view is full. */
static int set_view_full(struct db *db, const char *nr)
{
	static const char *const keys[] = { "level0_file_num_compaction_trigger" };
	_cleanup_(db_err_freep) char *err = NULL;

	rocksdb_set_options_cf(db->rocks, db->cf[DB_VIEW], 1, keys, &nr, &err);
	return err ? log_errno(db_errno_of(err), "index %s: cannot set %s: %s", db->dir, keys[0], err) : 0;
}

/* A suggestion alone leaves level 0 as it is where there is no other level, so with all its deletions in a small
 * view. */
static int compact_view(struct db *db, uint64_t errors)
{
	_cleanup_(db_err_freep) char *err = NULL;
	int r;

	r = set_view_full(db, "1");
	if (r < 0)
		return r;
	rocksdb_suggest_compact_range_cf(db->rocks, db->cf[DB_VIEW], "", 0, "\xff", 1, &err);
	while (!err && background_errors(db) == errors && check_stopped(db) == 0 && !compaction_is_off(db) &&
	       (db_property(db, DB_VIEW, "rocksdb.compaction-pending") ||
		db_property(db, DB_VIEW, "rocksdb.num-running-compactions")))
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	r = set_view_full(db, VIEW_LEVEL0_FILES);
	return err ? log_errno(db_errno_of(err), "index %s: cannot compact: %s", db->dir, err) : r;
}

int db_compact(struct db *db, enum db_family family)
{
	uint64_t before = background_errors(db);
	int r = 0;

	if (family == DB_FINGERPRINTS)
		rocksdb_compact_range_cf(db->rocks, db->cf[family], NULL, 0, NULL, 0);
	else
		r = compact_view(db, before);
	if (r < 0)
		return r;
	if (background_errors(db) > before)
		return log_errno(has_space(db) ? -EIO : -ENOSPC, "index %s: compaction failed", db->dir);
	return check_stopped(db);
}
