/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/analyze/analyze_names.h"

#define ALL UINT32_MAX /* numbers vary */

static void the_step_is_found_in_names_as_programs_write_them(void **state _unused_)
{
	static const struct {
		const char *path;
		uint32_t varies;
		const char *series, *family;
	} cases[] = {
		{ "ckpt.3.120", ALL, "ckpt.3.#", "ckpt.#.#" },
		{ "state.05.h5", ALL, "state.#.h5", "state.#.h5" },
		{ "data", ALL, "data", "data" },
		{ "run7/data", ALL, "run#/data", "run#/data" },
		{ "ckpt_step100_rank3", ALL, "ckpt_step#_rank3", "ckpt_step#_rank#" },
		{ "rank3/ckpt.100", ALL, "rank3/ckpt.#", "rank#/ckpt.#" },
		{ "0500/rank3", ALL, "#/rank3", "#/rank#" },
		{ "global_step20/mp_rank_01_states.pt", ALL, "global_step#/mp_rank_01_states.pt",
		  "global_step#/mp_rank_#_states.pt" },
		{ "checkpoint-500/model-00001-of-00003.safetensors", 1 | 2,
		  "checkpoint-#/model-00001-of-00003.safetensors", "checkpoint-#/model-#-of-#.safetensors" },
		/* A directory of all of them is no step. */
		{ "ckpt2/run.0.5", 2 | 4, "ckpt2/run.0.#", "ckpt#/run.#.#" },
		{ "rank1", ALL, "rank1", "rank#" },
		{ "12", ALL, "#", "#" },
		{ "", ALL, "", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(freep) char *series = name_series(cases[i].path, name_step(cases[i].path, cases[i].varies));
		_cleanup_(freep) char *family = name_family(cases[i].path);

		assert_string_equal(series, cases[i].series);
		assert_string_equal(family, cases[i].family);
	}
}

static int compare(const char *a, const char *b)
{
	int r = number_compare(a, strlen(a), b, strlen(b));

	return (r > 0) - (r < 0);
}

static void steps_are_in_order_of_numbers_not_of_letters(void **state _unused_)
{
	assert_int_equal(compare("9", "10"), -1);
	assert_int_equal(compare("0010", "9"), 1);
	assert_int_equal(compare("007", "7"), 0);
	assert_int_equal(compare("", "0"), 0);
	assert_int_equal(compare("99999999999999999999999", "100000000000000000000000"), -1);
}

static void more_numbers_than_are_counted_do_no_harm(void **state _unused_)
{
	char path[200] = "";
	struct name_number all[NAME_NUMBERS_MAX];

	for (int i = 0; i < 50; i++)
		strcat(path, "1.");
	strcat(path, "2");
	assert_int_equal(name_numbers(path, all), NAME_NUMBERS_MAX);
	free(name_family(path));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_step_is_found_in_names_as_programs_write_them),
		cmocka_unit_test(steps_are_in_order_of_numbers_not_of_letters),
		cmocka_unit_test(more_numbers_than_are_counted_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
