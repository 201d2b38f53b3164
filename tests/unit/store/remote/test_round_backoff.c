/* SPDX-License-Identifier: GPL-3.0-or-later */
/* round_backoff.h: how much of its new chunks does a node offer? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/remote/round_backoff.h"

/* One event, and the state after it. */
struct step {
	enum { DECIDED, COMMITTED, REPORTED } what;
	size_t nr_frames, nr_offered, nr_found;
	enum backoff_state then;
};

static void the_state_follows_the_rounds(void **state _unused_)
{
	static const struct step steps[] = {
		{ DECIDED, 4, 1023, 0, OFFER_ALL },
		{ COMMITTED, .then = OFFER_ALL }, /* too few pages to judge by, ... */
		{ DECIDED, 1, 1, 0, OFFER_ALL },
		{ COMMITTED, .then = OFFER_SAMPLE }, /* but commits are judged together */
		{ DECIDED, 1, 256, 0, OFFER_SAMPLE },
		{ DECIDED, 2, 512, 1, OFFER_NOTHING },
		{ COMMITTED, .then = OFFER_SAMPLE },
		{ DECIDED, 4, 1024, 4, OFFER_ALL },
		{ COMMITTED, .then = OFFER_SAMPLE }, /* of 1792 pages */
		{ DECIDED, 4, 1024, 1024, OFFER_ALL },
		{ DECIDED, 40, 10240, 0, OFFER_ALL }, /* not before the commit */
		{ COMMITTED, .then = OFFER_ALL },
		{ DECIDED, 4, 1024, 0, OFFER_ALL },
		{ COMMITTED, .then = OFFER_SAMPLE },
		{ DECIDED, 4, 1024, 0, OFFER_NOTHING },
		{ REPORTED, .then = OFFER_ALL },
		{ COMMITTED, .then = OFFER_ALL }, /* earlier offers do not count */
		{ DECIDED, 0, 0, 0, OFFER_ALL },
	};
	struct backoff a = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		const struct step *s = &steps[i];

		if (s->what == DECIDED)
			assert_int_equal(backoff_decided(&a, s->nr_frames, s->nr_offered, s->nr_found),
					 s->then == OFFER_NOTHING);
		else if (s->what == COMMITTED)
			backoff_committed(&a);
		else
			backoff_reported(&a);
		if (a.state != s->then)
			fail_msg("step %zu: state %d", i, (int)a.state);
	}
}

/* A commit of so many pages that offers a sample, or nothing. */
static void commit_little(struct backoff *a, unsigned nr_pages)
{
	if (a->state == OFFER_SAMPLE)
		assert_true(backoff_decided(a, BACKOFF_SAMPLE_FRAMES, BACKOFF_SAMPLE_FRAMES * 256, 0));
	for (unsigned i = 0; i < nr_pages; i++)
		backoff_add_written(a, (struct fp){ .lo = i });
	backoff_committed(a);
}

/* Commits with little in common until nothing is offered; returns their number. */
static unsigned until_nothing_is_offered(struct backoff *a)
{
	unsigned nr = 1;

	assert_int_equal(a->state, OFFER_ALL);
	assert_false(backoff_decided(a, 40, 10240, 0));
	backoff_committed(a);
	for (; a->state != OFFER_NOTHING; nr++) {
		assert_int_equal(a->state, OFFER_SAMPLE);
		assert_false(backoff_is_on(a));
		assert_int_equal(backoff_is_last_sample(a), nr + 1 == BACKOFF_AFTER << a->nr_doubled);
		commit_little(a, 1024);
	}
	assert_true(backoff_is_on(a));
	return nr;
}

/* Commits that offer nothing, until one offers a sample; returns their number. */
static unsigned until_sample_is_offered(struct backoff *a)
{
	unsigned nr = 0;

	for (; a->state == OFFER_NOTHING; nr++)
		commit_little(a, BACKOFF_PAGES);
	assert_int_equal(a->state, OFFER_SAMPLE);
	return nr;
}

static void rounds_are_skipped_after_a_row_of_commits(void **state _unused_)
{
	struct backoff a = { 0 };

	assert_int_equal(until_nothing_is_offered(&a), BACKOFF_AFTER);
	for (unsigned i = 0; i < 100; i++) /* small ones are judged together */
		commit_little(&a, 1);
	assert_int_equal(until_sample_is_offered(&a), BACKOFF_SKIPPED);
	commit_little(&a, 0);
	assert_int_equal(a.state, OFFER_NOTHING);
	assert_int_equal(until_sample_is_offered(&a), BACKOFF_SKIPPED);
	assert_false(backoff_decided(&a, 4, 1024, 4));
	assert_int_equal(a.state, OFFER_ALL);
	backoff_committed(&a);
	assert_int_equal(until_nothing_is_offered(&a), BACKOFF_AFTER); /* the row begins again */
	backoff_release(&a);
}

static void a_report_doubles_the_row(void **state _unused_)
{
	struct backoff a = { 0 };

	for (unsigned i = 0; i < BACKOFF_DOUBLED_MAX + 2; i++) {
		assert_int_equal(until_nothing_is_offered(&a), BACKOFF_AFTER << MIN(i, BACKOFF_DOUBLED_MAX));
		backoff_reported(&a);
		backoff_reported(&a); /* from another home: counts once */
	}
	until_nothing_is_offered(&a);
	until_sample_is_offered(&a); /* without a report */
	backoff_reported(&a);
	assert_int_equal(until_nothing_is_offered(&a), BACKOFF_AFTER);
	backoff_release(&a);
}

static void new_peers_get_a_sample(void **state _unused_)
{
	struct backoff a = { 0 };
	unsigned nr = 0;

	backoff_peers_changed(&a);
	assert_int_equal(a.state, OFFER_ALL);
	until_nothing_is_offered(&a);
	backoff_reported(&a);
	until_nothing_is_offered(&a);
	backoff_peers_changed(&a);
	assert_int_equal(a.state, OFFER_SAMPLE);
	for (; a.state == OFFER_SAMPLE; nr++)
		commit_little(&a, 1024);
	assert_int_equal(nr, BACKOFF_AFTER);
	backoff_release(&a);
}

static void written_chunks_are_announced_once_and_are_bounded(void **state _unused_)
{
	struct backoff a = { 0 };
	struct fp *fps;

	assert_int_equal(backoff_take_unannounced(&a, &fps), 0);
	free(fps);
	for (uint64_t i = 0; i < BACKOFF_UNANNOUNCED_MAX + 5; i++)
		backoff_add_written(&a, (struct fp){ .lo = i });
	assert_int_equal(backoff_take_unannounced(&a, &fps), BACKOFF_UNANNOUNCED_MAX);
	for (uint64_t i = 0; i < BACKOFF_UNANNOUNCED_MAX; i++)
		assert_int_equal(fps[i].lo, i);
	free(fps);
	assert_int_equal(backoff_take_unannounced(&a, &fps), 0);
	backoff_add_written(&a, (struct fp){ .lo = 7 });
	backoff_release(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_state_follows_the_rounds),
		cmocka_unit_test(rounds_are_skipped_after_a_row_of_commits),
		cmocka_unit_test(a_report_doubles_the_row),
		cmocka_unit_test(new_peers_get_a_sample),
		cmocka_unit_test(written_chunks_are_announced_once_and_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
