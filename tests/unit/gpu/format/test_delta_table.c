/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <string.h>

#include "base/util.h"
#include "gpu/format/delta_table.h"
#include "tests/unit/gpu/format/rig.h"

#define NR 3000u

static struct digest digest_of(uint32_t i)
{
	uint64_t seed = i;

	return (struct digest){ rig_random(&seed), i };
}

/* Crowded around the end of the slots, so that probes wrap around. */
static struct digest crowded(uint32_t i)
{
	return (struct digest){ i % 3 ? UINT64_MAX - i : i, i };
}

static bool keep_some(void *userdata, struct delta_entry *e)
{
	const uint32_t *every = userdata;

	return e->chunk % *every != 0;
}

static void check_has(const struct delta_table *t, struct digest (*digest)(uint32_t i), uint32_t i, bool there)
{
	const struct delta_entry *e = delta_table_find(t, digest(i));

	assert_int_equal(e != NULL, there);
	if (e) {
		assert_int_equal(e->chunk, i);
		assert_int_equal(e->version, 1 + i % 7);
	}
}

static void check_table(struct digest (*digest)(uint32_t i))
{
	struct delta_table t;
	uint32_t every = 3, other = 2;

	delta_table_init(&t, UINT64_MAX);
	for (uint32_t i = 0; i < NR; i++) {
		check_has(&t, digest, i, false);
		assert_int_equal(delta_table_enter(&t, digest(i), 1 + i % 7, i), 0);
	}
	for (uint32_t i = 0; i < NR; i++)
		check_has(&t, digest, i, true);
	delta_table_sweep(&t, keep_some, &every);
	assert_int_equal(t.nr_used, NR - NR / 3);
	for (uint32_t i = 0; i < NR; i++)
		check_has(&t, digest, i, i % 3 != 0);
	delta_table_sweep(&t, keep_some, &other);
	for (uint32_t i = 0; i < NR; i++)
		check_has(&t, digest, i, i % 3 != 0 && i % 2 != 0);
	for (uint32_t i = 0; i < NR; i++)
		if (i % 3 == 0)
			assert_int_equal(delta_table_enter(&t, digest(i), 1 + i % 7, i), 0);
	for (uint32_t i = 0; i < NR; i++)
		check_has(&t, digest, i, i % 3 == 0 || i % 2 != 0);
	delta_table_release(&t);
}

static void what_is_entered_is_found_until_it_is_dropped(void **state _unused_)
{
	check_table(digest_of);
	check_table(crowded);
}

static void a_table_stays_within_its_limit(void **state _unused_)
{
	static const uint64_t limits[] = { 0, 1, 35, 36, 71, 100, 1000, 4095, 4096, 10000, 65536, 100003 };

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		uint64_t nr_before = 0, most = 0;
		struct delta_table t;
		uint32_t n = 0;

		delta_table_init(&t, limits[i]);
		for (; delta_table_room(&t) > 0; n++) {
			assert_int_equal(delta_table_enter(&t, digest_of(n), 1, n), 0);
			if (t.nr_slots != nr_before)
				most = MAX(most, (nr_before + t.nr_slots) * sizeof(struct delta_entry));
			nr_before = t.nr_slots;
		}
		assert_true(most <= limits[i]);
		assert_true(n <= limits[i] / 41);
		assert_true(n + 3 >= limits[i] / 42); /* and makes use of it */
		assert_null(delta_table_find(&t, digest_of(n)));
		for (uint32_t k = 0; k < n; k++)
			assert_int_equal(delta_table_find(&t, digest_of(k))->chunk, k);
		delta_table_release(&t);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_entered_is_found_until_it_is_dropped),
		cmocka_unit_test(a_table_stays_within_its_limit),
	};

	return cmocka_run_group_tests_name("delta_table", tests, NULL, NULL);
}
