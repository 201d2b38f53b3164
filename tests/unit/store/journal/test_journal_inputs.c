/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Stored inputs: golden/journal pins the bytes of version 1, should-fail/journal has one damaged input per file. */
#include "tests/unit/store/journal/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

/* A text input: files to make, and what must come of opening and reading them. */
struct input {
	char step[8], result[16]; /* "open", "read" or "last", and an errno's name or a number */
};

static void store_row(struct rig *rig, const char *name, uint64_t off, const char *hex)
{
	int fd = openat(rig->dirfd, name, O_WRONLY | O_CLOEXEC);
	unsigned byte;

	assert_true(fd >= 0);
	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2, off++)
		assert_int_equal(pwrite(fd, &(uint8_t){ (uint8_t)byte }, 1, (off_t)off), 1);
	close(fd);
}

static void input_load(struct rig *rig, const char *path, struct input *ret)
{
	char line[256], name[32] = "", hex[80];
	FILE *f = fopen(path, "re");
	uint64_t n;

	assert_non_null(f);
	*ret = (struct input){ 0 };
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#' || sscanf(line, "expect %7s %15s", ret->step, ret->result) == 2)
			continue;
		if (sscanf(line, "file %31s %" SCNu64, name, &n) == 2) {
			_cleanup_(freep) uint8_t *zeros = calloc(1, n + 1);

			rig_store(rig, name, zeros, n);
		} else if (sscanf(line, "%8" SCNx64 " %79s", &n, hex) == 2)
			store_row(rig, name, n, hex);
		else
			fail_msg("%s: %s", path, line);
	}
	fclose(f);
}

/* Reads all records of all groups; 0 or the first error. */
static int read_all(struct rig *rig)
{
	_cleanup_(journal_reader_freep) struct journal_reader *rd = NULL;
	const void *records, *p;
	size_t size, len;
	uint64_t number;
	bool snapshot;
	uint8_t type;
	int r;

	r = journal_read(rig->j, 0, &rd);
	while (r == 0 && (r = journal_read_next(rd, &number, &snapshot, &records, &size)) > 0) {
		struct journal_iter it = journal_iter(records, size);

		while ((r = journal_iter_next(&it, &type, &p, &len)) > 0)
			;
	}
	return r;
}

/* What came of an input, in the words of its "expect" line. */
static void try_input(struct rig *rig, struct input *ret)
{
	const char *step = "open";
	int r;

	r = rig_try_open(rig);
	if (r == 0) {
		step = "read";
		r = read_all(rig);
	}
	if (r == 0) {
		strcpy(ret->step, "last");
		snprintf(ret->result, sizeof(ret->result), "%" PRIu64, journal_last(rig->j));
		return;
	}
	strcpy(ret->step, step);
	snprintf(ret->result, sizeof(ret->result), "%s", strerrorname_np(-r));
}

static void check_input(const char *path, bool read_only)
{
	_cleanup_(rig_release) struct rig rig;
	struct input want, got;

	rig_init(&rig, KiB(4));
	rig.conf.read_only = read_only;
	input_load(&rig, path, &want);
	try_input(&rig, &got);
	if (strcmp(got.step, want.step) != 0 || strcmp(got.result, want.result) != 0)
		fail_msg("%s: %s %s", path, got.step, got.result);
}

static void damaged_inputs_are_distinguished(void **state _unused_)
{
	static const char folder[] = TESTS_DIR "/should-fail/journal";
	DIR *d = opendir(folder);
	struct dirent *e;
	unsigned nr = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char path[sizeof(folder) + 257];

		if (!strstr(e->d_name, ".txt"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		check_input(path, false);
		check_input(path, true);
		nr++;
	}
	closedir(d);
	assert_true(nr >= 40);
}

static void beside_start(_unused_ struct journal_beside *b)
{
}

static int beside_finish(_unused_ struct journal_beside *b)
{
	return 0;
}

/* What the golden inputs hold. */
static void add_groups(struct rig *rig, bool is_joint)
{
	struct journal_beside beside = { .start = beside_start, .finish = beside_finish };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint8_t bytes[500];

	journal_record_add(&b, 1, "first", 5);
	journal_record_add(&b, 2, "", 0);
	assert_int_equal(journal_append(rig->j, b.data, b.len), 0);
	assert_int_equal(journal_append(rig->j, NULL, 0), 0);
	buf_clear(&b);
	memset(bytes, 0xab, sizeof(bytes));
	journal_record_add(&b, 3, bytes, sizeof(bytes));
	journal_record_add(&b, 255, "third", 5);
	if (is_joint)
		assert_int_equal(journal_append_joint(rig->j, b.data, b.len, &beside), 0);
	else
		assert_int_equal(journal_append(rig->j, b.data, b.len), 0);
}

static void add_snapshot(struct rig *rig)
{
	struct journal_snapshot *s;
	uint8_t bytes[200];

	memset(bytes, 0xcd, sizeof(bytes));
	assert_int_equal(journal_snapshot_new(rig->j, 2, &s), 0);
	assert_int_equal(journal_snapshot_add(s, 7, "live state", 10), 0);
	assert_int_equal(journal_snapshot_add(s, 8, bytes, sizeof(bytes)), 0);
	assert_int_equal(journal_snapshot_add(s, 9, "the end", 7), 0);
	assert_int_equal(journal_snapshot_commit(s), 0);
}

static void assert_same_file(struct rig *a, struct rig *b, const char *name)
{
	_cleanup_(freep) uint8_t *p = NULL, *q = NULL;
	size_t p_len, q_len;

	p = rig_load(a, name, &p_len);
	q = rig_load(b, name, &q_len);
	assert_int_equal(p_len, q_len);
	assert_memory_equal(p, q, p_len);
}

static void what_is_written_is_version_1_byte_for_byte(void **state _unused_)
{
	_cleanup_(rig_release) struct rig ours, golden;
	struct input in;

	rig_init(&ours, KiB(4));
	rig_init(&golden, KiB(4));
	rig_open(&ours);
	add_groups(&ours, false);
	input_load(&golden, TESTS_DIR "/golden/journal/v1-log.txt", &in);
	assert_same_file(&ours, &golden, "0000000000000001.log");
	add_snapshot(&ours);
	input_load(&golden, TESTS_DIR "/golden/journal/v1-snapshot.txt", &in);
	assert_same_file(&ours, &golden, "0000000000000002.snap");
}

static void a_joint_group_has_these_bytes_until_it_is_dropped(void **state _unused_)
{
	_cleanup_(rig_release) struct rig ours, golden;
	struct input in;

	rig_init(&ours, KiB(4));
	rig_init(&golden, KiB(4));
	rig_open(&ours);
	add_groups(&ours, true);
	assert_true(journal_last_is_joint(ours.j));
	input_load(&golden, TESTS_DIR "/golden/journal/v1-joint.txt", &in);
	assert_same_file(&ours, &golden, "0000000000000001.log");
	rig_open(&golden);
	assert_true(journal_last_is_joint(golden.j));
	assert_int_equal(journal_drop_last(golden.j), 0);
	assert_false(journal_last_is_joint(golden.j));
	assert_int_equal(journal_append(golden.j, NULL, 0), 0);
	rig_open(&golden);
	assert_int_equal(journal_last(golden.j), 3);
	assert_false(journal_last_is_joint(golden.j));
}

/* All records in order as "type:length:first byte" words. */
static void describe(struct rig *rig, uint64_t after, char *ret, size_t size)
{
	_cleanup_(journal_reader_freep) struct journal_reader *rd = NULL;
	const void *records, *p;
	size_t bytes, len;
	uint64_t number;
	bool snapshot;
	uint8_t type;

	ret[0] = 0;
	assert_int_equal(journal_read(rig->j, after, &rd), 0);
	while (journal_read_next(rd, &number, &snapshot, &records, &bytes) > 0) {
		struct journal_iter it = journal_iter(records, bytes);

		snprintf(ret + strlen(ret), size - strlen(ret), "%s%" PRIu64 "[", snapshot ? "s" : "g", number);
		while (journal_iter_next(&it, &type, &p, &len) > 0)
			snprintf(ret + strlen(ret), size - strlen(ret), " %u:%zu:%x", type, len,
				 len ? *(const uint8_t *)p : 0);
		snprintf(ret + strlen(ret), size - strlen(ret), " ]");
	}
}

static void version_1_is_read(void **state _unused_)
{
	static const struct {
		const char *path, *holds;
	} cases[] = {
		{ TESTS_DIR "/golden/journal/v1-log.txt", "g1[ 1:5:66 2:0:0 ]g2[ ]g3[ 3:500:ab 255:5:74 ]" },
		{ TESTS_DIR "/golden/journal/v1-joint.txt", "g1[ 1:5:66 2:0:0 ]g2[ ]g3[ 3:500:ab 255:5:74 ]" },
		{ TESTS_DIR "/golden/journal/v1-compressed.txt",
		  "g1[ 1:5:66 2:0:0 ]g2[ 4:5:73 5:1024:ef ]g3[ 3:500:ab 255:5:74 ]" },
		{ TESTS_DIR "/golden/journal/v1-snapshot-compressed.txt",
		  "s2[ 4:5:73 5:1024:ef ]g3[ 3:500:ab 255:5:74 ]" },
		{ TESTS_DIR "/golden/journal/v1-snapshot.txt",
		  "s2[ 7:10:6c 8:200:cd 9:7:74 ]g3[ 3:500:ab 255:5:74 ]" },
		{ TESTS_DIR "/golden/journal/v1-snapshot-parts.txt",
		  "s2[ 7:10:6c 8:200:cd ]s2[ 9:7:74 ]g3[ 3:500:ab 255:5:74 ]" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(rig_release) struct rig rig;
		char holds[256];
		struct input in;

		rig_init(&rig, KiB(4));
		input_load(&rig, cases[i].path, &in);
		rig_open(&rig);
		describe(&rig, 0, holds, sizeof(holds));
		assert_string_equal(holds, cases[i].holds);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(damaged_inputs_are_distinguished),
		cmocka_unit_test(what_is_written_is_version_1_byte_for_byte),
		cmocka_unit_test(a_joint_group_has_these_bytes_until_it_is_dropped),
		cmocka_unit_test(version_1_is_read),
	};

	log_to_file("/dev/null");
	return cmocka_run_group_tests_name("journal_inputs", tests, NULL, NULL);
}
