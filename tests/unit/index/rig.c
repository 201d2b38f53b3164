/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>

#include "base/le.h"
#include "tests/unit/place.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void rig_open(struct rig *rig)
{
	struct db_conf conf = { .cache = MiB(16), .create = true };

	assert_int_equal(db_open(rig->dir, &conf, &rig->db), 0);
}

void rig_close(struct rig *rig)
{
	db_close(rig->db);
	rig->db = NULL;
}

void rig_reopen(struct rig *rig)
{
	rig_close(rig);
	rig_open(rig);
}

void rig_remove(struct rig *rig)
{
	nftw(rig->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	snprintf(rig->dir, sizeof(rig->dir), "%s/test_index.XXXXXX", test_place());
	assert_non_null(mkdtemp(rig->dir));
	rig_open(rig);
	*state = rig;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	rig_remove(rig);
	free(rig);
	return 0;
}

void rig_put(struct rig *rig, const char *key, const char *value)
{
	struct db_batch *b;

	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, key, strlen(key), value, strlen(value));
	assert_int_equal(db_batch_apply(b), 0);
	db_batch_free(b);
}

void rig_put_bytes(struct rig *rig, const void *key, size_t key_len, const struct buf *value)
{
	struct db_batch *b;

	assert_int_equal(buf_error(value), 0);
	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, key, key_len, value->data, value->len);
	assert_int_equal(db_batch_apply(b), 0);
	db_batch_free(b);
}

void rig_del(struct rig *rig, const void *key, size_t key_len)
{
	struct db_batch *b;

	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_del(b, key, key_len);
	assert_int_equal(db_batch_apply(b), 0);
	db_batch_free(b);
}

void rig_flush(struct rig *rig)
{
	assert_int_equal(db_view_flush_start(rig->db), 0);
	assert_int_equal(db_view_flush_wait(rig->db), 0);
}

void rig_expect(struct rig *rig, const char *key, const char *expected)
{
	struct buf value = BUF_EMPTY;

	assert_int_equal(db_get(rig->db, DB_VIEW, key, strlen(key), &value), expected ? 1 : 0);
	if (expected) {
		assert_int_equal(value.len, strlen(expected));
		assert_memory_equal(value.data, expected, value.len);
	}
	buf_release(&value);
}

void rig_ingest(struct rig *rig, uint64_t first, uint64_t step, size_t n, uint8_t round)
{
	uint8_t *keys = malloc(n * 8), *values = malloc(n * 6);

	assert_true(keys && values);
	for (size_t i = 0; i < n; i++)
		be64_put(keys + i * 8, first + i * step);
	memset(values, round, n * 6);
	assert_int_equal(ingest_all(rig->db, keys, 8, values, 6, n), 0);
	free(keys);
	free(values);
}

void rig_expect_values(struct rig *rig, const uint8_t *expected, size_t n)
{
	uint8_t *keys = malloc(n * 8), *values = calloc(n, 6), *found = malloc(n);

	assert_true(keys && values && found);
	for (size_t i = 0; i < n; i++)
		be64_put(keys + i * 8, i);
	memset(found, 0x55, n);
	assert_int_equal(db_get_many(rig->db, DB_FINGERPRINTS, keys, 8, n, values, 6, found), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(found[i], expected[i] != 0);
		if (expected[i])
			assert_memory_equal(values + i * 6, ((uint8_t[6]){ expected[i], expected[i], expected[i],
									   expected[i], expected[i], expected[i] }), 6);
	}
	free(keys);
	free(values);
	free(found);
}

unsigned rig_nr_files(const char *dir, const char *pattern)
{
	DIR *d = opendir(dir);
	struct dirent *de;
	unsigned n = 0;

	assert_non_null(d);
	while ((de = readdir(d)))
		n += fnmatch(pattern, de->d_name, FNM_PERIOD) == 0;
	closedir(d);
	return n;
}

void rig_path_of(struct rig *rig, const char *pattern, char *ret, size_t len)
{
	DIR *d = opendir(rig->dir);
	struct dirent *de;

	assert_non_null(d);
	while ((de = readdir(d)) && fnmatch(pattern, de->d_name, 0) != 0)
		;
	assert_non_null(de);
	snprintf(ret, len, "%s/%s", rig->dir, de->d_name);
	closedir(d);
}

void rig_flip(const char *path, off_t off)
{
	int fd = open(path, O_RDWR);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, off), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, off), 1);
	close(fd);
}

void rig_golden(struct buf *to, const void *key, size_t key_len, struct buf *value)
{
	buf_add_le32(to, (uint32_t)key_len);
	buf_add_le32(to, (uint32_t)value->len);
	buf_add(to, key, key_len);
	buf_add(to, value->data, value->len);
	while (to->len % 32 != 0) /* GOLDEN_ROW */
		buf_add_u8(to, 0);
	assert_int_equal(buf_error(value), 0);
	assert_int_equal(buf_error(to), 0);
	buf_clear(value);
}
