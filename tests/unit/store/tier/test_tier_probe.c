/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A back end that lacks a property is refused, with the reason; one that has all is used. */
#include "store/tier/tier_probe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_dir.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/memory.h"

static char logged[1000];

static void note(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(logged, sizeof(logged), "%s", line);
}

/* Probes a tier in memory; all that it wrote is removed, if that can be. */
static int probe(const struct memory_faults *faults, char reason[TIER_PROBE_REASON_MAX], uint64_t *ret_nr)
{
	struct memory *m = memory_new();
	int r = tier_probe(memory_open(m, faults), reason);

	*ret_nr = memory_nr_requests(m);
	if (!faults->deletes_are_ignored)
		assert_int_equal(memory_nr(m), 0);
	memory_free(m);
	return r;
}

static void a_sound_back_end_is_accepted(void **state _unused_)
{
	char reason[TIER_PROBE_REASON_MAX];
	uint64_t nr;

	for (unsigned seed = 0; seed < 20; seed++) {
		assert_int_equal(probe(&(struct memory_faults){ .seed = seed }, reason, &nr), 0);
		assert_string_equal(reason, "");
	}
	assert_int_equal(nr, 20 * 8 + 9 + 20); /* per round 6 puts, a get, a put; then ranges; then deletes */
	/* a list may lag */
	assert_int_equal(probe(&(struct memory_faults){ .lists_are_late = true }, reason, &nr), 0);
}

static void a_directory_is_accepted(void **state _unused_)
{
	char dir[64], command[200], reason[TIER_PROBE_REASON_MAX];
	struct tier *t;

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-tier-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	assert_int_equal(tier_dir_open(dir, &(struct tier_dir_conf){ 0 }, &t), 0);
	assert_int_equal(tier_probe(t, reason), 0);
	tier_close(t);
	snprintf(command, sizeof(command), "test -z \"$(find '%s' -type f)\" && rm -r '%s'", dir, dir);
	assert_int_equal(system(command), 0);
}

static void what_is_missing_is_named(void **state _unused_)
{
	static const struct {
		struct memory_faults faults;
		const char *reason;
	} cases[] = {
		{ { .puts_are_not_conditional = true },
		  "6 of 6 racing requests to create one object succeeded: its conditional puts are not atomic" },
		{ { .races_have_two_winners = true },
		  "6 of 6 racing requests to create one object succeeded: its conditional puts are not atomic" },
		{ { .new_objects_are_late = true }, "a new object was not found after its put had succeeded" },
		{ { .ranges_are_ignored = true }, "a request for 4095 bytes at 1 of an object returned others" },
		{ { .ranges_are_cut = true }, "an object has other bytes than the request that created it" },
		{ { .deletes_are_ignored = true }, "an object is still found after it was deleted" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char reason[TIER_PROBE_REASON_MAX];
		uint64_t nr;

		assert_int_equal(probe(&cases[i].faults, reason, &nr), -EOPNOTSUPP);
		assert_string_equal(reason, cases[i].reason);
		assert_non_null(strstr(logged, "tier memory: cannot be used: "));
		assert_non_null(strstr(logged, cases[i].reason));
	}
}

static void each_promise_has_a_result(void **state _unused_)
{
	static const struct {
		struct memory_faults faults;
		struct tier_promise_result results[TIER_NR_PROMISES];
	} cases[] = {
		{ { 0 }, { { 20, false }, { 20, false }, { 20, false }, { 6, false }, { 1, false } } },
		{ { .puts_are_not_conditional = true }, { { 0, true } } },
		{ { .new_objects_are_late = true }, { { 1, false }, { 0, true } } },
		{ { .ranges_are_ignored = true }, { { 20, false }, { 20, false }, { 20, false }, { 1, true } } },
		{ { .deletes_are_ignored = true },
		  { { 20, false }, { 20, false }, { 20, false }, { 6, false }, { 0, true } } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct memory *m = memory_new();
		struct tier *t = memory_open(m, &cases[i].faults);
		struct tier_promise_result results[TIER_NR_PROMISES];
		char reason[TIER_PROBE_REASON_MAX];

		assert_int_equal(tier_probe_each(t, reason, results), i == 0 ? 0 : -EOPNOTSUPP);
		for (enum tier_promise p = 0; p < TIER_NR_PROMISES; p++) {
			assert_int_equal(results[p].nr_held, cases[i].results[p].nr_held);
			assert_int_equal(results[p].is_broken, cases[i].results[p].is_broken);
		}
		memory_free(m);
	}
}

static void a_failure_is_no_refusal(void **state _unused_)
{
	char reason[TIER_PROBE_REASON_MAX];
	uint64_t all, nr;

	assert_int_equal(probe(&(struct memory_faults){ 0 }, reason, &all), 0);
	for (uint64_t n = 1; n <= all - 20; n++) { /* a failed delete at the end is of no consequence */
		struct memory_faults f = { .seed = n, .fail_at = n, .fail_with = -EAGAIN };

		assert_int_equal(probe(&f, reason, &nr), -EAGAIN);
		assert_string_equal(reason, "");
		assert_non_null(strstr(logged, "tier memory: cannot find out whether it can be used"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sound_back_end_is_accepted),
		cmocka_unit_test(a_directory_is_accepted),
		cmocka_unit_test(what_is_missing_is_named),
		cmocka_unit_test(each_promise_has_a_result),
		cmocka_unit_test(a_failure_is_no_refusal),
	};

	log_to_function(note, NULL);
	return cmocka_run_group_tests_name("tier_probe", tests, NULL, NULL);
}
