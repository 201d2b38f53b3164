/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Files with compressed bytes in the packs: all as before, only smaller; damage is repaired, but not in place. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/unit/store/damage.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(3)
#define PAGE 4096u

static const struct compress all[] = {
	{ COMPRESS_LZ4, 0 }, { COMPRESS_ZSTD, 0 }, { COMPRESS_ZSTD, 7 }, { COMPRESS_AUTO, 0 }, { COMPRESS_NONE, 0 },
};

static void set(struct rig *rig, struct compress how)
{
	rig_close(rig);
	rig->conf.compress = how;
	rig_open(rig);
}

/* 0: the right bytes; else what content_read() said. */
static int look(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	_cleanup_(freep) uint8_t *want = rig_soft_bytes(len, seed), *got = malloc(len);
	struct content *c = rig_content(rig, ino);
	ssize_t n = content_read(c, got, len, 0);

	content_close(c);
	if (n < 0)
		return (int)n;
	assert_int_equal(n, len);
	assert_memory_equal(got, want, len);
	return 0;
}

static void compressed_files_read_as_they_were_written(void **state)
{
	struct rig *rig = *state;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		set(rig, all[i]);
		rig_write_soft(rig, 100 + i, LEN + 5000, i);
		rig_write_soft(rig, 200 + i, 20000, 50 + i); /* of the small stream */
		for (size_t k = 0; k <= i; k++)
			assert_int_equal(look(rig, 100 + k, LEN + 5000, k), 0);
		rig_stats(rig);
		rig_crash(rig);
		for (size_t k = 0; k <= i; k++) {
			assert_int_equal(look(rig, 100 + k, LEN + 5000, k), 0);
			assert_int_equal(look(rig, 200 + k, 20000, 50 + k), 0);
		}
	}
}

static void the_last_frame_is_written_when_the_store_is_closed(void **state)
{
	struct rig *rig = *state;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		set(rig, all[i]);
		rig_write_soft(rig, 100 + i, 700000, i); /* in the log, but in no pack: it fills no frame */
		rig_reopen(rig);
		assert_int_equal(look(rig, 100 + i, 700000, i), 0);
	}
}

static void compressed_files_take_less(void **state)
{
	struct rig *rig = *state;
	struct engine_stats st;

	set(rig, (struct compress){ COMPRESS_LZ4, 0 });
	rig_write_soft(rig, 101, LEN, 1);
	st = rig_stats(rig);
	assert_int_equal(st.stored_bytes, LEN);
	assert_int_equal(st.compressed, LEN);
	assert_in_range(st.compressed_to, LEN / 2, LEN * 9 / 10);
	assert_int_equal(st.compressed_stored, st.compressed_to);
	assert_in_range(st.pack_disk, st.compressed_to, st.compressed_to + 6 * PAGE);
	rig_reopen(rig);
	assert_int_equal(rig_stats(rig).compressed_stored, st.compressed_to); /* is remembered */
	assert_int_equal(rig_stats(rig).compressed, 0);
}

/* Both are written by a commit, which fills no frame: one at an fsync, one when the store is closed. */
static void auto_compresses_what_no_thread_waits_for(void **state)
{
	static const size_t len = 100 * PAGE;
	struct rig *rig = *state;
	struct engine_stats st;

	set(rig, (struct compress){ COMPRESS_AUTO, 0 });
	rig_write_soft(rig, 101, len, 1);
	assert_int_equal(engine_sync(rig->e), 0);
	st = rig_stats(rig);
	assert_int_equal(st.compressed, 0);
	assert_int_equal(st.compressed_stored, len);
	rig_reopen(rig);
	rig_write_soft(rig, 102, len, 2);
	rig_reopen(rig);
	st = rig_stats(rig);
	assert_int_equal(st.stored_bytes, 2 * len);
	assert_in_range(st.compressed_stored, len + len / 2, len + len * 9 / 10);
	assert_int_equal(look(rig, 101, len, 1), 0);
	assert_int_equal(look(rig, 102, len, 2), 0);
}

static void what_is_stored_in_any_way_is_stored_once(void **state)
{
	struct rig *rig = *state;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		set(rig, all[i]);
		rig_write_soft(rig, 100 + i, LEN, 1);
		assert_int_equal(rig_stats(rig).stored_bytes, LEN);
		assert_int_equal(look(rig, 100 + i, LEN, 1), 0);
	}
}

static void level_and_kind_are_parsed(void **state)
{
	static const struct {
		const char *s;
		struct compress c;
		int r;
	} cases[] = {
		{ "none", { COMPRESS_NONE, 0 }, 0 },	{ "lz4", { COMPRESS_LZ4, 0 }, 0 },
		{ "zstd", { COMPRESS_ZSTD, 0 }, 0 },	{ "zstd:1", { COMPRESS_ZSTD, 1 }, 0 },
		{ "zstd:19", { COMPRESS_ZSTD, 19 }, 0 }, { "auto", { COMPRESS_AUTO, 0 }, 0 },
		{ "", { 0 }, -EINVAL },			{ "lz", { 0 }, -EINVAL },
		{ "lz44", { 0 }, -EINVAL },		{ "zstd:", { 0 }, -EINVAL },
		{ "zstd:20", { 0 }, -EINVAL },		{ "zstd:0", { 0 }, -EINVAL },
		{ "zstd:-1", { 0 }, -EINVAL },		{ "zstd:100", { 0 }, -EINVAL },
		{ "lz4:1", { 0 }, -EINVAL },		{ "auto:", { 0 }, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct compress c = { 0 };

		assert_int_equal(compress_parse(cases[i].s, strlen(cases[i].s), &c), cases[i].r);
		assert_int_equal(c.kind, cases[i].c.kind);
		assert_int_equal(c.level, cases[i].c.level);
	}
}

/* Three share what is damaged; it is written again, as a fourth file: then all read well, and nothing is left of it. */
static void written_again_all_that_share_it_read_well(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;
	struct engine_stats st, now;

	for (size_t k = 0; k < 3; k++) {
		rig_teardown(state);
		rig_setup(state);
		rig = *state;
		set(rig, all[k]);
		rig_write_soft(rig, 101, LEN, 1);
		rig_write_soft(rig, 102, LEN, 1);
		rig_write_soft(rig, 103, LEN, 1);
		rig_stats(rig);
		damage_part(rig, 1, 0, 3);
		assert_int_equal(look(rig, 101, LEN, 1), -EIO);
		assert_int_equal(look(rig, 103, LEN, 1), -EIO);
		engine_stats(rig->e, &st);
		assert_in_range(st.nr_damaged, 1, 16);
		assert_int_equal(st.nr_repaired, 0);
		rig_write_soft(rig, 104, LEN, 1);
		rig_wait_until_repaired(rig, st.nr_damaged);
		engine_stats(rig->e, &now);
		assert_int_equal(now.nr_damaged, 0);
		for (uint64_t ino = 101; ino <= 104; ino++)
			assert_int_equal(look(rig, ino, LEN, 1), 0);
		assert_int_equal(rig_stats(rig).stored_bytes, LEN + st.nr_damaged * PAGE);

		rig_write_soft(rig, 105, LEN, 1); /* finds the good copy */
		assert_int_equal(rig_stats(rig).stored_bytes, LEN + st.nr_damaged * PAGE);
		assert_int_equal(look(rig, 105, LEN, 1), 0);

		report = rig_collect(rig, &(struct gc_conf){ .delete = true });
		assert_int_equal(report.freed_chunks, st.nr_damaged);
		rig_crash(rig);
		for (uint64_t ino = 101; ino <= 105; ino++)
			assert_int_equal(look(rig, ino, LEN, 1), 0);
		assert_int_equal(rig_stats(rig).nr_damaged, 0);
	}
}

/* Closing does what the background thread has not come to. */
static void what_was_written_again_repairs_at_the_latest_on_closing(void **state)
{
	struct rig *rig = *state;

	set(rig, all[0]);
	rig_write_soft(rig, 101, LEN, 1);
	rig_stats(rig);
	damage_part(rig, 1, 0, 7);
	assert_int_equal(look(rig, 101, LEN, 1), -EIO);
	rig_write_soft(rig, 102, LEN, 1);
	rig_reopen(rig);
	assert_int_equal(look(rig, 101, LEN, 1), 0);
	assert_int_equal(look(rig, 102, LEN, 1), 0);
}

static void a_collection_gives_compressed_parts_back(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;
	struct engine_stats before, after;

	set(rig, all[0]);
	rig_write_soft(rig, 101, LEN, 1);
	rig_write_soft(rig, 102, LEN / 2, 1); /* the first half stays */
	before = rig_stats(rig);
	rig_drop(rig, 101);
	report = rig_collect(rig, &(struct gc_conf){ .delete = true });
	assert_int_equal(report.freed_bytes, LEN / 2);
	after = rig_stats(rig);
	assert_in_range(before.pack_disk - after.pack_disk, before.compressed_to / 2 - 8 * PAGE,
			before.compressed_to / 2 + 8 * PAGE);
	assert_in_range(after.compressed_stored, before.compressed_to / 2 - PAGE, before.compressed_to / 2 + PAGE);
	assert_int_equal(look(rig, 102, LEN / 2, 1), 0);
	rig_reopen(rig);
	assert_int_equal(look(rig, 102, LEN / 2, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(compressed_files_read_as_they_were_written),
		rig_test(the_last_frame_is_written_when_the_store_is_closed),
		rig_test(compressed_files_take_less),
		rig_test(auto_compresses_what_no_thread_waits_for),
		rig_test(what_is_stored_in_any_way_is_stored_once),
		cmocka_unit_test(level_and_kind_are_parsed),
		rig_test(written_again_all_that_share_it_read_well),
		rig_test(what_was_written_again_repairs_at_the_latest_on_closing),
		rig_test(a_collection_gives_compressed_parts_back),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("compress", tests, NULL, NULL);
}
