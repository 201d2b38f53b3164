/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/db.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db_internal.h"

#define GET_BATCH 256
#define OVERLAY_MAX MiB(8)

struct db_iter {
	struct db *db;
	rocksdb_readoptions_t *read;
	rocksdb_iterator_t *it;
	bool started;
	uint8_t end[]; /* RocksDB borrows it */
};

static const char *const family_names[DB_NR_FAMILIES] = { "default", "fingerprints" };

int db_errno_of(const char *err)
{
	static const struct {
		const char *text;
		int r;
	} table[] = {
		{ "No space left on device", -ENOSPC },
		{ "Disk quota exceeded", -EDQUOT },
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

uint64_t db_property(struct db *db, enum db_family family, const char *name)
{
	uint64_t n = 0;

	if (rocksdb_property_int_cf(db->rocks, db->cf[family], name, &n) != 0)
		log_error("index %s: RocksDB has no property %s", db->dir, name);
	return n;
}

/* Distinguishes a missing database, a damaged one and one to create, before RocksDB touches anything. */
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

/* Removes the files of interrupted ingestions. */
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
			log_warning("index %s: cannot remove stale %s: %s", db->ingest_dir, de->d_name, strerror(-r));
	}
	closedir(d);
	return 0;
}

static void enable_file_deletions(rocksdb_t *rocks, char **err)
{
#ifdef ROCKSDB_DELETIONS_FORCE
	rocksdb_enable_file_deletions(rocks, 0, err); /* not if they were disabled more than once */
#else
	rocksdb_enable_file_deletions(rocks, err);
#endif
}

/* Checks that all files named by the MANIFEST exist with the right length. Compactions may run already: they must not
 * remove listed files before they are checked. */
static int check_files(struct db *db, bool read_only)
{
	_cleanup_(db_err_freep) char *err = NULL;
	const rocksdb_livefiles_t *files;
	int n, r = 0;

	if (!read_only)
		rocksdb_disable_file_deletions(db->rocks, &err);
	if (err)
		return log_errno(db_errno_of(err), "index %s: %s", db->dir, err);
	files = rocksdb_livefiles(db->rocks);
	n = rocksdb_livefiles_count(files);
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
	if (!read_only)
		enable_file_deletions(db->rocks, &err);
	if (r == 0 && err)
		r = log_errno(db_errno_of(err), "index %s: %s", db->dir, err);
	return r;
}

static int open_rocks(struct db *db, const struct db_conf *conf)
{
	_cleanup_(db_err_freep) char *err = NULL;
	int r;

	if (conf->read_only)
		db->rocks = rocksdb_open_for_read_only_column_families(db->options[DB_VIEW], db->dir, DB_NR_FAMILIES,
								       family_names,
								       (const rocksdb_options_t *const *)db->options,
								       db->cf, 0, &err);
	else
		db->rocks = rocksdb_open_column_families(db->options[DB_VIEW], db->dir, DB_NR_FAMILIES, family_names,
							 (const rocksdb_options_t *const *)db->options, db->cf, &err);
	if (!err)
		return check_files(db, conf->read_only);
	r = db_errno_of(err);
	/* An unknown error of RocksDB is damage, unless the text mentions an I/O error anywhere; its probe for O_DIRECT
	 * does not report the cause. */
	if (!strstr(err, "IO error") && !strstr(err, "Direct I/O is not supported"))
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
	mutex_init(&db->compaction_lock);
	db->dir = strdup(dir);
	if (!db->dir || asprintf(&db->ingest_dir, "%s/ingest", dir) < 0)
		return -ENOMEM;
	r = check_dir(dir, conf);
	if (r < 0)
		return r;
	r = db_options_make(db, conf);
	if (r == 0)
		r = overlay_new(MIN(conf->cache / 8, OVERLAY_MAX), db_write_changes, db, &db->overlay);
	if (r < 0)
		return r;
	if (conf->read_only)
		atomic_store(&db->stopped, -EROFS); /* before anything can fail: closing then changes no file either */
	r = open_rocks(db, conf);
	if (r == 0 && !conf->read_only)
		r = clean_ingest_dir(db);
	if (r < 0)
		return r;
	*ret = TAKE(db);
	return 0;
}

/* Each open makes RocksDB start a log, which stays empty. It is removed by the next flush, if there is one. */
static void remove_empty_logs(const struct db *db)
{
	DIR *dir = opendir(db->dir);
	struct dirent *de;
	struct stat st;

	while (dir && (de = readdir(dir))) {
		const char *end = strrchr(de->d_name, '.');

		if (end && strcmp(end, ".log") == 0 && fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_size == 0)
			(void)io_unlink(dirfd(dir), de->d_name); /* the next close tries again */
	}
	if (dir)
		closedir(dir);
}

void db_close(struct db *db)
{
	if (!db)
		return;
	overlay_free(db->overlay);
	for (size_t i = 0; i < DB_NR_FAMILIES; i++)
		if (db->cf[i])
			rocksdb_column_family_handle_destroy(db->cf[i]);
	if (db->rocks) {
		rocksdb_close(db->rocks);
		if (atomic_load(&db->stopped) != -EROFS)
			remove_empty_logs(db);
	}
	for (size_t i = 0; i < DB_NR_FAMILIES; i++)
		if (db->options[i])
			rocksdb_options_destroy(db->options[i]);
	for (size_t i = 0; i < DB_NR_FAMILIES; i++)
		if (db->filter[i].filter)
			rocksdb_compactionfilter_destroy(db->filter[i].filter);
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
	mutex_release(&db->compaction_lock);
	mutex_release(&db->lock);
	free(db->ingest_dir);
	free(db->dir);
	free(db);
}

static int get_with_options(struct db *db, const rocksdb_readoptions_t *read, enum db_family family, const void *key,
			    size_t key_len, struct buf *ret)
{
	_cleanup_(db_err_freep) char *err = NULL;
	rocksdb_pinnableslice_t *value;
	const char *p;
	size_t len;

	value = rocksdb_get_pinned_cf(db->rocks, read, db->cf[family], key, key_len, &err);
	if (err)
		return log_errno(db_errno_of(err), "index %s: cannot read: %s", db->dir, err);
	if (!value)
		return 0;
	if (ret) {
		p = rocksdb_pinnableslice_value(value, &len);
		buf_add(ret, p, len);
	}
	rocksdb_pinnableslice_destroy(value);
	return ret && buf_error(ret) < 0 ? -ENOMEM : 1;
}

int db_get(struct db *db, enum db_family family, const void *key, size_t key_len, struct buf *ret)
{
	int r = family == DB_VIEW ? overlay_get(db->overlay, key, key_len, ret) : 0;

	atomic_fetch_add_explicit(&db->nr_reads, 1, memory_order_relaxed);
	if (r != 0)
		return r == OVERLAY_DELETED ? 0 : r;
	return get_with_options(db, db->read, family, key, key_len, ret);
}

int db_get_at(struct db *db, const struct db_snapshot *state, const void *key, size_t key_len, struct buf *ret)
{
	return state ? get_with_options(db, state->read, DB_VIEW, key, key_len, ret) :
		       db_get(db, DB_VIEW, key, key_len, ret);
}

/* Copies one result. Frees `value` and `err`. */
static int copy_result(struct db *db, rocksdb_pinnableslice_t *value, char *err, void *ret, size_t value_len)
{
	size_t len;
	const char *p;
	int r = 0;

	if (err) {
		r = log_errno(db_errno_of(err), "index %s: cannot read: %s", db->dir, err);
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
			answer = copy_result(db, value[i], err[i], (uint8_t *)values + (done + i) * value_len, value_len);
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
	if (len > 0)
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

int db_scan(struct db *db, enum db_family family, const void *from, void *keys, size_t key_len, void *values,
	    size_t value_len, size_t max, size_t *ret_nr)
{
	_cleanup_(db_err_freep) char *err = NULL;
	rocksdb_readoptions_t *read = rocksdb_readoptions_create();
	rocksdb_iterator_t *it;
	size_t n = 0, len, v_len;
	int r = 0;

	rocksdb_readoptions_set_fill_cache(read, 0);
	rocksdb_readoptions_set_total_order_seek(read, 1);
	it = rocksdb_create_iterator_cf(db->rocks, read, db->cf[family]);
	for (rocksdb_iter_seek(it, from, key_len); n < max && r == 0 && rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
		const char *key = rocksdb_iter_key(it, &len), *value = rocksdb_iter_value(it, &v_len);

		if (len != key_len || (values && v_len != value_len)) {
			r = log_errno(-EBADMSG, "index %s: a key of %zu bytes with a value of %zu", db->dir, len, v_len);
			break;
		}
		memcpy((uint8_t *)keys + n * key_len, key, key_len);
		if (values)
			memcpy((uint8_t *)values + n * value_len, value, value_len);
		n++;
	}
	rocksdb_iter_get_error(it, &err);
	rocksdb_iter_destroy(it);
	rocksdb_readoptions_destroy(read);
	if (err)
		r = log_errno(db_errno_of(err), "index %s: cannot scan: %s", db->dir, err);
	*ret_nr = n;
	return r;
}

/* If the database has stopped with changes left in the overlay, an ordered scan would be incomplete: return an
 * error. */
static int drain_for_reading(struct db *db)
{
	return overlay_bytes(db->overlay) > 0 ? overlay_drain(db->overlay) : 0;
}

int db_iter_new(struct db *db, const struct db_snapshot *snapshot, const void *prefix, size_t prefix_len,
		const void *from, size_t from_len, struct db_iter **ret)
{
	struct db_iter *it = calloc(1, sizeof(*it) + prefix_len);
	size_t end_len;
	int r;

	if (!it)
		return -ENOMEM;
	r = snapshot ? 0 : drain_for_reading(db);
	if (r < 0) {
		free(it);
		return r;
	}
	atomic_fetch_add_explicit(&db->nr_reads, 1, memory_order_relaxed);
	it->db = db;
	it->read = rocksdb_readoptions_create();
	if (snapshot)
		rocksdb_readoptions_set_snapshot(it->read, snapshot->snapshot);
	if (prefix_len >= DB_FILTER_PREFIX_LEN)
		rocksdb_readoptions_set_prefix_same_as_start(it->read, 1);
	else
		rocksdb_readoptions_set_total_order_seek(it->read, 1);
	end_len = prefix_end(prefix, prefix_len, it->end);
	if (end_len > 0)
		rocksdb_readoptions_set_iterate_upper_bound(it->read, (const char *)it->end, end_len);
	it->it = rocksdb_create_iterator_cf(db->rocks, it->read, db->cf[DB_VIEW]);
	if (from && (prefix_len == 0 || key_cmp(from, from_len, prefix, prefix_len) > 0))
		rocksdb_iter_seek(it->it, from, from_len);
	else
		rocksdb_iter_seek(it->it, prefix, prefix_len); /* NULL, 0: the first of all */
	*ret = it;
	return 0;
}

int db_iter_next(struct db_iter *it, const void **key, size_t *key_len, const void **value, size_t *value_len)
{
	_cleanup_(db_err_freep) char *err = NULL;

	if (it->started && rocksdb_iter_valid(it->it))
		rocksdb_iter_next(it->it);
	it->started = true;
	if (!rocksdb_iter_valid(it->it)) {
		rocksdb_iter_get_error(it->it, &err);
		return err ? log_errno(db_errno_of(err), "index %s: cannot read: %s", it->db->dir, err) : 0;
	}
	*key = rocksdb_iter_key(it->it, key_len);
	*value = rocksdb_iter_value(it->it, value_len);
	return 1;
}

void db_iter_seek(struct db_iter *it, const void *from, size_t from_len)
{
	rocksdb_iter_seek(it->it, from, from_len);
	it->started = false;
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
	int r;

	if (!s)
		return -ENOMEM;
	r = overlay_drain(db->overlay);
	if (r < 0) {
		free(s);
		return r;
	}
	s->db = db;
	s->snapshot = rocksdb_create_snapshot(db->rocks);
	s->read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_snapshot(s->read, s->snapshot);
	*ret = s;
	return 0;
}

void db_snapshot_free(struct db_snapshot *s)
{
	if (!s)
		return;
	rocksdb_readoptions_destroy(s->read);
	rocksdb_release_snapshot(s->db->rocks, s->snapshot);
	free(s);
}

void db_stats(struct db *db, struct db_stats *ret)
{
	*ret = (struct db_stats){
		.nr_reads = atomic_load(&db->nr_reads),
		.view_disk = db_property(db, DB_VIEW, "rocksdb.total-sst-files-size"),
		.view_nr = db_property(db, DB_VIEW, "rocksdb.estimate-num-keys"),
		.fingerprints_disk = db_property(db, DB_FINGERPRINTS, "rocksdb.total-sst-files-size"),
		.fingerprints_nr = db_property(db, DB_FINGERPRINTS, "rocksdb.estimate-num-keys"),
		.memory = overlay_bytes(db->overlay) + db_property(db, DB_VIEW, "rocksdb.size-all-mem-tables") +
			  rocksdb_cache_get_usage(db->cache) +
			  db_property(db, DB_VIEW, "rocksdb.estimate-table-readers-mem") +
			  db_property(db, DB_FINGERPRINTS, "rocksdb.estimate-table-readers-mem"),
	};
}

uint64_t db_allocated(const struct db *db)
{
	DIR *dir = opendir(db->dir);
	uint64_t bytes = 0;
	struct dirent *de;
	struct stat st;

	while (dir && (de = readdir(dir)))
		if (fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * 512;
	if (dir)
		closedir(dir);
	return bytes;
}
