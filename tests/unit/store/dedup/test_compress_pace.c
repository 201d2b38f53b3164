/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/compress_pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"

#define FRAME ((uint32_t)MiB(1))

/* Write so many frames with others waiting, that take so long. How many were compressed; *ns: all of it. */
static unsigned run(struct pace *p, unsigned nr, uint64_t plain_ns, uint64_t compressed_ns, uint64_t *ns)
{
	unsigned nr_compressed = 0;

	for (unsigned i = 0; i < nr; i++) {
		bool c = pace_step(p, true, *ns, *ns, FRAME) == PACK_TIME_ENOUGH;

		nr_compressed += c;
		*ns += c ? compressed_ns : plain_ns;
	}
	return nr_compressed;
}

/* The same as checkpoints of so many frames each, with a second between them in which there is nothing to do. */
static unsigned run_in_parts(struct pace *p, unsigned nr, unsigned frames, uint64_t plain_ns, uint64_t compressed_ns,
			     uint64_t *busy_ns)
{
	uint64_t pauses_ns = 0;
	unsigned nr_compressed = 0;

	for (unsigned i = 0; i < nr * frames; i++) {
		bool c;

		if (i % frames == 0)
			pauses_ns += 1000000000;
		c = pace_step(p, i % frames > 0, *busy_ns + pauses_ns, *busy_ns, FRAME) == PACK_TIME_ENOUGH;
		nr_compressed += c;
		*busy_ns += c ? compressed_ns : plain_ns;
	}
	return nr_compressed;
}

static void without_waiting_there_is_time_to_spare(void **state)
{
	struct pace p = { 0 };

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(pace_step(&p, false, i * 1000, i * 1000, FRAME), PACK_TIME_SPARE);
}

/* Three times as slow: less than a tenth is lost, and less with time. */
static void where_it_is_slower_it_is_hardly_done(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0, before;
	unsigned nr;

	(void)state;
	nr = run(&p, 1024, 1000000, 3000000, &ns);
	assert_int_equal(nr, 12);
	assert_in_range(ns, 1024 * 1000000ull, 1024 * 1100000ull);
	before = ns;
	nr = run(&p, 16 * 1024, 1000000, 3000000, &ns);
	assert_in_range(nr, 1, 4 * 12);
	assert_in_range(ns - before, 16 * 1024 * 1000000ull, 16 * 1024 * 1020000ull);
}

static void where_it_is_faster_it_is_done(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	assert_in_range(run(&p, 1024, 7000000, 4000000, &ns), 1024 - 256 - 6 * 12, 1024);
	assert_in_range(run(&p, 16 * 1024, 7000000, 4000000, &ns), 16 * 1024 - 62 * 12, 16 * 1024);
}

static void a_little_slower_is_fast_enough(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	assert_in_range(run(&p, 4096, 1000000, 1020000, &ns), 4096 - 256 - 20 * 12, 4096);
}

static void it_changes_its_mind(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	run(&p, 4096, 1000000, 3000000, &ns); /* fast disk */
	assert_in_range(run(&p, 32 * 1024, 5000000, 3000000, &ns), 16 * 1024, 32 * 1024); /* others use it too */
	run(&p, 32 * 1024, 1000000, 3000000, &ns);
	assert_in_range(run(&p, 4096, 1000000, 3000000, &ns), 0, 2 * 12);
}

/* A request waits at every third frame only: the disk is not idle. */
static void a_moment_without_waiting_is_no_time(void **state)
{
	struct pace p = { 0 };
	unsigned nr_compressed = 0;
	uint64_t ns = 0;

	(void)state;
	for (unsigned i = 0; i < 1024; i++) {
		bool c = pace_step(&p, i % 3 == 0, ns, ns, FRAME) == PACK_TIME_ENOUGH;

		nr_compressed += c;
		ns += c ? 3000000 : 1000000;
	}
	assert_int_equal(nr_compressed, 12);
}

/* As where there are no pauses, however small they are. */
static void checkpoints_with_pauses_are_taken_together(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	assert_int_equal(run_in_parts(&p, 128, 10, 1000000, 3000000, &ns), 12);
	assert_in_range(p.rate[0], 900 * MiB(1), 1200 * MiB(1));
	assert_in_range(p.rate[1], 300 * MiB(1), 400 * MiB(1));
}

/* Another process has used the disk during writes without compression, and stops when a trial starts. */
static void an_error_costs_two_trials(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	assert_int_equal(run(&p, 256, 10000000, 3000000, &ns), 0);
	assert_int_equal(run(&p, 1024, 1000000, 3000000, &ns), 2 * 12);
}

static void an_error_is_found_in_small_checkpoints_too(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	assert_int_equal(run(&p, 256, 10000000, 3000000, &ns), 0);
	assert_int_equal(run_in_parts(&p, 200, 5, 1000000, 3000000, &ns), 2 * 12);
}

static void disturbed_it_is_not_calm(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 1000;

	(void)state;
	assert_int_equal(pace_step(&p, false, ns, ns, FRAME), PACK_TIME_SPARE);
	pace_disturbed(&p, ns, ns);
	assert_int_equal(pace_step(&p, false, ns + PACE_CALM_NS, ns, FRAME), PACK_TIME_NONE);
	assert_int_equal(pace_step(&p, false, ns + PACE_CALM_NS + 1, ns, FRAME), PACK_TIME_SPARE);
}

/* Else a slow trickle, compressed in spare time, would make the stretch that it comes in look slow. */
static void spare_time_is_not_timed(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0, pauses_ns = 0;

	(void)state;
	assert_int_equal(run(&p, 200, 1000000, 3000000, &ns), 0);
	for (unsigned i = 0; i < 100; i++) {
		pauses_ns += PACE_CALM_NS;
		assert_int_equal(pace_step(&p, false, ns + pauses_ns, ns, FRAME), PACK_TIME_SPARE);
		ns += 3000000;
	}
	assert_int_equal(run(&p, 1024, 1000000, 3000000, &ns), 12);
	assert_in_range(p.rate[0], 900 * MiB(1), 1000 * MiB(1));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_waiting_there_is_time_to_spare),
		cmocka_unit_test(where_it_is_slower_it_is_hardly_done),
		cmocka_unit_test(where_it_is_faster_it_is_done),     cmocka_unit_test(a_little_slower_is_fast_enough),
		cmocka_unit_test(it_changes_its_mind),
		cmocka_unit_test(a_moment_without_waiting_is_no_time),
		cmocka_unit_test(checkpoints_with_pauses_are_taken_together),
		cmocka_unit_test(an_error_costs_two_trials),
		cmocka_unit_test(an_error_is_found_in_small_checkpoints_too),
		cmocka_unit_test(disturbed_it_is_not_calm),
		cmocka_unit_test(spare_time_is_not_timed),
	};

	return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
