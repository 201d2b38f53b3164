/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The note about the last manifest tells the work of this store from that of another machine. */
#include "fs/background/flush_note.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "tests/unit/golden.h"

static const struct flush_note note = {
	.url = "dir:/lustre/me", .number = 7, .nr_seals = 2, .seals = { { 90, 4500 }, { 100, 5000 } }
};

static void it_is_read_as_it_was_written(void **state _unused_)
{
	struct buf b = BUF_EMPTY;
	struct flush_note back;

	flush_note_encode(&note, &b);
	golden_expect("index/v1-note-tier.txt", "the note about the last manifest in a tier", b.data, b.len);
	assert_int_equal(flush_note_decode(b.data, b.len, &back), 0);
	assert_string_equal(back.url, note.url);
	assert_int_equal(back.number, 7);
	assert_int_equal(back.nr_seals, 2);
	assert_memory_equal(back.seals, note.seals, sizeof(note.seals));
	for (size_t len = 0; len < 9; len++)
		assert_int_equal(flush_note_decode(b.data, len, &back), -EBADMSG);
	b.data[0] = 2; /* another version */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	b.data[0] = 1;
	b.data[12] = 0; /* in the URL */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	b.data[12] = ':';
	assert_int_equal(flush_note_decode(b.data, b.len, &back), 0);
	b.data[3] = 0; /* no inode */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	b.data[3] = 90;
	b.data[2] = 0; /* no seals; too many */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	b.data[2] = FLUSH_NOTE_SEALS_MAX + 1;
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	buf_release(&b);
}

static void long_urls_are_refused(void **state _unused_)
{
	static uint8_t bytes[5 + FLUSH_NOTE_URL_MAX + 1] = { 1, 7, 1, 100, 50 };
	struct flush_note back;

	memset(bytes + 5, 'a', sizeof(bytes) - 5);
	assert_int_equal(flush_note_decode(bytes, sizeof(bytes) - 1, &back), 0);
	assert_int_equal(strlen(back.url), FLUSH_NOTE_URL_MAX);
	assert_int_equal(flush_note_decode(bytes, sizeof(bytes), &back), -EBADMSG);
}

static void another_machine_is_recognised(void **state _unused_)
{
	static const struct {
		bool has_note;
		const char *url;
		struct tier_written last;
		int result;
	} cases[] = {
		{ true, "dir:/lustre/me", { 0, 0, 0, false }, 0 }, /* the tier is empty */
		{ false, "dir:/lustre/me", { 0, 0, 0, false }, 0 },
		{ true, "dir:/lustre/me", { 7, 100, 5000, false }, 0 }, /* our own */
		{ true, "dir:/lustre/me", { 6, 99, 4000, false }, 0 }, /* ended between note and put */
		{ true, "dir:/lustre/me", { 7, 0, 0, false }, 0 }, /* damaged, but it was ours */
		{ true, "dir:/lustre/me", { 7, 90, 4500, false }, 0 }, /* an earlier put: its answer was lost */
		{ true, "dir:/lustre/me", { 7, 101, 5000, false }, -ENOTUNIQ }, /* it was faster */
		{ true, "dir:/lustre/me", { 7, 100, 5001, false }, -ENOTUNIQ },
		{ true, "dir:/lustre/me", { 9, 100, 5000, false }, 0 }, /* our own, behind fences of collections */
		{ true, "dir:/lustre/me", { 8, 101, 5000, false }, -ENOTUNIQ }, /* it has gone on */
		{ true, "dir:/lustre/me", { 8, 0, 0, false }, -ENOTUNIQ },
		{ true, "dir:/gpfs/me", { 3, 50, 1000, false }, -ENOENT }, /* another tier */
		{ false, "dir:/lustre/me", { 3, 50, 1000, false }, -ENOENT }, /* of a store that was copied, or rebuilt */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(flush_note_compare(cases[i].has_note ? &note : NULL, cases[i].url, &cases[i].last),
				 cases[i].result);
}

static int compare(const struct flush_note *n, uint64_t number, uint64_t ino)
{
	return flush_note_compare(n, "dir:/a", &(struct tier_written){ .number = number, .ino = ino, .sealed_ns = 1000 });
}

/* The put of manifest 5 times out. The next attempt is a newer seal, and then the first put takes effect. */
static void a_put_that_takes_effect_late_is_not_that_of_another_machine(void **state _unused_)
{
	struct flush_note n = { .url = "" };

	flush_note_add(&n, "dir:/a", 4, 10, 1000);
	flush_note_add(&n, "dir:/a", 4, 11, 1000);
	flush_note_add(&n, "dir:/a", 4, 10, 1000); /* again */
	assert_int_equal(n.number, 5);
	assert_int_equal(n.nr_seals, 2);
	assert_int_equal(compare(&n, 4, 9), 0);
	assert_int_equal(compare(&n, 5, 10), 0);
	assert_int_equal(compare(&n, 5, 11), 0);
	assert_int_equal(compare(&n, 6, 10), 0); /* behind a fence */
	assert_int_equal(compare(&n, 5, 12), -ENOTUNIQ);
	/* Manifest 5 was found there: no late put has effect. */
	flush_note_add(&n, "dir:/a", 5, 13, 1000);
	assert_int_equal(n.number, 6);
	assert_int_equal(n.nr_seals, 1);
	assert_int_equal(compare(&n, 5, 10), 0);
	assert_int_equal(compare(&n, 6, 13), 0);
	assert_int_equal(compare(&n, 6, 10), -ENOTUNIQ);
	/* In another tier nothing was tried. */
	flush_note_add(&n, "dir:/b", 0, 14, 1000);
	assert_string_equal(n.url, "dir:/b");
	assert_int_equal(n.number, 1);
	assert_int_equal(n.nr_seals, 1);
}

static void a_full_note_drops_what_was_tried_first(void **state _unused_)
{
	struct flush_note n = { .url = "" }, back;
	struct buf b = BUF_EMPTY;

	for (uint64_t ino = 1; ino <= FLUSH_NOTE_SEALS_MAX + 3; ino++)
		flush_note_add(&n, "dir:/a", 4, ino, 1000);
	assert_int_equal(n.nr_seals, FLUSH_NOTE_SEALS_MAX);
	assert_int_equal(compare(&n, 5, 3), -ENOTUNIQ);
	assert_int_equal(compare(&n, 5, 4), 0);
	assert_int_equal(compare(&n, 5, FLUSH_NOTE_SEALS_MAX + 3), 0);
	flush_note_encode(&n, &b);
	assert_int_equal(flush_note_decode(b.data, b.len, &back), 0);
	assert_memory_equal(back.seals, n.seals, sizeof(n.seals));
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_read_as_it_was_written),
		cmocka_unit_test(long_urls_are_refused),
		cmocka_unit_test(another_machine_is_recognised),
		cmocka_unit_test(a_put_that_takes_effect_late_is_not_that_of_another_machine),
		cmocka_unit_test(a_full_note_drops_what_was_tried_first),
	};

	return cmocka_run_group_tests_name("flush_note", tests, NULL, NULL);
}
