/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "index/fingerprints.h"
#include "store/dedup/fptable.h"

/* Few distinct homes, so that probes are long and wrap around. */
static struct fp fp_nr(unsigned i)
{
	return (struct fp){ .lo = (uint64_t)(i % 7) * 61, .hi = i };
}

static struct addr addr_nr(unsigned i)
{
	return (struct addr){ .pack = i + 1, .off = i * 4096 };
}

static void what_was_inserted_is_found_and_nothing_else(void **state)
{
	struct fptable t = { 0 };
	static bool in[2000];

	(void)state;
	srandom(1);
	for (int round = 0; round < 40000; round++) {
		unsigned i = (unsigned)random() % ARRAY_SIZE(in);

		if (in[i]) {
			fptable_remove(&t, fp_nr(i));
			in[i] = false;
		} else {
			assert_int_equal(fptable_insert(&t, fp_nr(i), addr_nr(i), (uint8_t)i), 0);
			in[i] = true;
		}
		if (round % 2000)
			continue;
		for (unsigned k = 0; k < ARRAY_SIZE(in); k++) {
			struct fptable_slot *s = fptable_find(&t, fp_nr(k));

			assert_int_equal(s != NULL, in[k]);
			if (s) {
				assert_int_equal(s->pack, k + 1);
				assert_int_equal(s->number, k % 256);
				assert_true(fp_equal(fptable_slot_fp(s), fp_nr(k)));
			}
		}
	}
	fptable_release(&t);
}

static void removing_what_is_not_there_changes_nothing(void **state)
{
	struct fptable t = { 0 };

	(void)state;
	assert_int_equal(fptable_insert(&t, fp_nr(1), addr_nr(1), 255), 0);
	fptable_remove(&t, fp_nr(2));
	assert_int_equal(t.nr, 1);
	assert_non_null(fptable_find(&t, fp_nr(1)));
	fptable_release(&t);
	assert_null(fptable_find(&t, fp_nr(1))); /* an empty one is fine to ask */
}

static struct fp some_fp(void)
{
	return (struct fp){ .lo = (uint64_t)random() << 40 ^ (uint64_t)random() << 20 ^ (uint64_t)random(),
			    .hi = (uint64_t)random() };
}

static void parts_are_in_the_order_of_the_keys(void **state)
{
	struct fptable t = { 0 };
	uint64_t from = 0;
	size_t nr = 0;

	(void)state;
	srandom(2);
	for (unsigned i = 0; i < 10000; i++)
		assert_int_equal(fptable_insert(&t, some_fp(), addr_nr(i), 0), 0);
	for (const struct fptable_part *p = t.part; p < t.part + FPTABLE_PARTS; p++) {
		uint64_t to = from;

		assert_true(p->nr > 0);
		nr += p->nr;
		for (const struct fptable_slot *s = p->slots; s < p->slots + p->size; s++)
			if (s->pack) {
				uint64_t key = fingerprint_key(fptable_slot_fp(s));

				assert_true(key >= from);
				to = MAX(to, key);
			}
		from = to;
	}
	assert_int_equal(nr, t.nr);
	fptable_release(&t);
}

static void reserved_room_is_enough(void **state)
{
	struct fptable from = { 0 }, to = { 0 };
	size_t memory;

	(void)state;
	srandom(3);
	for (unsigned i = 0; i < 5000; i++) {
		assert_int_equal(fptable_insert(&from, some_fp(), addr_nr(i), 0), 0);
		assert_int_equal(fptable_insert(&to, some_fp(), addr_nr(i), 0), 0);
	}
	assert_int_equal(fptable_reserve(&to, &from), 0);
	memory = fptable_memory(&to);
	for (const struct fptable_part *p = from.part; p < from.part + FPTABLE_PARTS; p++)
		for (const struct fptable_slot *s = p->slots; s < p->slots + p->size; s++)
			if (s->pack)
				assert_int_equal(fptable_insert(&to, fptable_slot_fp(s), addr_nr(1), 0), 0);
	assert_int_equal(fptable_memory(&to), memory);
	assert_int_equal(to.nr, 10000);
	fptable_release(&from);
	fptable_release(&to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_inserted_is_found_and_nothing_else),
		cmocka_unit_test(removing_what_is_not_there_changes_nothing),
		cmocka_unit_test(parts_are_in_the_order_of_the_keys),
		cmocka_unit_test(reserved_room_is_enough),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
