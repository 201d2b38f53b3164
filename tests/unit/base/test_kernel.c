/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/kernel.h"

static void releases_compare_as_numbers(void **state)
{
	static const struct {
		const char *release;
		bool suffices;
	} cases[] = {
		{ "5.15.0", true },
		{ "5.15.0-91-generic", true },
		{ "5.15", true },
		{ "5.14.21-150500.55.7-default", false },
		{ "5.9.1", false }, /* not after 5.15 as text is */
		{ "5.100.2", true },
		{ "4.18.0-553.el8_10.x86_64", false },
		{ "2.6.78", false },
		{ "6.1.0-18-amd64", true },
		{ "10.0", true },
		{ "5", true }, /* no version: not refused */
		{ "", true },
		{ "next-20261119", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (kernel_suffices(cases[i].release, 5, 15) != cases[i].suffices)
			fail_msg("\"%s\": not %d", cases[i].release, cases[i].suffices);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(releases_compare_as_numbers) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
