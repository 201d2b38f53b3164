/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Erasing the bytes of a removed file in steps: bounded, complete, and sound after a crash between any two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "index/backref_table.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "index/recipes.h"
#include "store/file/file_state.h"
#include "tests/unit/store/rig.h"

#define FILE_INO 10u
#define OTHER_INO 11u
#define NR_SEGMENTS 1500u
#define STEP_MAX 400u /* recipes that one step may delete */

/* Segments with a page each, shared by clones, and a second file with the same pages. */
static void make(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);
	uint64_t done, at = MiB(2);
	uint8_t page[4096];

	for (unsigned i = 0; i < 2; i++) { /* two different ones, so that extents do not merge */
		rig_pattern(page, sizeof(page), ino + i);
		assert_int_equal(content_write(c, page, sizeof(page), i * MiB(1) + 4096 * i), 0);
	}
	assert_int_equal(content_truncate(c, at), 0);
	while (at < NR_SEGMENTS * MiB(1)) {
		assert_int_equal(content_clone(c, 0, c, at, MIN(at, NR_SEGMENTS * MiB(1) - at), &done), 0);
		at += done;
	}
	assert_int_equal(content_flush(c), 0);
	content_close(c);
}

static unsigned count(struct rig *rig, uint8_t prefix, uint64_t ino)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *key, *value;
	size_t key_len, value_len;
	struct backref ref;
	uint64_t of, segment;
	unsigned nr = 0;

	assert_int_equal(db_iter_new(rig->e->db, NULL, &prefix, 1, NULL, 0, &it), 0);
	while (db_iter_next(it, &key, &key_len, &value, &value_len) > 0) {
		if (prefix == VIEW_BACKREF) {
			assert_int_equal(backref_key_decode(key, key_len, &ref), 0);
			of = ref.ino;
		} else {
			assert_int_equal(recipe_key_decode(key, key_len, &of, &segment), 0);
		}
		nr += of == ino;
	}
	return nr;
}

static struct ns_content stat_of(struct rig *rig, uint64_t ino)
{
	struct ns_content st;

	assert_int_equal(content_peek(rig->e, ino, &st), 0);
	return st;
}

static uint64_t logical(struct rig *rig)
{
	return (uint64_t)atomic_load(&rig->e->files->logical);
}

/* The view has it, and memory has not. */
static void settle(struct rig *rig)
{
	assert_int_equal(engine_sync(rig->e), 0);
	rig_reopen(rig);
}

static void erased_in_steps(void **state)
{
	struct rig *rig = *state;
	uint64_t at = 0, mapped, other;
	struct content *c;
	unsigned before, nr_steps = 0;
	int r;

	make(rig, FILE_INO);
	make(rig, OTHER_INO);
	settle(rig);
	other = stat_of(rig, OTHER_INO).mapped;
	assert_int_equal(count(rig, VIEW_RECIPE, FILE_INO), NR_SEGMENTS);
	c = rig_content(rig, FILE_INO);
	do {
		before = count(rig, VIEW_RECIPE, FILE_INO);
		mapped = stat_of(rig, FILE_INO).mapped;
		r = content_erase_some(c, &at);
		assert_true(r >= 0);
		assert_true(before - count(rig, VIEW_RECIPE, FILE_INO) <= STEP_MAX);
		assert_true(stat_of(rig, FILE_INO).mapped < mapped);
		assert_int_equal(logical(rig), other + stat_of(rig, FILE_INO).mapped);
		nr_steps++;
	} while (r > 0);
	assert_true(nr_steps >= NR_SEGMENTS / STEP_MAX);
	assert_int_equal(count(rig, VIEW_RECIPE, FILE_INO), 0);
	assert_int_equal(count(rig, VIEW_BACKREF, FILE_INO), 0);
	assert_true(count(rig, VIEW_BACKREF, OTHER_INO) > 0);
	assert_int_equal(stat_of(rig, FILE_INO).mapped, 0);
	assert_int_equal(stat_of(rig, FILE_INO).size, NR_SEGMENTS * MiB(1));
	rig_drop(rig, FILE_INO);
	content_close(c);
	rig_check_absent(rig, FILE_INO);
	assert_int_equal(logical(rig), other);
	rig_fsck(rig);
	assert_int_equal(stat_of(rig, OTHER_INO).mapped, other);
	assert_int_equal(logical(rig), other);
}

/* A crash after each number of steps, each of them committed; then the steps start over. */
static void crashes(void **state)
{
	struct rig *rig = *state;
	bool is_done = false;
	uint64_t at;
	struct content *c;

	make(rig, OTHER_INO);
	for (unsigned nr = 0; !is_done; nr++) {
		uint64_t ino = 100 + nr, mapped;
		int r = 1;

		make(rig, ino);
		settle(rig);
		c = rig_content(rig, ino);
		at = 0;
		for (unsigned i = 0; i < nr && r > 0; i++)
			r = content_erase_some(c, &at);
		assert_true(r >= 0);
		is_done = r == 0;
		mapped = stat_of(rig, ino).mapped;
		assert_int_equal(engine_sync(rig->e), 0);
		rig_copy_as_it_is(rig);
		content_close(c);
		rig_close_to_copy(rig);
		rig_open(rig);
		assert_int_equal(stat_of(rig, ino).mapped, mapped);
		if (nr % 2 == 0)
			rig_fsck(rig);
		c = rig_content(rig, ino);
		at = 0;
		while ((r = content_erase_some(c, &at)) > 0)
			;
		assert_int_equal(r, 0);
		assert_int_equal(stat_of(rig, ino).mapped, 0);
		rig_drop(rig, ino);
		content_close(c);
		rig_fsck(rig);
		assert_int_equal(count(rig, VIEW_RECIPE, ino), 0);
		assert_int_equal(logical(rig), stat_of(rig, OTHER_INO).mapped);
	}
}

/* Bytes that are in memory only, a clone that is not applied yet, and a file without any. */
static void erased_in_memory(void **state)
{
	struct rig *rig = *state;
	struct content *c, *clone;
	uint64_t at = 0, done;
	unsigned nr_steps = 0;
	int r;

	make(rig, FILE_INO);
	c = rig_content(rig, FILE_INO);
	content_catch_up_all(c);
	clone = rig_content(rig, OTHER_INO);
	assert_int_equal(content_clone(c, 0, clone, 0, NR_SEGMENTS * MiB(1), &done), 0);
	assert_int_equal(done, NR_SEGMENTS * MiB(1));
	for (at = 0; (r = content_erase_some(clone, &at)) > 0;)
		nr_steps++;
	assert_int_equal(r, 0);
	assert_true(nr_steps >= NR_SEGMENTS / STEP_MAX);
	for (at = 0; (r = content_erase_some(c, &at)) > 0;)
		;
	assert_int_equal(r, 0);
	assert_int_equal(logical(rig), 0);
	rig_drop(rig, FILE_INO);
	rig_drop(rig, OTHER_INO);
	content_close(clone);
	content_close(c);
	c = rig_content(rig, 12);
	at = 0;
	assert_int_equal(content_erase_some(c, &at), 0);
	content_close(c);
	rig_fsck(rig);
	for (uint64_t ino = FILE_INO; ino <= 12; ino++)
		rig_check_absent(rig, ino);
}

/* Truncated: the size does not tell that the view still has its recipes. */
static void truncated(void **state)
{
	struct rig *rig = *state;
	uint64_t at = 0;
	struct content *c;
	int r;

	rig_write(rig, OTHER_INO, MiB(16), 1);
	assert_int_equal(content_takes_steps(rig->e, OTHER_INO), 0);
	assert_int_equal(content_takes_steps(rig->e, 12), 0); /* which does not exist */
	make(rig, FILE_INO);
	assert_int_equal(content_takes_steps(rig->e, FILE_INO), 1);
	settle(rig);
	assert_int_equal(content_takes_steps(rig->e, FILE_INO), 1);
	assert_int_equal(content_takes_steps(rig->e, OTHER_INO), 0);
	c = rig_content(rig, FILE_INO);
	assert_int_equal(content_truncate(c, 1), 0);
	assert_int_equal(count(rig, VIEW_RECIPE, FILE_INO), NR_SEGMENTS);
	assert_int_equal(content_takes_steps(rig->e, FILE_INO), 1);
	while ((r = content_erase_some(c, &at)) > 0)
		;
	assert_int_equal(r, 0);
	assert_int_equal(count(rig, VIEW_RECIPE, FILE_INO), 0);
	rig_drop(rig, FILE_INO);
	content_close(c);
	rig_fsck(rig);
	rig_check_absent(rig, FILE_INO);
}

/* Without a drop it is a file without bytes. */
static void kept_without_drop(void **state)
{
	struct rig *rig = *state;
	uint64_t at = 0;
	struct content *c;
	int r;

	make(rig, FILE_INO);
	settle(rig);
	c = rig_content(rig, FILE_INO);
	while ((r = content_erase_some(c, &at)) > 0)
		;
	assert_int_equal(r, 0);
	content_close(c);
	settle(rig);
	assert_int_equal(stat_of(rig, FILE_INO).size, NR_SEGMENTS * MiB(1));
	assert_int_equal(stat_of(rig, FILE_INO).mapped, 0);
	rig_fsck(rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(erased_in_steps),
		rig_test(crashes),
		rig_test(erased_in_memory),
		rig_test(truncated),
		rig_test(kept_without_drop),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("erase", tests, NULL, NULL);
}
