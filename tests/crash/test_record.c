/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Every change of a watched tree is in the log, in order, and replaying the log gives the tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"
#include "tests/crash/record.h"
#include "tests/crash/states.h"

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/dev/shm/test-record.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void assert_op(const struct oplog *l, size_t i, const char *text)
{
	assert_true(i < l->nr);
	assert_string_equal(op_text(&l->ops[i]).s, text);
}

static void every_call_is_one_entry_in_order(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	struct iovec iov[2] = { { (void *)"ab", 2 }, { (void *)"cd", 2 } };
	char path[128];
	int dirfd, fd;

	(void)state;
	assert_int_equal(record_start(dir), 0);
	dirfd = open(dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(mkdirat(dirfd, "sub", 0700), 0);
	snprintf(path, sizeof(path), "%s/sub//./file", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, "hello", 5), 5);
	assert_int_equal(write(fd, "world", 5), 5);
	assert_int_equal(pwritev(fd, iov, 2, 100), 4);
	assert_int_equal(ftruncate(fd, 50), 0);
	assert_int_equal(posix_fallocate(fd, 0, 8192), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
	assert_int_equal(fdatasync(fd), 0);
	close(fd);
	assert_int_equal(renameat(dirfd, "sub/file", dirfd, "moved"), 0);
	assert_int_equal(linkat(dirfd, "moved", dirfd, "twice", 0), 0);
	assert_int_equal(unlinkat(dirfd, "moved", 0), 0);
	record_mark(7, 8);
	assert_int_equal(fsync(dirfd), 0);
	close(dirfd);
	assert_int_equal(record_stop(&l), 0);

	assert_op(&l, 0, "sync 0");
	assert_op(&l, 1, "mkdir 1 0/sub");
	assert_op(&l, 2, "create 2 1/file");
	assert_op(&l, 3, "write 2 off 0 len 5");
	assert_op(&l, 4, "write 2 off 5 len 5");
	assert_op(&l, 5, "write 2 off 100 len 4");
	assert_memory_equal(l.ops[5].data, "abcd", 4);
	assert_op(&l, 6, "truncate 2 off 0 len 50");
	assert_op(&l, 7, "allocate 2 off 0 len 8192");
	assert_op(&l, 8, "punch 2 off 0 len 4096");
	assert_op(&l, 9, "sync 2");
	assert_op(&l, 10, "rename 2 1/file to 0/moved");
	assert_op(&l, 11, "link 2 0/twice");
	assert_op(&l, 12, "unlink 2 0/moved");
	assert_op(&l, 13, "mark 0 off 7 len 8");
	assert_op(&l, 14, "sync 0");
	assert_int_equal(l.nr, 15);
}

static int fail_second_write(void *userdata, enum op_kind kind, const char *path)
{
	assert_string_equal(path, "file");
	return kind == OP_WRITE && ++*(int *)userdata == 2 ? ENOSPC : 0;
}

static void a_fault_is_the_result_and_not_in_the_log(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	char path[128];
	int nr = 0, fd;

	(void)state;
	assert_int_equal(record_start(dir), 0);
	record_set_fault(fail_second_write, &nr);
	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(io_pwrite(fd, "a", 1, 0), 0);
	assert_int_equal(io_pwrite(fd, "b", 1, 1), -ENOSPC);
	assert_int_equal(io_pwrite(fd, "c", 1, 2), 0);
	record_set_fault(NULL, NULL);
	close(fd);
	assert_int_equal(record_stop(&l), 0);
	assert_int_equal(l.nr, 4);
	assert_op(&l, 1, "create 1 0/file");
	assert_op(&l, 2, "write 1 off 0 len 1");
	assert_op(&l, 3, "write 1 off 2 len 1");
}

static void a_saved_log_loads_as_it_was(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY, m = OPLOG_EMPTY;
	char path[128];

	(void)state;
	oplog_add(&l, &(struct op){ .kind = OP_CREATE, .obj = 1, .name = "one" });
	oplog_add(&l, &(struct op){ .kind = OP_WRITE, .obj = 1, .off = 5, .len = 3, .data = (const uint8_t *)"abc" });
	oplog_add(&l, &(struct op){ .kind = OP_RENAME, .obj = 1, .name = "one", .new_name = "two", .new_dir = 3 });
	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(oplog_save(&l, path), 0);
	assert_int_equal(oplog_load(path, &m), 0);
	assert_int_equal(m.nr, 3);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(op_text(&m.ops[i]).s, op_text(&l.ops[i]).s);
	assert_memory_equal(m.ops[1].data, "abc", 3);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(oplog_load(path, &m), -EBADMSG);
}

static rocksdb_t *open_db(const char *path, bool create)
{
	rocksdb_options_t *o = rocksdb_options_create();
	rocksdb_t *db;
	char *err = NULL;

	rocksdb_options_set_create_if_missing(o, create);
	db = rocksdb_open(o, path, &err);
	rocksdb_options_destroy(o);
	if (err)
		fail_msg("%s", err);
	return db;
}

static void use_db(const char *path)
{
	rocksdb_writeoptions_t *w = rocksdb_writeoptions_create();
	rocksdb_flushoptions_t *f = rocksdb_flushoptions_create();
	rocksdb_t *db = open_db(path, true);
	char key[16], *err = NULL;

	rocksdb_writeoptions_set_sync(w, 1);
	for (int i = 0; i < 200; i++) {
		rocksdb_put(db, w, key, (size_t)snprintf(key, sizeof(key), "key %d", i), "value", 5, &err);
		if (i % 50 == 49)
			rocksdb_flush(db, f, &err);
		assert_null(err);
		record_mark((uint64_t)i + 1, 0);
	}
	rocksdb_close(db);
	rocksdb_flushoptions_destroy(f);
	rocksdb_writeoptions_destroy(w);
}

/* Opens, has the first `nr` keys at least, and no key without those before it. */
static void check_db(const char *path, uint64_t nr)
{
	rocksdb_readoptions_t *ro = rocksdb_readoptions_create();
	rocksdb_t *db = open_db(path, nr == 0);
	bool missing = false;

	for (uint64_t i = 0; i < 200; i++) {
		char key[16], *err = NULL, *value;
		size_t len;

		value = rocksdb_get(db, ro, key, (size_t)snprintf(key, sizeof(key), "key %d", (int)i), &len, &err);
		assert_null(err);
		assert_false(value && missing);
		assert_true(value || i >= nr);
		missing |= !value;
		free(value);
	}
	rocksdb_close(db);
	rocksdb_readoptions_destroy(ro);
}

static void store_state(struct states *s, size_t point, unsigned variant, const char *to)
{
	_cleanup_(state_freep) struct state *st = NULL;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s; mkdir %s", to, to);
	assert_int_equal(system(command), 0);
	assert_int_equal(states_seek(s, point), 0);
	assert_int_equal(states_make(s, 1, variant, &st), 0);
	assert_int_equal(state_store(st, to), 0);
}

static void rocksdb_is_recorded_completely(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;
	char watched[128], path[160], copy[128], command[512];

	(void)state;
	snprintf(watched, sizeof(watched), "%s/watched", dir);
	snprintf(path, sizeof(path), "%s/index", watched);
	snprintf(copy, sizeof(copy), "%s/state", dir);
	assert_int_equal(mkdir(watched, 0700), 0);
	assert_int_equal(mkdir(path, 0700), 0); /* RocksDB does not make the name of its own directory durable */
	assert_int_equal(record_start(watched), 0);
	use_db(path);
	assert_int_equal(record_stop(&l), 0);
	assert_true(l.nr > 400);

	assert_int_equal(states_new(&l, "index", &s), 0);
	store_state(s, l.nr, 0, copy);
	snprintf(command, sizeof(command), "diff -r -x 'LOG*' %s %s", watched, copy);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/index", copy);
	for (size_t point = l.nr; point > 37; point -= 37)
		for (unsigned variant = 0; variant < 3; variant++) {
			uint64_t nr, unused;

			store_state(s, point, variant, copy);
			states_mark(s, &nr, &unused);
			if (nr > 0)
				check_db(path, nr);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_call_is_one_entry_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fault_is_the_result_and_not_in_the_log, setup, teardown),
		cmocka_unit_test_setup_teardown(a_saved_log_loads_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(rocksdb_is_recorded_completely, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
