/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing to RocksDB, with its background activity under control.
 *
 * The view must reach the disk only by db_view_flush_start(). Other triggers of a flush, and how each is
 * prevented:
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
 * RocksDB does not report a failed flush, so db_view_flush_wait() detects it: the memtable is pending again, no
 * flush runs, and errors were counted, or the database stopped before the flush was requested.
 *
 * A crash leaves the view of the last finished flush, and unreferenced files in ingest/, which are removed at open.
 */
#include "index/db_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"

#define SPACE_MARGIN MiB(8) /* free space needed beyond the bytes to be written */
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

/* RocksDB refuses writes: it has stopped after a failed write of its MANIFEST. Logs it once. */
static int note_stopped(struct db *db, const char *err)
{
	int r = db_errno_of(err), none = 0;

	if (!atomic_compare_exchange_strong(&db->stopped, &none, r))
		return none;
	io_sync_failed(); /* possibly: RocksDB does not report which call failed */
	return log_errno(r, "index %s: stopped, mount again: %s", db->dir, err);
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
		(void)overlay_drain(b->db->overlay); /* the batch is applied; a failed drain is tried again */
	return r;
}

void db_batch_free(struct db_batch *b)
{
	if (!b)
		return;
	buf_release(&b->changes);
	free(b);
}

/* After a failure in the background: tests with an empty batch whether RocksDB can still write. */
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

bool db_view_is_flushed(struct db *db)
{
	return overlay_bytes(db->overlay) == 0 && db_property(db, DB_VIEW, "rocksdb.num-entries-active-mem-table") == 0 &&
	       db_property(db, DB_VIEW, "rocksdb.num-entries-imm-mem-tables") == 0;
}

static uint64_t background_errors(struct db *db)
{
	return db_property(db, DB_VIEW, "rocksdb.background-errors");
}

static uint64_t nr_waiting(struct db *db)
{
	return db_property(db, DB_VIEW, "rocksdb.num-immutable-mem-table");
}

/* ext4 reserves blocks for root, and some even from root: a fiftieth, at most 4096. */
static uint64_t free_space(struct db *db)
{
	struct statfs type;
	struct statvfs st;
	uint64_t kept;

	if (statvfs(db->dir, &st) < 0 || statfs(db->dir, &type) < 0)
		return UINT64_MAX;
	kept = MIN((uint64_t)st.f_blocks / 50, UINT64_C(4096));
	if (geteuid() != 0 || type.f_type != EXT4_SUPER_MAGIC)
		return st.f_bavail * st.f_frsize;
	return st.f_bfree > kept ? (st.f_bfree - kept) * st.f_frsize : 0;
}

/* free_space() does not include quotas: only an allocation shows them. */
static int try_space(struct db *db, uint64_t bytes)
{
	_cleanup_(freep) char *path = NULL;
	int fd, r;

	if (asprintf(&path, "%s/room.tmp", db->ingest_dir) < 0)
		return -ENOMEM;
	fd = io_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	r = io_allocate(fd, 0, bytes);
	io_close(fd);
	io_unlink(AT_FDCWD, path);
	return r;
}

static uint64_t wanted_space(struct db *db)
{
	return db_view_unflushed(db) + SPACE_MARGIN;
}

static bool has_space(struct db *db, int last_error)
{
	return free_space(db) >= wanted_space(db) &&
	       (last_error != -EDQUOT || try_space(db, wanted_space(db)) == 0);
}

/* RocksDB does not report the cause of a failure in the background. */
static int likely_cause(struct db *db)
{
	int r = free_space(db) >= wanted_space(db) ? try_space(db, wanted_space(db)) : -ENOSPC;

	return io_is_full(r) ? r : -EIO;
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
	log_warning("index %s: compaction fails, next try in 10 minutes; fsck.ckptfs --rebuild recreates the index",
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
	r = db->flush_error;
	mutex_unlock(&db->lock);
	/* Each try adds a memtable to those that wait: try only when it can succeed. */
	if (r < 0 && (!has_space(db, r) || nr_waiting(db) >= DB_UNFLUSHED_NR_MAX))
		return r;
	mutex_lock(&db->lock);
	db->errors_before = background_errors(db);
	db->lacked_space = free_space(db) < wanted_space(db);
	rocksdb_flush_cf(db->rocks, db->flush, db->cf[DB_VIEW], &err);
	mutex_unlock(&db->lock);
	return err ? log_errno(db_errno_of(err), "index %s: cannot flush: %s", db->dir, err) : 0;
}

static bool lacked_space(struct db *db)
{
	bool lacked;

	mutex_lock(&db->lock);
	lacked = db->lacked_space;
	mutex_unlock(&db->lock);
	return lacked;
}

static bool has_new_errors(struct db *db)
{
	uint64_t before;

	mutex_lock(&db->lock);
	before = db->errors_before;
	mutex_unlock(&db->lock);
	return background_errors(db) > before;
}

/* The memtable waits to be written, but no flush is running. */
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
	int cause = lacked_space(db) ? -ENOSPC : 0, r;

	while (nr_waiting(db) > 0) {
		bool failed = has_new_errors(db), stuck;

		if (failed && cause == 0)
			cause = likely_cause(db); /* at once: another program may free space meanwhile */
		if (!is_idle(db))
			idle_since = 0;
		else if (idle_since == 0)
			idle_since = monotonic_ns();
		stuck = idle_since > 0 && monotonic_ns() - idle_since > FLUSH_STUCK_NS;
		/* RocksDB may have stopped before the flush was requested: then it does not start. */
		r = failed || stuck ? check_stopped(db) : 0;
		/* The error may be a compaction's, and the flush may be about to start. */
		if (r == 0 && failed && stuck) {
			io_sync_failed(); /* possibly: RocksDB does not report which call failed */
			r = log_errno(cause, "index %s: flush failed; kept in memory", db->dir);
		}
		if (r < 0)
			return flush_result(db, r);
		nanosleep(&(struct timespec){ .tv_nsec = (long)pause_ns }, NULL);
		pause_ns = MIN(2 * pause_ns, UINT64_C(4000000));
	}
	return flush_result(db, 0);
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
 * RocksDB 7.8 ingests a table with an unreadable first block as one without keys. Lookups find nothing in it until it
 * is compacted, so it is an error here. The snapshot makes every table get its own sequence number: otherwise such a
 * table gets none, iterators find its keys again in other tables, and abort.
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
		io_sync_failed();
		check_stopped(db);
		return log_errno(db_errno_of(err), "index %s: cannot ingest: %s", path, err);
	}
	if (nr_unbounded(db) > unbounded)
		return log_errno(-EIO, "index %s: cannot ingest: RocksDB could not read it", path);
	return 0;
}

/* Tables of fingerprints that every lookup has to search. */
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

struct db_ingestion {
	struct db *db;
	char *path;
	rocksdb_envoptions_t *env;
	rocksdb_sstfilewriter_t *writer;
	bool committed;
};

int db_ingestion_new(struct db *db, struct db_ingestion **ret)
{
	_cleanup_(db_ingestion_freep) struct db_ingestion *in = NULL;
	_cleanup_(db_err_freep) char *err = NULL;
	int r = atomic_load(&db->stopped);

	if (r < 0)
		return r;
	watch_compaction(db);
	wait_for_compaction(db);
	in = calloc(1, sizeof(*in));
	if (!in)
		return -ENOMEM;
	in->db = db;
	if (asprintf(&in->path, "%s/%u.sst", db->ingest_dir, atomic_fetch_add(&db->next_ingest, 1)) < 0) {
		in->path = NULL;
		return -ENOMEM;
	}
	in->env = rocksdb_envoptions_create();
	in->writer = rocksdb_sstfilewriter_create(in->env, db->options[DB_FINGERPRINTS]);
	rocksdb_sstfilewriter_open(in->writer, in->path, &err);
	if (err)
		return log_errno(db_errno_of(err), "index %s: cannot write: %s", in->path, err);
	*ret = TAKE(in);
	return 0;
}

int db_ingestion_add(struct db_ingestion *in, const void *keys, size_t key_len, const void *values, size_t value_len,
		     size_t n)
{
	_cleanup_(db_err_freep) char *err = NULL;
	const char *k = keys, *v = values;

	for (size_t i = 0; i < n && !err; i++)
		rocksdb_sstfilewriter_put(in->writer, k + i * key_len, key_len, v + i * value_len, value_len, &err);
	return err ? log_errno(db_errno_of(err), "index %s: cannot write: %s", in->path, err) : 0;
}

int db_ingestion_commit(struct db_ingestion *in)
{
	_cleanup_(db_err_freep) char *err = NULL;
	int r;

	rocksdb_sstfilewriter_finish(in->writer, &err);
	if (err)
		return log_errno(db_errno_of(err), "index %s: cannot write: %s", in->path, err);
	r = ingest_table(in->db, in->path);
	in->committed = r == 0;
	return r;
}

void db_ingestion_free(struct db_ingestion *in)
{
	if (!in)
		return;
	if (in->writer)
		rocksdb_sstfilewriter_destroy(in->writer);
	if (in->env)
		rocksdb_envoptions_destroy(in->env);
	if (in->path && !in->committed)
		unlink(in->path);
	free(in->path);
	free(in);
}

static bool compaction_is_off(struct db *db)
{
	bool off;

	if (!mutex_trylock(&db->compaction_lock))
		return false; /* another thread is changing it: call again */
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
		return log_errno(likely_cause(db), "index %s: compaction failed", db->dir);
	return check_stopped(db);
}
