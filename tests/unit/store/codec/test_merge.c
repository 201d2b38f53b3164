/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/codec/merge.h"

/* "a0+4" is four bytes of the first part from its beginning. */
static void parts_are_merged_in_order(void **state)
{
	static const struct {
		uint64_t len[3];
		size_t nr;
		uint64_t block, max;
		const char *order;
		bool folded;
	} cases[] = {
		{ { 4, 6, 2 }, 3, 0, 100, "a0+4 b0+6 c0+2 ", false },
		{ { 4, 6, 2 }, 3, 0, 5, "a0+4 b0+5 b5+1 c0+2 ", false },
		{ { 4, 6, 2 }, 3, 2, 100, "a0+2 b0+2 c0+2 a2+2 b2+2 b4+2 ", false },
		{ { 5, 3 }, 2, 2, 100, "a0+2 b0+2 a2+2 b2+1 a4+1 ", false },
		{ { 5, 3 }, 2, 4, 3, "a0+3 a3+1 b0+3 a4+1 ", false },
		{ { 0, 3, 0 }, 3, 2, 100, "b0+2 b2+1 ", false },
		{ { 0, 0, 0 }, 3, 2, 100, "", false },
		{ { 7 }, 1, 2, 100, "a0+2 a2+2 a4+2 a6+1 ", false },
		{ { 0 }, 0, 0, 100, "", false },
		{ { 16, 3 }, 2, 0, 8, "a0+2 a6+2 a8+2 a14+2 a2+2 a4+2 a10+2 a12+2 b0+1 b1+2 ", true },
		{ { 15 }, 1, 0, 8, "a0+2 a5+2 a7+2 a13+2 a2+2 a4+1 a9+2 a11+2 ", true },
		{ { 0, 31 }, 2, 0, 16, "b0+4 b11+4 b15+4 b27+4 b4+4 b8+3 b19+4 b23+4 ", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct merge_part part[3] = { { .len = cases[i].len[0] },
					      { .len = cases[i].len[1] },
					      { .len = cases[i].len[2] } };
		struct merge m = { .part = part, .nr = cases[i].nr, .block = cases[i].block, .folded = cases[i].folded };
		char order[200] = "";
		uint64_t off, len;
		size_t which;

		while (merge_next(&m, cases[i].max, &which, &off, &len) > 0)
			snprintf(order + strlen(order), sizeof(order) - strlen(order), "%c%d+%d ", 'a' + (char)which,
				 (int)off, (int)len);
		assert_string_equal(order, cases[i].order);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(parts_are_merged_in_order) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
