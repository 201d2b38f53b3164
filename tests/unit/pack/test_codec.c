#include "pack_rig.h"

#include "store/pack/codec.h"

static const enum pack_codec codecs[] = { PACK_CODEC_LZ4, PACK_CODEC_ZSTD };

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
				assert_int_equal(codec_decompress(c, codecs[k], stored, n, got, lens[i]), 0);
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
			size_t at = (size_t)rand() % n, len = i % 3 ? n : (size_t)rand() % n, ret_len = i % 5 ? 65536 : 1 + (size_t)rand() % 65536;
			uint8_t *copy = malloc(MAX(len, (size_t)1));
			int r;

			memcpy(copy, stored, len);
			if (at < len)
				copy[at] ^= (uint8_t)(1 + rand() % 255);
			got = malloc(ret_len); /* exactly: the sanitizer watches both ends */
			r = codec_decompress(c, codecs[k], copy, len, got, ret_len);
			assert_true(r == 0 || r == -EBADMSG);
			nr_errors += r < 0;
			free(got);
			free(copy);
		}
		assert_int_equal(codec_decompress(c, codecs[k], stored, n, plain, 65536 - 1), -EBADMSG);
		assert_int_equal(codec_decompress(c, codecs[k], stored, PACK_PART_BYTES + 1, plain, 65536), -EBADMSG);
	}
	assert_int_equal(codec_decompress(c, PACK_CODEC_NONE, stored, 10, plain, 10), -EBADMSG);
	assert_in_range(nr_errors, 2000, 4000);
	coder_put(&cs, c);
	coders_release(&cs);
	free(plain);
	free(stored);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_compressed_comes_back),
		cmocka_unit_test(noise_does_not_get_smaller),
		cmocka_unit_test(damaged_bytes_are_an_error_or_other_bytes),
	};

	return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
