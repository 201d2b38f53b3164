/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What is to be compacted, as a program says it: what is sound is there, in order; what is not is refused, and nothing
 * of it is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/background/compact_plan.h"

#define DOUBLES 0x33u /* IEEE floats of 8 bytes */

static void plan_with(struct compact_plan *p, unsigned nr_files)
{
	uint32_t file;

	*p = (struct compact_plan){ 0 };
	for (unsigned i = 0; i < nr_files; i++) {
		assert_int_equal(compact_plan_add_file(p, 100 + i, &file), 0);
		assert_int_equal(file, i);
	}
}

static void variables_come_back_with_all_their_extents(void **state)
{
	struct ckptfs_compact_add *a = calloc(1, sizeof(*a));
	struct compact_plan p;

	(void)state;
	plan_with(&p, 3);
	for (unsigned v = 0; v < 50; v++)
		for (unsigned piece = 0; piece < 3; piece++) {
			a->flags = piece == 0 ? CKPTFS_COMPACT_BEGINS : 0;
			a->type = DOUBLES;
			a->row = v;
			snprintf(a->key, sizeof(a->key), "variable %u", v);
			a->nr = v * 7 + piece;
			for (unsigned i = 0; i < a->nr; i++)
				a->extent[i] = (struct ckptfs_compact_extent){ piece, 0, 1000 * v + i, 1 + i };
			assert_int_equal(compact_plan_add(&p, a), 0);
		}
	compact_plan_finish(&p);
	assert_int_equal(p.nr_variables, 50);
	assert_int_equal(p.inos[2], 102);
	for (unsigned v = 0; v < 50; v++) {
		const struct compact_extent *x = p.variable[v].extent;

		char key[20];

		snprintf(key, sizeof(key), "variable %u", v);
		assert_string_equal(p.variable[v].key, key);
		assert_int_equal(p.variable[v].shape.row, v);
		assert_int_equal(p.variable[v].shape.type.width, 8);
		assert_int_equal(p.variable[v].nr_extents, 3 * 7 * v + 3);
		for (unsigned piece = 0; piece < 3; piece++)
			for (unsigned i = 0; i < v * 7 + piece; i++, x++) {
				assert_int_equal(x->file, piece);
				assert_int_equal(x->off, 1000 * v + i);
				assert_int_equal(x->len, 1 + i);
			}
	}
	compact_plan_release(&p);
	free(a);
}

static void what_is_not_sound_is_refused(void **state)
{
	static const struct {
		uint32_t flags, type, parts, nr;
		struct ckptfs_compact_extent x;
	} bad[] = {
		{ 2, DOUBLES, 0, 1, { 0, 0, 0, 1 } }, /* an unknown flag */
		{ 0, DOUBLES, 0, 1, { 0, 0, 0, 1 } }, /* no variable goes on */
		{ CKPTFS_COMPACT_BEGINS, 0x0f, 0, 1, { 0, 0, 0, 1 } },
		{ CKPTFS_COMPACT_BEGINS, 0x133, 0, 1, { 0, 0, 0, 1 } },
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 3, 1, { 0, 0, 0, 1 } },
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 0, CKPTFS_COMPACT_EXTENTS + 1, { 0, 0, 0, 1 } },
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 0, 1, { 2, 0, 0, 1 } }, /* no such file */
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 0, 1, { 0, 1, 0, 1 } },
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 0, 1, { 0, 0, 0, 0 } },
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 0, 1, { 0, 0, INT64_MAX, 1 } },
		{ CKPTFS_COMPACT_BEGINS, DOUBLES, 0, 1, { 0, 0, 1, UINT64_MAX } },
	};
	struct ckptfs_compact_add *a = calloc(1, sizeof(*a));
	struct compact_plan p;

	(void)state;
	plan_with(&p, 2);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		a->flags = bad[i].flags;
		a->type = bad[i].type;
		a->parts = bad[i].parts;
		a->nr = bad[i].nr;
		a->extent[0] = bad[i].x;
		assert_int_equal(compact_plan_add(&p, a), -EINVAL);
		assert_int_equal(p.nr_variables, 0);
		assert_int_equal(p.nr_extents, 0);
	}
	a->flags = CKPTFS_COMPACT_BEGINS;
	a->type = DOUBLES;
	a->parts = a->nr = 0;
	memset(a->key, 'k', sizeof(a->key)); /* without an end */
	assert_int_equal(compact_plan_add(&p, a), -EINVAL);
	a->key[VARIABLE_KEY_MAX] = 0;
	assert_int_equal(compact_plan_add(&p, a), 0);
	compact_plan_release(&p);
	free(a);
}

static void there_is_an_end(void **state)
{
	struct ckptfs_compact_add *a = calloc(1, sizeof(*a));
	struct compact_plan p;
	uint32_t file;
	int r = 0;

	(void)state;
	plan_with(&p, COMPACT_FILES_MAX);
	assert_int_equal(compact_plan_add_file(&p, 1, &file), -E2BIG);
	*a = (struct ckptfs_compact_add){ .flags = CKPTFS_COMPACT_BEGINS, .type = DOUBLES, .nr = CKPTFS_COMPACT_EXTENTS };
	for (unsigned i = 0; i < a->nr; i++)
		a->extent[i].len = 1;
	for (unsigned i = 0; i < COMPACT_EXTENTS_MAX / CKPTFS_COMPACT_EXTENTS; i++)
		assert_int_equal(compact_plan_add(&p, a), 0);
	assert_int_equal(compact_plan_add(&p, a), -E2BIG);
	a->nr = 0;
	while (r == 0 && p.nr_variables <= COMPACT_VARIABLES_MAX)
		r = compact_plan_add(&p, a);
	assert_int_equal(r, -E2BIG);
	assert_int_equal(p.nr_variables, COMPACT_VARIABLES_MAX);
	compact_plan_release(&p);
	free(a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(variables_come_back_with_all_their_extents),
		cmocka_unit_test(what_is_not_sound_is_refused),
		cmocka_unit_test(there_is_an_end),
	};

	return cmocka_run_group_tests_name("compact_plan", tests, NULL, NULL);
}
