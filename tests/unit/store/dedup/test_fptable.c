/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
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
	struct fptable t;
	static bool in[2000];

	(void)state;
	assert_int_equal(fptable_init(&t, 10), 0);
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
	struct fptable t;

	(void)state;
	assert_int_equal(fptable_init(&t, 10), 0);
	assert_int_equal(fptable_insert(&t, fp_nr(1), addr_nr(1), 255), 0);
	fptable_remove(&t, fp_nr(2));
	assert_int_equal(t.nr, 1);
	assert_non_null(fptable_find(&t, fp_nr(1)));
	fptable_release(&t);
	assert_null(fptable_find(&t, fp_nr(1))); /* an empty one is fine to ask */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_inserted_is_found_and_nothing_else),
		cmocka_unit_test(removing_what_is_not_there_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
