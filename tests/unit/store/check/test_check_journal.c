/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The checker on the journal: rebuilt from a sound index; commits are discarded only on request. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/unit/store/check_rig.h"

static void a_damaged_journal_is_rebuilt_from_the_index(void **state)
{
	static const uint64_t places[] = { 9, 512 + 5, 512 + 100 }; /* file header, header of a group, its records */
	struct rig *rig = *state;
	struct said s;

	assert_int_equal(engine_sync(rig->e), 0);
	rig_write(rig, FILE_F, PAGE, 7);
	rig_close(rig);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		rig_flip(rig, "journal/*.log", places[i]);
		s = check(rig);
		assert_int_equal(s.nr, 1);
		assert_int_equal(s.result.nr_left, 1);
		assert_non_null(strstr(s.text[0], "; -p rebuilds it from the index, which stands for commit "));
		s = repair(rig);
		assert_int_equal(s.nr, 1);
		assert_int_equal(s.result.nr_repaired, 1);
		assert_non_null(strstr(s.text[0], "; rebuilt from the index, up to commit "));
		assert_clean(rig);
		rig_open(rig);
		rig_write(rig, FILE_F, PAGE, 8 + i);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_write(rig, FILE_F, PAGE, 18 + i);
		rig_close(rig);
		assert_clean(rig);
	}
}

static void without_index_a_damaged_journal_is_left(void **state)
{
	struct rig *rig = *state;
	struct said s;

	assert_int_equal(engine_sync(rig->e), 0);
	rig_write(rig, FILE_F, PAGE, 7);
	rig_close(rig);
	rig_remove_index(rig);
	rig_flip(rig, "journal/*.log", 512 + 100);
	s = repair(rig);
	ASSERT_SAID(s, "journal: a file of it is damaged or missing; there is no sound index to rebuild it from",
		    "index: missing or unusable");
}

static void check_page(struct rig *rig, uint64_t ino, uint64_t seed)
{
	uint8_t want[PAGE], got[PAGE];
	struct content *c = rig_content(rig, ino);

	rig_pattern(want, PAGE, seed);
	assert_int_equal(content_read(c, got, PAGE, 0), PAGE);
	assert_memory_equal(got, want, PAGE);
	content_close(c);
}

/* The index stands for an early commit; of the three after it, the last `nr_more` of which are
 * made here, the second is damaged. */
static void write_and_damage(struct rig *rig, unsigned nr_more)
{
	for (unsigned i = 0; i < nr_more; i++) {
		rig_write(rig, FILE_F, PAGE, 30 + i);
		assert_int_equal(engine_sync(rig->e), 0);
	}
	rig_close(rig);
	bring_back_index(rig);
	rig_flip(rig, "journal/*.log", 512 + 1024 + 512 + 70);
}

static void commits_behind_a_damaged_one_are_given_up_only_if_asked(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	keep_index(rig);
	rig_open(rig);
	write_and_damage(rig, 3);
	s = repair(rig);
	assert_int_equal(s.result.nr_left, 1);
	assert_non_null(strstr(s.text[0], "; -y discards commits 3 to 4, at least one of which is damaged"));
	s = check_with(rig, (struct check_conf){ .repair = true, .discard_commits = true });
	assert_string_equal(s.text[0], "journal: commits 3 to 4 are lost");
	assert_int_equal(s.result.nr_left, 1);
	s = repair(rig);
	assert_int_equal(s.result.nr_left, 0);
	assert_clean(rig);
	rig_open(rig);
	check_page(rig, FILE_F, 30);
}

static void rename_g(struct rig *rig, const char *to)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;

	engine_tx_del(&tx, ns_key_dirent(ROOT, ns_cookie(engine_key(rig->e), "g", 1)));
	put_name(rig, &tx, ROOT, to, FILE_G, DT_REG);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

/* What the mended journal has of later commits is looked at, too: files are named as they are called from then on. */
static void what_is_missing_is_named_as_of_the_last_commit_that_is_kept(void **state)
{
	struct rig *rig = *state;
	char pack[RIG_PATH_MAX];
	struct said s;

	rig_close(rig);
	keep_index(rig);
	rig_open(rig);
	rename_g(rig, "later");
	assert_int_equal(engine_sync(rig->e), 0);
	write_and_damage(rig, 2);
	rig_path_of(rig, "packs/*", pack);
	assert_int_equal(unlink(pack), 0);
	s = check_with(rig, (struct check_conf){ .repair = true, .discard_commits = true });
	ASSERT_SAID(s, "journal: commits 3 to 4 are lost",
		    "+journal: a file of it is damaged or missing; rebuilt from the index, up to commit 2",
		    "pack 1: the file is missing",
		    "later: bytes 0 to 8291 cannot be read: there is no data in pack 1 offset 20480",
		    "d/f: bytes 0 to 12287 cannot be read: there is no data in pack 1 offset 8192",
		    "d/e/hard: bytes 0 to 12287 cannot be read: there is no data in pack 1 offset 8192",
		    "+packs: should have 6 chunks with 24576 bytes, have 0 with 0; recounted");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		check_test(a_damaged_journal_is_rebuilt_from_the_index),
		check_test(without_index_a_damaged_journal_is_left),
		check_test(commits_behind_a_damaged_one_are_given_up_only_if_asked),
		check_test(what_is_missing_is_named_as_of_the_last_commit_that_is_kept),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("check_journal", tests, NULL, NULL);
}
