#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/analyze_report.h"

/* Pages of 4 KiB, of 64 KiB if not 0, by content: new bytes, and what lz4 and zstd make of them. */
struct sizes {
	uint64_t new, lz4, zstd;
};

static struct setting recommend(struct sizes small, struct sizes large, struct sizes content)
{
	const struct sizes sizes[] = { small, large, content };
	const uint32_t pages[] = { 4096, 65536, 0 };
	struct analysis a = { 0 };
	struct setting s;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (i == 1 && large.new == 0)
			continue;
		a.cutting[a.nr_cuttings].page = pages[i];
		a.cutting[a.nr_cuttings].cdc.params = CDC_PARAMS_DEFAULT;
		a.total[a.nr_cuttings++] = (struct figures){
			.data = 1000000,
			.source = { [NEW] = sizes[i].new },
			.coded = { (double)sizes[i].lz4, (double)sizes[i].zstd },
		};
	}
	setting_recommend(&a, &s);
	return s;
}

#define NONE { 0 }

static void what_is_simpler_wins_if_it_is_nearly_as_small(void **state _unused_)
{
	static const struct {
		struct sizes small, large, content;
		const char *options;
		uint64_t expected;
	} cases[] = {
		{ { 10000, 10000, 10000 }, NONE, { 9900, 9900, 9900 }, "chunking=page,compress=none", 10000 },
		{ { 10000, 10000, 10000 }, NONE, { 9700, 9700, 9700 }, "chunking=cdc,compress=none", 9700 },
		{ { 10000, 9600, 9600 }, NONE, { 10000, 10000, 10000 }, "chunking=page,compress=none", 10000 },
		{ { 10000, 9000, 8900 }, NONE, { 10000, 9000, 8900 }, "chunking=page,compress=lz4", 9000 },
		{ { 10000, 9000, 8000 }, NONE, { 10000, 9000, 8000 }, "chunking=page,compress=zstd:3", 8000 },
		{ { 10000, 10000, 9000 }, NONE, { 12000, 9000, 9000 }, "chunking=page,compress=zstd:3", 9000 },
		{ { 10000, 10000, 10000 },
		  { 10100, 10100, 10100 },
		  { 10000, 10000, 10000 },
		  "chunking=page,page=64K,compress=none",
		  10100 },
		{ { 10000, 10000, 10000 },
		  { 11000, 11000, 11000 },
		  { 10000, 10000, 10000 },
		  "chunking=page,compress=none",
		  10000 },
		{ { 0, 0, 0 }, NONE, { 0, 0, 0 }, "chunking=page,compress=none", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct setting s = recommend(cases[i].small, cases[i].large, cases[i].content);

		assert_string_equal(s.options, cases[i].options);
		assert_int_equal(s.expected, cases[i].expected);
	}
}

static void the_reason_names_what_it_was_compared_with(void **state _unused_)
{
	struct setting s = recommend((struct sizes){ 10000, 10000, 10000 }, (struct sizes)NONE,
				     (struct sizes){ 5000, 3000, 2900 });

	assert_string_equal(s.why,
			    "Content-defined chunks take 70.0 % less than pages of 4 KiB; lz4 makes them 40 % smaller, "
			    "zstd:3 hardly more, 42 %.");
	s = recommend((struct sizes){ 10000, 10000, 9900 }, (struct sizes){ 10100, 10100, 10000 },
		      (struct sizes){ 10100, 10100, 10100 });
	assert_string_equal(s.why, "Pages of 64 KiB take only 1.0 % more than pages of 4 KiB and as much as "
				   "content-defined chunks; compression would make them only 1 % smaller.");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_simpler_wins_if_it_is_nearly_as_small),
		cmocka_unit_test(the_reason_names_what_it_was_compared_with),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
