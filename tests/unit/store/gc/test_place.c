/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A collection that places: the newest files are read from few places, nothing is lost by it, and it comes to rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine.h"
#include "tests/content_sync.h"
#include "tests/unit/store/rig.h"

#define PAGE 4096u
#define LEN MiB(3)
#define NR_STEPS 20u
#define EVERY 40u /* pages: one of so many changes in a step */

/* Page `i` of a series as of a step: it has the seed of the last step that changed it. */
static void fill(uint8_t *p, uint64_t series, unsigned step)
{
	rig_pattern(p, LEN, series * 1000);
	for (unsigned s = 1; s <= step; s++)
		for (size_t i = s * 7 % EVERY; i < LEN / PAGE; i += EVERY)
			rig_pattern(p + i * PAGE, PAGE, (series * 1000 + s) * 10000 + i);
}

static uint64_t ino_of(uint64_t series, unsigned step)
{
	return 1000 * series + step;
}

static void write_step(struct rig *rig, uint64_t series, unsigned step)
{
	static uint8_t bytes[LEN];
	struct content *c = rig_content(rig, ino_of(series, step));

	fill(bytes, series, step);
	if (step > 0)
		content_set_champions(c, (uint64_t[]){ ino_of(series, step - 1) }, 1);
	for (size_t off = 0; off < LEN; off += MiB(1))
		assert_int_equal(content_write(c, bytes + off, MiB(1), off), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL); /* so that it is older than the next */
}

static void write_series(struct rig *rig, uint64_t series)
{
	for (unsigned step = 0; step <= NR_STEPS; step++)
		write_step(rig, series, step);
}

static void check_series(struct rig *rig, uint64_t series)
{
	static uint8_t expected[LEN], bytes[LEN];

	for (unsigned step = 0; step <= NR_STEPS; step++) {
		struct content *c = rig_content(rig, ino_of(series, step));

		fill(expected, series, step);
		assert_int_equal(content_read(c, bytes, LEN, 0), LEN);
		assert_memory_equal(bytes, expected, LEN);
		content_close(c);
	}
}

static uint64_t nr_places(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);
	struct content_info info;

	assert_int_equal(content_info(c, &info), 0);
	content_close(c);
	return info.frames;
}

static struct gc_report place(struct rig *rig)
{
	return rig_collect(rig, &(struct gc_conf){ .delete = true, .place = true });
}

static void the_newest_of_a_series_is_brought_together(void **state)
{
	struct rig *rig = *state;
	struct gc_report report;
	uint64_t chunks;

	write_series(rig, 1);
	chunks = rig_stats(rig).stored_chunks;
	assert_in_range(nr_places(rig, ino_of(1, NR_STEPS)), 8 * LEN / MiB(1), UINT64_MAX);
	report = place(rig);
	assert_true(report.complete);
	assert_in_range(report.placed_bytes, LEN / 2, LEN);
	assert_in_range(nr_places(rig, ino_of(1, NR_STEPS)), LEN / MiB(1), 3 * LEN / MiB(1));
	assert_int_equal(rig_stats(rig).stored_chunks, chunks); /* the old copies are gone */
	check_series(rig, 1);
	rig_crash(rig);
	check_series(rig, 1);
	assert_in_range(nr_places(rig, ino_of(1, NR_STEPS)), LEN / MiB(1), 3 * LEN / MiB(1));
}

static void what_has_been_placed_stays_until_there_is_something_newer(void **state)
{
	struct rig *rig = *state;

	write_series(rig, 1);
	write_series(rig, 2);
	place(rig);
	assert_int_equal(place(rig).placed_bytes, 0);
	rig_reopen(rig);
	assert_int_equal(place(rig).placed_bytes, 0);
	check_series(rig, 1);
	check_series(rig, 2);
	assert_in_range(nr_places(rig, ino_of(1, NR_STEPS)), LEN / MiB(1), 3 * LEN / MiB(1));
	assert_in_range(nr_places(rig, ino_of(2, NR_STEPS)), LEN / MiB(1), 3 * LEN / MiB(1));
}

/* As ranks do that share most of their pages: none takes from another what was placed for that one. */
static void files_that_share_do_not_take_from_each_other(void **state)
{
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t done;

	write_series(rig, 1);
	from = rig_content(rig, ino_of(1, NR_STEPS));
	to = rig_content(rig, 7);
	assert_int_equal(content_clone(from, 0, to, MiB(1) / 2, LEN, &done), 0);
	assert_int_equal(done, LEN);
	content_close(from);
	content_close(to);
	place(rig);
	assert_int_equal(place(rig).placed_bytes, 0);
	check_series(rig, 1);
}

/* The pages of a file come from many other files, and one page occurs again and again: it is copied once. */
static void what_repeats_is_moved_once(void **state)
{
	static uint8_t bytes[LEN], source[LEN];
	const unsigned nr_sources = 12, nr_again = LEN / PAGE / 16;
	struct rig *rig = *state;
	struct content *c;

	for (unsigned k = 0; k < nr_sources; k++) {
		rig_write(rig, 300 + k, LEN, 7000 + k);
		rig_pattern(source, LEN, 7000 + k);
		for (size_t i = k; i < LEN / PAGE; i += nr_sources)
			memcpy(bytes + i * PAGE, source + i * PAGE, PAGE);
	}
	for (size_t i = 0; i < nr_again; i++)
		memcpy(bytes + i * 16 * PAGE, bytes, PAGE);
	c = rig_content(rig, 400);
	assert_int_equal(content_write(c, bytes, LEN, 0), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	assert_int_equal(place(rig).placed_bytes, LEN - (nr_again - 1) * PAGE);
	c = rig_content(rig, 400);
	assert_int_equal(content_read(c, source, LEN, 0), LEN);
	assert_memory_equal(source, bytes, LEN);
	content_close(c);
}

static void files_cut_by_content_are_placed_too(void **state)
{
	struct rig *rig = *state;

	rig_close(rig);
	rig->conf.chunking = CHUNKING_CDC;
	rig_open(rig);
	write_series(rig, 1);
	assert_in_range(nr_places(rig, ino_of(1, NR_STEPS)), 8 * LEN / MiB(1), UINT64_MAX);
	place(rig);
	assert_in_range(nr_places(rig, ino_of(1, NR_STEPS)), LEN / MiB(1), 4 * LEN / MiB(1));
	assert_int_equal(place(rig).placed_bytes, 0);
	check_series(rig, 1);
	rig_reopen(rig);
	check_series(rig, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(the_newest_of_a_series_is_brought_together),
		cmocka_unit_test_setup_teardown(what_has_been_placed_stays_until_there_is_something_newer, rig_setup,
						rig_teardown),
		rig_test(files_that_share_do_not_take_from_each_other),
		rig_test(what_repeats_is_moved_once),
		rig_test(files_cut_by_content_are_placed_too),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
