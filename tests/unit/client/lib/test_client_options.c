/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "client/lib/mapping.h"
#include "client/lib/client_options.h"

static const char *const variables[] = { "CKPTFS_MODE", "CKPTFS_TRACKING", "CKPTFS_COW", "CKPTFS_RATE", "CKPTFS_KEPT" };

static int no_variables(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	return 0;
}

static void nothing_said_is_the_default(void **state _unused_)
{
	struct ckptfs_options o;
	uint32_t percent = 9;

	assert_int_equal(options_fill(NULL, &o, &percent), 0);
	assert_int_equal(o.mode, CKPTFS_MODE_ADAPTIVE);
	assert_int_equal(o.tracking, CKPTFS_TRACKING_DEFAULT);
	assert_int_equal(o.cow_bytes, 0);
	assert_int_equal(o.keep, 0);
	assert_int_equal(percent, 0);
}

static void the_environment_is_asked_for_what_the_program_does_not_say(void **state _unused_)
{
	struct ckptfs_options given = { .size = sizeof(given), .mode = CKPTFS_MODE_SYNC }, o;
	uint32_t percent;

	setenv("CKPTFS_MODE", "async", 1);
	setenv("CKPTFS_TRACKING", "mprotect", 1);
	setenv("CKPTFS_COW", "7%", 1);
	setenv("CKPTFS_RATE", "60M", 1);
	setenv("CKPTFS_KEPT", "3", 1);
	assert_int_equal(options_fill(&given, &o, &percent), 0);
	assert_int_equal(o.mode, CKPTFS_MODE_SYNC);
	assert_int_equal(o.tracking, CKPTFS_TRACKING_MPROTECT);
	assert_int_equal(percent, 7);
	assert_int_equal(o.cow_bytes, 0);
	assert_int_equal(o.write_rate, 60 << 20);
	assert_int_equal(o.keep, 3);
	setenv("CKPTFS_COW", "16M", 1);
	assert_int_equal(options_fill(NULL, &o, &percent), 0);
	assert_int_equal(o.mode, CKPTFS_MODE_ASYNC);
	assert_int_equal(o.cow_bytes, 16 << 20);
	assert_int_equal(percent, 0);
}

/* 0 as an option is "not said"; in the environment it is said. */
static void no_room_for_copies_can_be_asked_for(void **state _unused_)
{
	static const char *const none[] = { "0", "0%", "0K" };
	struct ckptfs_options o;
	uint32_t percent;

	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		setenv("CKPTFS_COW", none[i], 1);
		assert_int_equal(options_fill(NULL, &o, &percent), 0);
		assert_true(o.cow_bytes == CKPTFS_COW_NONE);
	}
}

static void what_cannot_be_is_refused(void **state _unused_)
{
	static const struct {
		const char *variable, *value;
	} wrong[] = {
		{ "CKPTFS_MODE", "fast" }, { "CKPTFS_TRACKING", "magic" }, { "CKPTFS_COW", "101%" },
		{ "CKPTFS_COW", "-3%" },   { "CKPTFS_COW", "%" },	   { "CKPTFS_COW", "x" },
		{ "CKPTFS_RATE", "fast" }, { "CKPTFS_KEPT", "8G" },
	};
	struct ckptfs_options o;
	uint32_t percent;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		no_variables(NULL);
		setenv(wrong[i].variable, wrong[i].value, 1);
		assert_true(options_fill(NULL, &o, &percent) < 0);
	}
	no_variables(NULL);
	assert_int_equal(options_fill(&(struct ckptfs_options){ .size = sizeof(o), .flags = CKPTFS_SEALED }, &o, &percent),
			 -EINVAL);
	assert_int_equal(options_fill(&(struct ckptfs_options){ .size = sizeof(o), .member = ".." }, &o, &percent),
			 -EINVAL);
	assert_int_equal(options_fill(&(struct ckptfs_options){ .size = sizeof(o), .member = "" }, &o, &percent),
			 -EINVAL);
}

static void a_mapping_reports_its_page_size(void **state _unused_)
{
	char smaps[] =
		"ffff0000-ffff8000 rw-p 00000000 00:00 0 \nSize: 32 kB\nKernelPageSize:        4 kB\nMMUPageSize: 4 kB\n"
		"ffffa000-fffff000 rw-p 00000000 00:10 7 /anon_hugepage (deleted)\nSize: 2048 kB\nKernelPageSize:     2048 kB\n";
	const struct {
		uintptr_t address;
		size_t size;
	} expected[] = { { 0xffff0000, 4096 }, { 0xffff7fff, 4096 }, { 0xffff8000, 0 }, { 0xffffa000, 2 << 20 }, { 1, 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		FILE *f = fmemopen(smaps, strlen(smaps), "r");

		assert_int_equal(mapping_page_size(f, expected[i].address), expected[i].size);
		fclose(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_said_is_the_default, no_variables),
		cmocka_unit_test_setup(the_environment_is_asked_for_what_the_program_does_not_say, no_variables),
		cmocka_unit_test_setup(no_room_for_copies_can_be_asked_for, no_variables),
		cmocka_unit_test_setup(what_cannot_be_is_refused, no_variables),
		cmocka_unit_test(a_mapping_reports_its_page_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
