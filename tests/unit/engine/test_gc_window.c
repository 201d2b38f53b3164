#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/engine/gc_window.h"

static struct gc_window *window(void)
{
	struct gc_pack *packs = calloc(2, sizeof(*packs));
	struct gc_window *w;

	assert_non_null(packs);
	packs[0] = (struct gc_pack){ .pack = 3, .nr_frames = 2 };
	packs[1] = (struct gc_pack){ .pack = 7, .nr_frames = 1 };
	assert_int_equal(gc_window_new(packs, 2, &w), 0);
	assert_int_equal(w->nr_frames, 3);
	assert_int_equal(w->packs[1].first, 2);
	return w;
}

/* Of byte `in` of a frame's data. */
static struct addr at(uint32_t pack, uint32_t frame, uint32_t in)
{
	return (struct addr){ .pack = pack, .off = (1 + frame * PACK_FRAME_STRIDE + 1) * PACK_BLOCK + in };
}

static unsigned nr_live(const struct gc_window *w, size_t frame)
{
	struct gc_bits b = gc_window_live(w, frame);

	return gc_count(&b);
}

static void each_block_that_an_extent_touches_is_live(void **state)
{
	static const struct {
		uint32_t in, len, first, end;
	} cases[] = {
		{ 0, 1, 0, 1 },		  { 0, 4096, 0, 1 },	  { 4095, 2, 0, 2 },	       { 4096, 4096, 1, 2 },
		{ 63 * 4096, 8192, 63, 65 }, { 0, 1 << 20, 0, 256 }, { 255 * 4096 + 1, 4095, 255, 256 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct gc_window *w = window();
		struct extent x = { .len = cases[i].len, .addr = at(3, 1, cases[i].in) };
		struct gc_bits b;

		gc_window_mark(w, &x, 1);
		b = gc_window_live(w, 1);
		assert_int_equal(gc_count(&b), cases[i].end - cases[i].first);
		for (uint32_t k = cases[i].first; k < cases[i].end; k++)
			assert_true(gc_bit(&b, k));
		assert_int_equal(nr_live(w, 0), 0);
		assert_int_equal(nr_live(w, 2), 0);
		gc_window_free(w);
	}
}

static void what_is_elsewhere_is_none_of_its_business(void **state)
{
	struct gc_window *w = window();
	struct gc_bits all = { { UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX } };
	const struct extent x[] = {
		{ .len = 4096, .addr = at(4, 0, 0) },
		{ .len = 4096, .addr = at(3, 2, 0) }, /* a frame that came later */
		{ .len = 4096, .addr = { .pack = 3, .off = 0 } },
		{ .len = 4096, .addr = { .pack = 3, .off = PACK_BLOCK } }, /* a table */
		{ .len = 4096, .addr = { .pack = 3, .off = 2 * PACK_BLOCK, .node = 1 } },
		{ .len = 4096, .addr = { .pack = UINT32_MAX, .off = 5 } },
	};

	(void)state;
	gc_window_mark(w, x, ARRAY_SIZE(x));
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(nr_live(w, i), 0);
		gc_window_set_condemned(w, i, &all);
	}
	for (size_t i = 0; i < ARRAY_SIZE(x); i++)
		assert_false(gc_window_condemned(w, x[i].addr));
	assert_true(gc_window_condemned(w, at(7, 0, 0)));
	assert_true(gc_window_condemned(w, at(3, 1, (1 << 20) - 1)));
	gc_window_free(w);
}

static void a_chunk_is_there_if_any_of_its_blocks_is(void **state)
{
	struct gc_bits blocks = { { 0 } }, chunks, back;
	uint32_t ends[64];

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		ends[i] = (i + 1) * 16384;
	gc_set_bit(&blocks, 5);
	gc_set_bit(&blocks, 255);
	chunks = gc_chunks_of_blocks(&blocks, ends, 64);
	assert_int_equal(gc_count(&chunks), 2);
	assert_true(gc_bit(&chunks, 1) && gc_bit(&chunks, 63));
	back = gc_blocks_of_chunks(&chunks, ends, 64);
	assert_int_equal(gc_count(&back), 8);
	assert_true(gc_bit(&back, 4) && gc_bit(&back, 7) && gc_bit(&back, 252));
}

static void chunks_of_varied_lengths_share_blocks(void **state)
{
	static const uint32_t ends[] = { 1, 4096, 4097, 8190, 8200, 20000 };
	struct gc_bits blocks = { { 0 } }, chunks;

	(void)state;
	gc_set_bit(&blocks, 1); /* 4096 to 8191 */
	chunks = gc_chunks_of_blocks(&blocks, ends, 6);
	assert_int_equal(chunks.w[0], 1 << 2 | 1 << 3 | 1 << 4);
	chunks = (struct gc_bits){ { 1 << 4 } };
	blocks = gc_blocks_of_chunks(&chunks, ends, 6);
	assert_int_equal(blocks.w[0], 1 << 1 | 1 << 2);
	chunks = (struct gc_bits){ { 1 << 5 } };
	blocks = gc_blocks_of_chunks(&chunks, ends, 6);
	assert_int_equal(blocks.w[0], 1 << 2 | 1 << 3 | 1 << 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_block_that_an_extent_touches_is_live),
		cmocka_unit_test(what_is_elsewhere_is_none_of_its_business),
		cmocka_unit_test(a_chunk_is_there_if_any_of_its_blocks_is),
		cmocka_unit_test(chunks_of_varied_lengths_share_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
