/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "base/checksum.h"
#include "store/classify/typed_format.h"

#define SIZE 100000

static struct typed example(void)
{
	struct typed t = TYPED_EMPTY(SIZE);
	struct typed_array a = { .nr_dims = 3, .dim = { 2, 5, 10 } };

	assert_int_equal(typed_array_set_type(&a, 'c', 8, true), 0);
	assert_int_equal(typed_add_array(&t, "/grp/u", 6, &a, 1000, 800), 0);
	a.nr_dims = 1;
	assert_int_equal(typed_array_set_type(&a, 'i', 2, false), 0);
	assert_int_equal(typed_add_variable(&t, "k", 1, &a), 1);
	assert_int_equal(typed_add_extent(&t, 50000, 4), 0);
	assert_int_equal(typed_add_extent(&t, 40000, 4), 0);
	assert_int_equal(typed_add_extent(&t, SIZE - 3, 4), -EBADMSG);
	assert_int_equal(typed_add_extent(&t, UINT64_MAX, 4), -EBADMSG);
	return t;
}

static void what_was_said_is_understood(void **state)
{
	struct typed t = example(), got;
	char reason[TYPED_REASON_MAX + 1];
	uint8_t *p;
	size_t len;

	(void)state;
	assert_int_equal(typed_encode(&t, TYPED_KNOWN, "", &p, &len), 0);
	assert_int_equal(typed_decode(p, len, SIZE, &got, reason), TYPED_KNOWN);
	assert_int_equal(got.nr_variables, 2);
	assert_string_equal(got.variable[0].key, "grp/u_CF32BE_Array3D");
	assert_string_equal(got.variable[1].key, "k_I16LE_Array1D");
	assert_int_equal(got.variable[0].shape.parts, 2);
	assert_int_equal(got.variable[0].shape.row, 20);
	assert_int_equal(got.variable[0].shape.plane, 100);
	assert_int_equal(got.nr_extents, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(got.extent[i].variable == t.extent[i].variable && got.extent[i].off == t.extent[i].off &&
			    got.extent[i].len == t.extent[i].len);
	typed_release(&got);
	assert_int_equal(typed_decode(p, len, SIZE - 1, &got, reason), -EBADMSG); /* of another file */
	free(p);

	assert_int_equal(typed_encode(&t, TYPED_REFUSED, "it\nlies", &p, &len), 0);
	assert_int_equal(typed_decode(p, len, SIZE, &got, reason), TYPED_REFUSED);
	assert_string_equal(reason, "it?lies");
	assert_int_equal(got.nr_variables, 0);
	typed_release(&got);
	free(p);
	typed_release(&t);
}

/* Each with a checksum that holds, so that it is not that which finds it. */
static void a_classifier_that_was_taken_over_is_not_trusted(void **state)
{
	struct typed t = example(), got;
	char reason[TYPED_REASON_MAX + 1];
	unsigned nr_refused = 0;
	uint8_t *p;
	size_t len;

	(void)state;
	assert_int_equal(typed_encode(&t, TYPED_KNOWN, "", &p, &len), 0);
	for (size_t i = 0; i < len * 8; i++) {
		struct typed_head_disk *d = (struct typed_head_disk *)p;
		int r;

		p[i / 8] ^= (uint8_t)(1u << i % 8);
		d->crc = le32_put(crc32c_add(crc32c(p + 32, len - 32), p, 28));
		r = typed_decode(p, len, SIZE, &got, reason);
		assert_true(r > 0 || r == -EBADMSG);
		nr_refused += r < 0;
		if (r > 0) {
			for (size_t k = 0; k < got.nr_extents; k++)
				assert_true(got.extent[k].off + got.extent[k].len <= SIZE &&
					    got.extent[k].variable < got.nr_variables);
			typed_release(&got);
		}
		p[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_in_range(nr_refused, 400, len * 8);
	for (size_t n = 0; n < len; n++)
		assert_int_equal(typed_decode(p, n, SIZE, &got, reason), -EBADMSG);
	free(p);
	typed_release(&t);
}

static void extents_over_one_another_are_refused(void **state)
{
	struct typed t = example(), got;
	char reason[TYPED_REASON_MAX + 1];
	uint8_t *p;
	size_t len;

	(void)state;
	assert_int_equal(typed_check(&t), 0);
	t.extent[2].off = 1799;
	assert_int_equal(typed_check(&t), -EBADMSG);
	assert_int_equal(typed_encode(&t, TYPED_KNOWN, "", &p, &len), 0);
	assert_int_equal(typed_decode(p, len, SIZE, &got, reason), -EBADMSG);
	free(p);
	t.extent[2].off = 1800;
	assert_int_equal(typed_check(&t), 0);
	typed_release(&t);
}

static void small_variables_are_dropped(void **state)
{
	struct typed t = example();

	(void)state;
	typed_drop_small(&t, 8);
	assert_int_equal(t.nr_variables, 2);
	assert_int_equal(t.nr_extents, 3);
	typed_drop_small(&t, 9);
	assert_int_equal(t.nr_variables, 1);
	assert_int_equal(t.nr_extents, 1);
	assert_int_equal(t.extent[0].off, 1000);
	typed_release(&t);
	t = TYPED_EMPTY(100);
	typed_drop_small(&t, 9);
	assert_int_equal(t.nr_variables, 0);
}

/* What is kept is still of its own variable. */
static void the_numbers_of_what_is_kept_move_up(void **state)
{
	struct typed t = TYPED_EMPTY(SIZE);
	struct typed_array a = { .type = { CODE_INT, 4, false }, .nr_dims = 1, .dim = { 1 } };

	(void)state;
	assert_int_equal(typed_add_array(&t, "small", 5, &a, 0, 4), 0);
	a.dim[0] = 100;
	assert_int_equal(typed_add_array(&t, "large", 5, &a, 4, 400), 0);
	typed_drop_small(&t, 100);
	assert_int_equal(t.nr_variables, 1);
	assert_string_equal(t.variable[0].key, "large_I32LE_Array1D");
	assert_int_equal(t.extent[0].variable, 0);
	assert_int_equal(t.extent[0].off, 4);
	typed_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_said_is_understood),
		cmocka_unit_test(a_classifier_that_was_taken_over_is_not_trusted),
		cmocka_unit_test(extents_over_one_another_are_refused),
		cmocka_unit_test(small_variables_are_dropped),
		cmocka_unit_test(the_numbers_of_what_is_kept_move_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
