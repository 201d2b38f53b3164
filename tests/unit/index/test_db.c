#include "tests/unit/index/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/le.h"
#include "base/log.h"

static void a_value_put_is_got(void **state)
{
	struct rig *rig = *state;

	rig_put(rig, "k", "one");
	rig_put(rig, "empty", "");
	rig_expect(rig, "k", "one");
	rig_expect(rig, "empty", "");
	rig_expect(rig, "absent", NULL);
	assert_int_equal(db_get(rig->db, DB_VIEW, "k", 1, NULL), 1);
	assert_int_equal(db_get(rig->db, DB_VIEW, "x", 1, NULL), 0);
	rig_put(rig, "k", "two");
	rig_expect(rig, "k", "two");
}

static void get_appends(void **state)
{
	struct rig *rig = *state;
	struct buf b = BUF_EMPTY;

	rig_put(rig, "k", "one");
	buf_add(&b, "x", 1);
	assert_int_equal(db_get(rig->db, DB_VIEW, "k", 1, &b), 1);
	assert_int_equal(b.len, 4);
	assert_memory_equal(b.data, "xone", 4);
	buf_release(&b);
}

static void a_batch_applies_in_order_and_is_empty_afterwards(void **state)
{
	struct rig *rig = *state;
	struct db_batch *b;

	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, "a", 1, "1", 1);
	db_batch_put(b, "b", 1, "2", 1);
	db_batch_del(b, "a", 1);
	db_batch_put(b, "c", 1, "3", 1);
	rig_expect(rig, "b", NULL);
	assert_int_equal(db_batch_apply(b), 0);
	rig_expect(rig, "a", NULL);
	rig_expect(rig, "b", "2");
	rig_expect(rig, "c", "3");
	rig_put(rig, "b", "changed");
	assert_int_equal(db_batch_apply(b), 0); /* empty: changes nothing */
	rig_expect(rig, "b", "changed");
	db_batch_free(b);
}

static void close_drops_what_was_not_flushed(void **state)
{
	struct rig *rig = *state;

	rig_put(rig, "flushed", "1");
	rig_flush(rig);
	rig_put(rig, "unflushed", "2");
	rig_put(rig, "flushed", "3");
	rig_reopen(rig);
	rig_expect(rig, "flushed", "1");
	rig_expect(rig, "unflushed", NULL);
}

static void flush_start_cuts_the_memtable(void **state)
{
	struct rig *rig = *state;
	char key[16];

	/* Enough that writing it out takes longer than the puts that come after. */
	for (int i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "k%06d", i);
		rig_put(rig, key, "before");
	}
	assert_int_equal(db_view_flush_start(rig->db), 0);
	rig_put(rig, "k000000", "after");
	rig_put(rig, "new", "after");
	assert_int_equal(db_view_flush_wait(rig->db), 0);
	rig_expect(rig, "k000000", "after");
	rig_reopen(rig);
	rig_expect(rig, "k000000", "before");
	rig_expect(rig, "k019999", "before");
	rig_expect(rig, "new", NULL);
}

static void flush_of_nothing_succeeds(void **state)
{
	struct rig *rig = *state;

	rig_flush(rig);
	rig_flush(rig);
	rig_reopen(rig);
	rig_flush(rig);
}

static void unflushed_grows_with_puts_and_falls_with_flush(void **state)
{
	struct rig *rig = *state;
	struct buf value = BUF_EMPTY;
	uint64_t before = db_view_unflushed(rig->db), after;

	assert_int_equal(buf_reserve(&value, MiB(4)), 0);
	memset(value.data, 'x', MiB(4));
	value.len = MiB(4);
	rig_put_bytes(rig, "k", 1, &value);
	after = db_view_unflushed(rig->db);
	assert_in_range(after - before, MiB(4), MiB(6));
	rig_flush(rig);
	assert_true(db_view_unflushed(rig->db) < MiB(2));
	buf_release(&value);
}

static void large_memtable_is_not_flushed_by_itself(void **state)
{
	struct rig *rig = *state;
	struct buf value = BUF_EMPTY;
	struct db_stats st;

	assert_int_equal(buf_reserve(&value, MiB(1)), 0);
	memset(value.data, 'x', MiB(1));
	value.len = MiB(1);
	for (unsigned i = 0; i < 100; i++)
		rig_put_bytes(rig, &i, sizeof(i), &value);
	buf_release(&value);
	usleep(100000);
	db_stats(rig->db, &st);
	assert_int_equal(st.view_disk, 0);
	assert_in_range(db_view_unflushed(rig->db), MiB(100), MiB(110));
	assert_in_range(st.memory, MiB(100), MiB(150));
	rig_reopen(rig);
	assert_int_equal(db_get(rig->db, DB_VIEW, &(unsigned){ 0 }, sizeof(unsigned), NULL), 0);
}

/* The keys (C strings) from an iterator, joined by blanks. */
static void expect_keys(struct rig *rig, const struct db_snapshot *snapshot, const char *prefix, const char *from,
			const char *expected)
{
	char all[256] = "";
	struct db_iter *it;
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	assert_int_equal(db_iter_new(rig->db, snapshot, prefix, prefix ? strlen(prefix) : 0, from,
				     from ? strlen(from) : 0, &it), 0);
	while ((r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		if (all[0])
			strcat(all, " ");
		strncat(all, key, key_len);
	}
	assert_int_equal(r, 0);
	assert_int_equal(db_iter_next(it, &key, &key_len, &value, &value_len), 0); /* the end stays the end */
	assert_string_equal(all, expected);
	db_iter_free(it);
}

static void iterators_stay_within_prefix_and_bounds(void **state)
{
	struct rig *rig = *state;

	for (const char *const *k = (const char *const[]){ "a", "b", "b1", "b2", "b\xff", "b\xff\xff", "c", "\xff",
							   "\xff\xff", "\xff\xff" "1", NULL };
	     *k; k++)
		rig_put(rig, *k, "v");
	expect_keys(rig, NULL, "b", NULL, "b b1 b2 b\xff b\xff\xff");
	expect_keys(rig, NULL, "b", "b1", "b1 b2 b\xff b\xff\xff");
	expect_keys(rig, NULL, "b", "b11", "b2 b\xff b\xff\xff");
	expect_keys(rig, NULL, "b", "a", "b b1 b2 b\xff b\xff\xff");
	expect_keys(rig, NULL, "b", "c", "");
	expect_keys(rig, NULL, "b1", "b2", "");
	expect_keys(rig, NULL, "b\xff", NULL, "b\xff b\xff\xff");
	expect_keys(rig, NULL, "\xff", NULL, "\xff \xff\xff \xff\xff" "1");
	expect_keys(rig, NULL, "\xff\xff", NULL, "\xff\xff \xff\xff" "1");
	expect_keys(rig, NULL, "d", NULL, "");
	expect_keys(rig, NULL, "", NULL, "a b b1 b2 b\xff b\xff\xff c \xff \xff\xff \xff\xff" "1");
	expect_keys(rig, NULL, NULL, NULL, "a b b1 b2 b\xff b\xff\xff c \xff \xff\xff \xff\xff" "1");
	expect_keys(rig, NULL, "", "b\xff\xff", "b\xff\xff c \xff \xff\xff \xff\xff" "1");
}

static void iterators_and_snapshots_see_one_state(void **state)
{
	struct rig *rig = *state;
	struct db_snapshot *s;
	struct db_iter *it;
	const void *key, *value;
	size_t key_len, value_len;

	rig_put(rig, "p1", "old");
	rig_put(rig, "p2", "old");
	assert_int_equal(db_snapshot_new(rig->db, &s), 0);
	assert_int_equal(db_iter_new(rig->db, NULL, "p", 1, NULL, 0, &it), 0);
	rig_put(rig, "p3", "new");
	rig_put(rig, "p2", "new");
	rig_del(rig, "p1", 2);
	rig_flush(rig);
	assert_int_equal(db_iter_next(it, &key, &key_len, &value, &value_len), 1);
	assert_memory_equal(key, "p1", 2);
	assert_int_equal(db_iter_next(it, &key, &key_len, &value, &value_len), 1);
	assert_memory_equal(key, "p2", 2);
	assert_int_equal(value_len, 3);
	assert_memory_equal(value, "old", 3);
	assert_int_equal(db_iter_next(it, &key, &key_len, &value, &value_len), 0);
	db_iter_free(it);
	expect_keys(rig, s, "p", NULL, "p1 p2");
	expect_keys(rig, NULL, "p", NULL, "p2 p3");
	db_snapshot_free(s);
}

/* n entries: key i * step + first, value = round in each byte. */
static void ingest(struct rig *rig, uint64_t first, uint64_t step, size_t n, uint8_t round)
{
	uint8_t *keys = malloc(n * 8), *values = malloc(n * 6);

	assert_true(keys && values);
	for (size_t i = 0; i < n; i++)
		be64_put(keys + i * 8, first + i * step);
	memset(values, round, n * 6);
	assert_int_equal(db_ingest(rig->db, keys, 8, values, 6, n), 0);
	free(keys);
	free(values);
}

static unsigned nr_files(const char *dir, const char *pattern)
{
	DIR *d = opendir(dir);
	struct dirent *de;
	unsigned n = 0;

	assert_non_null(d);
	while ((de = readdir(d)))
		n += fnmatch(pattern, de->d_name, FNM_PERIOD) == 0;
	closedir(d);
	return n;
}

/* Keys 0 ... n-1: found and value as the last of `rounds` that covers them says. */
static void expect_values(struct rig *rig, const uint8_t *expected, size_t n)
{
	uint8_t *keys = malloc(n * 8), *values = calloc(n, 6), *found = malloc(n);

	assert_true(keys && values && found);
	for (size_t i = 0; i < n; i++)
		be64_put(keys + i * 8, i);
	memset(found, 0x55, n);
	assert_int_equal(db_get_many(rig->db, DB_FINGERPRINTS, keys, 8, n, values, 6, found), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(found[i], expected[i] != 0);
		if (expected[i])
			assert_memory_equal(values + i * 6, ((uint8_t[6]){ expected[i], expected[i], expected[i],
									   expected[i], expected[i], expected[i] }), 6);
	}
	free(keys);
	free(values);
	free(found);
}

static void ingested_entries_replace_and_are_found_in_batches(void **state)
{
	struct rig *rig = *state;
	uint8_t expected[1000] = { 0 };
	char ingest_dir[80];

	ingest(rig, 0, 2, 400, 1); /* even ones below 800 */
	ingest(rig, 3, 3, 200, 2); /* 3 ... 600 */
	for (size_t i = 0; i < 800; i += 2)
		expected[i] = 1;
	for (size_t i = 3; i <= 600; i += 3)
		expected[i] = 2;
	expect_values(rig, expected, 1000);
	rig_reopen(rig); /* durable without a flush */
	expect_values(rig, expected, 1000);
	assert_int_equal(db_compact(rig->db, DB_FINGERPRINTS), 0);
	expect_values(rig, expected, 1000);
	snprintf(ingest_dir, sizeof(ingest_dir), "%s/ingest", rig->dir);
	assert_int_equal(nr_files(ingest_dir, "*"), 0);
}

static void sorted_runs_stay_bounded(void **state)
{
	struct rig *rig = *state;
	uint8_t expected[1000];

	memset(expected, 40, sizeof(expected));
	for (unsigned i = 1; i <= 40; i++)
		ingest(rig, 0, 1, 1000, (uint8_t)i);
	for (unsigned i = 0; i < 100 && nr_files(rig->dir, "*.sst") > 12; i++)
		usleep(100000);
	assert_in_range(nr_files(rig->dir, "*.sst"), 1, 12);
	expect_values(rig, expected, sizeof(expected));
}

static void ingest_refuses_unsorted_keys(void **state)
{
	struct rig *rig = *state;
	uint8_t keys[16], values[12] = { 0 };
	char ingest_dir[80];

	be64_put(keys, 2);
	be64_put(keys + 8, 1);
	assert_int_equal(db_ingest(rig->db, keys, 8, values, 6, 2), -EINVAL);
	be64_put(keys + 8, 2);
	assert_int_equal(db_ingest(rig->db, keys, 8, values, 6, 2), -EINVAL);
	assert_int_equal(db_ingest(rig->db, keys, 8, values, 6, 0), 0);
	snprintf(ingest_dir, sizeof(ingest_dir), "%s/ingest", rig->dir);
	assert_int_equal(nr_files(ingest_dir, "*"), 0);
}

static void get_many_reports_values_of_another_length(void **state)
{
	struct rig *rig = *state;
	uint8_t value[5], found[1];

	ingest(rig, 0, 1, 1, 7);
	assert_int_equal(db_get_many(rig->db, DB_FINGERPRINTS, (uint8_t[8]){ 0 }, 8, 1, value, 5, found), -EBADMSG);
}

static void what_a_cut_ingestion_left_is_removed_at_open(void **state)
{
	struct rig *rig = *state;
	char path[80];
	int fd;

	snprintf(path, sizeof(path), "%s/ingest/7.sst", rig->dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	rig_reopen(rig);
	assert_int_equal(access(path, F_OK), -1);
}

static void ingest_does_not_flush_the_view(void **state)
{
	struct rig *rig = *state;

	rig_put(rig, "unflushed", "1");
	ingest(rig, 0, 1, 100, 1);
	assert_int_equal(db_compact(rig->db, DB_FINGERPRINTS), 0);
	assert_int_equal(db_compact(rig->db, DB_VIEW), 0);
	rig_expect(rig, "unflushed", "1");
	rig_reopen(rig);
	rig_expect(rig, "unflushed", NULL);
}

static void compaction_of_the_view_keeps_all_and_flushes_nothing(void **state)
{
	struct rig *rig = *state;
	char key[16];

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 1000; i++) {
			snprintf(key, sizeof(key), "k%06d", i);
			rig_put(rig, key, (const char *const[]){ "0", "1", "2", "3" }[round]);
		}
		rig_flush(rig);
	}
	rig_put(rig, "k000000", "unflushed");
	assert_int_equal(db_compact(rig->db, DB_VIEW), 0);
	assert_int_equal(nr_files(rig->dir, "*.sst"), 1);
	rig_expect(rig, "k000000", "unflushed");
	rig_reopen(rig);
	rig_expect(rig, "k000000", "3");
	rig_expect(rig, "k000999", "3");
}

static void compaction_of_a_small_view_forgets_what_was_deleted(void **state)
{
	struct rig *rig = *state;
	struct db_stats before, after;
	char key[16];

	for (int i = 0; i < 2000; i++) {
		snprintf(key, sizeof(key), "k%06d", i);
		rig_put(rig, key, key);
	}
	rig_flush(rig);
	rig_reopen(rig);
	db_stats(rig->db, &before);
	for (int i = 1; i < 2000; i++) {
		snprintf(key, sizeof(key), "k%06d", i);
		rig_del(rig, key, strlen(key));
	}
	rig_flush(rig);
	assert_int_equal(db_compact(rig->db, DB_VIEW), 0);
	assert_int_equal(nr_files(rig->dir, "*.sst"), 1);
	db_stats(rig->db, &after);
	assert_in_range(after.view_disk, 1, before.view_disk / 4);
	rig_reopen(rig);
	rig_expect(rig, "k000000", "k000000");
	rig_expect(rig, "k000001", NULL);
}

static void stats_count_entries_and_bytes(void **state)
{
	struct rig *rig = *state;
	struct db_stats st;

	ingest(rig, 0, 1, 1000, 1);
	rig_put(rig, "k", "v");
	rig_flush(rig);
	db_stats(rig->db, &st);
	assert_int_equal(st.fingerprints_nr, 1000);
	assert_in_range(st.fingerprints_disk, 1000, 40000);
	assert_in_range(st.view_disk, 100, 4000);
}

static void open_tells_missing_from_damaged(void **state)
{
	struct rig *rig = *state;
	struct db_conf conf = { .cache = MiB(16) };
	struct db *db = (struct db *)rig;
	char path[80];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/absent", rig->dir);
	assert_int_equal(db_open(path, &conf, &db), -ENOENT);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(db_open(path, &conf, &db), -ENOENT);
	assert_int_equal(nr_files(path, "*"), 0);
	assert_int_equal(rmdir(path), 0);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(db_open(path, &conf, &db), -EBADMSG);
	conf.create = true;
	assert_int_equal(db_open(path, &conf, &db), -EBADMSG);
	assert_int_equal(unlink(path), 0);
	assert_ptr_equal(db, rig); /* written on success only */
	assert_int_equal(db_open(path, &conf, &db), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	db_close(db);
}

static int is_busy(const char *dir)
{
	struct db_conf conf = { .cache = MiB(16) };
	struct db *db;

	return db_open(dir, &conf, &db) == -EBUSY ? 0 : 1;
}

static void a_second_open_is_busy(void **state)
{
	struct rig *rig = *state;
	struct db_conf conf = { .cache = MiB(16) };
	struct db *db;
	int status;
	pid_t pid;

	assert_int_equal(db_open(rig->dir, &conf, &db), -EBUSY);
	rig_close(rig);
	rig_open(rig);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "is_busy", rig->dir, NULL); /* threads and their locks do not survive a fork */
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* The first file that matches. */
static void path_of(struct rig *rig, const char *pattern, char *ret, size_t len)
{
	DIR *d = opendir(rig->dir);
	struct dirent *de;

	assert_non_null(d);
	while ((de = readdir(d)) && fnmatch(pattern, de->d_name, 0) != 0)
		;
	assert_non_null(de);
	snprintf(ret, len, "%s/%s", rig->dir, de->d_name);
	closedir(d);
}

static void flip(const char *path, off_t off)
{
	int fd = open(path, O_RDWR);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, off), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, off), 1);
	close(fd);
}

static void expect_open(struct rig *rig, int expected)
{
	struct db_conf conf = { .cache = MiB(16) };

	assert_int_equal(db_open(rig->dir, &conf, &rig->db), expected);
}

static void damaged_manifest_or_current_is_reported(void **state)
{
	struct rig *rig = *state;
	char path[400], current[400];

	rig_put(rig, "k", "v");
	rig_flush(rig);
	rig_close(rig);
	path_of(rig, "MANIFEST-*", path, sizeof(path));
	flip(path, 20);
	expect_open(rig, -EBADMSG);
	flip(path, 20);
	path_of(rig, "CURRENT", current, sizeof(current));
	flip(current, 3);
	expect_open(rig, -EBADMSG);
	flip(current, 3);
	assert_int_equal(unlink(path), 0);
	expect_open(rig, -EBADMSG);
}

static void missing_or_cut_table_is_reported_at_open(void **state)
{
	struct rig *rig = *state;
	char path[400], aside[500];
	struct stat st;

	rig_put(rig, "k", "v");
	rig_flush(rig);
	rig_close(rig);
	path_of(rig, "*.sst", path, sizeof(path));
	snprintf(aside, sizeof(aside), "%s.aside", path);
	assert_int_equal(rename(path, aside), 0);
	expect_open(rig, -EBADMSG);
	assert_int_equal(rename(aside, path), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, st.st_size - 1), 0);
	expect_open(rig, -EBADMSG);
}

static void damaged_table_is_reported_by_every_reader(void **state)
{
	struct rig *rig = *state;
	const void *key, *value;
	size_t key_len, value_len;
	uint8_t values[6], found[1];
	struct db_iter *it;
	char path[400];

	rig_put(rig, "k", "v");
	rig_flush(rig);
	rig_close(rig);
	path_of(rig, "*.sst", path, sizeof(path));
	flip(path, 1);
	rig_open(rig);
	assert_int_equal(db_get(rig->db, DB_VIEW, "k", 1, NULL), -EBADMSG);
	assert_int_equal(db_iter_new(rig->db, NULL, "k", 1, NULL, 0, &it), 0);
	assert_int_equal(db_iter_next(it, &key, &key_len, &value, &value_len), -EBADMSG);
	db_iter_free(it);
	rig_close(rig);
	assert_int_equal(unlink(path), 0); /* start again with the other family */
	nftw(rig->dir, rig_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	rig_open(rig);
	ingest(rig, 0, 1, 1000, 1);
	rig_close(rig);
	path_of(rig, "*.sst", path, sizeof(path));
	flip(path, 10);
	rig_open(rig);
	assert_int_equal(db_get_many(rig->db, DB_FINGERPRINTS, (uint8_t[8]){ 0 }, 8, 1, values, 6, found), -EBADMSG);
}

static void read_only_reads_and_refuses_writes(void **state)
{
	struct rig *rig = *state;
	struct db_conf conf = { .cache = MiB(16), .read_only = true };
	struct db_batch *b;

	rig_put(rig, "k", "v");
	rig_flush(rig);
	rig_close(rig);
	assert_int_equal(db_open(rig->dir, &conf, &rig->db), 0);
	rig_expect(rig, "k", "v");
	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, "k", 1, "w", 1);
	assert_int_equal(db_batch_apply(b), -EROFS);
	assert_int_equal(db_view_flush_start(rig->db), -EROFS);
	assert_int_equal(db_ingest(rig->db, "k", 1, "v", 1, 1), -EROFS);
	db_batch_free(b);
}

/* The child of the next test, until it is killed: flush after flush, each a state of its own. Tells of the first. */
static int flush_forever(const char *dir)
{
	struct db_conf conf = { .cache = MiB(16), .create = true };
	char key[16], value[16];
	struct db_batch *b;
	struct db *db;

	if (db_open(dir, &conf, &db) < 0 || db_batch_new(db, &b) < 0)
		return 1;
	for (int n = 0;; n++) {
		snprintf(value, sizeof(value), "%d", n);
		for (int i = 0; i < 500; i++) {
			snprintf(key, sizeof(key), "k%03d", i);
			db_batch_put(b, key, strlen(key), value, strlen(value));
		}
		if (db_batch_apply(b) < 0 || db_view_flush_start(db) < 0)
			return 1;
		if (n % 3 == 0 && db_view_flush_wait(db) < 0)
			return 1;
		if (n == 0 && write(STDOUT_FILENO, "", 1) != 1)
			return 1;
	}
}

static void a_kill_leaves_a_whole_flushed_state(void **state)
{
	struct rig *rig = *state;
	struct buf first = BUF_EMPTY;
	int status, started[2];
	char key[16];
	pid_t pid;

	for (int round = 0; round < 5; round++) {
		rig_close(rig);
		assert_int_equal(pipe(started), 0);
		pid = fork();
		if (pid == 0) {
			dup2(started[1], STDOUT_FILENO);
			execl("/proc/self/exe", "flush_forever", rig->dir, NULL); /* threads do not survive a fork */
			_exit(1);
		}
		close(started[1]);
		assert_int_equal(read(started[0], key, 1), 1);
		close(started[0]);
		usleep(50000 + (useconds_t)round * 7000);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		rig_open(rig);
		assert_int_equal(db_get(rig->db, DB_VIEW, "k000", 4, &first), 1);
		buf_add_u8(&first, 0);
		for (int i = 0; i < 500; i++) {
			snprintf(key, sizeof(key), "k%03d", i);
			rig_expect(rig, key, (char *)first.data);
		}
		buf_clear(&first);
	}
	buf_release(&first);
}

/* A namespace of our own goes with us, whatever becomes of the test. Needs to come before any thread. */
static bool may_mount;

static void prepare_mounts(void)
{
	may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static bool mount_small(const char *dir, const char *options)
{
	return may_mount && mount("test_index", dir, "tmpfs", 0, options) == 0;
}

static void fill(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	static const char block[4096];

	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	close(fd);
}

static void a_full_disk_fails_the_flush_and_later_ones_recover(void **state)
{
	struct rig *rig = *state;
	char ballast[100], key[16], value[4096];
	uint64_t seed = 1;

	rig_close(rig);
	if (!mount_small(rig->dir, "size=40m"))
		skip();
	rig_open(rig);
	rig_put(rig, "state", "1");
	rig_flush(rig);
	snprintf(ballast, sizeof(ballast), "%s/ballast", rig->dir);
	fill(ballast);
	memset(value, 0, sizeof(value));
	for (int i = 0; i < 1000; i++) {
		for (size_t j = 0; j < sizeof(value) - 1; j++) /* does not compress */
			value[j] = (char)('!' + ((seed = seed * 6364136223846793005 + 1442695040888963407) >> 33) % 90);
		snprintf(key, sizeof(key), "k%06d", i);
		rig_put(rig, key, value);
	}
	rig_put(rig, "state", "2");
	assert_int_equal(db_view_flush_start(rig->db), 0);
	rig_put(rig, "state", "3"); /* writing goes on */
	assert_int_equal(db_view_flush_wait(rig->db), -ENOSPC);
	rig_put(rig, "state", "4");
	rig_expect(rig, "state", "4");
	for (int i = 0; i < 100; i++)
		assert_int_equal(db_view_flush_start(rig->db), -ENOSPC);
	rig_expect(rig, "k000999", value);
	assert_int_equal(unlink(ballast), 0);
	rig_flush(rig);
	rig_put(rig, "state", "5");
	rig_reopen(rig);
	rig_expect(rig, "state", "4");
	rig_expect(rig, "k000999", value);
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

static void a_full_disk_fails_an_ingestion_and_later_ones_succeed(void **state)
{
	struct rig *rig = *state;
	enum { N = 200000 };
	uint8_t *keys = malloc(N * 8), *values = malloc(N * 6);
	uint8_t expected[100];
	char ballast[100];

	rig_close(rig);
	if (!mount_small(rig->dir, "size=20m")) {
		free(keys);
		free(values);
		skip();
	}
	rig_open(rig);
	ingest(rig, 0, 1, 100, 1);
	snprintf(ballast, sizeof(ballast), "%s/ballast", rig->dir);
	fill(ballast);
	for (uint64_t i = 0; i < N; i++)
		be64_put(keys + i * 8, i);
	memset(values, 2, N * 6);
	assert_int_equal(db_ingest(rig->db, keys, 8, values, 6, N), -ENOSPC);
	memset(expected, 1, sizeof(expected));
	expect_values(rig, expected, sizeof(expected));
	rig_put(rig, "k", "v"); /* the view still takes writes */
	assert_int_equal(unlink(ballast), 0);
	assert_int_equal(db_ingest(rig->db, keys, 8, values, 6, N), 0);
	memset(expected, 2, sizeof(expected));
	expect_values(rig, expected, sizeof(expected));
	rig_flush(rig);
	free(keys);
	free(values);
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

static void compaction_waits_for_space(void **state)
{
	struct rig *rig = *state;
	uint8_t expected[1000];

	rig_close(rig);
	if (!mount_small(rig->dir, "size=9m"))
		skip();
	rig_open(rig);
	for (unsigned i = 1; i <= 8; i++)
		ingest(rig, 0, 1, sizeof(expected), (uint8_t)i);
	usleep(100000);
	assert_int_equal(nr_files(rig->dir, "*.sst"), 8);
	memset(expected, 8, sizeof(expected));
	expect_values(rig, expected, sizeof(expected));
	assert_int_equal(mount("test_index", rig->dir, "tmpfs", MS_REMOUNT, "size=100m"), 0);
	ingest(rig, 0, 1, sizeof(expected), 9);
	/* What a compaction has read is removed by the next job if turning compaction on still held it. */
	for (unsigned i = 0; i < 100 && nr_files(rig->dir, "*.sst") > 4; i++) {
		usleep(100000);
		ingest(rig, 0, 1, sizeof(expected), 9);
	}
	assert_in_range(nr_files(rig->dir, "*.sst"), 1, 4);
	memset(expected, 9, sizeof(expected));
	expect_values(rig, expected, sizeof(expected));
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

static bool log_has(const char *path, const char *text)
{
	char line[1000];
	bool found = false;
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, text);
	fclose(f);
	return found;
}

static void a_compaction_that_keeps_failing_is_paused(void **state)
{
	struct rig *rig = *state;
	char path[400], log[100];
	unsigned tries = 0;
	struct stat st;

	ingest(rig, 0, 1, 20000, 1);
	rig_close(rig);
	path_of(rig, "*.sst", path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	flip(path, st.st_size / 2); /* a block in the middle: an ingestion looks at the first one */
	snprintf(log, sizeof(log), "%s/log", rig->dir);
	assert_int_equal(log_to_file(log), 0);
	rig_open(rig);
	for (unsigned i = 2; i <= 4; i++) /* with the fourth table a compaction is due */
		ingest(rig, 0, 1, 20000, (uint8_t)i);
	do {
		usleep(100000);
		ingest(rig, 20000 + tries, 1, 1, 1);
	} while (!log_has(log, "compaction fails") && ++tries < 300);
	log_to_stderr();
	assert_in_range(tries, 1, 299);
}

/* Let all writes to the file that RocksDB has open as `pattern` fail with ENOSPC. */
static void make_full(const char *pattern)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), nr = 0;
	DIR *d = opendir("/proc/self/fd");
	char target[400];
	struct dirent *de;
	ssize_t len;

	assert_true(full >= 0 && d);
	while ((de = readdir(d))) {
		len = readlinkat(dirfd(d), de->d_name, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = '\0';
		if (fnmatch(pattern, target, 0) != 0)
			continue;
		assert_true(dup2(full, atoi(de->d_name)) >= 0);
		nr++;
	}
	assert_int_equal(nr, 1);
	closedir(d);
	close(full);
}

static void a_manifest_that_cannot_be_written_stops_all_and_flushes_nothing(void **state)
{
	struct rig *rig = *state;
	struct db_batch *b;
	char pattern[100];

	rig_put(rig, "state", "1");
	rig_flush(rig);
	rig_put(rig, "state", "2");
	snprintf(pattern, sizeof(pattern), "%s/MANIFEST-*", rig->dir);
	make_full(pattern);
	assert_int_equal(db_view_flush_start(rig->db), 0);
	rig_put(rig, "state", "3"); /* not committed: must not reach the disk */
	assert_int_equal(db_view_flush_wait(rig->db), -ENOSPC);
	assert_int_equal(db_view_flush_start(rig->db), -ENOSPC);
	assert_int_equal(db_ingest(rig->db, "k", 1, "v", 1, 1), -ENOSPC);
	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, "state", 5, "4", 1);
	assert_int_equal(db_batch_apply(b), -ENOSPC);
	db_batch_free(b);
	rig_expect(rig, "state", "3");
	sleep(7); /* RocksDB looks every 5 s whether it can recover, which would be a flush of everything */
	rig_reopen(rig);
	rig_expect(rig, "state", "1");
	rig_put(rig, "state", "5");
	rig_flush(rig);
	rig_reopen(rig);
	rig_expect(rig, "state", "5");
}

struct race {
	struct rig *rig;
	atomic_bool done;
};

static void *put_pairs(void *arg)
{
	struct race *race = arg;
	struct db_batch *b;
	char n[16];

	assert_int_equal(db_batch_new(race->rig->db, &b), 0);
	for (int i = 0; i < 20000; i++) {
		snprintf(n, sizeof(n), "%d", i);
		db_batch_put(b, "left", 4, n, strlen(n));
		db_batch_put(b, "right", 5, n, strlen(n));
		assert_int_equal(db_batch_apply(b), 0);
	}
	db_batch_free(b);
	atomic_store(&race->done, true);
	return NULL;
}

static void flushes_during_writes_keep_batches_whole(void **state)
{
	struct rig *rig = *state;
	struct race race = { .rig = rig };
	struct buf left = BUF_EMPTY;
	pthread_t writer;

	assert_int_equal(pthread_create(&writer, NULL, put_pairs, &race), 0);
	while (!atomic_load(&race.done))
		rig_flush(rig);
	pthread_join(writer, NULL);
	rig_reopen(rig);
	assert_int_equal(db_get(rig->db, DB_VIEW, "left", 4, &left), 1);
	buf_add_u8(&left, 0);
	rig_expect(rig, "right", (char *)left.data);
	buf_release(&left);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		rig_test(a_value_put_is_got),
		rig_test(get_appends),
		rig_test(a_batch_applies_in_order_and_is_empty_afterwards),
		rig_test(close_drops_what_was_not_flushed),
		rig_test(flush_start_cuts_the_memtable),
		rig_test(flush_of_nothing_succeeds),
		rig_test(unflushed_grows_with_puts_and_falls_with_flush),
		rig_test(large_memtable_is_not_flushed_by_itself),
		rig_test(iterators_stay_within_prefix_and_bounds),
		rig_test(iterators_and_snapshots_see_one_state),
		rig_test(ingested_entries_replace_and_are_found_in_batches),
		rig_test(sorted_runs_stay_bounded),
		rig_test(ingest_refuses_unsorted_keys),
		rig_test(get_many_reports_values_of_another_length),
		rig_test(what_a_cut_ingestion_left_is_removed_at_open),
		rig_test(ingest_does_not_flush_the_view),
		rig_test(compaction_of_the_view_keeps_all_and_flushes_nothing),
		rig_test(compaction_of_a_small_view_forgets_what_was_deleted),
		rig_test(stats_count_entries_and_bytes),
		rig_test(open_tells_missing_from_damaged),
		rig_test(a_second_open_is_busy),
		rig_test(damaged_manifest_or_current_is_reported),
		rig_test(missing_or_cut_table_is_reported_at_open),
		rig_test(damaged_table_is_reported_by_every_reader),
		rig_test(read_only_reads_and_refuses_writes),
		rig_test(a_kill_leaves_a_whole_flushed_state),
		rig_test(flushes_during_writes_keep_batches_whole),
		rig_test(a_full_disk_fails_the_flush_and_later_ones_recover),
		rig_test(compaction_waits_for_space),
		rig_test(a_compaction_that_keeps_failing_is_paused),
		rig_test(a_manifest_that_cannot_be_written_stops_all_and_flushes_nothing),
		rig_test(a_full_disk_fails_an_ingestion_and_later_ones_succeed),
	};

	if (argc == 2 && strcmp(argv[0], "is_busy") == 0)
		return is_busy(argv[1]);
	if (argc == 2 && strcmp(argv[0], "flush_forever") == 0)
		return flush_forever(argv[1]);
	prepare_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
