/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The database: batches, flushes, iterators, and which processes may open it at once. */
#include "tests/unit/index/rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

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
	assert_int_equal(ingest_all(rig->db, "k", 1, "v", 1, 1), -EROFS);
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
	if (db_get(rig->db, DB_VIEW, "left", 4, &left) == 0) { /* all flushes were before the first: it happens */
		assert_int_equal(db_get(rig->db, DB_VIEW, "right", 5, &left), 0);
		return;
	}
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
		rig_test(a_second_open_is_busy),
		rig_test(read_only_reads_and_refuses_writes),
		rig_test(a_kill_leaves_a_whole_flushed_state),
		rig_test(flushes_during_writes_keep_batches_whole),
	};

	if (argc == 2 && strcmp(argv[0], "is_busy") == 0)
		return is_busy(argv[1]);
	if (argc == 2 && strcmp(argv[0], "flush_forever") == 0)
		return flush_forever(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
