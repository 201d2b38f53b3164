/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A damaged database: every function that reads the damage reports it. */
#include "tests/unit/index/rig.h"

#include <fcntl.h>

#include "base/log.h"

static void open_distinguishes_missing_and_damaged(void **state)
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
	assert_int_equal(rig_nr_files(path, "*"), 0);
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
	rig_path_of(rig, "MANIFEST-*", path, sizeof(path));
	rig_flip(path, 20);
	expect_open(rig, -EBADMSG);
	rig_flip(path, 20);
	rig_path_of(rig, "CURRENT", current, sizeof(current));
	rig_flip(current, 3);
	expect_open(rig, -EBADMSG);
	rig_flip(current, 3);
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
	rig_path_of(rig, "*.sst", path, sizeof(path));
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
	rig_path_of(rig, "*.sst", path, sizeof(path));
	rig_flip(path, 1);
	rig_open(rig);
	assert_int_equal(db_get(rig->db, DB_VIEW, "k", 1, NULL), -EBADMSG);
	assert_int_equal(db_iter_new(rig->db, NULL, "k", 1, NULL, 0, &it), 0);
	assert_int_equal(db_iter_next(it, &key, &key_len, &value, &value_len), -EBADMSG);
	db_iter_free(it);
	rig_close(rig);
	assert_int_equal(unlink(path), 0); /* start again with the other family */
	rig_remove(rig);
	rig_open(rig);
	rig_ingest(rig, 0, 1, 1000, 1);
	rig_close(rig);
	rig_path_of(rig, "*.sst", path, sizeof(path));
	rig_flip(path, 10);
	rig_open(rig);
	assert_int_equal(db_get_many(rig->db, DB_FINGERPRINTS, (uint8_t[8]){ 0 }, 8, 1, values, 6, found), -EBADMSG);
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

	rig_ingest(rig, 0, 1, 20000, 1);
	rig_close(rig);
	rig_path_of(rig, "*.sst", path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	rig_flip(path, st.st_size / 2); /* a block in the middle: an ingestion looks at the first one */
	snprintf(log, sizeof(log), "%s/log", rig->dir);
	assert_int_equal(log_to_file(log), 0);
	rig_open(rig);
	for (unsigned i = 2; i <= 4; i++) /* with the fourth table a compaction is due */
		rig_ingest(rig, 0, 1, 20000, (uint8_t)i);
	do {
		usleep(100000);
		rig_ingest(rig, 20000 + tries, 1, 1, 1);
	} while (!log_has(log, "compaction fails") && ++tries < 300);
	log_to_stderr();
	assert_in_range(tries, 1, 299);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(open_distinguishes_missing_and_damaged),
		rig_test(damaged_manifest_or_current_is_reported),
		rig_test(missing_or_cut_table_is_reported_at_open),
		rig_test(damaged_table_is_reported_by_every_reader),
		rig_test(a_compaction_that_keeps_failing_is_paused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
