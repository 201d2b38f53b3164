/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What may be lost can be lost, what was synced cannot, and a state can be made again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "tests/crash/fate.h"
#include "tests/crash/image.h"
#include "tests/crash/states.h"

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/dev/shm/test-states.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* The content of a file in the state, "-" if it is not there. */
static const char *content(struct states *s, size_t point, unsigned variant, const char *name)
{
	_cleanup_(state_freep) struct state *st = NULL;
	static char text[20000];
	char path[128], command[256];
	FILE *f;

	snprintf(command, sizeof(command), "rm -rf %s/s; mkdir %s/s", dir, dir);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/s", dir);
	assert_int_equal(states_seek(s, point), 0);
	assert_int_equal(states_make(s, 1, variant, &st), 0);
	assert_int_equal(state_store(st, path), 0);
	snprintf(path, sizeof(path), "%s/s/%s", dir, name);
	f = fopen(path, "r");
	if (!f)
		return "-";
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	return text;
}

static void add_op(struct oplog *l, struct op op)
{
	assert_int_equal(oplog_add(l, &op), 0);
}

#define CREATE(o, d, n) ((struct op){ .kind = OP_CREATE, .obj = o, .dir = d, .name = n })
#define WRITE(o, at, text) \
	((struct op){ .kind = OP_WRITE, .obj = o, .off = at, .len = strlen(text), .data = (const uint8_t *)text })
#define SYNC(o) ((struct op){ .kind = OP_SYNC, .obj = o })

static void synced_bytes_and_names_stay_in_every_variant(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;

	(void)state;
	add_op(&l, CREATE(1, 0, "a"));
	add_op(&l, WRITE(1, 0, "one"));
	add_op(&l, SYNC(1));
	add_op(&l, SYNC(0));
	add_op(&l, CREATE(2, 0, "b"));
	add_op(&l, WRITE(2, 0, "two"));
	assert_int_equal(states_new(&l, "index", &s), 0);
	for (unsigned v = 0; v < 200; v++)
		assert_string_equal(content(s, l.nr, v, "a"), "one");
	assert_int_equal(states_nr_pending(s), 2);
}

static void a_name_is_lost_without_a_sync_of_its_directory(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;

	(void)state;
	add_op(&l, CREATE(1, 0, "a"));
	add_op(&l, WRITE(1, 0, "one"));
	add_op(&l, SYNC(1));
	assert_int_equal(states_new(&l, "index", &s), 0);
	assert_string_equal(content(s, l.nr, 0, "a"), "one");
	assert_string_equal(content(s, l.nr, 2, "a"), "-");
	assert_string_equal(content(s, 2, 1, "a"), ""); /* before the sync: the name without the bytes */
	assert_string_equal(content(s, 0, 0, "a"), "-");
}

static void a_rename_over_shows_the_old_file_or_the_new_one(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;
	bool old = false, new = false;

	(void)state;
	add_op(&l, CREATE(1, 0, "a"));
	add_op(&l, WRITE(1, 0, "old"));
	add_op(&l, SYNC(1));
	add_op(&l, CREATE(2, 0, "a.tmp"));
	add_op(&l, WRITE(2, 0, "new"));
	add_op(&l, SYNC(2));
	add_op(&l, SYNC(0));
	add_op(&l, (struct op){ .kind = OP_RENAME, .obj = 2, .name = "a.tmp", .new_name = "a" });
	assert_int_equal(states_new(&l, "index", &s), 0);
	for (unsigned v = 0; v < 100; v++) {
		const char *c = content(s, l.nr, v, "a");

		old |= strcmp(c, "old") == 0;
		new |= strcmp(c, "new") == 0;
		assert_true(strcmp(c, "old") == 0 || strcmp(c, "new") == 0);
	}
	assert_true(old && new);
}

static void unsynced_writes_are_dropped_reordered_and_torn(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;
	static char block[1537], half[1025];
	bool later_only = false, torn = false, zeros = false;

	(void)state;
	memset(block, 'x', 1536);
	memset(half, 'y', 1024);
	add_op(&l, CREATE(1, 0, "a"));
	add_op(&l, SYNC(0));
	add_op(&l, WRITE(1, 0, half));
	add_op(&l, WRITE(1, 1024, block));
	assert_int_equal(states_new(&l, "index", &s), 0);
	for (unsigned v = 0; v < 300; v++) {
		const char *c = content(s, l.nr, v, "a");

		later_only |= c[0] == 0 && c[1024] == 'x' && c[2559] == 'x';
		zeros |= c[0] == 0 && c[1024] == 0 && c[2559] == 0;
		torn |= c[0] == 'y' && c[1024] == 'x' && c[1536] != 'x' && c[2048] == 'x';
		memset((char *)c, 0, 2560);
	}
	assert_true(later_only && torn && zeros);
}

static void under_the_ordered_directory_only_the_end_is_lost(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;

	(void)state;
	add_op(&l, (struct op){ .kind = OP_MKDIR, .obj = 1, .name = "index" });
	add_op(&l, SYNC(0));
	add_op(&l, CREATE(2, 1, "log"));
	add_op(&l, SYNC(1));
	add_op(&l, WRITE(2, 0, "one "));
	add_op(&l, WRITE(2, 4, "two "));
	add_op(&l, WRITE(2, 8, "three"));
	assert_int_equal(states_new(&l, "index", &s), 0);
	for (unsigned v = 0; v < 200; v++) {
		const char *c = content(s, l.nr, v, "index/log");

		assert_memory_equal(c, "one two three", strlen(c));
	}
}

static void a_state_is_made_again_by_its_numbers(void **state)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;
	uint64_t hashes[2][100];
	bool differ = false;

	(void)state;
	add_op(&l, CREATE(1, 0, "a"));
	for (uint64_t i = 0; i < 20; i++)
		add_op(&l, WRITE(1, i * 512, "some bytes of no meaning"));
	assert_int_equal(states_new(&l, "index", &s), 0);
	for (int round = 0; round < 2; round++)
		for (unsigned v = 0; v < 100; v++) {
			_cleanup_(state_freep) struct state *st = NULL;

			assert_int_equal(states_seek(s, l.nr - v % 10), 0);
			assert_int_equal(states_make(s, 42, v, &st), 0);
			hashes[round][v] = state_hash(st);
			differ |= hashes[round][v] != hashes[round][0];
		}
	assert_memory_equal(hashes[0], hashes[1], sizeof(hashes[0]));
	assert_true(differ);
}

static void equal_bytes_have_equal_hashes_however_they_came(void **state)
{
	_cleanup_(image_release) struct image a = IMAGE_EMPTY, b = IMAGE_EMPTY, c = IMAGE_EMPTY;
	static uint8_t zeros[5000];

	(void)state;
	assert_int_equal(image_write(&a, "abc", 3, 5000), 0);
	assert_int_equal(image_write(&b, zeros, 5000, 0), 0);
	assert_int_equal(image_write(&b, "abcdef", 6, 5000), 0);
	assert_true(image_hash(&a) != image_hash(&b));
	assert_int_equal(image_resize(&b, 5003), 0);
	assert_true(image_hash(&a) == image_hash(&b));
	assert_int_equal(image_copy(&b, &c), 0);
	assert_int_equal(image_write(&c, "x", 1, 0), 0);
	assert_true(image_hash(&a) == image_hash(&b));
	assert_true(image_hash(&a) != image_hash(&c));
	assert_int_equal(image_punch(&c, 0, 4096), 0);
	assert_true(image_hash(&a) == image_hash(&c));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(synced_bytes_and_names_stay_in_every_variant, setup, teardown),
		cmocka_unit_test_setup_teardown(a_name_is_lost_without_a_sync_of_its_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(a_rename_over_shows_the_old_file_or_the_new_one, setup, teardown),
		cmocka_unit_test_setup_teardown(unsynced_writes_are_dropped_reordered_and_torn, setup, teardown),
		cmocka_unit_test_setup_teardown(under_the_ordered_directory_only_the_end_is_lost, setup, teardown),
		cmocka_unit_test(a_state_is_made_again_by_its_numbers),
		cmocka_unit_test(equal_bytes_have_equal_hashes_however_they_came),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
