/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Files that are cut as it pays: never much more than pages or cuts by content would take; bytes are always right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/content_sync.h"
#include "tests/unit/store/model.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(6)
#define STEPS 5u
#define ROOM (LEN + MiB(4))

static int setup(void **state)
{
	struct rig *rig;

	if (rig_setup(state) < 0)
		return -1;
	rig = *state;
	rig_close(rig);
	rig->conf.chunking = CHUNKING_AUTO;
	rig_open(rig);
	return 0;
}

static void collect(struct rig *rig)
{
	rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 60, .place = true });
}

/* --- series --- */

struct file {
	uint8_t *p;
	size_t len;
};

static void put_in(struct file *f, size_t at, size_t len, uint64_t seed)
{
	assert_true(f->len + len <= ROOM);
	memmove(f->p + at + len, f->p + at, f->len - at);
	rig_pattern(f->p + at, len, seed);
	f->len += len;
}

static void take_out(struct file *f, size_t at, size_t len)
{
	memmove(f->p + at, f->p + at + len, f->len - at - len);
	f->len -= len;
}

static void change_pages(struct file *f, unsigned percent, unsigned *seed)
{
	for (size_t at = 0; at + 4096 <= f->len; at += 4096)
		if ((unsigned)rand_r(seed) % 100 < percent)
			rig_pattern(f->p + at, 4096, (uint64_t)rand_r(seed) + 7);
}

static size_t place(const struct file *f, unsigned *seed)
{
	return (size_t)rand_r(seed) % (f->len - 100000);
}

typedef void next_step(struct file *f, unsigned step, unsigned *seed);

static void shifts(struct file *f, unsigned step, unsigned *seed)
{
	for (unsigned i = 0; i < 4; i++) {
		put_in(f, place(f, seed), 1 + (size_t)rand_r(seed) % 2000, 100 * step + i);
		take_out(f, place(f, seed), 1 + (size_t)rand_r(seed) % 2000);
	}
}

static void shifts_at_its_head(struct file *f, unsigned step, unsigned *seed)
{
	(void)seed;
	put_in(f, 100, 1357, step);
}

static void much_is_put_in(struct file *f, unsigned step, unsigned *seed)
{
	put_in(f, place(f, seed), 700001, step);
}

static void much_is_taken_out(struct file *f, unsigned step, unsigned *seed)
{
	(void)step;
	take_out(f, place(f, seed) / 2, 700001);
}

static void pages_change(struct file *f, unsigned step, unsigned *seed)
{
	(void)step;
	change_pages(f, 5, seed);
}

static void many_pages_change(struct file *f, unsigned step, unsigned *seed)
{
	(void)step;
	change_pages(f, 60, seed);
}

static void all_changes(struct file *f, unsigned step, unsigned *seed)
{
	(void)seed;
	rig_pattern(f->p, f->len, 1000 + step);
}

static void pages_change_and_then_it_shifts(struct file *f, unsigned step, unsigned *seed)
{
	if (step <= 2)
		change_pages(f, 5, seed);
	else
		put_in(f, place(f, seed), 1001, step);
}

static void blocks_change_places(struct file *f, unsigned step, unsigned *seed)
{
	uint8_t *block = malloc(150001);
	size_t at = 1 + place(f, seed) / 3, to = f->len / 2 + place(f, seed) / 3;

	(void)step;
	memcpy(block, f->p + at, 150001);
	memcpy(f->p + at, f->p + to, 150001);
	memcpy(f->p + to, block, 150001);
	free(block);
}

/* What a series takes in the store, collected. */
static uint64_t series(struct rig *rig, enum chunking chunking, next_step *next)
{
	struct file f = { malloc(ROOM), LEN };
	unsigned seed = 1;
	uint64_t stored;

	rig_close(rig);
	rig->conf.chunking = chunking;
	rig_open(rig);
	rig_pattern(f.p, f.len, 1);
	for (unsigned i = 0; i < STEPS; i++) {
		if (i > 0)
			next(&f, i, &seed);
		rig_write_next(rig, 101 + i, i > 0 ? 100 + i : 0, f.p, f.len, i % 2 ? MiB(1) : 200003);
		rig_check_bytes(rig, 101 + i, f.p, f.len);
	}
	collect(rig);
	stored = rig_stats(rig).stored_bytes;
	rig_check_bytes(rig, 100 + STEPS, f.p, f.len);
	rig_fsck(rig);
	rig_check_bytes(rig, 100 + STEPS, f.p, f.len);
	for (unsigned i = 0; i < STEPS; i++)
		rig_drop(rig, 101 + i);
	collect(rig);
	assert_int_equal(rig_stats(rig).stored_bytes, 0);
	free(f.p);
	return stored;
}

static void auto_is_as_good_as_the_better_one(struct rig *rig, next_step *next)
{
	uint64_t pages = series(rig, CHUNKING_PAGE, next), cuts = series(rig, CHUNKING_CDC, next),
		 automatic = series(rig, CHUNKING_AUTO, next);

	print_message("pages %.2f, by content %.2f, auto %.2f MiB\n", (double)pages / MiB(1), (double)cuts / MiB(1),
		      (double)automatic / MiB(1));
	assert_true(automatic <= MIN(pages, cuts) + MIN(pages, cuts) / 50);
}

#define SERIES(name) \
	static void name##_test(void **state) \
	{ \
		auto_is_as_good_as_the_better_one(*state, name); \
	}
SERIES(shifts)
SERIES(shifts_at_its_head)
SERIES(much_is_put_in)
SERIES(much_is_taken_out)
SERIES(pages_change)
SERIES(many_pages_change)
SERIES(all_changes)
SERIES(pages_change_and_then_it_shifts)
SERIES(blocks_change_places)

/* --- what is promised of every file --- */

static void it_does_not_matter_how_the_champion_was_cut(void **state)
{
	static const enum chunking ways[] = { CHUNKING_PAGE, CHUNKING_CDC, CHUNKING_AUTO };
	struct rig *rig = *state;
	struct file f = { malloc(ROOM), LEN };
	uint64_t before;

	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		struct content *c = rig_content(rig, 101 + 10 * i);

		f.len = LEN;
		rig_pattern(f.p, f.len, 50 + i);
		content_set_chunking(c, &ways[i]);
		assert_int_equal(content_write(c, f.p, f.len, 0), 0);
		assert_int_equal(content_flush(c), 0);
		content_close(c);
		before = rig_stats(rig).fresh;
		put_in(&f, 1000000, 10, i);
		rig_write_next(rig, 102 + 10 * i, 101 + 10 * i, f.p, f.len, MiB(1));
		assert_in_range(rig_stats(rig).fresh - before, 10, 8192);
		rig_check_bytes(rig, 102 + 10 * i, f.p, f.len);
	}
	rig_fsck(rig);
	free(f.p);
}

/* Maps of champions have bounded memory: those that are not needed any more must free it, even while programs have the
 * files open. */
static void many_series_find_what_has_moved(void **state)
{
	struct content *held[40];
	struct rig *rig = *state;
	struct file f = { malloc(ROOM), 0 };
	unsigned seed = 1;

	rig_close(rig);
	rig->conf.cache = MiB(8); /* for maps of 48 MiB of champions or so */
	rig_open(rig);
	for (unsigned i = 0; i < ARRAY_SIZE(held); i++) {
		uint64_t before;

		f.len = MiB(3);
		rig_pattern(f.p, f.len, 100 + i);
		rig_write_next(rig, 1000 + i, 0, f.p, f.len, MiB(1));
		held[i] = rig_content(rig, 1000 + i);
		blocks_change_places(&f, 1, &seed);
		before = rig_stats(rig).fresh;
		rig_write_next(rig, 2000 + i, 1000 + i, f.p, f.len, MiB(1));
		assert_in_range(rig_stats(rig).fresh - before, 0, KiB(100)); /* not 293 */
		rig_check_bytes(rig, 2000 + i, f.p, f.len);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(held); i++)
		content_close(held[i]);
	free(f.p);
}

static void the_champion_may_go(void **state)
{
	struct rig *rig = *state;
	struct file f = { malloc(ROOM), LEN };

	rig_pattern(f.p, f.len, 1);
	rig_write_next(rig, 101, 0, f.p, f.len, MiB(1));
	put_in(&f, 3, 10, 2);
	put_in(&f, 3000003, 10000, 3);
	rig_write_next(rig, 102, 101, f.p, f.len, MiB(1));
	rig_drop(rig, 101);
	collect(rig);
	rig_check_bytes(rig, 102, f.p, f.len);
	rig_fsck(rig);
	rig_check_bytes(rig, 102, f.p, f.len);
	assert_in_range(rig_stats(rig).stored_bytes, LEN, LEN + 40000);
	free(f.p);
}

static void what_is_acknowledged_survives_a_crash(void **state)
{
	struct rig *rig = *state;
	struct file f = { malloc(ROOM), LEN };
	struct content *c;

	rig_pattern(f.p, f.len, 1);
	rig_write_next(rig, 101, 0, f.p, f.len, MiB(1));
	put_in(&f, 12345, 100, 2);
	rig_write_next(rig, 102, 101, f.p, f.len, MiB(1));
	c = rig_content(rig, 102);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	rig_crash(rig);
	rig_check_bytes(rig, 102, f.p, f.len);
	put_in(&f, 2345678, 100, 3);
	rig_write_next(rig, 103, 102, f.p, f.len, 300001);
	rig_check_bytes(rig, 103, f.p, f.len);
	rig_fsck(rig);
	free(f.p);
}

static void it_is_counted_to_the_byte(void **state)
{
	struct rig *rig = *state;
	struct file f = { malloc(ROOM), LEN };
	struct engine_stats s;

	rig_pattern(f.p, f.len, 1);
	rig_write_next(rig, 101, 0, f.p, f.len, MiB(1));
	put_in(&f, 5000000, 10, 2);
	take_out(&f, LEN, 10);
	rig_write_next(rig, 102, 101, f.p, f.len, MiB(1));
	s = rig_stats(rig);
	assert_int_equal(s.champion, 5000000 / 4096 * 4096);
	/* A request that is stored before the one in front of it may miss a page at its beginning. */
	assert_in_range(s.shifted, LEN - 5000000 / 4096 * 4096 - 10 - 4096, LEN - 5000000 / 4096 * 4096 - 10);
	assert_int_equal(s.champion + s.shifted + s.fresh, 2 * LEN);
	free(f.p);
}

/* --- anything, against a plain copy in memory --- */

static void model_step(struct model *m)
{
	static const enum chunking ways[] = { CHUNKING_PAGE, CHUNKING_CDC,
					      CHUNKING_AUTO, CHUNKING_AUTO, CHUNKING_AUTO };
	static const struct model_writes writes = { 3, 100000, .zeros = 1, .copies = 4, .others = 1 };
	unsigned f = model_some(m, MODEL_FILES), g = model_some(m, MODEL_FILES);
	struct content *c = rig_content(m->rig, model_ino(f));
	size_t off = model_some(m, MODEL_SPACE), len = 1 + model_some(m, 100000);

	content_set_chunking(c, &ways[model_some(m, ARRAY_SIZE(ways))]);
	content_set_champions(c, (uint64_t[]){ model_ino((f + 1) % 3), model_ino((f + 2) % 3) }, 2);
	switch (model_some(m, 14)) {
	case 0:
		model_truncate(m, f, c, off);
		break;
	case 1:
		model_punch(m, f, c, off, len);
		break;
	case 2:
		assert_int_equal(content_sync(c), 0);
		break;
	default:
		model_write(m, f, c, &writes);
	}
	assert_int_equal(content_flush(c), 0);
	content_set_champions(c, NULL, 0);
	content_close(c);
	if (model_some(m, 3) == 0)
		model_check(m, g);
}

static void anything_reads_as_in_memory(void **state)
{
	struct model m = { .rig = *state };
	uint64_t shifted = 0;

	m.rig->conf.pack_bytes = MiB(4);
	for (unsigned round = 1; round <= 2; round++) {
		m.rig->conf.page = round == 1 ? KiB(4) : KiB(64);
		rig_reopen(m.rig);
		model_start(&m, round);
		for (unsigned i = 0; i < 600; i++) {
			model_step(&m);
			if (i % 150 == 149)
				collect(m.rig);
			if (i % 200 == 199) {
				shifted += rig_stats(m.rig).shifted;
				rig_fsck(m.rig);
			}
		}
		model_finish(&m);
	}
	assert_true(shifted > MiB(10));
}

int main(void)
{
#define TEST_WITH_STORE(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
	static const struct CMUnitTest tests[] = {
		TEST_WITH_STORE(shifts_test),
		TEST_WITH_STORE(shifts_at_its_head_test),
		TEST_WITH_STORE(much_is_put_in_test),
		TEST_WITH_STORE(much_is_taken_out_test),
		TEST_WITH_STORE(pages_change_test),
		TEST_WITH_STORE(many_pages_change_test),
		TEST_WITH_STORE(all_changes_test),
		TEST_WITH_STORE(pages_change_and_then_it_shifts_test),
		TEST_WITH_STORE(blocks_change_places_test),
		TEST_WITH_STORE(it_does_not_matter_how_the_champion_was_cut),
		TEST_WITH_STORE(many_series_find_what_has_moved),
		TEST_WITH_STORE(the_champion_may_go),
		TEST_WITH_STORE(what_is_acknowledged_survives_a_crash),
		TEST_WITH_STORE(it_is_counted_to_the_byte),
		TEST_WITH_STORE(anything_reads_as_in_memory),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("auto", tests, NULL, NULL);
}
