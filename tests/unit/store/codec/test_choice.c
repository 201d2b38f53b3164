/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/codec/code_rig.h"

#include "store/codec/code_choice.h"
#include "store/codec/coding.h"

/* Candidates that are not there: what each makes of 100 bytes, and how long that takes. */
struct fake {
	uint64_t coded, ns;
};

static unsigned try_all(struct code_choice *c, const struct fake *fake, uint64_t plain)
{
	unsigned nr = 0;

	while (code_choice_trying(c)) {
		unsigned i = code_choice_next(c);

		assert_int_equal(i, nr++);
		code_choice_record(c, plain, fake[i].coded, fake[i].ns);
	}
	assert_int_equal(nr, c->nr);
	return code_choice_next(c);
}

static unsigned run_trial(struct code_choice *c, const struct fake *fake)
{
	return try_all(c, fake, 100);
}

static void the_smallest_within_the_budget_is_chosen(void **state)
{
	static const struct {
		double budget;
		struct fake fake[3];
		unsigned chosen;
	} cases[] = {
		{ 10, { { 1000, 10 }, { 500, 9000 }, { 300, 11000 } }, 1 },
		{ 0, { { 1000, 10 }, { 500, 9000 }, { 300, 11000 } }, 2 },
		{ 1, { { 1000, 2000 }, { 500, 3000 }, { 300, 1100 } }, 2 }, /* none is affordable: the fastest */
		{ 10, { { 1000, 10 }, { 500, 9000 }, { 500, 3000 } }, 2 },
		{ 10, { { 1000, 10 }, { 500, 9000 }, { 504, 3000 } }, 2 }, /* nearly as small, and faster */
		{ 10, { { 1000, 10 }, { 500, 9000 }, { 506, 3000 } }, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct code_choice c;

		code_choice_init(&c, 3, cases[i].budget);
		assert_int_equal(try_all(&c, cases[i].fake, 1000), cases[i].chosen);
	}
}

static const struct fake two[] = { { 50, 500 }, { 80, 100 } };

/* The rounds of a trial, of which each is on another block. */
static unsigned run_rounds(struct code_choice *c, const struct fake *fake)
{
	unsigned chosen = run_trial(c, fake);

	for (unsigned round = 1, blocks = 0; round < 4; blocks++) {
		if (code_choice_trying(c)) {
			chosen = run_trial(c, fake);
			round++;
		} else {
			code_choice_record(c, 100, fake[chosen].coded, fake[chosen].ns);
		}
		assert_in_range(blocks, 0, 10000);
	}
	return chosen;
}

static void what_pays_is_kept(void **state)
{
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 10);
	run_rounds(&c, two);
	for (unsigned i = 0; i < 4000; i++) {
		assert_false(code_choice_trying(&c));
		code_choice_record(&c, 100, 53, 500); /* not quite what was promised */
	}
	assert_int_equal(c.nr_trials, 4);
}

/* The first block was made for the second candidate, all others for the first. */
static void one_block_is_not_a_variable(void **state)
{
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 0);
	assert_int_equal(run_trial(&c, (const struct fake[]){ { 60, 500 }, { 40, 500 } }), 1);
	for (unsigned round = 1; round < 4; round++) {
		code_choice_record(&c, 100, 40, 500);
		run_trial(&c, two);
	}
	assert_int_equal(code_choice_next(&c), 0);
}

/* How many blocks it takes until all is tried again. */
static unsigned blocks_until_trial(struct code_choice *c, uint64_t coded, uint64_t ns)
{
	unsigned n = 0;

	while (!code_choice_trying(c)) {
		assert_in_range(++n, 1, 100000);
		code_choice_record(c, 100, coded, ns);
	}
	return n;
}

static void what_stops_paying_is_tried_again(void **state)
{
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 10);
	assert_int_equal(run_rounds(&c, two), 0);
	assert_in_range(blocks_until_trial(&c, 90, 500), 8, 20);
	assert_int_equal(run_rounds(&c, (const struct fake[]){ { 90, 500 }, { 70, 100 } }), 1);
	assert_in_range(blocks_until_trial(&c, 70, 3000), 8, 40); /* as small, but too dear */
	run_rounds(&c, two);
	assert_int_equal(blocks_until_trial(&c, 50, 500), 4096); /* others may have become better */
}

static const struct fake noise[] = { { 101, 1 }, { 101, 500 } };

/* Reports blocks, with trials where they are due. Returns the number of trials. */
static unsigned run_blocks(struct code_choice *c, const struct fake *fake, unsigned nr)
{
	unsigned trials = 0;

	for (unsigned i = 0; i < nr; i++) {
		if (code_choice_trying(c)) {
			run_trial(c, fake);
			trials++;
		}
		code_choice_record(c, 100, fake[code_choice_next(c)].coded, fake[code_choice_next(c)].ns);
	}
	return trials;
}

/* Noise in front of other data: storing it does not show where it ends. */
static void noise_does_not_decide_for_what_follows(void **state)
{
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 10);
	assert_in_range(run_blocks(&c, noise, 100), 5, 7);
	run_blocks(&c, two, 100);
	assert_int_equal(code_choice_next(&c), 0);
	assert_true(c.promised == 0.5); /* noise does not count */
}

static void noise_does_not_undo_a_choice(void **state)
{
	struct code_choice c;
	unsigned trials;

	(void)state;
	code_choice_init(&c, 2, 10);
	run_rounds(&c, two);
	for (unsigned i = 0; i < 30; i++) {
		run_blocks(&c, noise, 10);
		trials = run_blocks(&c, two, 100);
		assert_int_equal(code_choice_next(&c), 0);
		assert_in_range(trials, 0, 1);
	}
	assert_int_equal(c.nr_trials, 4);
	assert_true(c.promised == 0.5);
}

/* What looks like noise to the chosen candidate may not be for another. */
static void a_block_that_does_not_get_smaller_has_the_next_tried(void **state)
{
	static const struct fake other[] = { { 101, 500 }, { 40, 100 } };
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 0);
	run_rounds(&c, two);
	run_blocks(&c, other, 2);
	assert_int_equal(c.chosen, 1);
	assert_true(c.promised == 0.4);
}

/* However long they took: on a busy machine the same blocks are tried. */
static void trials_get_a_quarter_of_the_budget(void **state)
{
	(void)state;
	for (uint64_t ns = 1; ns <= 1000000; ns *= 10) {
		const struct fake fake[] = { { 50, 500 }, { 40, ns } };
		struct code_choice c;

		code_choice_init(&c, 2, 10);
		run_rounds(&c, fake);
		/* four rounds of two candidates, of which each counts 4 ns for each byte, and a quarter of 10 ns; three
		 * blocks were between them */
		assert_int_equal(blocks_until_trial(&c, 90, 500), 4 * 2 * 4 * 4 / 10 + 1 - 3);
	}
}

static void one_slow_block_changes_nothing(void **state)
{
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 10);
	run_rounds(&c, two);
	for (unsigned i = 0; i < 100; i++) {
		assert_false(code_choice_trying(&c));
		code_choice_record(&c, 100, i == 50 ? 85 : 50, i == 50 ? 5000 : 500);
	}
}

/* The machine was busy in the first round, and the best candidate seemed to exceed the budget. */
static void one_slow_round_changes_nothing(void **state)
{
	struct code_choice c;

	(void)state;
	code_choice_init(&c, 2, 10);
	assert_int_equal(run_trial(&c, (const struct fake[]){ { 50, 9000 }, { 80, 100 } }), 1);
	for (unsigned round = 1; round < 4; round++) {
		code_choice_record(&c, 100, 80, 100);
		while (!code_choice_trying(&c))
			code_choice_record(&c, 100, 80, 100);
		run_trial(&c, two);
	}
	assert_int_equal(code_choice_next(&c), 0);
}

static void candidates_are_valid_and_fit(void **state)
{
	struct coder_spec spec[CODE_CANDIDATES_MAX];

	(void)state;
	for (size_t t = 0; t < ARRAY_SIZE(all_types); t++)
		for (unsigned base = 0; base < 2; base++)
			for (unsigned rank = 0; rank < 4; rank++) {
				struct coding_shape shape = { .type = all_types[t],
							      .parts = rank % 2 + 1,
							      .row = rank > 0 ? 64 : 0,
							      .plane = rank > 1 ? 4096 : 0 };
				unsigned nr = coding_candidates(&shape, base, spec), nr_base = 0, is_wide, in_columns;

				assert_in_range(nr, 3, CODE_CANDIDATES_MAX);
				for (unsigned i = 0; i < nr; i++) {
					assert_true(code_steps_valid(&spec[i].steps));
					nr_base += spec[i].steps.base != CODE_BASE_NONE;
				}
				is_wide = all_types[t].class == CODE_FLOAT && all_types[t].width == 4;
				in_columns = all_types[t].width == 1 ? 2 : 0;
				assert_int_equal(nr_base, base ? 3 + is_wide + in_columns : 0);
			}
}

static uint64_t clock_ns;

static uint64_t fake_clock(void)
{
	return clock_ns += 1000;
}

/* The clock stands still but for what it is asked, so the smallest wins: the test knows which that is. */
static void a_variable_is_coded_in_the_way_it_is_made_for(void **state)
{
	struct coding_shape shape = { .type = { CODE_FLOAT, 8, false } };
	struct code_work *work = code_work_new();
	uint8_t *plain = malloc(CODE_PLAIN_MAX), *base = malloc(CODE_PLAIN_MAX), *got = malloc(CODE_PLAIN_MAX);
	uint8_t *block = malloc(CODE_BLOCK_MAX(CODE_PLAIN_MAX));
	struct coding c;
	int n;

	(void)state;
	fill_pattern(NOISE, shape.type, base, CODE_PLAIN_MAX);
	memcpy(plain, base, CODE_PLAIN_MAX);
	for (size_t i = 0; i < CODE_PLAIN_MAX; i += 8)
		plain[i] ^= (uint8_t)(i >> 3);
	assert_int_equal(coding_init(&c, work, &shape, true, 0, fake_clock), 0);
	n = coding_block(&c, plain, CODE_PLAIN_MAX, base, CODE_PLAIN_MAX, block);
	assert_in_range(n, 1, CODE_PLAIN_MAX / 7);
	assert_int_equal(coding_chosen(&c)->steps.base, CODE_BASE_XOR);
	assert_int_equal(code_decode(work, block, (size_t)n, base, CODE_PLAIN_MAX, got, CODE_PLAIN_MAX), CODE_PLAIN_MAX);
	assert_memory_equal(got, plain, CODE_PLAIN_MAX);
	coding_release(&c);

	fill_pattern(SMOOTH, shape.type, plain, CODE_PLAIN_MAX);
	assert_int_equal(coding_init(&c, work, &shape, false, 0, fake_clock), 0);
	n = coding_block(&c, plain, 100, NULL, 0, block); /* shorter than a sample */
	assert_int_equal(code_decode(work, block, (size_t)n, NULL, 0, got, 100), 100);
	n = coding_block(&c, plain, CODE_PLAIN_MAX, NULL, 0, block);
	assert_in_range(n, 1, CODE_PLAIN_MAX * 9 / 10);
	coding_release(&c);
	code_work_free(work);
	free(plain);
	free(base);
	free(got);
	free(block);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_smallest_within_the_budget_is_chosen),
		cmocka_unit_test(what_pays_is_kept),
		cmocka_unit_test(one_block_is_not_a_variable),
		cmocka_unit_test(what_stops_paying_is_tried_again),
		cmocka_unit_test(noise_does_not_decide_for_what_follows),
		cmocka_unit_test(noise_does_not_undo_a_choice),
		cmocka_unit_test(a_block_that_does_not_get_smaller_has_the_next_tried),
		cmocka_unit_test(trials_get_a_quarter_of_the_budget),
		cmocka_unit_test(one_slow_block_changes_nothing),
		cmocka_unit_test(one_slow_round_changes_nothing),
		cmocka_unit_test(candidates_are_valid_and_fit),
		cmocka_unit_test(a_variable_is_coded_in_the_way_it_is_made_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
