/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/pack/pack_rig.h"

#include <errno.h>

#include "store/pack/coded/codec.h"

static const enum pack_codec codecs[] = { PACK_CODEC_LZ4, PACK_CODEC_ZSTD };

/* To exactly ret_len bytes, without a base. */
static int decompress(struct coder *c, enum pack_codec codec, const void *p, size_t len, void *ret, size_t ret_len)
{
	int n = codec_decompress_some(c, codec, p, len, NULL, 0, ret, ret_len);

	return n < 0 ? n : (size_t)n == ret_len ? 0 : -EBADMSG;
}

static void what_was_compressed_comes_back(void **state)
{
	static const uint32_t lens[] = { 4096, 8192, 20480, 65536 };
	uint8_t *plain = aligned_bytes(65536), *stored = aligned_bytes(65536), *got = aligned_bytes(65536 + 1);
	struct coders cs;

	(void)state;
	coders_init(&cs);
	for (size_t k = 0; k < ARRAY_SIZE(codecs); k++)
		for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
			for (int level = 1; level < 12; level += 5) {
				struct coder *c = coder_get(&cs);
				size_t n;

				fill_chunk(plain, i, lens[i]);
				n = codec_compress(c, codecs[k], level, plain, lens[i], stored);
				assert_in_range(n, 1, lens[i] * 9 / 10);
				memset(got, 0xee, lens[i] + 1);
				assert_int_equal(decompress(c, codecs[k], stored, n, got, lens[i]), 0);
				assert_memory_equal(got, plain, lens[i]);
				assert_int_equal(got[lens[i]], 0xee);
				coder_put(&cs, c);
			}
	coders_release(&cs);
	free(plain);
	free(stored);
	free(got);
}

static void noise_does_not_get_smaller(void **state)
{
	uint64_t *plain = aligned_bytes(65536);
	uint8_t *stored = aligned_bytes(65536);
	struct coders cs;
	struct coder *c;

	(void)state;
	coders_init(&cs);
	c = coder_get(&cs);
	srand(1);
	for (size_t i = 0; i < 65536; i++)
		((uint8_t *)plain)[i] = (uint8_t)(rand() >> 8);
	for (size_t k = 0; k < ARRAY_SIZE(codecs); k++)
		assert_int_equal(codec_compress(c, codecs[k], 3, plain, 65536, stored), 0);
	assert_int_equal(codec_compress(c, PACK_CODEC_NONE, 0, stored, 65536, plain), 0);
	coder_put(&cs, c);
	coders_release(&cs);
	free(plain);
	free(stored);
}

/* Whatever the bytes are: as many as promised, an error, and never one byte beside. */
static void damaged_bytes_are_an_error_or_other_bytes(void **state)
{
	uint8_t *plain = aligned_bytes(65536), *stored = aligned_bytes(65536), *got;
	struct coders cs;
	struct coder *c;
	unsigned nr_errors = 0;

	(void)state;
	coders_init(&cs);
	c = coder_get(&cs);
	fill_chunk(plain, 7, 65536);
	srand(2);
	for (size_t k = 0; k < ARRAY_SIZE(codecs); k++) {
		size_t n = codec_compress(c, codecs[k], 3, plain, 65536, stored);

		for (unsigned i = 0; i < 2000; i++) {
			size_t at = (size_t)rand() % n, len = i % 3 ? n : (size_t)rand() % n,
			       ret_len = i % 5 ? 65536 : 1 + (size_t)rand() % 65536;
			uint8_t *copy = malloc(MAX(len, (size_t)1));
			int r;

			memcpy(copy, stored, len);
			if (at < len)
				copy[at] ^= (uint8_t)(1 + rand() % 255);
			got = malloc(ret_len); /* exactly: the sanitizer watches both ends */
			r = decompress(c, codecs[k], copy, len, got, ret_len);
			assert_true(r == 0 || r == -EBADMSG);
			nr_errors += r < 0;
			free(got);
			free(copy);
		}
		assert_int_equal(decompress(c, codecs[k], stored, n, plain, 65536 - 1), -EBADMSG);
		assert_int_equal(decompress(c, codecs[k], stored, PACK_PART_BYTES + 1, plain, 65536), -EBADMSG);
	}
	assert_int_equal(decompress(c, PACK_CODEC_NONE, stored, 10, plain, 10), -EBADMSG);
	assert_in_range(nr_errors, 2000, 4000);
	coder_put(&cs, c);
	coders_release(&cs);
	free(plain);
	free(stored);
}

/* Bytes of many kinds: what lz4 makes long literals of, long matches, and both in turn. */
static void fill_kind(uint8_t *p, size_t len, unsigned kind)
{
	fill_chunk(p, kind, (uint32_t)round_up(len, 8));
	if (kind == 1)
		memset(p, 'x', len);
	for (size_t i = 0; kind == 2 && i < len; i++)
		p[i] = i / 700 % 2 ? (uint8_t)rand() : (uint8_t)(i % 7);
}

static void where_a_part_ends_and_begins_is_found(void **state)
{
	static const uint32_t lens[] = { 65536, 20481, 4096, 300, 40 };
	uint8_t *plain = aligned_bytes(65536), *stored = aligned_bytes(2 * 65536), *exact;
	struct coders cs;
	struct coder *c;

	(void)state;
	coders_init(&cs);
	c = coder_get(&cs);
	for (size_t k = 0; k < ARRAY_SIZE(codecs); k++)
		for (unsigned i = 0; i < 3 * ARRAY_SIZE(lens); i++) {
			uint32_t len = lens[i / 3];
			size_t n, start;

			fill_kind(plain, len, i % 3);
			memset(stored, 0, 2 * 65536);
			n = codec_compress(c, codecs[k], 3, plain, len, stored);
			if (n == 0)
				continue; /* the shortest of some kinds */
			exact = malloc(n); /* the sanitizer watches what is read behind it */
			memcpy(exact, stored, n);
			assert_int_equal(codec_find_end(codecs[k], exact, n), n);
			free(exact);
			assert_int_equal(codec_find_end(codecs[k], stored, 2 * 65536), n);
			assert_int_equal(codec_find_end(codecs[k], stored, n + 1), n);
			memmove(stored + 1000, stored, n);
			fill_kind(stored, 1000, (i + 1) % 3);
			if (n <= 64536) {
				assert_int_equal(codec_find_start(codecs[k], stored, 1000 + n, len, &start), 1);
				assert_int_equal(start, 1000);
				assert_int_equal(codec_find_start(codecs[k], stored, 1000 + n, len - 1, &start), 0);
			}
			memmove(stored, stored + 1000, n);
			memset(stored + n, 0xa7, 65536); /* another part may follow a whole one */
			if (len == 65536)
				assert_int_equal(codec_find_end(codecs[k], stored, n + 65536), n);
			assert_int_equal(codec_decompress_some(c, codecs[k], stored, n, NULL, 0, plain, 65536), len);
		}
	coder_put(&cs, c);
	coders_release(&cs);
	free(plain);
	free(stored);
}

static void what_is_no_part_has_no_end(void **state)
{
	static const struct {
		uint8_t p[12];
		size_t len, lz4;
	} cases[] = {
		{ { 0 }, 0, 0 },
		{ { 0, 0, 0, 0 }, 4, 0 }, /* no literals and no match */
		{ { 0x30, 'a', 'b', 'c' }, 4, 4 },
		{ { 0x30, 'a', 'b' }, 3, 0 }, /* ends in the literals */
		{ { 0x30, 'a', 'b', 'c', 0 }, 5, 4 },
		{ { 0x30, 'a', 'b', 'c', 0, 0, 9, 9 }, 8, 4 },
		{ { 0x30, 'a', 'b', 'c', 3, 0, 0x10, 'd' }, 8, 8 },
		{ { 0x30, 'a', 'b', 'c', 4, 0, 0x10, 'd' }, 8, 0 }, /* a match before the first byte */
		{ { 0x30, 'a', 'b', 'c', 3, 0 }, 6, 0 }, /* ends with a match */
		{ { 0x3f, 'a', 'b', 'c', 3, 0 }, 6, 0 }, /* ends in its length */
		{ { 0x3f, 'a', 'b', 'c', 3, 0, 255 }, 7, 0 },
		{ { 0xf0, 255, 255 }, 3, 0 }, /* ends in the length of the literals */
		{ { 0xf0 }, 1, 0 },
	};
	uint8_t *exact, *long_match;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		exact = malloc(MAX(cases[i].len, (size_t)1));
		memcpy(exact, cases[i].p, cases[i].len);
		assert_int_equal(codec_find_end(PACK_CODEC_LZ4, exact, cases[i].len), cases[i].lz4);
		assert_int_equal(codec_find_end(PACK_CODEC_ZSTD, exact, cases[i].len), 0);
		assert_int_equal(codec_find_end(PACK_CODEC_NONE, exact, cases[i].len), 0);
		free(exact);
	}
	long_match = aligned_bytes(400); /* as many bytes as no part has */
	memset(long_match, 255, 400);
	memcpy(long_match, "\x1f" "a\x01", 4);
	memcpy(long_match + 300, "\x00\x10" "b", 3);
	assert_int_equal(codec_find_end(PACK_CODEC_LZ4, long_match, 303), 0);
	free(long_match);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_compressed_comes_back),
		cmocka_unit_test(noise_does_not_get_smaller),
		cmocka_unit_test(where_a_part_ends_and_begins_is_found),
		cmocka_unit_test(what_is_no_part_has_no_end),
		cmocka_unit_test(damaged_bytes_are_an_error_or_other_bytes),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
