/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/journal/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/place.h"

const uint8_t rig_id[16] = "store-of-a-test";

void rig_init(struct rig *rig, uint64_t segment_bytes)
{
	memset(rig, 0, sizeof(*rig));
	rig->conf.segment_bytes = segment_bytes;
	memcpy(rig->conf.store_id, rig_id, sizeof(rig_id));
	snprintf(rig->dir, sizeof(rig->dir), "%s/test-journal-XXXXXX", test_place());
	assert_non_null(mkdtemp(rig->dir));
	rig->dirfd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(rig->dirfd >= 0);
}

void rig_release(struct rig *rig)
{
	io_set_hook(NULL);
	rig_close(rig);
	rig_wipe(rig);
	close(rig->dirfd);
	rmdir(rig->dir);
}

int rig_try_open(struct rig *rig)
{
	rig_close(rig);
	return journal_open(rig->dirfd, &rig->conf, &rig->j);
}

void rig_open(struct rig *rig)
{
	assert_int_equal(rig_try_open(rig), 0);
}

void rig_close(struct rig *rig)
{
	journal_close(rig->j);
	rig->j = NULL;
}

void rig_wipe(struct rig *rig)
{
	DIR *d = opendir(rig->dir);
	struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			assert_int_equal(unlinkat(rig->dirfd, e->d_name, 0), 0);
	closedir(d);
}

bool rig_has(struct rig *rig, const char *name)
{
	return faccessat(rig->dirfd, name, F_OK, 0) == 0;
}

uint64_t rig_size(struct rig *rig, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(rig->dirfd, name, &st, 0), 0);
	return (uint64_t)st.st_size;
}

uint8_t *rig_load(struct rig *rig, const char *name, size_t *ret_len)
{
	int fd = openat(rig->dirfd, name, O_RDONLY | O_CLOEXEC);
	size_t len = rig_size(rig, name);
	uint8_t *p = malloc(len + 1);

	assert_non_null(p);
	assert_int_equal(pread(fd, p, len, 0), (ssize_t)len);
	close(fd);
	p[len] = 0x5a;
	*ret_len = len;
	return p;
}

void rig_store(struct rig *rig, const char *name, const void *p, size_t len)
{
	int fd = openat(rig->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, p, len, 0), (ssize_t)len);
	close(fd);
}

void rig_flip(struct rig *rig, const char *name, uint64_t off, uint8_t mask)
{
	int fd = openat(rig->dirfd, name, O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= mask;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	close(fd);
}

void rig_noise(uint64_t seed, uint8_t *p, size_t len)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < len; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(x >> 56);
	}
}

void rig_records(uint64_t number, size_t large, struct buf *ret)
{
	uint8_t bytes[512];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(number * 31 + i * 7 + 1);
	buf_clear(ret);
	for (uint64_t i = 0; i < 1 + number % 3; i++)
		journal_record_add(ret, (uint8_t)(number + i), bytes, (size_t)(number * 53 % 300 + i));
	if (large > 0) {
		_cleanup_(freep) uint8_t *p = malloc(large);

		assert_non_null(p);
		rig_noise(number, p, large);
		journal_record_add(ret, 200, p, large);
	}
	assert_int_equal(buf_error(ret), 0);
}

int rig_try_append(struct rig *rig, size_t large)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint64_t number = journal_last(rig->j) + 1;

	assert_true(number < RIG_GROUPS);
	rig->large[number] = (uint32_t)large;
	rig_records(number, large, &b);
	return journal_append(rig->j, b.data, b.len);
}

void rig_append(struct rig *rig, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(rig_try_append(rig, 0), 0);
}

int rig_try_snapshot(struct rig *rig, uint64_t number, unsigned nr, size_t len)
{
	_cleanup_(freep) uint8_t *p = malloc(len + 1);
	struct journal_snapshot *s;
	int r;

	assert_non_null(p);
	r = journal_snapshot_new(rig->j, number, &s);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < nr; i++) {
		memset(p, (int)(number + i), len);
		r = journal_snapshot_add(s, (uint8_t)i, p, len);
		if (r < 0) {
			journal_snapshot_abort(s);
			return r;
		}
	}
	return journal_snapshot_commit(s);
}

static void check_part(uint64_t number, const void *records, size_t size, size_t len, unsigned *nr)
{
	struct journal_iter it = journal_iter(records, size);
	const void *p;
	uint8_t type;
	size_t n;
	int r;

	while ((r = journal_iter_next(&it, &type, &p, &n)) > 0) {
		assert_int_equal(type, (uint8_t)*nr);
		assert_int_equal(n, len);
		for (size_t i = 0; i < n; i++)
			if (((const uint8_t *)p)[i] != (uint8_t)(number + *nr))
				fail_msg("snapshot %" PRIu64 " record %u: wrong byte", number, *nr);
		(*nr)++;
	}
	assert_int_equal(r, 0);
}

int rig_read(struct rig *rig, uint64_t after, size_t snapshot_len, struct rig_seen *seen)
{
	_cleanup_(journal_reader_freep) struct journal_reader *rd = NULL;
	_cleanup_(buf_release) struct buf want = BUF_EMPTY;
	const void *records;
	uint64_t number;
	bool snapshot;
	size_t len;
	int r;

	*seen = (struct rig_seen){ .last = after };
	r = journal_read(rig->j, after, &rd);
	if (r < 0)
		return r;
	while ((r = journal_read_next(rd, &number, &snapshot, &records, &len)) > 0) {
		if (snapshot) {
			assert_int_equal(seen->nr_groups, 0);
			seen->snapshot = seen->last = number;
			seen->nr_parts++;
			check_part(number, records, len, snapshot_len, &seen->nr_records);
			continue;
		}
		assert_int_equal(number, seen->last + 1);
		assert_true(number < RIG_GROUPS);
		rig_records(number, rig->large[number], &want);
		assert_int_equal(len, want.len);
		assert_memory_equal(records, want.data, len);
		seen->last = number;
		seen->nr_groups++;
	}
	return r;
}

void rig_check(struct rig *rig, uint64_t after)
{
	struct rig_seen seen;

	assert_int_equal(rig_read(rig, after, RIG_SNAPSHOT_RECORD, &seen), 0);
	assert_int_equal(seen.last, journal_last(rig->j));
}

static int live_step(struct rig *rig, char step, bool again)
{
	switch (step) {
	case 'o':
		return rig_try_open(rig);
	case 'a':
		return rig_try_append(rig, 0);
	case 'b':
		return rig_try_append(rig, again ? 1000 : 3000);
	case 'L':
		return rig_try_append(rig, again ? 12000 : 20000);
	case 's':
		return rig_try_snapshot(rig, journal_last(rig->j) - 1, 12, RIG_SNAPSHOT_RECORD);
	}
	abort();
}

static bool live_after_error(struct rig *rig, char step, int error, enum rig_on_error on_error)
{
	int r;

	if (on_error == RIG_RETRY)
		assert_int_equal(live_step(rig, step, true), 0);
	if (on_error == RIG_REOPEN) {
		r = rig_try_open(rig);
		if (r < 0) {
			assert_int_equal(r, error);
			rig_open(rig);
		}
	}
	return on_error != RIG_STOP;
}

bool rig_live(struct rig *rig, int error, enum rig_on_error on_error)
{
	static const char steps[] = "oaabaabLaasabobabasLaba";

	for (const char *step = steps; *step; step++) {
		uint64_t last = rig->j ? journal_last(rig->j) : 0;
		uint64_t snapshot = rig->j ? journal_snapshot_number(rig->j) : 0;
		int r;

		r = live_step(rig, *step, false);
		if (r < 0) {
			assert_int_equal(r, error);
			if (*step != 'o') {
				assert_int_equal(journal_last(rig->j), last);
				assert_int_equal(journal_snapshot_number(rig->j), snapshot);
			}
			if (!live_after_error(rig, *step, error, on_error))
				return false;
		}
		rig->acked = journal_last(rig->j);
	}
	return true;
}
