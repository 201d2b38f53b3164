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

static void a_snapshot_replaces_what_came_before(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct journal_stats st;
	struct rig_seen seen;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 100);
	assert_int_equal(rig_try_snapshot(&rig, 90, 10, 100), 0);
	assert_int_equal(journal_snapshot_number(rig.j), 90);
	assert_false(rig_has(&rig, FIRST_LOG));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_read(&rig, 0, 100, &seen), 0);
		assert_int_equal(seen.snapshot, 90);
		assert_int_equal(seen.nr_parts, 1);
		assert_int_equal(seen.nr_records, 10);
		assert_int_equal(seen.nr_groups, 10);
		rig_check(&rig, 90);
		rig_check(&rig, 95);
		assert_int_equal(rig_read(&rig, 1, 100, &seen), -ENOENT);
		rig_open(&rig);
	}
	assert_int_equal(rig_try_snapshot(&rig, 100, 0, 0), 0);
	assert_false(rig_has(&rig, "000000000000005a.snap"));
	assert_int_equal(journal_bytes_since_snapshot(rig.j), 0);
	journal_stats(rig.j, &st);
	assert_int_equal(st.nr_files, 3);
	assert_int_equal(st.snapshot_bytes, 2 * JOURNAL_BLOCK);
	assert_int_equal(st.disk_bytes, 2 * JOURNAL_BLOCK + 2 * SEGMENT);
	rig_append(&rig, 1);
	assert_int_equal(journal_bytes_since_snapshot(rig.j), group_bytes(101));
	rig_open(&rig);
	assert_int_equal(journal_bytes_since_snapshot(rig.j), group_bytes(101));
	rig_check(&rig, 0);
}

static void what_comes_after_a_snapshot_is_kept_wherever_a_segment_ends(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 100);
	for (uint64_t number = 1; number <= 100; number++) {
		assert_int_equal(rig_try_snapshot(&rig, number, 2, RIG_SNAPSHOT_RECORD), 0);
		rig_check(&rig, 0);
		rig_check(&rig, number);
	}
}

static void a_snapshot_comes_in_parts_of_a_mib(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct rig_seen seen;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 3);
	assert_int_equal(rig_try_snapshot(&rig, 2, 50, 100000), 0);
	assert_int_equal(rig_read(&rig, 0, 100000, &seen), 0);
	assert_int_equal(seen.nr_parts, 5);
	assert_int_equal(seen.nr_records, 50);
	assert_int_equal(seen.nr_groups, 1);
	rig_append(&rig, 1);
	assert_int_equal(rig_try_snapshot(&rig, 4, 3, 3000000), 0); /* larger than a part: one each */
	assert_int_equal(rig_read(&rig, 0, 3000000, &seen), 0);
	assert_int_equal(seen.nr_parts, 3);
	assert_int_equal(seen.nr_records, 3);
}

static void a_damaged_snapshot_is_an_error_at_every_byte(void **state _unused_)
{
	static const char name[] = "0000000000000002.snap";
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	struct rig_seen seen;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 3);
	assert_int_equal(rig_try_snapshot(&rig, 2, 5, 100), 0);
	rig_close(&rig);
	image = rig_load(&rig, name, &len);
	assert_int_equal(len, 3 * JOURNAL_BLOCK);
	for (size_t i = 0; i < len; i++) {
		rig_flip(&rig, name, i, 0x40);
		if (i < JOURNAL_BLOCK)
			assert_int_equal(rig_try_open(&rig), -EBADMSG);
		else {
			rig_open(&rig);
			assert_int_equal(rig_read(&rig, 0, 100, &seen), -EBADMSG);
			rig_check(&rig, 2);
		}
		rig_flip(&rig, name, i, 0x40);
	}
	for (size_t cut = JOURNAL_BLOCK; cut < len; cut += 8) {
		rig_store(&rig, name, image, cut);
		rig_open(&rig);
		assert_int_equal(rig_read(&rig, 0, 100, &seen), -EBADMSG);
	}
	rig_store(&rig, name, image, len + 1); /* a byte too many */
	rig_open(&rig);
	assert_int_equal(rig_read(&rig, 0, 100, &seen), -EBADMSG);
}

static void a_snapshot_needs_a_number_that_makes_sense(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct journal_snapshot *a, *b;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	assert_int_equal(journal_snapshot_new(rig.j, 0, &a), -EINVAL);
	assert_int_equal(journal_snapshot_new(rig.j, 1, &a), -EINVAL);
	rig_append(&rig, 3);
	assert_int_equal(journal_snapshot_new(rig.j, 2, &a), 0);
	assert_int_equal(journal_snapshot_new(rig.j, 3, &b), -EBUSY);
	journal_snapshot_abort(a);
	assert_false(rig_has(&rig, "snap.tmp"));
	assert_int_equal(rig_try_snapshot(&rig, 2, 1, 1), 0);
	assert_int_equal(journal_snapshot_new(rig.j, 2, &a), -EINVAL);
	assert_int_equal(rig_try_snapshot(&rig, 3, 1, 1), 0);
}

/* The last group of the current segment is damaged, but the snapshot has it: its number is not given out again. */
static void numbers_go_on_from_the_snapshot(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 5);
	assert_int_equal(rig_try_snapshot(&rig, 5, 4, 100), 0);
	rig_flip(&rig, FIRST_LOG, group_off(4) + 80, 1);
	rig_flip(&rig, FIRST_LOG, group_off(5) + 30, 1);
	for (uint64_t last = 5; last < 9; last++) {
		rig_open(&rig);
		assert_int_equal(journal_last(rig.j), last);
		rig_check(&rig, 0);
		rig_append(&rig, 1);
		rig_check(&rig, 0);
	}
	assert_false(rig_has(&rig, FIRST_LOG));
}

static int refuse_new_files(void *userdata _unused_, const struct io_event *ev)
{
	return ev->op == IO_OPEN && strcmp(ev->name, "spare.tmp") == 0 ? -ENOSPC : 0;
}

/* Without a spare, a dropped segment is zeroed and becomes the spare, but not while a reader has it open. */
static void a_reader_keeps_its_files_over_a_snapshot(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(journal_reader_freep) struct journal_reader *rd = NULL;
	struct io_hook hook = { .before = refuse_new_files };
	const void *records;
	uint64_t number = 0;
	bool snapshot;
	size_t len;

	rig_init(&rig, MiB(2));
	io_set_hook(&hook);
	rig_open(&rig);
	for (int i = 0; i < 16; i++) /* 3 in the first MiB, 6 in each 2 MiB after it */
		assert_int_equal(rig_try_append(&rig, 300000), 0);
	assert_int_equal(journal_read(rig.j, 3, &rd), 0);
	assert_int_equal(journal_read_next(rd, &number, &snapshot, &records, &len), 1);
	assert_int_equal(number, 4);
	assert_int_equal(rig_try_snapshot(&rig, 16, 1, RIG_SNAPSHOT_RECORD), 0);
	assert_false(rig_has(&rig, "0000000000000004.log"));
	assert_false(rig_has(&rig, "spare"));
	while (number < 9) {
		_cleanup_(buf_release) struct buf want = BUF_EMPTY;

		assert_int_equal(journal_read_next(rd, &number, &snapshot, &records, &len), 1);
		rig_records(number, 300000, &want);
		assert_int_equal(len, want.len);
		assert_memory_equal(records, want.data, len);
	}
	assert_int_equal(journal_read_next(rd, &number, &snapshot, &records, &len), -ENOENT); /* dropped unopened */
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_snapshot_replaces_what_came_before),
		cmocka_unit_test(what_comes_after_a_snapshot_is_kept_wherever_a_segment_ends),
		cmocka_unit_test(a_snapshot_comes_in_parts_of_a_mib),
		cmocka_unit_test(a_damaged_snapshot_is_an_error_at_every_byte),
		cmocka_unit_test(a_snapshot_needs_a_number_that_makes_sense),
		cmocka_unit_test(numbers_go_on_from_the_snapshot),
		cmocka_unit_test(a_reader_keeps_its_files_over_a_snapshot),
	};

	log_to_file("/dev/null"); /* many expected complaints */
	return cmocka_run_group_tests_name("journal_snapshot", tests, NULL, NULL);
}
