#include "store/engine/pace.h"

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
		bool c = pace_step(p, true, *ns, FRAME);

		nr_compressed += c;
		*ns += c ? compressed_ns : plain_ns;
	}
	return nr_compressed;
}

static void without_waiting_all_is_compressed(void **state)
{
	struct pace p = { 0 };

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		assert_true(pace_step(&p, false, i * 1000, FRAME));
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
	assert_in_range(run(&p, 1024, 7000000, 4000000, &ns), 1024 - 64 - 4 * 12, 1024);
	assert_in_range(run(&p, 16 * 1024, 7000000, 4000000, &ns), 16 * 1024 - 18 * 12, 16 * 1024);
}

static void a_little_slower_is_fast_enough(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	assert_in_range(run(&p, 4096, 1000000, 1020000, &ns), 4096 - 64 - 8 * 12, 4096);
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

/* Somebody waits at every third frame only: that is not calm. */
static void a_moment_without_waiting_is_no_time(void **state)
{
	struct pace p = { 0 };
	unsigned nr_compressed = 0;
	uint64_t ns = 0;

	(void)state;
	for (unsigned i = 0; i < 1024; i++) {
		bool c = pace_step(&p, i % 3 == 0, ns, FRAME);

		nr_compressed += c;
		ns += c ? 3000000 : 1000000;
	}
	assert_int_equal(nr_compressed, 12);
}

static void a_break_does_not_count_as_time(void **state)
{
	struct pace p = { 0 };
	uint64_t ns = 0;

	(void)state;
	run(&p, 70, 1000000, 3000000, &ns);
	for (unsigned i = 0; i < 500; i++) { /* as if each stretch were ended by a pause of a second */
		ns += 1000000000; /* calm */
		assert_true(pace_step(&p, false, ns, FRAME));
		run(&p, 10, 1000000, 3000000, &ns);
	}
	assert_in_range(p.rate[0], 900000000, 1100000000);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_waiting_all_is_compressed),
		cmocka_unit_test(where_it_is_slower_it_is_hardly_done),
		cmocka_unit_test(where_it_is_faster_it_is_done),     cmocka_unit_test(a_little_slower_is_fast_enough),
		cmocka_unit_test(it_changes_its_mind),		     cmocka_unit_test(a_break_does_not_count_as_time),
		cmocka_unit_test(a_moment_without_waiting_is_no_time),
	};

	return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
