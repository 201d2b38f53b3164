/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Many rounds with everything that can go wrong. Of each single fault (what, at which step, in which round, to which
 * node) there is a run, and then there are thousands in which several happen by chance.
 *   SIM_RUNS=N    as many of these (./run-tests sim-long has millions)
 *   SIM_SEED=N    only the one with this number, step by step
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/mpi-agent/agent/sim.h"

#define RUNS 10000u
#define FLAWED_RUNS 20000u /* within which a mistake must show */

static uint64_t from_environment(const char *name, uint64_t fallback)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 0) : fallback;
}

/* By number, so that it can be had again: from few faults to many. */
static struct sim_conf by_chance(uint64_t number)
{
	return (struct sim_conf){ .seed = number, .faults_percent = 1 + (unsigned)(number % 12) };
}

static void each_fault_alone_loses_nothing(void **state)
{
	uint64_t nr_remote = 0;

	(void)state;
	for (unsigned nr_nodes = 1; nr_nodes <= SIM_NODES; nr_nodes++)
		for (unsigned round = 0; round < 3; round++)
			for (unsigned node = 0; node < nr_nodes; node++)
				for (enum sim_step step = 0; step < SIM_STEPS; step++)
					for (enum sim_fault fault = SIM_FINE; fault < SIM_FAULTS; fault++) {
						struct sim_conf conf = {
							.seed = nr_nodes,
							.nr_nodes = nr_nodes,
							.fault = fault,
							.step = step,
							.round = round,
							.node = node,
						};
						struct sim_result result;

						sim_run(&conf, &result);
						nr_remote += result.nr_remote;
						if (result.failed)
							fail_msg("fault %d at step %d of round %u, node %u of %u: %s",
								 (int)fault, (int)step, round, node, nr_nodes,
								 result.why);
					}
	assert_true(nr_remote > 0);
}

static void faults_by_chance_lose_nothing(void **state)
{
	uint64_t runs = from_environment("SIM_RUNS", RUNS), nr_faults = 0, nr_remote = 0, nr_unpinned = 0;

	(void)state;
	for (uint64_t number = 0; number < runs; number++) {
		struct sim_conf conf = by_chance(number);
		struct sim_result result;

		sim_run(&conf, &result);
		nr_faults += result.nr_faults;
		nr_remote += result.nr_remote;
		nr_unpinned += result.nr_unpinned;
		if (result.failed)
			fail_msg("SIM_SEED=%" PRIu64 ": %s", number, result.why);
	}
	print_message("%" PRIu64 " runs with %" PRIu64 " faults; %" PRIu64 " pages were elsewhere, %" PRIu64
		      " unpinned\n",
		      runs, nr_faults, nr_remote, nr_unpinned);
	assert_true(nr_faults > 0 && nr_remote > 0 && nr_unpinned > 0);
}

static void without_faults_loads_are_even(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 500; number++) {
		struct sim_conf conf = { .seed = number, .identical = true };
		struct sim_result result;

		sim_run(&conf, &result);
		if (result.failed)
			fail_msg("seed %" PRIu64 ": %s", number, result.why);
	}
}

/* A simulation that finds nothing must be one that could. */
static void mistakes_are_found(void **state)
{
	(void)state;
	for (enum sim_flaw flaw = SIM_RIGHT + 1; flaw < SIM_FLAWS; flaw++) {
		struct sim_result result = { 0 };
		uint64_t number = 0;

		for (; number < FLAWED_RUNS && !result.failed; number++) {
			struct sim_conf conf = by_chance(number);

			conf.flaw = flaw;
			sim_run(&conf, &result);
		}
		if (!result.failed)
			fail_msg("mistake %d was not found in %u runs", (int)flaw, FLAWED_RUNS);
		print_message("mistake %d: found in run %" PRIu64 ": %s\n", (int)flaw, number - 1, result.why);
	}
}

/* The same twice is the same: else no seed would help. */
static void a_run_can_be_had_again(void **state)
{
	struct sim_conf conf = by_chance(7);
	struct sim_result a, b;

	(void)state;
	sim_run(&conf, &a);
	sim_run(&conf, &b);
	assert_int_equal(a.nr_faults, b.nr_faults);
	assert_int_equal(a.nr_remote, b.nr_remote);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_fault_alone_loses_nothing), cmocka_unit_test(faults_by_chance_lose_nothing),
		cmocka_unit_test(without_faults_loads_are_even),  cmocka_unit_test(mistakes_are_found),
		cmocka_unit_test(a_run_can_be_had_again),
	};

	if (getenv("SIM_SEED")) {
		struct sim_conf conf = by_chance(from_environment("SIM_SEED", 0));
		struct sim_result result;

		conf.trace = true;
		sim_run(&conf, &result);
		return result.failed;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
