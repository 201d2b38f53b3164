/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Files whose bytes are in a tier alone: no reader gets the zeros that are left, also after a crash at any moment. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine.h"
#include "tests/unit/store/rig.h"

#define FILE_INO 10u
#define OTHER_INO 11u
#define NEW_INO 12u
#define LEN MiB(3)

static void put_record(struct rig *rig, uint64_t ino)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_away_encode(&(struct ns_away){ .number = 1, .index = 1 }, &value);
	engine_expect_away(rig->e);
	engine_tx_put(&tx, ns_key_away(ino), value.data, value.len);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

static void send_away(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);

	put_record(rig, ino);
	assert_int_equal(content_send_away(c), 0);
	content_close(c);
}

static struct ns_content stat_of(struct rig *rig, uint64_t ino)
{
	struct ns_content st;

	assert_int_equal(content_peek(rig->e, ino, &st), 0);
	return st;
}

/* New bytes would be hidden by those in the tier. */
static void expect_unchangeable(struct rig *rig, struct content *c, struct content *other)
{
	struct content_patch patch = { .from = other, .len = 4096 };
	static const uint8_t bytes[10] = "new bytes";
	struct engine_buffer *b;
	struct job *remaining;
	uint64_t n;

	assert_int_equal(content_write(c, bytes, sizeof(bytes), 4096), -EREMOTE);
	assert_int_equal(content_write(c, bytes, sizeof(bytes), CONTENT_APPEND), -EREMOTE);
	assert_int_equal(engine_buffer_get(rig->e, &b), 0);
	memset(b->data, 'x', KiB(256));
	assert_int_equal(content_write_buffer(c, &b, b->data, KiB(256), 0, &remaining), -EREMOTE);
	assert_null(remaining);
	engine_buffer_put(rig->e, b);
	assert_int_equal(content_flush(c), 0);
	assert_int_equal(content_truncate(c, 0), -EREMOTE);
	assert_int_equal(content_truncate(c, 2 * LEN), -EREMOTE);
	assert_int_equal(content_allocate(c, 0, 2 * LEN, true), -EREMOTE);
	assert_int_equal(content_punch(c, 0, 4096), -EREMOTE);
	assert_int_equal(content_clone(other, 0, c, 0, LEN, &n), -EREMOTE);
	assert_int_equal(content_clone(other, 0, c, 4096, 4096, &n), -EREMOTE);
	assert_int_equal(content_patch(c, &patch, 1), -EREMOTE);
}

static void expect_away(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino), *other = rig_content(rig, OTHER_INO), *new = rig_content(rig, NEW_INO);
	struct content_patch patch = { .from = c, .len = LEN };
	struct content_sameness same;
	struct content_piece piece;
	struct content_info info;
	uint64_t n, mapped = stat_of(rig, ino).mapped;
	uint8_t page[4096];

	assert_true(content_is_away(c));
	assert_int_equal(content_read(c, page, sizeof(page), 0), -EREMOTE);
	assert_int_equal(content_read(c, page, sizeof(page), LEN), 0);
	assert_int_equal(content_pieces(c, 0, &piece, 1), -EREMOTE);
	assert_int_equal(content_info(c, &info), -EREMOTE);
	assert_int_equal(content_compare(c, other, 0, LEN, &same), -EREMOTE);
	assert_int_equal(content_compare(other, c, 0, LEN, &same), -EREMOTE);
	assert_int_equal(content_seek(c, 0, SEEK_DATA, &n), -EREMOTE);
	assert_int_equal(content_seek(c, 0, SEEK_HOLE, &n), -EREMOTE);
	assert_int_equal(content_clone(c, 0, new, 0, LEN, &n), -EREMOTE);
	assert_int_equal(content_clone(c, 4096, new, 0, 4096, &n), -EREMOTE);
	assert_int_equal(content_clone_some(c, 1, new, 0, 10, &n), -EREMOTE);
	assert_int_equal(content_patch(new, &patch, 1), -EREMOTE);
	assert_int_equal(stat_of(rig, NEW_INO).size, 0);
	expect_unchangeable(rig, c, other);
	assert_int_equal(stat_of(rig, ino).mapped, mapped);
	assert_int_equal(stat_of(rig, ino).size, LEN);
	content_close(new);
	content_close(other);
	content_close(c);
}

static void size_and_times_stay_and_no_reader_gets_zeros(void **state)
{
	struct rig *rig = *state;
	struct ns_content before, after;
	struct content *c, *clone;
	uint64_t n;

	rig_write(rig, FILE_INO, LEN, 1);
	rig_write(rig, OTHER_INO, LEN, 1);
	before = stat_of(rig, FILE_INO);
	c = rig_content(rig, FILE_INO);
	clone = rig_content(rig, 20);
	assert_int_equal(content_clone(c, 0, clone, 0, LEN, &n), 0);
	content_close(clone);
	content_close(c);
	assert_int_equal(engine_sync(rig->e), 0);
	send_away(rig, FILE_INO);
	for (unsigned i = 0; i < 4; i++) {
		after = stat_of(rig, FILE_INO);
		assert_int_equal(after.mapped, 0);
		assert_int_equal(after.size, before.size);
		assert_int_equal(after.mtime_ns, before.mtime_ns);
		assert_int_equal(after.ctime_ns, before.ctime_ns);
		expect_away(rig, FILE_INO);
		rig_check(rig, OTHER_INO, LEN, 1);
		rig_check(rig, 20, LEN, 1);
		if (i == 0)
			rig_reopen(rig);
		else
			rig_crash(rig);
	}
	rig_fsck(rig);
}

/* The inode is removed while its bytes are being erased. */
static void what_was_removed_meanwhile_leaves_nothing(void **state)
{
	struct rig *rig = *state;
	struct ns_content st;
	struct content *c;

	rig_write(rig, FILE_INO, LEN, 1);
	put_record(rig, FILE_INO);
	rig_drop(rig, FILE_INO);
	c = rig_content(rig, FILE_INO);
	assert_int_equal(content_send_away(c), 0);
	content_close(c);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_reopen(rig);
	assert_int_equal(ns_get_content(engine_db(rig->e), FILE_INO, &st), 0);
}

/* What a collection frees, and what it does not. */
static void its_chunks_become_garbage(void **state)
{
	const struct gc_conf gc = { .delete = true };
	struct rig *rig = *state;
	uint64_t stored;

	rig_write(rig, FILE_INO, LEN, 1);
	rig_write(rig, OTHER_INO, LEN / 3, 1);
	stored = rig_stats(rig).stored_bytes;
	assert_true(stored >= LEN);
	send_away(rig, FILE_INO);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_collect(rig, &gc);
	assert_int_equal(rig_stats(rig).stored_bytes, LEN / 3);
	rig_check(rig, OTHER_INO, LEN / 3, 1);
	expect_away(rig, FILE_INO);
	rig_write(rig, 13, LEN, 1); /* the same bytes, in a new file */
	rig_check(rig, 13, LEN, 1);
	rig_drop(rig, FILE_INO);
	rig_check(rig, 13, LEN, 1);
}

/* After a crash between record and holes, and between two holes. */
static void a_record_without_holes_is_away(void **state)
{
	struct rig *rig = *state;
	struct content *c;
	uint8_t page[4096];

	rig_write(rig, FILE_INO, LEN, 1);
	rig_write(rig, OTHER_INO, LEN, 2);
	c = rig_content(rig, FILE_INO);
	put_record(rig, FILE_INO);
	assert_int_equal(content_read(c, page, sizeof(page), 0), sizeof(page)); /* nothing is erased yet */
	assert_int_equal(engine_sync(rig->e), 0);
	content_close(c);
	rig_crash(rig);
	assert_int_equal(stat_of(rig, FILE_INO).mapped, LEN);
	expect_away(rig, FILE_INO);
	send_away(rig, FILE_INO);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig); /* recovery replays the holes, and has the file in memory */
	assert_int_equal(stat_of(rig, FILE_INO).mapped, 0);
	expect_away(rig, FILE_INO);
}

/* A clone that was logged before the holes has the bytes, whatever recovery replays. */
static void clones_from_before_keep_their_bytes(void **state)
{
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t n;

	rig_write(rig, FILE_INO, LEN, 1);
	assert_int_equal(engine_sync(rig->e), 0);
	from = rig_content(rig, FILE_INO);
	content_catch_up_all(from);
	to = rig_content(rig, OTHER_INO);
	assert_int_equal(content_clone(from, 0, to, 0, LEN, &n), 0);
	assert_int_equal(n, LEN);
	put_record(rig, FILE_INO);
	assert_int_equal(content_send_away(from), 0);
	content_close(from);
	content_close(to);
	rig_check(rig, OTHER_INO, LEN, 1);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig);
	rig_check(rig, OTHER_INO, LEN, 1);
	expect_away(rig, FILE_INO);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(size_and_times_stay_and_no_reader_gets_zeros),
		rig_test(what_was_removed_meanwhile_leaves_nothing),
		rig_test(its_chunks_become_garbage),
		rig_test(a_record_without_holes_is_away),
		rig_test(clones_from_before_keep_their_bytes),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("away", tests, NULL, NULL);
}
