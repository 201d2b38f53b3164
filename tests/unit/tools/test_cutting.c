#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/analyze_cutting.h"

/* Two files of a series, another rank's, and one of nobody's kin. */
static struct file list[] = {
	{ .series = 1, .family = 1 },
	{ .series = 1, .family = 1 },
	{ .series = 2, .family = 1 },
	{ .series = 3, .family = 2 },
};
static const struct files files = { .file = list, .nr = ARRAY_SIZE(list) };

static uint8_t *noise(uint64_t seed, size_t len)
{
	uint8_t *p = calloc(1, round_up(len, WINDOW) + WINDOW);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(seed >> 56);
	}
	return p;
}

static struct cutting cutting_of(uint32_t page)
{
	struct cutting c;

	assert_int_equal(cutting_init(&c, page, &CDC_PARAMS_DEFAULT, MiB(4)), 0);
	return c;
}

static void add(struct cutting *c, const uint8_t *p, size_t len)
{
	for (size_t at = 0; at < len; at += WINDOW)
		assert_int_equal(cutting_add(c, p + at, MIN(len - at, (size_t)WINDOW)), 0);
}

static struct figures cut(struct cutting *c, uint32_t file, const uint8_t *p, size_t len)
{
	struct figures f = { 0 };

	cutting_begin(c, &files, file, &f);
	add(c, p, len);
	assert_int_equal(cutting_end(c), 0);
	assert_int_equal(cutting_finish(c), 0);
	return f;
}

static void a_page_counts_whole_and_zeros_count_nothing(void **state _unused_)
{
	_cleanup_(cutting_release) struct cutting c = cutting_of(4096);
	_cleanup_(freep) uint8_t *p = noise(1, 3 * 4096 + 1);
	struct figures f;

	memset(p + 4096, 0, 4096);
	f = cut(&c, 0, p, 3 * 4096 + 1);
	assert_int_equal(f.zero, 4096);
	assert_int_equal(f.data, 3 * 4096);
	assert_int_equal(f.nr_chunks, 3);
	assert_int_equal(f.source[NEW], 3 * 4096);
}

static void bytes_are_attributed_to_the_nearest_file_that_had_them(void **state _unused_)
{
	static const uint32_t pages[] = { 4096, 65536, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(pages); i++) {
		_cleanup_(cutting_release) struct cutting c = cutting_of(pages[i]);
		_cleanup_(freep) uint8_t *p = noise(2, MiB(2));

		assert_int_equal(cut(&c, 0, p, MiB(2)).source[NEW], MiB(2));
		assert_int_equal(cut(&c, 1, p, MiB(2)).source[FROM_SERIES], MiB(2));
		assert_int_equal(cut(&c, 2, p, MiB(2)).source[FROM_RANKS], MiB(2));
		assert_int_equal(cut(&c, 3, p, MiB(2)).source[FROM_OTHERS], MiB(2));
		assert_int_equal(cut(&c, 3, p, MiB(2)).source[FROM_SELF], MiB(2));
	}
}

static void shifted_bytes_are_new_to_pages_alone(void **state _unused_)
{
	_cleanup_(cutting_release) struct cutting pages = cutting_of(4096), content = cutting_of(0);
	_cleanup_(freep) uint8_t *p = noise(3, MiB(4));

	cut(&pages, 0, p, MiB(4) - 10);
	cut(&content, 0, p, MiB(4) - 10);
	assert_true(cut(&pages, 1, p + 10, MiB(4) - 10).source[NEW] >= MiB(4) - 4096);
	assert_true(cut(&content, 1, p + 10, MiB(4) - 10).source[NEW] <= KiB(64));
}

/* What is not read is counted as if it had been. */
static void zeros_that_are_not_there_count_as_zeros_that_are(void **state _unused_)
{
	static const uint32_t pages[] = { 4096, 65536, 0 };
	static const size_t runs[] = { 1, 2, 3, 7 };
	const size_t head = MiB(1), tail = MiB(1) + 12345;

	for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
		for (size_t k = 0; k < ARRAY_SIZE(runs); k++) {
			_cleanup_(cutting_release) struct cutting read = cutting_of(pages[i]),
								  skipped = cutting_of(pages[i]);
			size_t run = runs[k] * WINDOW, len = head + run + tail;
			_cleanup_(freep) uint8_t *p = noise(4, len);
			struct figures want, f = { 0 };

			memset(p + head, 0, run);
			want = cut(&read, 0, p, len);
			cutting_begin(&skipped, &files, 0, &f);
			add(&skipped, p, head);
			assert_int_equal(cutting_add_zeros(&skipped, run), 0);
			add(&skipped, p + head + run, tail);
			assert_int_equal(cutting_end(&skipped), 0);
			assert_int_equal(cutting_finish(&skipped), 0);
			assert_memory_equal(&f, &want, sizeof(f));
		}
}

static void a_hole_up_to_the_end_is_all_zeros(void **state _unused_)
{
	_cleanup_(cutting_release) struct cutting c = cutting_of(0);
	struct figures f = { 0 };

	cutting_begin(&c, &files, 0, &f);
	assert_int_equal(cutting_add_zeros(&c, GiB(1) * 1000 + 17), 0);
	assert_int_equal(cutting_end(&c), 0);
	assert_int_equal(f.zero, GiB(1) * 1000 + 17);
	assert_int_equal(f.data, 0);
}

static void blocks_that_do_not_shrink_count_as_they_are(void **state _unused_)
{
	_cleanup_(cutting_release) struct cutting c = cutting_of(4096);
	_cleanup_(freep) uint8_t *p = noise(5, MiB(1));
	struct figures f = cut(&c, 0, p, MiB(1));

	assert_int_equal(figures_coded(&f, CODEC_LZ4), MiB(1));
	assert_int_equal(figures_coded(&f, CODEC_ZSTD), MiB(1));
	for (size_t i = 0; i < MiB(1); i++)
		p[i] = i % 16 ? 'a' : (uint8_t)(i >> 8);
	f = cut(&c, 1, p, MiB(1));
	assert_true(figures_coded(&f, CODEC_LZ4) < MiB(1) / 4);
	assert_true(figures_coded(&f, CODEC_ZSTD) < MiB(1) / 4);
}

/* One block of two files' bytes: each has its share of what it shrank to. */
static void a_block_is_shared_by_the_files_in_it(void **state _unused_)
{
	_cleanup_(block_release) struct block b;
	struct figures one = { 0 }, three = { 0 };
	char text[4096];

	memset(text, 'x', sizeof(text));
	assert_int_equal(block_init(&b), 0);
	assert_int_equal(block_add(&b, text, sizeof(text), 1, &one), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(block_add(&b, text, sizeof(text), 1, &three), 0);
	assert_true(one.coded[CODEC_LZ4] == 0);
	assert_int_equal(block_flush(&b), 0);
	assert_true(one.coded[CODEC_LZ4] > 0);
	assert_true(three.coded[CODEC_LZ4] == 3 * one.coded[CODEC_LZ4]);
	assert_true(three.coded[CODEC_ZSTD] == 3 * one.coded[CODEC_ZSTD]);
}

static void an_estimate_does_not_exceed_the_data(void **state _unused_)
{
	struct figures sampled = {
		.data = 1000,
		.source = { [FROM_SELF] = 30, [FROM_SERIES] = 10, [NEW] = 600 },
		.coded = { 300, 150 },
	};
	struct figures f = figures_estimate(&sampled);

	assert_int_equal(f.source[NEW], 600);
	assert_int_equal(f.source[FROM_SELF], 300);
	assert_int_equal(f.source[FROM_SERIES], 100);
	assert_int_equal(figures_coded(&f, CODEC_LZ4), 300);
	sampled.source[NEW] = 2000;
	f = figures_estimate(&sampled);
	assert_int_equal(f.source[NEW], 1000);
	assert_int_equal(f.source[FROM_SELF], 0);
	assert_int_equal(figures_coded(&f, CODEC_LZ4), 150);
	assert_int_equal(figures_coded(&f, CODEC_ZSTD), 75);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_counts_whole_and_zeros_count_nothing),
		cmocka_unit_test(bytes_are_attributed_to_the_nearest_file_that_had_them),
		cmocka_unit_test(shifted_bytes_are_new_to_pages_alone),
		cmocka_unit_test(zeros_that_are_not_there_count_as_zeros_that_are),
		cmocka_unit_test(a_hole_up_to_the_end_is_all_zeros),
		cmocka_unit_test(blocks_that_do_not_shrink_count_as_they_are),
		cmocka_unit_test(a_block_is_shared_by_the_files_in_it),
		cmocka_unit_test(an_estimate_does_not_exceed_the_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
