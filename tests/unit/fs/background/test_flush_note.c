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

static const struct flush_note note = { .url = "dir:/lustre/me", .last = { .number = 7, .ino = 100, .sealed_ns = 5000 } };

static void it_is_read_as_it_was_written(void **state _unused_)
{
	static const uint8_t bytes[] = { 1, 7, 100, 0x88, 0x27, 'd', 'i', 'r', ':', '/', 'l', 'u', 's', 't', 'r', 'e',
					 '/', 'm', 'e' };
	struct buf b = BUF_EMPTY;
	struct flush_note back;

	flush_note_encode(&note, &b);
	assert_int_equal(b.len, sizeof(bytes));
	assert_memory_equal(b.data, bytes, sizeof(bytes)); /* on disk */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), 0);
	assert_string_equal(back.url, note.url);
	assert_int_equal(back.last.number, 7);
	assert_int_equal(back.last.ino, 100);
	assert_int_equal(back.last.sealed_ns, 5000);
	for (size_t len = 0; len < 5; len++)
		assert_int_equal(flush_note_decode(b.data, len, &back), -EBADMSG);
	b.data[0] = 2; /* another version */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	b.data[0] = 1;
	b.data[8] = 0; /* in the URL */
	assert_int_equal(flush_note_decode(b.data, b.len, &back), -EBADMSG);
	buf_release(&b);
}

static void long_urls_are_refused(void **state _unused_)
{
	static uint8_t bytes[4 + FLUSH_NOTE_URL_MAX + 1] = { 1, 7, 100, 50 };
	struct flush_note back;

	memset(bytes + 4, 'a', sizeof(bytes) - 4);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_read_as_it_was_written),
		cmocka_unit_test(long_urls_are_refused),
		cmocka_unit_test(another_machine_is_recognised),
	};

	return cmocka_run_group_tests_name("flush_note", tests, NULL, NULL);
}
