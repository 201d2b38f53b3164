/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A database in a temporary directory, removed at the end. Every function fails the test if it cannot do its work. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fp.h"
#include "base/util.h"
#include "index/db.h"
#include "index/namespace_table.h"
#include "tests/unit/index/ingest.h"

struct rig {
	char dir[64];
	struct db *db;
};

int rig_setup(void **state);
int rig_teardown(void **state);
void rig_open(struct rig *rig); /* made if there is none */
void rig_close(struct rig *rig);
void rig_reopen(struct rig *rig);
void rig_remove(struct rig *rig); /* all files of a database that is closed */

#define rig_test(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

/* Keys and values that are C strings, one batch each. */
void rig_put(struct rig *rig, const char *key, const char *value);
void rig_expect(struct rig *rig, const char *key, const char *expected); /* NULL: the key is absent */

void rig_put_bytes(struct rig *rig, const void *key, size_t key_len, const struct buf *value);
void rig_del(struct rig *rig, const void *key, size_t key_len);
void rig_flush(struct rig *rig);

/* Fingerprints, n of them: key i * step + first, value = round in each byte. */
void rig_ingest(struct rig *rig, uint64_t first, uint64_t step, size_t n, uint8_t round);
/* Those of keys 0 ... n-1, in one look-up: each is of the round that is expected; 0: the key is absent. */
void rig_expect_values(struct rig *rig, const uint8_t *expected, size_t n);

unsigned rig_nr_files(const char *dir, const char *pattern);
void rig_path_of(struct rig *rig, const char *pattern, char *ret, size_t len); /* the first file that matches */
void rig_flip(const char *path, off_t off);

/* For a golden file (golden_expect()): the lengths of key and value, 4 bytes each, then both, from a new row on. The value
 * is cleared. */
void rig_golden(struct buf *to, const void *key, size_t key_len, struct buf *value);
