/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which checkpoint is shown at a path: the newest of its first owner, and none of other owners. */
#include "fs/tiermount/tier_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/tiermount/tier_view.h"

#define ROWS_MAX 12u

enum { ALICE = 1000, BOB = 2000 };

struct row {
	const char *path;
	uint32_t uid;
	int64_t sealed_ns;
	bool is_shown;
};

/* The result does not depend on the order in which the checkpoints are listed. */
static void expect(const struct row *rows, size_t nr)
{
	for (size_t first = 0; first < nr; first++) {
		struct tier_seal seals[ROWS_MAX] = { 0 };
		struct tier_shown shown[ROWS_MAX] = { 0 };
		unsigned nr_seen = 0;

		for (size_t i = 0; i < nr; i++) {
			const struct row *row = &rows[(first + i) % nr];

			seals[i] = (struct tier_seal){ .number = i, .sealed_ns = row->sealed_ns, .uid = row->uid };
			shown[i] = (struct tier_shown){ .path = strdup(row->path),
							.seal = &seals[i],
							.checkpoint = (first + i) % nr };
		}
		assert_int_equal(tier_paths_choose(shown, nr), 0);
		for (size_t i = 0; i < nr; i++) {
			if (shown[i].is_shown != rows[shown[i].checkpoint].is_shown)
				fail_msg("%s of %u, sealed at %lld: shown: %d", shown[i].path, shown[i].seal->uid,
					 (long long)shown[i].seal->sealed_ns, shown[i].is_shown);
			nr_seen++;
			free(shown[i].path);
		}
		assert_int_equal(nr_seen, nr);
	}
}

static void the_newest_seal_of_an_owner_is_shown(void **state _unused_)
{
	static const struct row rows[] = {
		{ "run/step.1", ALICE, 10, false }, { "run/step.1", ALICE, 30, true },
		{ "run/step.1", ALICE, 20, false }, { "run/step.2", ALICE, 15, true },
		{ "run/step", ALICE, 16, true },
	};

	expect(rows, ARRAY_SIZE(rows));
}

static void what_is_below_is_part_of_what_is_above(void **state _unused_)
{
	static const struct row rows[] = {
		{ "run", ALICE, 20, true },	     { "run/step.1", ALICE, 10, false },
		{ "run/step.2", ALICE, 30, false },  { "run/step.1/a", ALICE, 30, false },
		{ "run-2/step.1", ALICE, 30, true },
	};

	expect(rows, ARRAY_SIZE(rows));
}

static void a_later_owner_does_not_take_a_path(void **state _unused_)
{
	static const struct row rows[] = {
		{ "run/step.1", ALICE, 10, false }, { "run/step.1", BOB, 20, false },
		{ "run/step.1", ALICE, 30, true },  { "run/step.1", BOB, 40, false },
		{ "run/step.2", BOB, 15, true },    { "run/step.2", ALICE, 50, false },
	};

	expect(rows, ARRAY_SIZE(rows));
}

static void a_later_owner_hides_nothing_below(void **state _unused_)
{
	static const struct row rows[] = {
		{ "run/step.1", ALICE, 10, true },
		{ "run", BOB, 20, false },
		{ "run/step.2", ALICE, 30, true },
		{ "run/step.3", BOB, 30, true },
	};

	expect(rows, ARRAY_SIZE(rows));
}

static void a_later_owner_does_not_write_into_a_checkpoint(void **state _unused_)
{
	static const struct row rows[] = {
		{ "run", ALICE, 10, true },
		{ "run/step.1", BOB, 20, false },
		{ "run/step.1/deep", ALICE, 5, false },
	};

	expect(rows, ARRAY_SIZE(rows));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_newest_seal_of_an_owner_is_shown),
		cmocka_unit_test(what_is_below_is_part_of_what_is_above),
		cmocka_unit_test(a_later_owner_does_not_take_a_path),
		cmocka_unit_test(a_later_owner_hides_nothing_below),
		cmocka_unit_test(a_later_owner_does_not_write_into_a_checkpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
