/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Fingerprints that are ingested as whole tables, and compaction. */
#include "tests/unit/index/rig.h"

#include <fcntl.h>

#include "base/le.h"

static void ingested_entries_replace_and_are_found_in_batches(void **state)
{
	struct rig *rig = *state;
	uint8_t expected[1000] = { 0 };
	char ingest_dir[80];

	rig_ingest(rig, 0, 2, 400, 1); /* even ones below 800 */
	rig_ingest(rig, 3, 3, 200, 2); /* 3 ... 600 */
	for (size_t i = 0; i < 800; i += 2)
		expected[i] = 1;
	for (size_t i = 3; i <= 600; i += 3)
		expected[i] = 2;
	rig_expect_values(rig, expected, 1000);
	rig_reopen(rig); /* durable without a flush */
	rig_expect_values(rig, expected, 1000);
	assert_int_equal(db_compact(rig->db, DB_FINGERPRINTS), 0);
	rig_expect_values(rig, expected, 1000);
	snprintf(ingest_dir, sizeof(ingest_dir), "%s/ingest", rig->dir);
	assert_int_equal(rig_nr_files(ingest_dir, "*"), 0);
}

static void sorted_runs_stay_bounded(void **state)
{
	struct rig *rig = *state;
	uint8_t expected[1000];

	memset(expected, 40, sizeof(expected));
	for (unsigned i = 1; i <= 40; i++)
		rig_ingest(rig, 0, 1, 1000, (uint8_t)i);
	for (unsigned i = 0; i < 600 && rig_nr_files(rig->dir, "*.sst") > 12; i++)
		usleep(100000);
	assert_in_range(rig_nr_files(rig->dir, "*.sst"), 1, 12);
	rig_expect_values(rig, expected, sizeof(expected));
}

static void ingest_refuses_unsorted_keys(void **state)
{
	struct rig *rig = *state;
	uint8_t keys[16], values[12] = { 0 };
	char ingest_dir[80];

	be64_put(keys, 2);
	be64_put(keys + 8, 1);
	assert_int_equal(ingest_all(rig->db, keys, 8, values, 6, 2), -EINVAL);
	be64_put(keys + 8, 2);
	assert_int_equal(ingest_all(rig->db, keys, 8, values, 6, 2), -EINVAL);
	snprintf(ingest_dir, sizeof(ingest_dir), "%s/ingest", rig->dir);
	assert_int_equal(rig_nr_files(ingest_dir, "*"), 0);
}

static void parts_are_ingested_together_or_not_at_all(void **state)
{
	struct rig *rig = *state;
	struct db_ingestion *in;
	uint8_t keys[16], values[12], expected[4] = { 0 };
	char ingest_dir[80];

	snprintf(ingest_dir, sizeof(ingest_dir), "%s/ingest", rig->dir);
	memset(values, 7, sizeof(values));
	be64_put(keys, 1);
	be64_put(keys + 8, 3);
	for (int committed = 0; committed < 2; committed++) {
		assert_int_equal(db_ingestion_new(rig->db, &in), 0);
		assert_int_equal(db_ingestion_add(in, keys, 8, values, 6, 1), 0);
		assert_int_equal(db_ingestion_add(in, keys + 8, 8, values + 6, 6, 1), 0);
		rig_expect_values(rig, expected, 4);
		if (committed)
			assert_int_equal(db_ingestion_commit(in), 0);
		db_ingestion_free(in);
		assert_int_equal(rig_nr_files(ingest_dir, "*"), 0);
	}
	expected[1] = expected[3] = 7;
	rig_reopen(rig);
	rig_expect_values(rig, expected, 4);
	assert_int_equal(db_ingestion_new(rig->db, &in), 0);
	assert_int_equal(db_ingestion_add(in, keys + 8, 8, values, 6, 1), 0);
	assert_int_equal(db_ingestion_add(in, keys, 8, values, 6, 1), -EINVAL); /* smaller than the part before */
	db_ingestion_free(in);
	assert_int_equal(rig_nr_files(ingest_dir, "*"), 0);
}

static void get_many_reports_values_of_another_length(void **state)
{
	struct rig *rig = *state;
	uint8_t value[5], found[1];

	rig_ingest(rig, 0, 1, 1, 7);
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
	rig_ingest(rig, 0, 1, 100, 1);
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
	assert_int_equal(rig_nr_files(rig->dir, "*.sst"), 1);
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
	assert_int_equal(rig_nr_files(rig->dir, "*.sst"), 1);
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

	rig_ingest(rig, 0, 1, 1000, 1);
	rig_put(rig, "k", "v");
	rig_flush(rig);
	db_stats(rig->db, &st);
	assert_int_equal(st.fingerprints_nr, 1000);
	assert_in_range(st.fingerprints_disk, 1000, 40000);
	assert_in_range(st.view_disk, 100, 4000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(ingested_entries_replace_and_are_found_in_batches),
		rig_test(sorted_runs_stay_bounded),
		rig_test(ingest_refuses_unsorted_keys),
		rig_test(parts_are_ingested_together_or_not_at_all),
		rig_test(get_many_reports_values_of_another_length),
		rig_test(what_a_cut_ingestion_left_is_removed_at_open),
		rig_test(ingest_does_not_flush_the_view),
		rig_test(compaction_of_the_view_keeps_all_and_flushes_nothing),
		rig_test(compaction_of_a_small_view_forgets_what_was_deleted),
		rig_test(stats_count_entries_and_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
