/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Buffers that hold parts of frames: a reader of a frame gets the parts that are held of this frame, once, and of no
 * other; and which memory is used again.
 */
#include "tests/unit/store/pack/pack_rig.h"

#include "store/pack/pack_buffers.h"

#define MAX_HELD 20u
#define MAX_FREE 8u
#define LEN 1000u /* plain bytes of a frame */

static struct pack_buffer *take(struct pack_buffers *bs)
{
	struct pack_buffer *b = pack_buffer_get(bs);

	assert_non_null(b);
	return b;
}

/* Parts of a frame come into a new buffer, and so many bytes of it are given out. */
static struct pack_buffer *hold(struct pack_buffers *bs, uint32_t frame, uint32_t given)
{
	struct pack_held held;
	struct pack_buffer *b = pack_buffer_get_held(bs, 1, frame, &held);

	assert_non_null(b);
	held.whole |= 1;
	held.plain_len = LEN;
	held.given = MIN(held.given + given, LEN);
	pack_buffer_put_held(bs, b, &held);
	return b;
}

static bool is_held(struct pack_buffers *bs, uint32_t frame)
{
	struct pack_held held;
	struct pack_buffer *b = pack_buffer_get_held(bs, 1, frame, &held);

	assert_non_null(b);
	if (held.whole == 0)
		pack_buffer_put(bs, b);
	else
		pack_buffer_put_held(bs, b, &held);
	return held.whole != 0;
}

static void put_byte(struct pack_buffers *bs, uint32_t pack, uint32_t frame, uint8_t byte)
{
	struct pack_buffer *b = pack_buffer_get(bs);

	assert_non_null(b);
	b->data[0] = byte;
	pack_buffer_put_held(bs, b, &(struct pack_held){ .pack = pack, .frame = frame, .whole = 1, .plain_len = LEN });
}

/* What is held of it, and is not from now on; -1: nothing. */
static int take_byte(struct pack_buffers *bs, uint32_t pack, uint32_t frame)
{
	struct pack_held held;
	struct pack_buffer *b = pack_buffer_get_held(bs, pack, frame, &held);
	int byte;

	assert_non_null(b);
	assert_int_equal(held.pack, pack);
	assert_int_equal(held.frame, frame);
	byte = held.whole == 1 ? b->data[0] : -1;
	pack_buffer_put(bs, b);
	return byte;
}

static void a_frame_is_found_by_pack_and_number(void **state)
{
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, 0);
	put_byte(&bs, 1, 7, 17);
	put_byte(&bs, 2, 7, 27);
	put_byte(&bs, 1, 8, 18);
	assert_int_equal(take_byte(&bs, 3, 7), -1);
	assert_int_equal(take_byte(&bs, 1, 7), 17);
	assert_int_equal(take_byte(&bs, 1, 7), -1);
	assert_int_equal(take_byte(&bs, 2, 7), 27);
	assert_int_equal(take_byte(&bs, 2, 8), -1);
	assert_int_equal(take_byte(&bs, 1, 8), 18);
	pack_buffers_release(&bs);
}

/* Two threads read it at once: one buffer is held, and the other takes no room. */
static void a_frame_is_held_once(void **state)
{
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, 0);
	put_byte(&bs, 1, 7, 1);
	put_byte(&bs, 1, 7, 2);
	assert_int_equal(take_byte(&bs, 1, 7), 2);
	assert_int_equal(take_byte(&bs, 1, 7), -1);
	pack_buffers_release(&bs);
}

/* Those that were put back longest ago go first. */
static void as_many_as_there_is_room_for_are_held(void **state)
{
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, 0);
	for (uint32_t i = 0; i < PACK_HELD_MIN + 3; i++)
		put_byte(&bs, 1, i, (uint8_t)i);
	for (uint32_t i = PACK_HELD_MIN + 3; i-- > 0;)
		assert_int_equal(take_byte(&bs, 1, i), i < 3 ? -1 : (int)i);
	pack_buffers_release(&bs);
}

static void what_is_read_is_used_again_before_anything_else(void **state)
{
	struct pack_buffer *unread, *read, *b;
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, MAX_HELD * sizeof(struct pack_buffer));
	unread = hold(&bs, 1, LEN - 1);
	read = hold(&bs, 2, LEN / 2);
	assert_ptr_not_equal(unread, read);
	hold(&bs, 3, 0);
	assert_ptr_equal(hold(&bs, 2, LEN / 2), read); /* in two requests */
	assert_int_equal(bs.nr_read, 1);
	b = take(&bs);
	assert_ptr_equal(b, read);
	assert_int_equal(bs.nr_read, 0);
	assert_int_equal(bs.nr_held, 2);
	pack_buffer_put(&bs, b);
	assert_true(is_held(&bs, 1));
	assert_false(is_held(&bs, 2));
	assert_true(is_held(&bs, 3));
	pack_buffers_release(&bs);
}

/* Two threads read a frame at once, each into a buffer: one buffer is held, and counts the bytes given out of both. */
static void two_readers_read_it_together(void **state)
{
	struct pack_held held[2];
	struct pack_buffer *b[2];
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, MAX_HELD * sizeof(struct pack_buffer));
	for (unsigned i = 0; i < 2; i++)
		b[i] = pack_buffer_get_held(&bs, 1, 7, &held[i]);
	for (unsigned i = 0; i < 2; i++) {
		held[i].whole = 1u << i;
		held[i].plain_len = LEN;
		held[i].given = LEN / 2;
		assert_int_equal(bs.nr_read, 0);
		pack_buffer_put_held(&bs, b[i], &held[i]);
	}
	assert_int_equal(bs.nr_held, 1);
	assert_int_equal(bs.nr_read, 1);
	assert_int_equal(bs.nr_free, 1);
	pack_buffers_release(&bs);
}

/* No more is kept than was said; of what plain frames are read with, a few. */
static void no_more_is_kept_than_was_said(void **state)
{
	struct pack_buffer *all[2 * MAX_HELD];
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, MAX_HELD * sizeof(struct pack_buffer));
	for (unsigned is_read = 0; is_read < 2; is_read++) {
		for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
			all[i] = take(&bs);
		for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
			(is_read ? pack_buffer_put_read : pack_buffer_put)(&bs, all[i]);
		assert_int_equal(bs.nr_free, MAX_FREE);
		assert_int_equal(bs.nr_held, is_read ? MAX_HELD : 0);
		assert_int_equal(bs.nr_read, bs.nr_held);
	}
	/* and they hold nothing: frames take their place, the first one last */
	for (uint32_t frame = 0; frame < MAX_HELD; frame++)
		hold(&bs, frame, 0);
	assert_int_equal(bs.nr_held, MAX_HELD);
	assert_int_equal(bs.nr_read, 0);
	for (uint32_t frame = 0; frame < MAX_HELD; frame++)
		assert_true(is_held(&bs, frame));
	pack_buffers_release(&bs);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_found_by_pack_and_number),
		cmocka_unit_test(a_frame_is_held_once),
		cmocka_unit_test(as_many_as_there_is_room_for_are_held),
		cmocka_unit_test(what_is_read_is_used_again_before_anything_else),
		cmocka_unit_test(two_readers_read_it_together),
		cmocka_unit_test(no_more_is_kept_than_was_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
