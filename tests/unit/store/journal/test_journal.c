/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/journal/rig.h"

#define SEGMENT KiB(16)
#define FIRST_LOG "0000000000000001.log"

/* Bytes of a group as rig_append() makes it. */
static uint64_t group_bytes(uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	rig_records(number, 0, &b);
	return journal_group_bytes(b.len);
}

/* Where group `number` of the first segment starts. */
static uint64_t group_off(uint64_t number)
{
	uint64_t off = JOURNAL_BLOCK;

	for (uint64_t n = 1; n < number; n++)
		off += group_bytes(n);
	return off;
}

static void a_new_journal_is_empty_and_small(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct journal_stats st;

	rig_init(&rig, 0);
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 0);
	assert_int_equal(journal_snapshot_number(rig.j), 0);
	assert_int_equal(journal_bytes_since_snapshot(rig.j), 0);
	assert_int_equal(rig_size(&rig, FIRST_LOG), MiB(1));
	assert_int_equal(rig_size(&rig, "spare"), MiB(2));
	journal_stats(rig.j, &st);
	assert_int_equal(st.disk_bytes, MiB(3));
	assert_int_equal(st.nr_files, 2);
	assert_int_equal(st.nr_groups, 0);
	rig_check(&rig, 0);
}

static void a_closed_journal_has_little_ahead(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	uint64_t used;

	rig_init(&rig, 0);
	rig_open(&rig);
	rig_append(&rig, 3);
	assert_int_equal(rig_try_append(&rig, MiB(1)), 0); /* in a segment of 2 MiB */
	assert_int_equal(rig_try_append(&rig, MiB(2)), 0); /* of 4, with 8 ahead */
	assert_int_equal(rig_size(&rig, "0000000000000005.log"), MiB(4));
	assert_int_equal(rig_size(&rig, "spare"), MiB(8));
	for (unsigned i = 0; i < 3; i++) {
		used = JOURNAL_BLOCK + MiB(2) + group_bytes(5) + i * group_bytes(6);
		rig_close(&rig);
		assert_in_range(rig_size(&rig, "0000000000000005.log"), MiB(2) + KiB(32), used + KiB(40));
		assert_int_equal(rig_size(&rig, "spare"), KiB(32));
		rig_open(&rig);
		assert_int_equal(rig_size(&rig, "spare"), KiB(32)); /* opening does not wait for more */
		rig_append(&rig, 1); /* there is room for it */
		assert_false(rig_has(&rig, "0000000000000006.log"));
		rig_check(&rig, 0);
	}
	assert_in_range(rig_size(&rig, "spare"), MiB(4), MiB(5)); /* twice the current one again */
	rig_open(&rig);
	rig_check(&rig, 0);
}

static void groups_come_back_in_order_also_after_reopening(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct rig_seen seen;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 200);
	rig_check(&rig, 0);
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 200);
	for (uint64_t after = 0; after <= 200; after += 9)
		rig_check(&rig, after);
	rig_append(&rig, 7);
	rig_check(&rig, 0);
	rig_check(&rig, 207);
	assert_int_equal(rig_read(&rig, 300, 0, &seen), 0); /* nothing there yet is no error */
	assert_int_equal(seen.nr_groups, 0);
}

static void an_empty_group_counts(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct journal_reader *rd;
	const void *records;
	uint64_t number;
	bool snapshot;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	assert_int_equal(journal_append(rig.j, NULL, 0), 0);
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 1);
	assert_int_equal(journal_read(rig.j, 0, &rd), 0);
	assert_int_equal(journal_read_next(rd, &number, &snapshot, &records, &len), 1);
	assert_int_equal(number, 1);
	assert_int_equal(len, 0);
	assert_false(snapshot);
	assert_int_equal(journal_read_next(rd, &number, &snapshot, &records, &len), 0);
	journal_reader_free(rd);
}

static void segments_double_up_to_the_limit(void **state _unused_)
{
	static const uint64_t sizes[] = { MiB(1), MiB(2), MiB(4), MiB(4) };
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *p = malloc(MiB(1));
	uint64_t firsts[] = { 1, 2, 4, 8 }; /* 1 MiB minus a little per group; a segment has a block for its header */

	assert_non_null(p);
	rig_noise(1, p, MiB(1));
	rig_init(&rig, MiB(4));
	rig_open(&rig);
	for (unsigned i = 0; i < 11; i++)
		assert_int_equal(journal_append(rig.j, p, MiB(1) - 2 * JOURNAL_BLOCK), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		char name[32];

		snprintf(name, sizeof(name), "%016" PRIx64 ".log", firsts[i]);
		assert_int_equal(rig_size(&rig, name), sizes[i]);
	}
	assert_int_equal(rig_size(&rig, "spare"), MiB(4));
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 11);
}

static void a_group_larger_than_a_segment_gets_its_own(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct rig_seen seen;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 5);
	assert_int_equal(rig_try_append(&rig, 5000000), 0);
	rig_append(&rig, 50);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_read(&rig, 0, 0, &seen), 0);
		assert_int_equal(seen.nr_groups, 56);
		rig_open(&rig);
	}
	assert_true(rig_has(&rig, "0000000000000006.log"));
	assert_true(rig_has(&rig, "0000000000000007.log"));
	assert_int_equal(rig_size(&rig, "0000000000000007.log"), SEGMENT);
}

static void a_group_of_more_than_256_mib_is_refused(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	uint8_t byte = 0;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	assert_int_equal(journal_append(rig.j, &byte, JOURNAL_PAYLOAD_MAX + 1), -EINVAL);
	assert_int_equal(journal_last(rig.j), 0);
}

static void read_only_changes_nothing(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *before = NULL, *after = NULL;
	struct journal_snapshot *s;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 5);
	rig_flip(&rig, FIRST_LOG, group_off(5) + 100, 1);
	rig_close(&rig);
	rig_store(&rig, "new.tmp", "x", 1);
	before = rig_load(&rig, FIRST_LOG, &len);
	rig.conf.read_only = true;
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 4);
	rig_check(&rig, 0);
	assert_int_equal(rig_try_append(&rig, 0), -EROFS);
	assert_int_equal(journal_snapshot_new(rig.j, 2, &s), -EROFS);
	after = rig_load(&rig, FIRST_LOG, &len);
	assert_memory_equal(before, after, len);
	assert_true(rig_has(&rig, "new.tmp"));
	rig.conf.read_only = false;
	rig_open(&rig);
	assert_false(rig_has(&rig, "new.tmp"));
}

static void read_only_opens_an_empty_directory(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	rig.conf.read_only = true;
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 0);
	rig_check(&rig, 0);
	assert_false(rig_has(&rig, FIRST_LOG));
}

static void files_with_other_names_are_left_alone(void **state _unused_)
{
	static const char *const names[] = { "lost+found.log", "0000000000000001.LOG", "000000000000001.log",
					     "00000000000000001.log", "000000000000000A.log", "note" };
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		rig_store(&rig, names[i], "x", 1);
	rig_open(&rig);
	rig_append(&rig, 3);
	rig_open(&rig);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(rig_size(&rig, names[i]), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_journal_is_empty_and_small),
		cmocka_unit_test(a_closed_journal_has_little_ahead),
		cmocka_unit_test(groups_come_back_in_order_also_after_reopening),
		cmocka_unit_test(an_empty_group_counts),
		cmocka_unit_test(segments_double_up_to_the_limit),
		cmocka_unit_test(a_group_larger_than_a_segment_gets_its_own),
		cmocka_unit_test(a_group_of_more_than_256_mib_is_refused),
		cmocka_unit_test(read_only_changes_nothing),
		cmocka_unit_test(read_only_opens_an_empty_directory),
		cmocka_unit_test(files_with_other_names_are_left_alone),
	};

	log_to_file("/dev/null"); /* many expected complaints */
	return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
