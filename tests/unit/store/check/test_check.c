/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The checker as a whole: what is sound is clean, whatever its size; the superblock is mended from its other copy. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/check/check_rules.h"
#include "store/pack/pack_format.h"
#include "tests/content_sync.h"
#include "tests/unit/store/check_rig.h"

static void a_sound_store_is_clean(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	s = check_with(rig, (struct check_conf){ .read_data = true });
	assert_int_equal(s.nr, 0);
	assert_int_equal(s.result.nr_inodes, 6);
	assert_int_equal(s.result.nr_names, 6);
	assert_int_equal(s.result.nr_chunks, 6);
	assert_int_equal(s.result.read_bytes, 6 * PAGE);
}

static void a_new_store_is_clean(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	assert_clean(rig);
}

static void a_store_in_use_or_absent_is_not_checked(void **state)
{
	struct rig *rig = *state;
	struct check_conf conf = { .cache = MiB(8) };
	struct check_result result;

	assert_int_equal(check_store(rig->path, &conf, &result), -EBUSY);
	assert_int_equal(check_store("/nowhere/at/all", &conf, &result), -ENOENT);
	rig_close(rig);
}

static bool stop(_unused_ void *userdata, _unused_ const char *what, _unused_ uint64_t done, _unused_ uint64_t all,
		 _unused_ bool bytes)
{
	return false;
}

static void a_check_can_be_stopped(void **state)
{
	struct rig *rig = *state;
	struct check_conf conf = { .cache = MiB(8), .progress = stop };
	struct check_result result;

	rig_close(rig);
	assert_int_equal(check_store(rig->path, &conf, &result), -EINTR);
	assert_clean(rig);
}

static void a_killed_store_is_clean_and_stays_as_it_was(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_open(rig);
	rig_write(rig, FILE_F, 3 * PAGE, 40);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig); /* opened again */
	rig_close(rig);
	assert_clean(rig);
	rig_open(rig);
	rig_write(rig, FILE_F, 3 * PAGE, 41);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_copy_as_it_is(rig);
	rig_close_to_copy(rig);
	s = check(rig);
	assert_int_equal(s.nr, 0);
	assert_int_equal(s.result.unapplied, 1);
	s = repair(rig);
	assert_int_equal(s.nr, 0);
	assert_int_equal(s.result.unapplied, 0);
	rig_open(rig);
	rig_check(rig, FILE_F, 3 * PAGE, 41);
}

static void a_copy_of_the_superblock_is_made_from_the_other(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	rig_flip(rig, "superblock", 4096 + 30);
	s = check(rig);
	ASSERT_SAID(s, "superblock: the second copy is damaged; the other is used");
	s = repair(rig);
	ASSERT_SAID(s, "+superblock: the second copy is damaged; rewritten from the other");
	rig_flip(rig, "superblock", 41);
	s = repair(rig);
	ASSERT_SAID(s, "+superblock: the first copy is damaged; rewritten from the other");
	assert_clean(rig);
	rig_flip(rig, "superblock", 41);
	rig_flip(rig, "superblock", 4096 + 41);
	s = repair(rig);
	ASSERT_SAID(s, "superblock: both copies are damaged, and the key of all fingerprints is lost with them");
}

/* --- bounded memory --- */

static void many_inodes_are_checked_window_by_window(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct check_conf conf = { .cache = 1 }; /* 1024 inodes at a time */
	struct rig *rig = *state;
	uint64_t ino;
	struct said s;

	for (int i = 0; i < 3000; i++) {
		char name[20];

		snprintf(name, sizeof(name), "file%d", i);
		assert_int_equal(engine_new_number(rig->e, &ino), 0);
		put_inode(&tx, (struct ns_inode){ .ino = ino, .mode = S_IFREG | 0644, .nlink = i == 2500 ? 2 : 1 });
		put_name(rig, &tx, ROOT, name, ino, DT_REG);
	}
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
	rig_close(rig);
	s = check_with(rig, conf);
	ASSERT_SAID(s, "inode 2507: has 1 name, should have 2");
	assert_int_equal(s.result.nr_inodes, 3006);
}

static int setup_small_packs(void **state)
{
	struct rig *rig;
	int r = rig_setup(state);

	if (r < 0)
		return r;
	rig = *state;
	rig_close(rig);
	rig->conf.pack_bytes = 64 << 10;
	rig_open(rig);
	make_tree(rig);
	return 0;
}

static void many_packs_are_checked_window_by_window(void **state)
{
	struct rig *rig = *state;
	struct content *c = rig_content(rig, FILE_F);
	static uint8_t bytes[128 << 10];
	struct said s;

	for (uint64_t i = 0; i < 6; i++) { /* a pack each */
		rig_pattern(bytes, sizeof(bytes), 50 + i);
		assert_int_equal(content_write(c, bytes, sizeof(bytes), i * sizeof(bytes)), 0);
		assert_int_equal(content_sync(c), 0);
	}
	content_close(c);
	rig_close(rig);
	s = check_with(rig, (struct check_conf){ .cache = 1, .read_data = true });
	assert_int_equal(s.nr, 0);
	assert_true(s.result.nr_packs >= 4);
	rig_flip(rig, "packs/00000002.pack", pack_data_off(0) + 10);
	rig_flip(rig, "packs/00000004.pack", pack_data_off(0) + 10);
	s = check_with(rig, (struct check_conf){ .cache = 1, .read_data = true });
	assert_int_equal(s.nr, 6); /* two names of the file, and the chunk, of each */
	assert_int_equal(s.result.lost_bytes, 2 * PAGE);
}

/* --- rules --- */

static void the_place_of_a_byte_is_known(void **state _unused_)
{
	uint32_t frame, in;

	assert_false(check_place(0, &frame, &in));
	assert_false(check_place(4096, &frame, &in)); /* the first table */
	assert_true(check_place(8192 + 5, &frame, &in));
	assert_int_equal(frame, 0);
	assert_int_equal(in, 5);
	assert_true(check_place(pack_data_off(7) + PACK_FRAME_BYTES - 1, &frame, &in));
	assert_int_equal(frame, 7);
	assert_int_equal(in, PACK_FRAME_BYTES - 1);
	assert_false(check_place(pack_table_off(8), &frame, &in));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		check_test(a_sound_store_is_clean),
		rig_test(a_new_store_is_clean),
		check_test(a_store_in_use_or_absent_is_not_checked),
		check_test(a_check_can_be_stopped),
		check_test(a_killed_store_is_clean_and_stays_as_it_was),
		check_test(a_copy_of_the_superblock_is_made_from_the_other),
		check_test(many_inodes_are_checked_window_by_window),
		cmocka_unit_test_setup_teardown(many_packs_are_checked_window_by_window, setup_small_packs,
						rig_teardown),
		cmocka_unit_test(the_place_of_a_byte_is_known),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
