/* A database in a temporary directory, removed at the end. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fp.h"
#include "base/util.h"
#include "index/db.h"

struct rig {
	char dir[64];
	struct db *db;
};

static inline int rig_remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void rig_open(struct rig *rig)
{
	struct db_conf conf = { .cache = MiB(16), .create = true };

	assert_int_equal(db_open(rig->dir, &conf, &rig->db), 0);
}

static inline void rig_close(struct rig *rig)
{
	db_close(rig->db);
	rig->db = NULL;
}

static inline void rig_reopen(struct rig *rig)
{
	rig_close(rig);
	rig_open(rig);
}

static inline int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	strcpy(rig->dir, "/tmp/test_index.XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	rig_open(rig);
	*state = rig;
	return 0;
}

static inline int rig_teardown(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	nftw(rig->dir, rig_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(rig);
	return 0;
}

#define rig_test(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

/* Keys and values that are C strings, one batch each. */
static inline void rig_put(struct rig *rig, const char *key, const char *value)
{
	struct db_batch *b;

	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, key, strlen(key), value, strlen(value));
	assert_int_equal(db_batch_apply(b), 0);
	db_batch_free(b);
}

static inline void rig_put_bytes(struct rig *rig, const void *key, size_t key_len, const struct buf *value)
{
	struct db_batch *b;

	assert_int_equal(buf_error(value), 0);
	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_put(b, key, key_len, value->data, value->len);
	assert_int_equal(db_batch_apply(b), 0);
	db_batch_free(b);
}

static inline void rig_del(struct rig *rig, const void *key, size_t key_len)
{
	struct db_batch *b;

	assert_int_equal(db_batch_new(rig->db, &b), 0);
	db_batch_del(b, key, key_len);
	assert_int_equal(db_batch_apply(b), 0);
	db_batch_free(b);
}

static inline void rig_flush(struct rig *rig)
{
	assert_int_equal(db_view_flush_start(rig->db), 0);
	assert_int_equal(db_view_flush_wait(rig->db), 0);
}

/* The value is `expected`; NULL: the key is absent. */
static inline void rig_expect(struct rig *rig, const char *key, const char *expected)
{
	struct buf value = BUF_EMPTY;

	assert_int_equal(db_get(rig->db, DB_VIEW, key, strlen(key), &value), expected ? 1 : 0);
	if (expected) {
		assert_int_equal(value.len, strlen(expected));
		assert_memory_equal(value.data, expected, value.len);
	}
	buf_release(&value);
}
