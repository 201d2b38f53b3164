/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/gc/gc_window.h"

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

static void what_is_remote_is_none_of_its_business(void **state)
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
		gc_window_set_pending(w, i, &all);
	}
	for (size_t i = 0; i < ARRAY_SIZE(x); i++)
		assert_false(gc_window_is_pending(w, x[i].addr));
	assert_true(gc_window_is_pending(w, at(7, 0, 0)));
	assert_true(gc_window_is_pending(w, at(3, 1, (1 << 20) - 1)));
	gc_window_free(w);
}

static void a_chunk_is_live_if_any_of_its_blocks_is(void **state)
{
	struct gc_window *w = window();
	const struct extent x[] = { { .len = 4096, .addr = at(7, 0, 5 * 4096) },
				    { .len = 1, .addr = at(7, 0, (1 << 20) - 1) } };
	struct gc_bits chunks, back;
	uint32_t ends[64];

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		ends[i] = (i + 1) * 16384;
	gc_window_mark(w, x, 2);
	chunks = gc_window_live_chunks(w, 2, ends, 64);
	assert_int_equal(gc_count(&chunks), 2);
	assert_true(gc_bit(&chunks, 1) && gc_bit(&chunks, 63));
	back = gc_blocks_of_chunks(&chunks, ends, 64);
	assert_int_equal(gc_count(&back), 8);
	assert_true(gc_bit(&back, 4) && gc_bit(&back, 7) && gc_bit(&back, 252));
	back = gc_starts_of_chunks(&chunks, ends, 64);
	assert_int_equal(gc_count(&back), 2);
	assert_true(gc_bit(&back, 4) && gc_bit(&back, 252));
	gc_window_free(w);
}

/* All ranges of a frame's first blocks: marked by the collector, exactly the chunks that they overlap are live; but in
 * the middle of a block, where its whole block is. Marked by others, at least those. */
static void chunks_that_share_blocks_are_distinguished(void **state)
{
	static const uint32_t ends[] = { 1, 3000, 4096, 4097, 8190, 8200, 20000, 20480, 21000 };
	const unsigned nr = sizeof(ends) / sizeof(ends[0]);

	(void)state;
	for (unsigned i = 0; i < nr; i++)
		for (unsigned k = i; k < nr; k++) {
			uint32_t from = i == 0 ? 0 : ends[i - 1], to = ends[k];
			const struct extent x = { .len = to - from, .addr = at(7, 0, from) };
			struct gc_window *exact = window(), *coarse = window();
			size_t frame = 2;
			bool in_one = from % 4096 != 0 && to % 4096 != 0 && from / 4096 == to / 4096;
			struct gc_bits live;

			gc_window_mark_bytes(exact, &x, 1);
			gc_window_mark(coarse, &x, 1);
			live = gc_window_live_chunks(exact, frame, ends, nr);
			for (unsigned c = 0; c < nr; c++) {
				if (!in_one)
					assert_int_equal(gc_bit(&live, c), c >= i && c <= k);
				else if (c >= i && c <= k)
					assert_true(gc_bit(&live, c));
			}
			live = gc_window_live_chunks(coarse, frame, ends, nr);
			for (unsigned c = i; c <= k; c++)
				assert_true(gc_bit(&live, c));
			live = gc_window_live(exact, frame);
			for (uint32_t b = from / 4096; b * 4096 < to; b++)
				assert_true(gc_bit(&live, b));
			gc_window_free(exact);
			gc_window_free(coarse);
		}
}

static void what_is_marked_twice_adds_up(void **state)
{
	static const uint32_t ends[] = { 1000, 2000, 3000, 4000, 5000, 6000 };
	const struct extent x[] = { { .len = 1000, .addr = at(7, 0, 0) },
				    { .len = 2000, .addr = at(7, 0, 4000) },
				    { .len = 500, .addr = at(7, 0, 0) } };
	struct gc_window *w = window();
	struct gc_bits live;

	(void)state;
	gc_window_mark_bytes(w, x, 3);
	live = gc_window_live_chunks(w, 2, ends, 6);
	assert_int_equal(live.w[0], 1 << 0 | 1 << 4 | 1 << 5);
	gc_window_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_block_that_an_extent_touches_is_live),
		cmocka_unit_test(what_is_remote_is_none_of_its_business),
		cmocka_unit_test(a_chunk_is_live_if_any_of_its_blocks_is),
		cmocka_unit_test(chunks_that_share_blocks_are_distinguished),
		cmocka_unit_test(what_is_marked_twice_adds_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
