/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/gc/retain.h"

#define DAY INT64_C(86400000000000)
#define NR 6u

/* step.10 to step.60, a day apart; which are kept as a string of digits. */
static void expect_kept(const struct keep_policy *p, size_t proven, const char *want)
{
	static const char *const names[NR] = { "step.10", "step.20", "step.30", "step.40", "step.50", "step.60" };
	struct retain_seal v[NR] = { 0 };
	char got[NR + 1] = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < NR; i++)
		v[i] = (struct retain_seal){ .name = names[i], .seal.sealed_ns = (int64_t)i * DAY, .is_tagged =
			i == 2 };
	retain_choose(p, NR * DAY, v, NR, proven);
	for (size_t i = 0; i < NR; i++)
		if (v[i].why)
			got[n++] = (char)('0' + i);
	assert_string_equal(got, want);
}

static void what_any_rule_keeps_is_kept(void **state _unused_)
{
	static const struct {
		struct keep_policy p;
		size_t proven;
		const char *kept;
	} t[] = {
		{ { .last = 2 }, 5, "45" },
		{ { .last = 100 }, 5, "012345" },
		{ { .last = 1 }, 3, "35" }, /* the two newest are damaged: the last that is not stays */
		{ { .last = 1 }, NR, "012345" }, /* none proves itself */
		{ { .every = 20 }, 5, "135" },
		{ { .every = 7 }, 5, "5" },
		{ { .within_ns = (uint64_t)(2 * DAY + 1) }, 5, "45" },
		{ { .tagged = true }, 5, "25" },
		{ { .last = 1, .every = 40, .tagged = true }, 5, "235" },
		{ { .last = 1 }, 0, "05" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		expect_kept(&t[i].p, t[i].proven, t[i].kept);
}

static void a_number_is_the_last_in_a_name(void **state _unused_)
{
	static const struct {
		const char *name;
		bool kept; /* by every=10 */
	} t[] = {
		{ "7", false },
		{ "10", true },
		{ "run10.step7", false },
		{ "run7.step10", true },
		{ "step10.done", true },
		{ "none", true },
		{ "0", true },
		{ "000020", true },
		{ "", true },
		{ "99999999999999999999999999", true },
		{ "x99999999999999999999999999y7", false },
	};
	struct keep_policy p = { .every = 10 };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct retain_seal v[2] = { { .name = t[i].name }, { .name = "newest" } };

		retain_choose(&p, DAY, v, 2, 1);
		assert_int_equal(v[0].why != NULL, t[i].kept);
	}
}

static void a_policy_is_what_it_says(void **state _unused_)
{
	static const char *const bad[] = { "",
					   ",",
					   "last",
					   "last=",
					   "last=0",
					   "last=-1",
					   "last=5,",
					   ",last=5",
					   "last=5,last=6",
					   "every=x",
					   "within=",
					   "within=7x",
					   "tagged,tagged",
					   "tagged=1",
					   "first=1",
					   " last=5",
					   "last=99999999999999999999999" };
	struct keep_policy p = { 0 };
	char long_one[KEEP_LEN_MAX + 2];

	assert_int_equal(keep_parse("last=5,every=100,within=7d,tagged", 33, &p), 0);
	assert_int_equal(p.last, 5);
	assert_int_equal(p.every, 100);
	assert_int_equal(p.within_ns, 7 * DAY);
	assert_true(p.tagged);
	assert_int_equal(keep_parse("last=57", 6, &p), 0); /* not NUL-terminated */
	assert_int_equal(p.last, 5);
	assert_false(p.tagged);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)

		assert_int_equal(keep_parse(bad[i], strlen(bad[i]), &p), -EINVAL);
	assert_int_equal(keep_parse("last=5\0", 7, &p), -EINVAL);
	memset(long_one, '1', sizeof(long_one));
	assert_int_equal(keep_parse(long_one, KEEP_LEN_MAX + 1, &p), -EINVAL);
}

static void a_stored_rule_has_an_author(void **state _unused_)
{
	static const uint8_t stored[] = { 'l', 'a', 's', 't', '=', '5', 0, 0xd2, 0x04, 0, 0x80 };
	uint8_t author[KEEP_AUTHOR_LEN];
	uint32_t uid = 0;
	size_t len = 0;

	keep_author_encode(0x800004d2, author);
	assert_memory_equal(author, stored + 6, sizeof(author));
	assert_int_equal(keep_stored_decode(stored, sizeof(stored), &len, &uid), 0);
	assert_int_equal(len, 6);
	assert_int_equal(uid, 0x800004d2);
	for (len = 0; len < sizeof(stored); len++)
		assert_int_equal(keep_stored_decode(stored, len, &(size_t){ 0 }, &uid), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stored_rule_has_an_author),
		cmocka_unit_test(what_any_rule_keeps_is_kept),
		cmocka_unit_test(a_number_is_the_last_in_a_name),
		cmocka_unit_test(a_policy_is_what_it_says),
	};

	return cmocka_run_group_tests_name("retain", tests, NULL, NULL);
}
