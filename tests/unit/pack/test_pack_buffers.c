/* Buffers that hold parts of frames: who comes for a frame gets what is held of that one, once, and of no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/pack/pack_buffers.h"

static void hold(struct pack_buffers *bs, uint32_t pack, uint32_t frame, uint8_t byte)
{
	struct pack_buffer *b = pack_buffer_get(bs);

	assert_non_null(b);
	b->data[0] = byte;
	pack_buffer_put_held(bs, b, &(struct pack_held){ .pack = pack, .frame = frame, .whole = 1 });
}

/* What is held of it, and is not from now on; -1: nothing. */
static int take(struct pack_buffers *bs, uint32_t pack, uint32_t frame)
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
	hold(&bs, 1, 7, 17);
	hold(&bs, 2, 7, 27);
	hold(&bs, 1, 8, 18);
	assert_int_equal(take(&bs, 3, 7), -1);
	assert_int_equal(take(&bs, 1, 7), 17);
	assert_int_equal(take(&bs, 1, 7), -1);
	assert_int_equal(take(&bs, 2, 7), 27);
	assert_int_equal(take(&bs, 2, 8), -1);
	assert_int_equal(take(&bs, 1, 8), 18);
	pack_buffers_release(&bs);
}

/* Two who read it at once: one of them is enough, and no room is lost to the other. */
static void a_frame_is_held_once(void **state)
{
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, 0);
	hold(&bs, 1, 7, 1);
	hold(&bs, 1, 7, 2);
	assert_int_equal(take(&bs, 1, 7), 2);
	assert_int_equal(take(&bs, 1, 7), -1);
	pack_buffers_release(&bs);
}

/* Those that were put back longest ago go first. */
static void as_many_as_there_is_room_for_are_held(void **state)
{
	struct pack_buffers bs;

	(void)state;
	pack_buffers_init(&bs, 0, 0);
	for (uint32_t i = 0; i < PACK_HELD_MIN + 3; i++)
		hold(&bs, 1, i, (uint8_t)i);
	for (uint32_t i = PACK_HELD_MIN + 3; i-- > 0;)
		assert_int_equal(take(&bs, 1, i), i < 3 ? -1 : (int)i);
	pack_buffers_release(&bs);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_is_found_by_pack_and_number),
		cmocka_unit_test(a_frame_is_held_once),
		cmocka_unit_test(as_many_as_there_is_room_for_are_held),
	};

	return cmocka_run_group_tests_name("pack_buffers", tests, NULL, NULL);
}
