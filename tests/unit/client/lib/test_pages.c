/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "client/lib/pages.h"

#define NR 64u

struct rig {
	struct pages m;
	void *room;
};

static struct rig rig_new(uint32_t nr, uint32_t slots)
{
	struct rig rig = { .room = calloc(1, pages_room(nr, slots)) };

	assert_non_null(rig.room);
	pages_init(&rig.m, rig.room, nr, slots, NULL);
	return rig;
}

static void rig_release(struct rig *rig)
{
	free(rig->room);
}

static enum pages_verdict touch(struct rig *rig, uint32_t p)
{
	uint32_t slot = PAGES_NONE;

	return pages_touch(&rig->m, p, 0, &slot);
}

static uint32_t next(struct rig *rig)
{
	uint32_t p = PAGES_NONE;

	return pages_next(&rig->m, 0, 1, &p, 1) == 1 ? p : PAGES_NONE;
}

/* Takes the next page and is done with it. */
static uint32_t write_next(struct rig *rig)
{
	uint32_t p = next(rig);

	if (p != PAGES_NONE)
		pages_done(&rig->m, &p, 1);
	return p;
}

static void write_all(struct rig *rig)
{
	while (write_next(rig) != PAGES_NONE)
		;
	pages_end(&rig->m);
}

/* An epoch with a checkpoint that has nothing to write: touches are AFTER. */
static void touch_all(struct rig *rig, const uint32_t *p, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		assert_int_equal(touch(rig, p[i]), PAGES_OPEN);
}

#define expect_order(rig, ...)                                                  \
	do {                                                                    \
		const uint32_t _p[] = { __VA_ARGS__ };                          \
		for (size_t _i = 0; _i < ARRAY_SIZE(_p); _i++)                  \
			assert_int_equal(write_next(rig), _p[_i]);              \
		assert_int_equal(write_next(rig), PAGES_NONE);                  \
	} while (0)
#define touch_these(rig, ...)                                                   \
	do {                                                                    \
		const uint32_t _p[] = { __VA_ARGS__ };                          \
		touch_all(rig, _p, ARRAY_SIZE(_p));                             \
	} while (0)

static void only_what_was_touched_is_scheduled(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 4);

	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	write_all(&rig);
	touch_these(&rig, 9, 3, 5);
	assert_int_equal(touch(&rig, 3), PAGES_OPEN); /* once more: nothing happens */
	assert_int_equal(rig.m.count[ACCESS_AFTER], 3);
	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	assert_int_equal(rig.m.nr_queue, 3);
	assert_int_equal(rig.m.page[9].state, PAGE_SCHEDULED);
	assert_int_equal(rig.m.page[4].state, PAGE_PROCESSED);
	expect_order(&rig, 3, 5, 9);
	pages_end(&rig.m);
	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	assert_int_equal(rig.m.nr_queue, 0);
}

static void a_page_goes_through_its_states(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 0);
	uint32_t p;

	touch_these(&rig, 1);
	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	assert_int_equal(rig.m.page[1].state, PAGE_SCHEDULED);
	p = next(&rig);
	assert_int_equal(p, 1);
	assert_int_equal(rig.m.page[1].state, PAGE_IN_PROGRESS);
	pages_done(&rig.m, &p, 1);
	assert_int_equal(rig.m.page[1].state, PAGE_PROCESSED);
	pages_end(&rig.m);
}

static void each_access_is_distinguished(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 1);
	uint32_t slot = PAGES_NONE, p;

	touch_these(&rig, 0, 1, 2, 3);
	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	assert_int_equal(write_next(&rig), 0);
	assert_int_equal(touch(&rig, 0), PAGES_OPEN); /* written already */
	assert_int_equal(rig.m.page[0].access, ACCESS_AVOIDED);
	assert_int_equal(pages_touch(&rig.m, 1, 0, &slot), PAGES_COPY); /* the only slot */
	assert_int_equal(slot, 0);
	assert_int_equal(rig.m.page[1].access, ACCESS_COW);
	assert_int_equal(touch(&rig, 2), PAGES_WAIT);
	assert_int_equal(rig.m.nr_waited, 1);
	assert_int_equal(touch(&rig, 2), PAGES_WAIT); /* as often as it asks */
	assert_int_equal(rig.m.nr_waited, 1);
	p = next(&rig);
	assert_int_equal(p, 2); /* which is waited for */
	pages_done(&rig.m, &p, 1);
	assert_int_equal(touch(&rig, 2), PAGES_OPEN);
	assert_int_equal(rig.m.page[2].access, ACCESS_WAIT);
	assert_int_equal(rig.m.nr_waited, 0);
	assert_int_equal(touch(&rig, 40), PAGES_OPEN); /* was clean */
	assert_int_equal(rig.m.page[40].access, ACCESS_AVOIDED);
	write_all(&rig);
	assert_int_equal(touch(&rig, 3), PAGES_OPEN);
	assert_int_equal(rig.m.page[3].access, ACCESS_AFTER);
	assert_int_equal(rig.m.count[ACCESS_COW], 1);
	assert_int_equal(rig.m.count[ACCESS_WAIT], 1);
	assert_int_equal(rig.m.count[ACCESS_AVOIDED], 2);
	assert_int_equal(rig.m.count[ACCESS_AFTER], 1);
	assert_int_equal(rig.m.nr_dirty, 5);
}

static void a_page_in_progress_is_waited_for_though_there_are_slots(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 8);
	uint32_t p;

	touch_these(&rig, 1);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	p = next(&rig);
	assert_int_equal(touch(&rig, 1), PAGES_WAIT);
	pages_done(&rig.m, &p, 1);
	assert_int_equal(touch(&rig, 1), PAGES_OPEN);
	assert_int_equal(rig.m.page[1].access, ACCESS_WAIT);
}

static void a_slot_is_free_again_when_its_page_is_done(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 1);

	touch_these(&rig, 1, 2);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	assert_int_equal(touch(&rig, 2), PAGES_COPY);
	assert_int_equal(write_next(&rig), 2); /* copied ones first */
	assert_int_equal(rig.m.nr_free, 1);
	assert_int_equal(touch(&rig, 1), PAGES_COPY);
	write_all(&rig);
	assert_int_equal(rig.m.nr_free, 1);
}

/* By address, a copied page keeps its slot until its turn comes: what the paper compares with. */
static void by_address_only_the_waited_for_page_goes_first(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 1);

	touch_these(&rig, 7, 1, 5, 3);
	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	assert_int_equal(touch(&rig, 7), PAGES_COPY);
	assert_int_equal(touch(&rig, 5), PAGES_WAIT);
	expect_order(&rig, 5, 1, 3, 7);
}

/* Algorithm 4, one of each kind. */
static void the_pattern_of_the_last_seal_is_the_order(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 2);
	uint32_t p;

	touch_these(&rig, 10, 11, 12, 13, 14, 15);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	p = write_next(&rig);
	assert_int_equal(p, 10);
	assert_int_equal(touch(&rig, 10), PAGES_OPEN); /* AVOIDED, first */
	assert_int_equal(touch(&rig, 13), PAGES_COPY); /* COW */
	assert_int_equal(touch(&rig, 12), PAGES_COPY); /* COW, later */
	assert_int_equal(touch(&rig, 15), PAGES_WAIT);
	assert_int_equal(write_next(&rig), 15);
	assert_int_equal(touch(&rig, 15), PAGES_OPEN); /* WAIT */
	assert_int_equal(write_next(&rig), 13); /* copies, in their order */
	assert_int_equal(write_next(&rig), 12);
	assert_int_equal(write_next(&rig), 11); /* by the time of the epoch before */
	assert_int_equal(touch(&rig, 11), PAGES_OPEN); /* AVOIDED, second */
	write_all(&rig);
	touch_these(&rig, 14); /* AFTER */

	pages_begin(&rig.m, PAGES_BY_PATTERN);
	expect_order(&rig, 15, 13, 12, 10, 11, 14);
}

static void waited_for_pages_go_first_in_their_order(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 1);

	touch_these(&rig, 1, 2, 3, 4);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	assert_int_equal(touch(&rig, 2), PAGES_COPY);
	assert_int_equal(touch(&rig, 4), PAGES_WAIT);
	assert_int_equal(touch(&rig, 3), PAGES_WAIT);
	expect_order(&rig, 4, 3, 2, 1);
}

static void what_has_failed_is_dirty_again(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 2);

	touch_these(&rig, 1, 2, 3, 4);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	assert_int_equal(write_next(&rig), 1);
	assert_int_equal(touch(&rig, 3), PAGES_COPY);
	assert_int_equal(touch(&rig, 1), PAGES_OPEN);
	pages_fail(&rig.m);
	assert_int_equal(rig.m.nr_free, 2);
	assert_int_equal(touch(&rig, 2), PAGES_OPEN); /* no thread waits for what is not written */
	pages_begin(&rig.m, PAGES_BY_ADDRESS);
	expect_order(&rig, 1, 2, 3, 4);
}

static void a_thread_that_waits_for_a_failed_checkpoint_goes_on(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 0);

	touch_these(&rig, 1, 2);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	assert_int_equal(touch(&rig, 2), PAGES_WAIT);
	pages_fail(&rig.m);
	assert_int_equal(touch(&rig, 2), PAGES_OPEN);
	assert_int_equal(rig.m.nr_waited, 0);
}

static void tables_can_grow(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 1), more = { .room = calloc(1, pages_room(2 * NR, 3)) };

	touch_these(&rig, 5, 2);
	pages_init(&more.m, more.room, 2 * NR, 3, &rig.m);
	touch_these(&more, 100);
	assert_int_equal(touch(&more, 5), PAGES_OPEN);
	pages_begin(&more.m, PAGES_BY_PATTERN);
	assert_int_equal(more.m.nr_free, 3);
	expect_order(&more, 5, 2, 100);
}

static void pages_of_no_region_are_forgotten(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 1);

	touch_these(&rig, 5, 8, 6, 2);
	pages_forget(&rig.m, 5, 2);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	expect_order(&rig, 8, 2);
}

/* --- prediction --- */

static enum pages_verdict touch_at(struct rig *rig, uint32_t p, uint32_t us)
{
	uint32_t slot;

	return pages_touch(&rig->m, p, us, &slot);
}

static void prediction_goes_by_time_whatever_the_trouble_was(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 0);

	touch_these(&rig, 1, 2, 3);
	pages_begin(&rig.m, PAGES_BY_PREDICTION);
	assert_int_equal(write_next(&rig), 1);
	assert_int_equal(touch(&rig, 1), PAGES_OPEN); /* AVOIDED, but first */
	assert_int_equal(touch(&rig, 3), PAGES_WAIT);
	assert_int_equal(write_next(&rig), 3);
	assert_int_equal(touch(&rig, 3), PAGES_OPEN);
	write_all(&rig);
	pages_begin(&rig.m, PAGES_BY_PREDICTION);
	expect_order(&rig, 1, 3);
}

static void copies_wait_while_a_page_is_about_to_be_wanted(void **state _unused_)
{
	for (int soon = 0; soon < 2; soon++) {
		_cleanup_(rig_release) struct rig rig = rig_new(NR, 4);
		uint32_t p;

		assert_int_equal(touch_at(&rig, 1, 0), PAGES_OPEN);
		assert_int_equal(touch_at(&rig, 2, soon ? 1000 : 1000000), PAGES_OPEN);
		pages_begin(&rig.m, PAGES_BY_PREDICTION);
		assert_int_equal(touch_at(&rig, 1, 10), PAGES_COPY);
		assert_int_equal(pages_next(&rig.m, 20, 1, &p, 1), 1);
		assert_int_equal(p, soon ? 2 : 1);
	}
}

static void what_the_program_waited_is_not_its_own_time(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 4);

	pages_waited(&rig.m, 700);
	assert_int_equal(touch_at(&rig, 1, 1000), PAGES_OPEN);
	assert_int_equal(rig.m.page[1].touch_us, 300);
}

/* The program goes around. The checkpoint is asked for when it is somewhere in the middle. */
static void the_queue_follows_the_program_to_where_it_is(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(1024, 1024);

	for (uint32_t p = 0; p < 1024; p++)
		assert_int_equal(touch(&rig, p), PAGES_OPEN);
	pages_begin(&rig.m, PAGES_BY_PREDICTION);
	for (uint32_t p = 500; p < 520; p++)
		assert_int_equal(touch(&rig, p), PAGES_COPY);
	assert_int_equal(rig.m.nr_phases > 0, 1);
	for (uint32_t p = 520; p < 1024; p++)
		assert_int_equal(write_next(&rig), p);
	for (uint32_t p = 0; p < 500; p++)
		assert_int_equal(write_next(&rig), p);
	for (uint32_t p = 500; p < 520; p++)
		assert_int_equal(write_next(&rig), p); /* copies: there are slots enough */
	assert_int_equal(write_next(&rig), PAGES_NONE);
}

static void a_program_that_is_where_it_was_changes_nothing(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig = rig_new(1024, 1024);

	for (uint32_t p = 0; p < 1024; p++)
		assert_int_equal(touch(&rig, p), PAGES_OPEN);
	pages_begin(&rig.m, PAGES_BY_PREDICTION);
	for (uint32_t p = 0; p < 1024; p++) {
		assert_int_equal(write_next(&rig), p);
		assert_int_equal(touch(&rig, p), PAGES_OPEN);
	}
	assert_int_equal(rig.m.nr_phases, 0);
	assert_int_equal(rig.m.count[ACCESS_AVOIDED], 1024);
}

static void pages_bring_their_neighbours_with_them(void **state _unused_)
{
	static const uint32_t touched[] = { 3, 2, 1, 0, 8, 9, 10, 11, 40, 41, 42, 43 };
	static const uint32_t batches[][4] = {
		/* a page that is waited for brings a copy and another one; the next such page comes for itself */
		{ 41, 40, 42, 43 },
		{ 10, 8, 9, 11 },
		{ 3, 0, 1, 2 }, /* the queue's next; the list of copies has nothing left */
	};
	_cleanup_(rig_release) struct rig rig = rig_new(NR, 2);
	uint32_t batch[4];

	for (size_t i = 0; i < ARRAY_SIZE(touched); i++)
		assert_int_equal(touch(&rig, touched[i]), PAGES_OPEN);
	pages_begin(&rig.m, PAGES_BY_PATTERN);
	assert_int_equal(touch(&rig, 9), PAGES_COPY);
	assert_int_equal(touch(&rig, 40), PAGES_COPY);
	assert_int_equal(touch(&rig, 41), PAGES_WAIT);
	assert_int_equal(touch(&rig, 43), PAGES_WAIT);
	assert_int_equal(touch(&rig, 10), PAGES_WAIT);
	for (size_t i = 0; i < ARRAY_SIZE(batches); i++) {
		assert_int_equal(pages_next(&rig.m, 0, 4, batch, 4), 4);
		assert_memory_equal(batch, batches[i], sizeof(batch));
		pages_done(&rig.m, batch, 4);
	}
	assert_int_equal(pages_next(&rig.m, 0, 4, batch, 4), 0);
	pages_end(&rig.m);
}

/* Whatever the order, and whichever thread touches what: each page is written once, with the content it had. */
static void every_page_is_written_once_as_it_was(void **state _unused_)
{
	for (unsigned seed = 1; seed < 600; seed++) {
		_cleanup_(rig_release) struct rig rig = rig_new(NR, seed % 7);
		uint32_t content[NR] = { 0 }, then[NR], copies[8], file[NR] = { 0 }, version = 0;
		unsigned random = seed;

		for (int epoch = 0; epoch < 6; epoch++) {
			uint32_t batch[4], nr;
			unsigned written[NR] = { 0 };

			pages_begin(&rig.m, (enum pages_order)(seed % 3));
			memcpy(then, content, sizeof(then));
			do {
				for (int i = rand_r(&random) % 12; i > 0; i--) {
					uint32_t p = (uint32_t)rand_r(&random) % NR, slot;
					enum pages_verdict v = pages_touch(&rig.m, p, 0, &slot);

					if (v == PAGES_COPY)
						copies[slot] = content[p];
					if (v != PAGES_WAIT)
						content[p] = ++version;
				}
				nr = pages_next(&rig.m, 0, 1u << rand_r(&random) % 4, batch,
						1 + (uint32_t)rand_r(&random) % 4);
				for (uint32_t i = 0; i < nr; i++) {
					uint32_t slot = rig.m.page[batch[i]].slot;

					file[batch[i]] = slot == PAGES_NONE ? content[batch[i]] : copies[slot];
					written[batch[i]]++;
				}
				pages_done(&rig.m, batch, nr);
			} while (nr > 0);
			pages_end(&rig.m);
			for (uint32_t p = 0; p < NR; p++)
				assert_true(written[p] <= 1);
			assert_memory_equal(file, then, sizeof(file));
			assert_int_equal(rig.m.nr_free, rig.m.nr_slots);
			for (uint32_t p = 0; p < NR; p++)
				if (rig.m.page[p].waited)
					assert_int_equal(touch(&rig, p), PAGES_OPEN); /* and writes nothing */
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_was_touched_is_scheduled),
		cmocka_unit_test(a_page_goes_through_its_states),
		cmocka_unit_test(each_access_is_distinguished),
		cmocka_unit_test(a_page_in_progress_is_waited_for_though_there_are_slots),
		cmocka_unit_test(a_slot_is_free_again_when_its_page_is_done),
		cmocka_unit_test(by_address_only_the_waited_for_page_goes_first),
		cmocka_unit_test(the_pattern_of_the_last_seal_is_the_order),
		cmocka_unit_test(waited_for_pages_go_first_in_their_order),
		cmocka_unit_test(what_has_failed_is_dirty_again),
		cmocka_unit_test(a_thread_that_waits_for_a_failed_checkpoint_goes_on),
		cmocka_unit_test(tables_can_grow),
		cmocka_unit_test(pages_of_no_region_are_forgotten),
		cmocka_unit_test(prediction_goes_by_time_whatever_the_trouble_was),
		cmocka_unit_test(copies_wait_while_a_page_is_about_to_be_wanted),
		cmocka_unit_test(what_the_program_waited_is_not_its_own_time),
		cmocka_unit_test(the_queue_follows_the_program_to_where_it_is),
		cmocka_unit_test(a_program_that_is_where_it_was_changes_nothing),
		cmocka_unit_test(pages_bring_their_neighbours_with_them),
		cmocka_unit_test(every_page_is_written_once_as_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
