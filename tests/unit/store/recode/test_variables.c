/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The note about variables, to the byte. */
#include "store/recode/variables.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "tests/unit/golden.h"

static char velocity[] = "state/velocity", weights[] = "weights";
static struct variable_note notes[] = {
	{ .key = velocity,
	  .coder = { .steps = { .type = { CODE_FLOAT, 8, false },
				.map = CODE_MAP_ORDERED,
				.base = CODE_BASE_SUB,
				.predict = CODE_PREDICT_DELTA,
				.zigzag = true,
				.split = CODE_SPLIT_BITS,
				.entropy = CODE_ENTROPY_ZSTD,
				.stride = { 1, 100, 10000 } },
		     .level = 3 },
	  .turns = true,
	  .coded = 1 << 20,
	  .before = 900000,
	  .after = 400000,
	  .code_ns = 123456789,
	  .last_ns = UINT64_C(1700000000123456789) },
	{ .key = weights,
	  .coder = { .steps = { .type = { CODE_BFLOAT, 2, true },
				.map = CODE_MAP_ROTATED,
				.base = CODE_BASE_XOR,
				.split = CODE_SPLIT_BYTES,
				.entropy = CODE_ENTROPY_LZ4 } },
	  .coded = 5,
	  .before = 4,
	  .after = 3,
	  .code_ns = 2,
	  .last_ns = 1 },
};

static void a_note_is_these_bytes_and_is_read_back(void **state _unused_)
{
	const struct variable_notes n = { notes, ARRAY_SIZE(notes) };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct variable_notes back;

	variable_notes_encode(&n, &b);
	assert_int_equal(buf_error(&b), 0);
	golden_expect("index/v1-note-variables.txt", "the note about two variables", b.data, b.len);
	assert_int_equal(variable_notes_decode(b.data, b.len, &back), 0);
	assert_int_equal(back.nr, ARRAY_SIZE(notes));
	for (size_t i = 0; i < back.nr; i++) {
		const struct variable_note *v = &back.v[i], *was = &notes[i];
		const struct code_header *h = &v->coder.steps, *g = &was->coder.steps;

		assert_string_equal(v->key, was->key);
		assert_int_equal(h->type.class, g->type.class);
		assert_int_equal(h->type.width, g->type.width);
		assert_int_equal(h->type.big_endian, g->type.big_endian);
		assert_int_equal(h->map, g->map);
		assert_int_equal(h->base, g->base);
		assert_int_equal(h->predict, g->predict);
		assert_int_equal(h->zigzag, g->zigzag);
		assert_int_equal(h->split, g->split);
		assert_int_equal(h->entropy, g->entropy);
		assert_memory_equal(h->stride, g->stride, sizeof(h->stride));
		assert_int_equal(v->coder.level, was->coder.level);
		assert_int_equal(v->turns, was->turns);
		assert_int_equal(v->coded, was->coded);
		assert_int_equal(v->before, was->before);
		assert_int_equal(v->after, was->after);
		assert_int_equal(v->code_ns, was->code_ns);
		assert_true(v->last_ns == was->last_ns);
	}
	variable_notes_release(&back);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(variable_notes_decode(b.data, len, &back), -EBADMSG);
	b.data[0]++;
	assert_int_equal(variable_notes_decode(b.data, b.len, &back), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_note_is_these_bytes_and_is_read_back),
	};

	return cmocka_run_group_tests_name("variables", tests, NULL, NULL);
}
