/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A full disk: what cannot be written fails, what was flushed stays, and all goes on when there is room. */
#include "tests/unit/index/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sched.h>
#include <sys/mount.h>

#include "base/le.h"

/* A namespace of our own goes with us, whatever becomes of the test. Needs to come before any thread. */
static bool may_mount;

static void prepare_mounts(void)
{
	may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static bool mount_small(const char *dir, const char *options)
{
	return may_mount && mount("test_index", dir, "tmpfs", 0, options) == 0;
}

static void fill(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	static const char block[4096];

	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		;
	close(fd);
}

/* Frees the space at once: a deleted file keeps its blocks while another program drops the kernel's caches. */
static void delete(const char *path)
{
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(unlink(path), 0);
}

static void a_full_disk_fails_the_flush_and_later_ones_recover(void **state)
{
	struct rig *rig = *state;
	char ballast[100], key[16], value[4096];
	uint64_t seed = 1;

	rig_close(rig);
	if (!mount_small(rig->dir, "size=40m"))
		skip();
	rig_open(rig);
	rig_put(rig, "state", "1");
	rig_flush(rig);
	snprintf(ballast, sizeof(ballast), "%s/ballast", rig->dir);
	fill(ballast);
	memset(value, 0, sizeof(value));
	for (int i = 0; i < 1000; i++) {
		for (size_t j = 0; j < sizeof(value) - 1; j++) /* does not compress */
			value[j] = (char)('!' + ((seed = seed * 6364136223846793005 + 1442695040888963407) >> 33) % 90);
		snprintf(key, sizeof(key), "k%06d", i);
		rig_put(rig, key, value);
	}
	rig_put(rig, "state", "2");
	assert_int_equal(db_view_flush_start(rig->db), 0);
	rig_put(rig, "state", "3"); /* writing goes on */
	assert_int_equal(db_view_flush_wait(rig->db), -ENOSPC);
	rig_put(rig, "state", "4");
	rig_expect(rig, "state", "4");
	for (int i = 0; i < 100; i++)
		assert_int_equal(db_view_flush_start(rig->db), -ENOSPC);
	rig_expect(rig, "k000999", value);
	delete(ballast);
	rig_flush(rig);
	rig_put(rig, "state", "5");
	rig_reopen(rig);
	rig_expect(rig, "state", "4");
	rig_expect(rig, "k000999", value);
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

static void a_full_disk_fails_an_ingestion_and_later_ones_succeed(void **state)
{
	struct rig *rig = *state;
	enum { N = 200000 };
	uint8_t *keys = malloc(N * 8), *values = malloc(N * 6);
	uint8_t expected[100];
	char ballast[100];

	rig_close(rig);
	if (!mount_small(rig->dir, "size=20m")) {
		free(keys);
		free(values);
		skip();
	}
	rig_open(rig);
	rig_ingest(rig, 0, 1, 100, 1);
	snprintf(ballast, sizeof(ballast), "%s/ballast", rig->dir);
	fill(ballast);
	for (uint64_t i = 0; i < N; i++)
		be64_put(keys + i * 8, i);
	memset(values, 2, N * 6);
	assert_int_equal(ingest_all(rig->db, keys, 8, values, 6, N), -ENOSPC);
	memset(expected, 1, sizeof(expected));
	rig_expect_values(rig, expected, sizeof(expected));
	rig_put(rig, "k", "v"); /* the view still takes writes */
	delete(ballast);
	assert_int_equal(ingest_all(rig->db, keys, 8, values, 6, N), 0);
	memset(expected, 2, sizeof(expected));
	rig_expect_values(rig, expected, sizeof(expected));
	rig_flush(rig);
	free(keys);
	free(values);
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

static void compaction_waits_for_space(void **state)
{
	struct rig *rig = *state;
	uint8_t expected[1000];

	rig_close(rig);
	if (!mount_small(rig->dir, "size=8m"))
		skip();
	rig_open(rig);
	for (unsigned i = 1; i <= 8; i++)
		rig_ingest(rig, 0, 1, sizeof(expected), (uint8_t)i);
	usleep(100000);
	assert_int_equal(rig_nr_files(rig->dir, "*.sst"), 8);
	memset(expected, 8, sizeof(expected));
	rig_expect_values(rig, expected, sizeof(expected));
	assert_int_equal(mount("test_index", rig->dir, "tmpfs", MS_REMOUNT, "size=100m"), 0);
	rig_ingest(rig, 0, 1, sizeof(expected), 9);
	/* What a compaction has read is removed by the next job if turning compaction on still held it. */
	for (unsigned i = 0; i < 600 && rig_nr_files(rig->dir, "*.sst") > 4; i++) {
		usleep(100000);
		rig_ingest(rig, 0, 1, sizeof(expected), 9);
	}
	assert_in_range(rig_nr_files(rig->dir, "*.sst"), 1, 4);
	memset(expected, 9, sizeof(expected));
	rig_expect_values(rig, expected, sizeof(expected));
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

/* Let all writes to the file that RocksDB has open as `pattern` fail with ENOSPC. */
static void make_full(const char *pattern)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), nr = 0;
	DIR *d = opendir("/proc/self/fd");
	char target[400];
	struct dirent *de;
	ssize_t len;

	assert_true(full >= 0 && d);
	while ((de = readdir(d))) {
		len = readlinkat(dirfd(d), de->d_name, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = '\0';
		if (fnmatch(pattern, target, 0) != 0)
			continue;
		assert_true(dup2(full, atoi(de->d_name)) >= 0);
		nr++;
	}
	assert_int_equal(nr, 1);
	closedir(d);
	close(full);
}

static void a_manifest_that_cannot_be_written_stops_all_and_flushes_nothing(void **state)
{
	struct rig *rig = *state;
	struct db_batch *b;
	char pattern[100];

	rig_put(rig, "state", "1");
	rig_flush(rig);
	rig_put(rig, "state", "2");
	snprintf(pattern, sizeof(pattern), "%s/MANIFEST-*", rig->dir);
	make_full(pattern);
	assert_int_equal(db_view_flush_start(rig->db), 0);
	rig_put(rig, "state", "3"); /* not committed: must not reach the disk */
	assert_int_equal(db_view_flush_wait(rig->db), -ENOSPC);
	assert_int_equal(db_view_flush_start(rig->db), -ENOSPC);
	assert_int_equal(ingest_all(rig->db, "k", 1, "v", 1, 1), -ENOSPC);
	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, "state", 5, "4", 1);
	assert_int_equal(db_batch_apply(b), -ENOSPC);
	db_batch_free(b);
	rig_expect(rig, "state", "3");
	sleep(7); /* RocksDB looks every 5 s whether it can recover, which would be a flush of everything */
	rig_reopen(rig);
	rig_expect(rig, "state", "1");
	rig_put(rig, "state", "5");
	rig_flush(rig);
	rig_reopen(rig);
	rig_expect(rig, "state", "5");
}

/* Whatever RocksDB writes besides, and however often: Debian's ends the process when it writes to its own log after
 * that has failed. */
static void a_disk_that_is_full_again_and_again_ends_nothing(void **state)
{
	struct rig *rig = *state;
	char ballast[100], value[4096];

	rig_close(rig);
	if (!mount_small(rig->dir, "size=40m"))
		skip();
	rig_open(rig);
	snprintf(ballast, sizeof(ballast), "%s/ballast", rig->dir);
	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	for (char i = 0; i < 8; i++) {
		value[0] = (char)('!' + i);
		fill(ballast);
		rig_put(rig, "k", value);
		assert_int_equal(db_view_flush_start(rig->db), 0);
		assert_int_equal(db_view_flush_wait(rig->db), -ENOSPC);
		delete(ballast);
		rig_flush(rig);
	}
	rig_reopen(rig);
	rig_expect(rig, "k", value);
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

static void space_that_is_freed_after_a_failure_does_not_hide_its_cause(void **state)
{
	struct rig *rig = *state;
	char ballast[100];
	int r;

	rig_close(rig);
	if (!mount_small(rig->dir, "size=40m"))
		skip();
	rig_open(rig);
	snprintf(ballast, sizeof(ballast), "%s/ballast", rig->dir);
	fill(ballast);
	rig_put(rig, "k", "v");
	assert_int_equal(db_view_flush_start(rig->db), 0);
	usleep(200000); /* long enough for it to fail, unless the machine is busy */
	delete(ballast);
	r = db_view_flush_wait(rig->db);
	assert_true(r == 0 || r == -ENOSPC);
	rig_flush(rig);
	rig_close(rig);
	assert_int_equal(umount(rig->dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(a_full_disk_fails_the_flush_and_later_ones_recover),
		rig_test(a_disk_that_is_full_again_and_again_ends_nothing),
		rig_test(space_that_is_freed_after_a_failure_does_not_hide_its_cause),
		rig_test(a_full_disk_fails_an_ingestion_and_later_ones_succeed),
		rig_test(compaction_waits_for_space),
		rig_test(a_manifest_that_cannot_be_written_stops_all_and_flushes_nothing),
	};

	prepare_mounts();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
