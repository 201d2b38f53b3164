/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which directories have been compacted: what is noted is read back, what cannot be is refused, and what is sealed no
 * more goes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/background/compacted.h"
#include "tests/unit/golden.h"

static void what_is_noted_is_read_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf note = BUF_EMPTY;
	_cleanup_(compacted_release) struct compacted c = { 0 }, again = { 0 };

	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(compacted_add(&c, 1 + (i * 37) % 1000, i), 0);
	compacted_encode(&c, &note);
	assert_int_equal(buf_error(&note), 0);
	assert_int_equal(compacted_decode(note.data, note.len, &again), 0);
	assert_int_equal(again.nr, 1000);
	for (uint64_t i = 0; i < 1000; i++)
		assert_true(compacted_has(&again, 1 + (i * 37) % 1000, i));
	assert_false(compacted_has(&again, 1, 1000)); /* sealed again since */
	assert_false(compacted_has(&again, 1001, 0));
	for (size_t len = 0; len < note.len; len++)
		assert_int_equal(compacted_decode(note.data, len, &c), -EBADMSG);
}

static void a_note_is_these_bytes(void **state _unused_)
{
	_cleanup_(buf_release) struct buf note = BUF_EMPTY;
	_cleanup_(compacted_release) struct compacted c = { 0 }, again = { 0 };

	assert_int_equal(compacted_add(&c, 1000, UINT64_C(1700000000123456789)), 0);
	assert_int_equal(compacted_add(&c, 7, 5), 0);
	assert_int_equal(compacted_add(&c, 8, 6), 0);
	compacted_encode(&c, &note);
	golden_expect("index/v1-note-compacted.txt", "the note about three compacted directories", note.data, note.len);
	assert_int_equal(compacted_decode(note.data, note.len, &again), 0);
	assert_int_equal(again.nr, 3);
	assert_true(compacted_has(&again, 7, 5));
	assert_true(compacted_has(&again, 8, 6));
	assert_true(compacted_has(&again, 1000, UINT64_C(1700000000123456789)));
}

static void what_cannot_be_is_refused(void **state _unused_)
{
	static const struct {
		uint8_t b[24];
		size_t len;
	} t[] = {
		{ { 0 }, 0 },
		{ { 2, 0 }, 2 }, /* a later version */
		{ { 1, 1, 0, 5 }, 4 }, /* inode 0 */
		{ { 1, 2, 7, 5, 0, 5 }, 6 }, /* twice the same */
		{ { 1, 1, 7, 5, 9 }, 5 }, /* more behind it */
		{ { 1, 0xff, 0xff, 0xff, 0x7f, 7 }, 6 }, /* too many */
		/* over the end of numbers */
		{ { 1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 5, 1, 5 }, 15 },
	};
	struct compacted c = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(compacted_decode(t[i].b, t[i].len, &c), -EBADMSG);
	assert_null(c.v);
}

static void entries_that_are_not_queried_are_dropped(void **state _unused_)
{
	_cleanup_(compacted_release) struct compacted c = { 0 };

	for (uint64_t i = 1; i <= 4; i++)
		assert_int_equal(compacted_add(&c, i, 10), 0);
	compacted_drop_unseen(&c); /* all are new */
	assert_int_equal(c.nr, 4);
	assert_true(compacted_has(&c, 1, 10));
	assert_false(compacted_has(&c, 2, 11)); /* sealed again: the old one goes, too */
	assert_true(compacted_has(&c, 4, 10));
	compacted_drop_unseen(&c);
	assert_int_equal(c.nr, 2);
	assert_false(compacted_has(&c, 2, 10));
	assert_true(compacted_has(&c, 4, 10));
	assert_int_equal(compacted_add(&c, 4, 12), 0); /* in its place */
	assert_int_equal(c.nr, 2);
}

static void there_is_an_end(void **state _unused_)
{
	_cleanup_(compacted_release) struct compacted c = { 0 };

	for (uint64_t i = 0; i < COMPACTED_MAX; i++)
		assert_int_equal(compacted_add(&c, i + 1, 1000000 - i), 0);
	assert_int_equal(compacted_add(&c, COMPACTED_MAX + 1, 1000001), 0);
	assert_int_equal(c.nr, COMPACTED_MAX);
	assert_true(compacted_has(&c, COMPACTED_MAX + 1, 1000001));
	/* The one that was sealed first was dropped, but is not recoded again, nor are older ones. */
	assert_true(compacted_has(&c, COMPACTED_MAX, 1000001 - COMPACTED_MAX));
	assert_true(compacted_has(&c, COMPACTED_MAX + 2, 1));
	assert_false(compacted_has(&c, COMPACTED_MAX + 2, 1000002)); /* a new one is */
	assert_int_equal(compacted_add(&c, COMPACTED_MAX + 2, 1), 0); /* drops none */
	assert_true(compacted_has(&c, COMPACTED_MAX - 1, 1000002 - COMPACTED_MAX));
	compacted_drop_unseen(&c); /* all are new */
	compacted_has(&c, 2, 999999);
	compacted_drop_unseen(&c);
	assert_int_equal(c.nr, 1);
	assert_false(compacted_has(&c, COMPACTED_MAX + 3, 1)); /* there is room */
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_noted_is_read_back),
		cmocka_unit_test(a_note_is_these_bytes),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(entries_that_are_not_queried_are_dropped),
		cmocka_unit_test(there_is_an_end),
	};

	return cmocka_run_group_tests_name("compacted", tests, NULL, NULL);
}
