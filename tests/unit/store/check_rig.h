/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A small tree in a store, what the checker says of it, and ways to change its index behind the journal's back. */
#pragma once

#include "store/check/check.h"
#include "tests/unit/store/rig.h"

struct db_batch;

#define PAGE 4096u
#define NR_SAID 40
#define TEXT 400

/* The tree: d, d/f, g, l, d/e; and d/e/hard, which is f. */
enum { ROOT = NS_ROOT_INO, DIR_D = 2, FILE_F, FILE_G, LINK_L, DIR_E, FIRST_FREE };

int check_setup(void **state); /* rig_setup() and the tree */
void make_tree(struct rig *rig);
void put_inode(struct engine_tx *tx, struct ns_inode in);
struct ns_dirent dirent_of(const char *name, uint64_t ino, uint8_t type);
void put_name(struct rig *rig, struct engine_tx *tx, uint64_t dir, const char *name, uint64_t ino, uint8_t type);

#define check_test(f) cmocka_unit_test_setup_teardown(f, check_setup, rig_teardown)

/* --- what is said; of a store that is closed --- */

struct said {
	char text[NR_SAID][TEXT]; /* "+" in front: mended */
	size_t nr;
	struct check_result result;
};

struct said check_with(struct rig *rig, struct check_conf conf);
struct said check(struct rig *rig);
struct said repair(struct rig *rig);
void assert_clean(struct rig *rig); /* with all bytes read */

/* Exactly these findings. */
#define ASSERT_SAID(s, ...)                                                     \
	do {                                                                    \
		const char *const expected[] = { __VA_ARGS__ };                 \
		for (size_t n = 0; n < (s).nr && n < ARRAY_SIZE(expected); n++) \
			assert_string_equal((s).text[n], expected[n]);          \
		assert_int_equal((s).nr, ARRAY_SIZE(expected));                 \
	} while (0)

/* --- the index of a store that is closed --- */

typedef void edit_fn(struct rig *rig, struct db_batch *b, const struct fp_key *key);

void edit_index(struct rig *rig, const struct fp_key *key, edit_fn *edit); /* as no journal knows of */
void keep_index(const struct rig *rig);
void bring_back_index(const struct rig *rig); /* as it was when it was kept */
