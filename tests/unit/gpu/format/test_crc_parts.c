/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/util.h"
#include "gpu/format/crc_parts.h"

static uint8_t bytes[KiB(256)];

static void fill(void)
{
	uint32_t n = 1;

	for (size_t i = 0; i < sizeof(bytes); i++) {
		n = n * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(n >> 24);
	}
}

/* What words add, the last one first. */
static uint32_t add_words(const struct crc_powers *p, const uint8_t *from, size_t len)
{
	uint32_t added = 0;

	for (size_t off = (len + 3) / 4 * 4; off > 0; off -= 4) {
		uint32_t word = 0;

		memcpy(&word, from + off - 4, MIN(len - (off - 4), (size_t)4));
		added ^= crc_word(p, word, off - 4, len);
	}
	return added;
}

static void words_in_any_order_give_the_crc(void **state _unused_)
{
	static const size_t lens[] = { 0, 1, 2, 3, 4, 5, 8, 255, 256, 1023, 1024, KiB(64), KiB(64) + 3, KiB(256) };
	static struct crc_powers p;

	crc_powers_init(&p);
	fill();
	for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
		assert_int_equal(crc_finish(&p, add_words(&p, bytes, lens[i]), lens[i]), crc32c(bytes, lens[i]));
}

static void two_stretches_are_one_behind_the_other(void **state _unused_)
{
	const size_t first = 1000, second = KiB(70) + 1;
	static struct crc_powers p;
	uint32_t added;

	crc_powers_init(&p);
	fill();
	added = crc_behind(&p, add_words(&p, bytes, first), second) ^ add_words(&p, bytes + first, second);
	assert_int_equal(crc_finish(&p, added, first + second), crc32c(bytes, first + second));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_in_any_order_give_the_crc),
		cmocka_unit_test(two_stretches_are_one_behind_the_other),
	};

	return cmocka_run_group_tests_name("crc_parts", tests, NULL, NULL);
}
