/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The number of a pack is found by its id. */
#include "store/tier/tier_ids.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

/* Many ids begin with the same bytes, and are in one chain of slots. */
static void set_id(uint8_t id[TIER_ID_LEN], uint32_t i)
{
	uint64_t start = i % 3 == 0 ? 7 : i * UINT64_C(0x9e3779b97f4a7c15);

	memset(id, 0, TIER_ID_LEN);
	memcpy(id, &start, sizeof(start));
	memcpy(id + 8, &i, sizeof(i));
}

static void each_id_has_its_last_number(void **state _unused_)
{
	struct tier_ids m = { 0 };
	uint8_t id[TIER_ID_LEN];
	uint32_t number;

	set_id(id, 0);
	assert_int_equal(tier_ids_find(&m, id, &number), 0);
	for (uint32_t i = 0; i < 2000; i++) {
		set_id(id, i);
		assert_int_equal(tier_ids_add(&m, id, i + 5000), 0);
		assert_int_equal(tier_ids_add(&m, id, i), 0);
	}
	assert_int_equal(m.nr, 2000);
	assert_true(m.size <= 4096);
	for (uint32_t i = 0; i < 4000; i++) {
		set_id(id, i);
		assert_int_equal(tier_ids_find(&m, id, &number), i < 2000);
		if (i < 2000)
			assert_int_equal(number, i);
	}
	tier_ids_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_id_has_its_last_number),
	};

	return cmocka_run_group_tests_name("tier_ids", tests, NULL, NULL);
}
