/* SPDX-License-Identifier: GPL-3.0-or-later */
/* How known pages are found: champions, neighbours, the filter. What is found is exact anyway; here it is cheap. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_state.h"
#include "store/dedup/dedup_tables.h"
#include "store/housekeeping.h"
#include "tests/content_sync.h"
#include "tests/unit/store/rig.h"
#include "store/file/content_state.h"

#define LEN MiB(8)
#define PAGE 4096u

static void write_all(struct rig *rig, uint64_t ino, const uint8_t *p, const uint64_t *champions, unsigned nr_champions)
{
	struct content *c = rig_content(rig, ino);

	content_set_champions(c, champions, nr_champions);
	for (size_t off = 0; off < LEN; off += MiB(1))
		assert_int_equal(content_write(c, p + off, MiB(1), off), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
}

/* The bytes of `seed`; each page with a number of 3 mod `each` is changed. */
static uint8_t *changed(uint64_t seed, unsigned each)
{
	uint8_t *p = malloc(LEN);

	assert_non_null(p);
	rig_pattern(p, LEN, seed);
	for (size_t page = 3; page < LEN / PAGE; page += each)
		p[page * PAGE + 5] ^= 0x5a;
	return p;
}

static void the_right_champion_is_found_among_several(void **state)
{
	_cleanup_(freep) uint8_t *p = changed(7, 20);
	struct rig *rig = *state;
	struct engine_stats before, after;

	for (uint64_t ino = 101; ino <= 104; ino++)
		rig_write(rig, ino, LEN, ino == 103 ? 7 : ino);
	before = rig_stats(rig);
	write_all(rig, 105, p, (const uint64_t[]){ 101, 102, 103, 104 }, 4);
	after = rig_stats(rig);
	assert_int_equal(after.fresh - before.fresh, (LEN / PAGE + 16) / 20 * PAGE);
	assert_int_equal(after.champion - before.champion, LEN - (after.fresh - before.fresh));
}

static void a_champion_that_is_gone_or_is_the_file_itself_does_no_harm(void **state)
{
	_cleanup_(freep) uint8_t *p = changed(7, 20);
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 7);
	rig_drop(rig, 101);
	write_all(rig, 102, p, (const uint64_t[]){ 101, 102, 999 }, 3);
	rig_reopen(rig);
	write_all(rig, 103, p, (const uint64_t[]){ 102 }, 1);
}

static void neighbours_are_found_across_changed_pages(void **state)
{
	_cleanup_(freep) uint8_t *p = changed(7, 20);
	struct rig *rig = *state;
	struct engine_stats before, after;

	rig_write(rig, 101, LEN, 7);
	rig_reopen(rig);
	before = rig_stats(rig);
	write_all(rig, 102, p, NULL, 0);
	after = rig_stats(rig);
	assert_int_equal(after.fresh - before.fresh, (LEN / PAGE + 16) / 20 * PAGE);
	assert_true(after.successor - before.successor > LEN / 10 * 9);
}

static uint64_t nr_absorbed(struct rig *rig)
{
	uint64_t n;

	dedup_lock(rig->e);
	n = rig->e->dedup->absorb_generation;
	dedup_unlock(rig->e);
	return n;
}

static void a_new_store_has_a_filter_before_the_first_write(void **state)
{
	for (unsigned i = 0; rig_stats(*state).filter_memory == 0; i++) {
		assert_true(i < 500);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
}

static void all_is_found_with_the_filter_in_use(void **state)
{
	struct rig *rig = *state;
	uint64_t ino = 100, stored;

	rig_close(rig);
	rig->conf.ingest_entries = 2000;
	rig_open(rig);
	for (unsigned i = 0; nr_absorbed(rig) == 0; i++) { /* an index that is not empty has no filter at first */
		assert_true(i < 200);
		ino++;
		rig_write(rig, ino, LEN, ino);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
	rig_reopen(rig);
	assert_int_equal(rig_stats(rig).filter_memory, 0);
	for (unsigned i = 0; rig_stats(rig).filter_memory == 0; i++) {
		assert_true(i < 200);
		ino++;
		rig_write(rig, ino, LEN, ino);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
	for (uint64_t last = ino + 4; ino < last; ino++) /* absorbed while it is in use */
		rig_write(rig, ino + 1, LEN, ino + 1);
	stored = rig_stats(rig).stored_chunks;
	for (uint64_t seed = 101, last = ino; seed <= last; seed++)
		rig_write(rig, ++ino, LEN, seed);
	assert_int_equal(rig_stats(rig).stored_chunks, stored);
}

static void fingerprints_that_could_not_be_absorbed_are_tried_again(void **state)
{
	struct rig *rig = *state;
	char dir[100], remote[100];

	rig_close(rig);
	rig->conf.ingest_entries = 500;
	rig_open(rig);
	snprintf(dir, sizeof(dir), "%s/index/ingest", rig->path);
	snprintf(remote, sizeof(remote), "%s/index/away", rig->path);
	assert_int_equal(rename(dir, remote), 0);
	rig_write(rig, 101, LEN, 101);
	nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL);
	assert_true(rig_stats(rig).fptable_entries >= LEN / PAGE);
	assert_int_equal(rename(remote, dir), 0);
	for (unsigned i = 0; i < 300 && rig_stats(rig).fptable_entries >= 500; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	assert_in_range(rig_stats(rig).fptable_entries, 0, 499);
}

static void absorbed_fingerprints_are_still_found_in_memory(void **state)
{
	struct rig *rig = *state;
	struct engine_stats before, after;

	rig_close(rig);
	rig->conf.ingest_entries = 4 * LEN / PAGE;
	rig_open(rig);
	rig_write(rig, 101, LEN, 101);
	for (unsigned i = 0; nr_absorbed(rig) == 0; i++) { /* until a quiet moment */
		assert_true(i < 200);
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
	}
	before = rig_stats(rig);
	rig_write(rig, 102, LEN, 101);
	after = rig_stats(rig);
	assert_int_equal(after.indexed, before.indexed);
	assert_int_equal(after.stored_chunks, before.stored_chunks);
}

static void a_recipe_that_leads_nowhere_is_damage(void **state)
{
	static const struct addr nowhere[] = { { .pack = 77, .off = 0 }, { .pack = 77, .off = 2 * PACK_BLOCK } };
	struct rig *rig = *state;
	uint8_t byte;

	for (size_t i = 0; i < ARRAY_SIZE(nowhere); i++) {
		struct content *c = rig_content(rig, 90 + i);
		struct extent_list l = { 0 };

		assert_int_equal(extent_list_add(&l, 0, 4096, nowhere[i]), 0);
		assert_int_equal(content_set_extents(c, 0, 4096, &l), 0);
		extent_list_release(&l);
		assert_int_equal(content_read(c, &byte, 1, 0), -EIO);
		content_close(c);
	}
}

/* Waits until it is stored; it need not be durable. */
static void store_all(struct rig *rig, uint64_t ino, uint64_t champion, const uint8_t *p)
{
	struct content *c = rig_content(rig, ino);

	content_set_champions(c, &champion, 1);
	for (size_t off = 0; off < LEN; off += MiB(1))
		assert_int_equal(content_write(c, p + off, MiB(1), off), 0);
	assert_int_equal(content_flush(c), 0);
	content_set_champions(c, NULL, 0);
	content_close(c);
}

/* A batch that needed the lock alone would wait for this thread forever. */
static void new_chunks_are_stored_beside_other_batches(void **state)
{
	_cleanup_(freep) uint8_t *scattered = changed(7, 20), *all_new = rig_bytes(LEN, 8);
	struct rig *rig = *state;
	struct engine_stats before, after;

	rig_close(rig);
	rig->conf.ingest_entries = 500; /* an index that is not empty has no filter at first: each new page is looked up */
	rig_open(rig);
	rig_write(rig, 101, LEN, 7);
	for (unsigned i = 0; nr_absorbed(rig) == 0; i++) {
		assert_true(i < 500);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
	rig_reopen(rig);
	before = rig_stats(rig);
	housekeeping_stop(rig->e); /* it takes the lock alone */
	dedup_lock_shared(rig->e);
	store_all(rig, 102, 101, scattered);
	store_all(rig, 103, 101, all_new);
	dedup_unlock_shared(rig->e);
	after = rig_stats(rig);
	assert_int_equal(after.fresh - before.fresh, (LEN / PAGE + 16) / 20 * PAGE + LEN);
	rig_check_bytes(rig, 102, scattered, LEN);
	rig_check_bytes(rig, 103, all_new, LEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(the_right_champion_is_found_among_several),
		cmocka_unit_test_setup_teardown(a_champion_that_is_gone_or_is_the_file_itself_does_no_harm, rig_setup,
						rig_teardown),
		rig_test(neighbours_are_found_across_changed_pages),
		cmocka_unit_test_setup_teardown(fingerprints_that_could_not_be_absorbed_are_tried_again, rig_setup,
						rig_teardown),
		rig_test(absorbed_fingerprints_are_still_found_in_memory),
		rig_test(a_new_store_has_a_filter_before_the_first_write),
		rig_test(all_is_found_with_the_filter_in_use),
		rig_test(a_recipe_that_leads_nowhere_is_damage),
		rig_test(new_chunks_are_stored_beside_other_batches),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
