/* round_backoff.h: are chunks held back for a round? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/remote/round_backoff.h"

/* One step of what is decided and committed, and the state behind it. */
struct step {
	enum { DECIDED, COMMITTED, FOUND_OUT } what;
	size_t nr_frames, nr_offered, nr_found;
	enum alone_state then;
};

static void it_goes_by_what_was_found(void **state _unused_)
{
	static const struct step steps[] = {
		{ DECIDED, 4, 1023, 0, ALONE_SHARING },
		{ COMMITTED, .then = ALONE_SHARING }, /* too little to tell by, ... */
		{ DECIDED, 1, 1, 0, ALONE_SHARING },
		{ COMMITTED, .then = ALONE_PROBING }, /* but all commits count */
		{ DECIDED, 1, 256, 0, ALONE_PROBING },
		{ DECIDED, 2, 512, 1, ALONE_LETTING_GO },
		{ COMMITTED, .then = ALONE_PROBING },
		{ DECIDED, 4, 1024, 4, ALONE_SHARING },
		{ COMMITTED, .then = ALONE_PROBING }, /* of 1792 pages */
		{ DECIDED, 4, 1024, 1024, ALONE_SHARING },
		{ DECIDED, 40, 10240, 0, ALONE_SHARING }, /* not before the commit */
		{ COMMITTED, .then = ALONE_SHARING },
		{ DECIDED, 4, 1024, 0, ALONE_SHARING },
		{ COMMITTED, .then = ALONE_PROBING },
		{ DECIDED, 4, 1024, 0, ALONE_LETTING_GO },
		{ FOUND_OUT, .then = ALONE_SHARING },
		{ COMMITTED, .then = ALONE_SHARING }, /* what was asked before does not count */
		{ DECIDED, 0, 0, 0, ALONE_SHARING },
	};
	struct alone a = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		const struct step *s = &steps[i];

		if (s->what == DECIDED)
			assert_int_equal(alone_decided(&a, s->nr_frames, s->nr_offered, s->nr_found),
					 s->then == ALONE_LETTING_GO);
		else if (s->what == COMMITTED)
			alone_committed(&a);
		else
			alone_found_out(&a);
		if (a.state != s->then)
			fail_msg("step %zu: state %d", i, (int)a.state);
	}
}

/* A commit of so many pages that was a probe, or of which nobody was asked. */
static void let_go(struct alone *a, unsigned nr_pages)
{
	if (a->state == ALONE_PROBING)
		assert_true(alone_decided(a, ALONE_PROBE_FRAMES, ALONE_PROBE_FRAMES * 256, 0));
	for (unsigned i = 0; i < nr_pages; i++)
		alone_wrote(a, (struct fp){ .lo = i });
	alone_committed(a);
}

/* As many commits of which little was found as it takes until nobody is asked; how many these were. */
static unsigned until_nobody_is_asked(struct alone *a)
{
	unsigned nr = 1;

	assert_int_equal(a->state, ALONE_SHARING);
	assert_false(alone_decided(a, 40, 10240, 0));
	alone_committed(a);
	for (; a->state != ALONE_LETTING_GO; nr++) {
		assert_int_equal(a->state, ALONE_PROBING);
		assert_false(alone_is_believed(a));
		assert_int_equal(alone_is_confirming(a), nr + 1 == ALONE_RECORD << a->nr_found_out);
		let_go(a, 1024);
	}
	assert_true(alone_is_believed(a));
	return nr;
}

/* Commits of which nobody is asked, until one is. */
static unsigned until_somebody_is_asked(struct alone *a)
{
	unsigned nr = 0;

	for (; a->state == ALONE_LETTING_GO; nr++)
		let_go(a, ALONE_PAGES);
	assert_int_equal(a->state, ALONE_PROBING);
	return nr;
}

static void who_was_alone_often_does_not_ask_for_a_while(void **state _unused_)
{
	struct alone a = { 0 };

	assert_int_equal(until_nobody_is_asked(&a), ALONE_RECORD);
	for (unsigned i = 0; i < 100; i++) /* small ones count together */
		let_go(&a, 1);
	assert_int_equal(until_somebody_is_asked(&a), ALONE_UNASKED);
	let_go(&a, 0);
	assert_int_equal(a.state, ALONE_LETTING_GO);
	assert_int_equal(until_somebody_is_asked(&a), ALONE_UNASKED);
	assert_false(alone_decided(&a, 4, 1024, 4));
	assert_int_equal(a.state, ALONE_SHARING);
	alone_committed(&a);
	assert_int_equal(until_nobody_is_asked(&a), ALONE_RECORD); /* it begins anew */
	alone_release(&a);
}

static void who_is_found_out_is_believed_later_each_time(void **state _unused_)
{
	struct alone a = { 0 };

	for (unsigned i = 0; i < ALONE_FOUND_OUT_MAX + 2; i++) {
		assert_int_equal(until_nobody_is_asked(&a), ALONE_RECORD << MIN(i, ALONE_FOUND_OUT_MAX));
		alone_found_out(&a);
		alone_found_out(&a); /* by another home: once */
	}
	until_nobody_is_asked(&a);
	until_somebody_is_asked(&a); /* nobody has found out */
	alone_found_out(&a);
	assert_int_equal(until_nobody_is_asked(&a), ALONE_RECORD << (ALONE_FOUND_OUT_MAX - 1));
	alone_release(&a);
}

static void other_nodes_are_asked_first(void **state _unused_)
{
	struct alone a = { 0 };
	unsigned nr = 0;

	alone_met(&a);
	assert_int_equal(a.state, ALONE_SHARING);
	until_nobody_is_asked(&a);
	alone_found_out(&a);
	until_nobody_is_asked(&a);
	alone_met(&a);
	assert_int_equal(a.state, ALONE_PROBING);
	for (; a.state == ALONE_PROBING; nr++)
		let_go(&a, 1024);
	assert_int_equal(nr, ALONE_RECORD);
	alone_release(&a);
}

static void what_was_let_go_is_told_once_and_not_without_end(void **state _unused_)
{
	struct alone a = { 0 };
	struct fp *fps;

	assert_int_equal(alone_take_untold(&a, &fps), 0);
	free(fps);
	for (uint64_t i = 0; i < ALONE_UNTOLD_MAX + 5; i++)
		alone_wrote(&a, (struct fp){ .lo = i });
	assert_int_equal(alone_take_untold(&a, &fps), ALONE_UNTOLD_MAX);
	for (uint64_t i = 0; i < ALONE_UNTOLD_MAX; i++)
		assert_int_equal(fps[i].lo, i);
	free(fps);
	assert_int_equal(alone_take_untold(&a, &fps), 0);
	alone_wrote(&a, (struct fp){ .lo = 7 });
	alone_release(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_goes_by_what_was_found),
		cmocka_unit_test(who_was_alone_often_does_not_ask_for_a_while),
		cmocka_unit_test(who_is_found_out_is_believed_later_each_time),
		cmocka_unit_test(other_nodes_are_asked_first),
		cmocka_unit_test(what_was_let_go_is_told_once_and_not_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
