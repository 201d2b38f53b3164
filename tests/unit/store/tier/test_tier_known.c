/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What is known of a tier is bounded, and what is in use stays. */
#include "store/tier/tier_known.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"

#define LEN 4096u

static struct fp fp_number(unsigned i)
{
	return (struct fp){ .lo = i * UINT64_C(0x9e3779b97f4a7c15), .hi = i + 1 };
}

static void add(struct tier_known *k, unsigned i)
{
	assert_int_equal(tier_known_add(k, fp_number(i), LEN, (struct tier_place){ 7, i }), 0);
}

static bool has(const struct tier_known *k, unsigned i)
{
	const struct tier_place *p = tier_known_find(k, fp_number(i), LEN);

	assert_true(!p || (p->pack == 7 && p->chunk == i));
	return p;
}

static void the_last_ones_and_those_in_use_are_known(void **state _unused_)
{
	struct tier_known k = { .max = 2000 };

	for (unsigned i = 0; i < 100000; i++) {
		tier_known_trim(&k);
		add(&k, i);
		assert_int_equal(tier_known_use(&k, fp_number(i / 50000), LEN), 1); /* 0, then 1, which was not used before */
		assert_true(k.young.nr + k.old.nr <= 2000);
		if (i == 40000)
			add(&k, 1);
		if (i > 40000 && i < 50000)
			assert_int_equal(tier_known_use(&k, fp_number(1), LEN), 1);
	}
	for (unsigned i = 99001; i < 100000; i++)
		assert_true(has(&k, i));
	assert_true(has(&k, 1));
	assert_false(has(&k, 0)); /* not used for 50,000 */
	assert_false(has(&k, 50000));
	assert_true(k.young.size + k.old.size <= 4096);
	tier_known_release(&k);
}

static void older_ones_go_first(void **state _unused_)
{
	struct tier_known k = { .max = 100 };
	unsigned nr = 0;

	for (; !tier_known_is_full(&k); nr++) /* 0 is the newest */
		assert_int_equal(tier_known_add_older(&k, fp_number(nr), LEN, (struct tier_place){ 7, nr }), 0);
	assert_int_equal(nr, 100);
	for (unsigned i = 0; i < 100; i++)
		assert_true(has(&k, i));
	tier_known_trim(&k);
	add(&k, 200);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(has(&k, i), i < 50);
	tier_known_release(&k);
}

static void the_first_place_and_the_length_count(void **state _unused_)
{
	struct tier_known k = { .max = 100 };

	add(&k, 1);
	assert_int_equal(tier_known_add(&k, fp_number(1), LEN, (struct tier_place){ 9, 9 }), 0);
	assert_true(has(&k, 1));
	assert_null(tier_known_find(&k, fp_number(1), LEN / 2));
	assert_int_equal(tier_known_use(&k, fp_number(1), LEN / 2), 0);
	tier_known_release(&k);
	assert_null(tier_known_find(&k, fp_number(1), LEN));
}

/* Chains of slots stay connected, also around the end of the table: each chunk of the other packs is found. */
static void chunks_of_a_pack_are_forgotten(void **state _unused_)
{
	static const bool is_gone[] = { false, true, false, true, false };
	struct tier_known k = { .max = 4000 };
	unsigned nr = 0;

	for (uint32_t i = 0; i < 3000; i++) {
		struct fp fp = { .lo = i % 7 == 0 ? UINT64_MAX - i % 3 : i * UINT64_C(0x9e3779b97f4a7c15), .hi = i + 1 };

		assert_int_equal(tier_known_add(&k, fp, 4096, (struct tier_place){ i % 5, i }), 0);
		if (i == 1500)
			tier_known_trim(&k);
	}
	tier_known_forget(&k, is_gone);
	for (uint32_t i = 0; i < 3000; i++) {
		struct fp fp = { .lo = i % 7 == 0 ? UINT64_MAX - i % 3 : i * UINT64_C(0x9e3779b97f4a7c15), .hi = i + 1 };
		const struct tier_place *place = tier_known_find(&k, fp, 4096);

		assert_int_equal(!place, is_gone[i % 5]);
		assert_true(!place || place->chunk == i);
		nr += place != NULL;
	}
	assert_int_equal(k.young.nr + k.old.nr, nr);
	tier_known_release(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_ones_and_those_in_use_are_known),
		cmocka_unit_test(older_ones_go_first),
		cmocka_unit_test(the_first_place_and_the_length_count),
		cmocka_unit_test(chunks_of_a_pack_are_forgotten),
	};

	return cmocka_run_group_tests_name("tier_known", tests, NULL, NULL);
}
