/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Worlds of real agents with everything that can go wrong, by chance.
 *   SIM_RUNS=N    so many runs (./run-tests worlds-long has more)
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
#include "worlds.h"

#define RUNS 600u
#define FLAWED_RUNS 1000u /* within which a mistake must show */
#define NTH_MAX 2000u
#define FAULTLESS_RUNS 150u

static uint64_t from_environment(const char *name, uint64_t fallback)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 0) : fallback;
}

/* By number, so that it can be had again: from few faults to many. */
static struct worlds_conf by_chance(uint64_t number)
{
	return (struct worlds_conf){ .seed = number, .faults_percent = 1 + (unsigned)(number % 12) };
}

static void add(struct worlds_result *to, const struct worlds_result *r)
{
	to->nr_worlds += r->nr_worlds;
	to->nr_rounds += r->nr_rounds;
	to->nr_remote += r->nr_remote;
	to->nr_pinned += r->nr_pinned;
	to->nr_unpinned += r->nr_unpinned;
	to->nr_collected += r->nr_collected;
	to->nr_faults += r->nr_faults;
	to->nr_turns += r->nr_turns;
}

static void faults_by_chance_lose_nothing(void **state)
{
	uint64_t runs = from_environment("SIM_RUNS", RUNS);
	struct worlds_result all = { 0 };

	(void)state;
	for (uint64_t number = 0; number < runs; number++) {
		struct worlds_conf conf = by_chance(number);
		struct worlds_result result;

		worlds_run(&conf, &result);
		add(&all, &result);
		if (result.failed)
			fail_msg("SIM_SEED=%" PRIu64 ": %s", number, result.why);
	}
	print_message("%" PRIu64 " runs, %" PRIu64 " worlds, %" PRIu64 " turns of agents, %" PRIu64 " faults; %" PRIu64
		      " ends of rounds, %" PRIu64 " of collections were received; pages: %" PRIu64 " remote, %" PRIu64
		      " pinned, %" PRIu64 " dropped\n",
		      runs, all.nr_worlds, all.nr_turns, all.nr_faults, all.nr_rounds, all.nr_collected, all.nr_remote,
		      all.nr_pinned, all.nr_unpinned);
	assert_true(all.nr_faults > 0 && all.nr_rounds > 0 && all.nr_collected > 0);
	assert_true(all.nr_remote > 0 && all.nr_pinned > 0 && all.nr_unpinned > 0);
}

/* A fault of each kind at its first occasion, at its second, and so on with larger steps. */
static void each_fault_alone_loses_nothing(void **state)
{
	uint64_t nr_faults = 0;

	(void)state;
	for (enum worlds_fault fault = ANY_FAULT + 1; fault < NR_FAULTS; fault++)
		for (unsigned nth = 1; nth < NTH_MAX; nth += 1 + nth / 4) {
			struct worlds_conf conf = { .seed = nth, .faults_percent = 1, .fault = fault, .nth = nth };
			struct worlds_result result;

			worlds_run(&conf, &result);
			nr_faults += result.nr_faults;
			if (result.failed)
				fail_msg("fault %d, time %u: %s", (int)fault, nth, result.why);
		}
	print_message("%" PRIu64 " faults\n", nr_faults);
	assert_true(nr_faults > 0);
}

static void without_faults_all_is_well(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < FAULTLESS_RUNS; number++) {
		struct worlds_conf conf = { .seed = number, .identical = number % 2 == 0 };
		struct worlds_result result;

		worlds_run(&conf, &result);
		if (result.failed)
			fail_msg("seed %" PRIu64 ": %s", number, result.why);
		assert_true(result.nr_rounds > 0);
	}
}

/* Faults that show a mistake; it takes other faults thousands of runs. */
static const enum worlds_fault shows[WORLDS_FLAWS] = {
	[WORLDS_REFERS_LATE] = SLOW_STORE,
	[WORLDS_TAKES_STALE] = SLOW_WORD,
	[WORLDS_REMEMBERS_TOO_MUCH] = DISK_FULL,
};

/* A simulation that finds nothing must be one that could. */
static void mistakes_are_found(void **state)
{
	(void)state;
	for (enum worlds_flaw flaw = WORLDS_RIGHT + 1; flaw < WORLDS_FLAWS; flaw++) {
		struct worlds_result result = { 0 };
		uint64_t number = 0;

		for (; number < FLAWED_RUNS && !result.failed; number++) {
			struct worlds_conf conf = by_chance(number);

			conf.flaw = flaw;
			conf.fault = shows[flaw];
			if (conf.fault != ANY_FAULT)
				conf.faults_percent = 5 + (unsigned)(number % 25);
			worlds_run(&conf, &result);
		}
		if (!result.failed)
			fail_msg("mistake %d was not found in %u runs", (int)flaw, FLAWED_RUNS);
		print_message("mistake %d: found in run %" PRIu64 ": %s\n", (int)flaw, number - 1, result.why);
	}
}

/* The same twice is the same: else no seed would help. */
static void a_run_can_be_had_again(void **state)
{
	struct worlds_conf conf = by_chance(7);
	struct worlds_result a, b;

	(void)state;
	worlds_run(&conf, &a);
	worlds_run(&conf, &b);
	assert_memory_equal(&a, &b, sizeof(a));
}

static int release(void **state)
{
	(void)state;
	worlds_release();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_can_be_had_again),
		cmocka_unit_test(without_faults_all_is_well),
		cmocka_unit_test(each_fault_alone_loses_nothing),
		cmocka_unit_test(faults_by_chance_lose_nothing),
		cmocka_unit_test(mistakes_are_found),
	};

	if (getenv("SIM_SEED")) {
		struct worlds_conf conf = by_chance(from_environment("SIM_SEED", 0));
		struct worlds_result result;

		conf.trace = true;
		worlds_run(&conf, &result);
		return result.failed;
	}
	return cmocka_run_group_tests(tests, NULL, release);
}
