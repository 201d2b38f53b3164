/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/search.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/util.h"

struct entry {
	uint64_t key;
	char other[3];
};

static void the_first_that_is_large_enough_is_found(void **state _unused_)
{
	struct entry v[9];

	for (size_t nr = 0; nr <= 9; nr++) {
		for (size_t i = 0; i < nr; i++)
			v[i] = (struct entry){ .key = 10 * i + 5 };
		for (uint64_t key = 0; key < 100; key++) {
			size_t at = search_u64(v, nr, sizeof(v[0]), key);

			assert_in_range(at, 0, nr);
			assert_true(at == 0 || v[at - 1].key < key);
			assert_true(at == nr || v[at].key >= key);
		}
	}
	assert_int_equal(search_u64(NULL, 0, sizeof(v[0]), 7), 0);
	v[8].key = UINT64_MAX;
	assert_int_equal(search_u64(v, 9, sizeof(v[0]), UINT64_MAX), 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_that_is_large_enough_is_found),
	};

	return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
