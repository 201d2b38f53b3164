/* The checker on the journal: made anew from a sound index; commits are given up only if that is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/unit/engine/check_rig.h"

static void a_damaged_journal_is_made_anew_from_the_index(void **state)
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
		assert_non_null(strstr(s.text[0], "; -p makes it anew from the index, which stands for commit "));
		s = mend(rig);
		assert_int_equal(s.nr, 1);
		assert_int_equal(s.result.nr_mended, 1);
		assert_non_null(strstr(s.text[0], "; made anew from the index, up to commit "));
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
	s = mend(rig);
	ASSERT_SAID(s, "index: missing or unusable",
		    "journal: a file of it is damaged or missing; there is no sound index to make it anew from");
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

/* The index stands for an early commit; a later one is damaged, and one after it is not. */
static void commits_behind_a_damaged_one_are_given_up_only_if_asked(void **state)
{
	struct rig *rig = *state;
	struct said s;

	rig_close(rig);
	keep_index(rig);
	rig_open(rig);
	for (uint64_t i = 0; i < 3; i++) {
		rig_write(rig, FILE_F, PAGE, 30 + i);
		assert_int_equal(engine_sync(rig->e), 0);
	}
	rig_close(rig);
	bring_back_index(rig);
	rig_flip(rig, "journal/*.log", 512 + 1024 + 512 + 70); /* the second of the three */
	s = mend(rig);
	assert_int_equal(s.result.nr_left, 1);
	assert_non_null(
		strstr(s.text[0], "; -y gives up commits 3 to 4, among them a damaged one, and goes on from there"));
	s = check_with(rig, (struct check_conf){ .mend = true, .give_up = true });
	assert_string_equal(s.text[0], "journal: commits 3 to 4 are lost");
	assert_int_equal(s.result.nr_left, 1);
	s = mend(rig);
	assert_int_equal(s.result.nr_left, 0);
	assert_clean(rig);
	rig_open(rig);
	check_page(rig, FILE_F, 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		check_test(a_damaged_journal_is_made_anew_from_the_index),
		check_test(without_index_a_damaged_journal_is_left),
		check_test(commits_behind_a_damaged_one_are_given_up_only_if_asked),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("check_journal", tests, NULL, NULL);
}
