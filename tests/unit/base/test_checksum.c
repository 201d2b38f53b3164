/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The source itself: this machine uses one way to compute a CRC, the test must see all of them. */
#include "base/checksum.c"

static const uint8_t nothing[32];
static const uint8_t ones[32] = {
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};
static const uint8_t rising[32] = {
	0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
};
static const uint8_t falling[32] = {
	31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
	15, 14, 13, 12, 11, 10, 9,  8,	7,  6,	5,  4,	3,  2,	1,  0,
};
static const uint8_t read_command[48] = {
	0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02,
};

static const struct {
	const void *p;
	size_t len;
	uint32_t crc;
} vectors[] = {
	{ "", 0, 0 },
	{ "123456789", 9, 0xe3069283 }, /* the check value of CRC catalogues */
	/* RFC 3720 B.4 */
	{ nothing, sizeof(nothing), 0x8a9136aa },
	{ ones, sizeof(ones), 0x62a8ab43 },
	{ rising, sizeof(rising), 0x46dd794e },
	{ falling, sizeof(falling), 0x113fdb5c },
	{ read_command, sizeof(read_command), 0xd9963a56 },
};

static void the_instruction_is_used_where_there_is_one(void **state _unused_)
{
	assert_true(crc_best == (have_instruction() ? crc_by_instruction : crc_by_table));
}

static void published_vectors(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++)
		assert_int_equal(crc32c(vectors[i].p, vectors[i].len), vectors[i].crc);
}

static void published_vectors_by_table(void **state _unused_)
{
	table_fill();
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++)
		assert_int_equal(~crc_by_table(~0u, vectors[i].p, vectors[i].len), vectors[i].crc);
}

static void pattern_fill(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 151 + (i >> 7));
}

static void table_and_instruction_agree_on_every_length_and_alignment(void **state _unused_)
{
	uint8_t p[600];

	pattern_fill(p, sizeof(p));
	table_fill();
	if (!have_instruction())
		skip();
	for (size_t off = 0; off < 8; off++)
		for (size_t len = 0; len < sizeof(p) - off; len++)
			assert_int_equal(crc_by_instruction(~0u, p + off, len), crc_by_table(~0u, p + off, len));
}

/* Those that are taken in three stretches at a time. */
static void table_and_instruction_agree_on_long_inputs(void **state _unused_)
{
	uint8_t p[4 * 3 * 1024 + 3];

	pattern_fill(p, sizeof(p));
	table_fill();
	if (!have_instruction())
		skip();
	for (size_t len = 3 * 1024 - 10; len <= sizeof(p) - 3; len += 1 + len % 7)
		assert_int_equal(crc_by_instruction(~0u, p + len % 3, len), crc_by_table(~0u, p + len % 3, len));
}

static void adding_continues_where_the_first_part_ended(void **state _unused_)
{
	uint8_t p[300];

	pattern_fill(p, sizeof(p));
	for (size_t cut = 0; cut <= sizeof(p); cut++)
		assert_int_equal(crc32c_add(crc32c(p, cut), p + cut, sizeof(p) - cut), crc32c(p, sizeof(p)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_instruction_is_used_where_there_is_one),
		cmocka_unit_test(published_vectors),
		cmocka_unit_test(published_vectors_by_table),
		cmocka_unit_test(table_and_instruction_agree_on_every_length_and_alignment),
		cmocka_unit_test(table_and_instruction_agree_on_long_inputs),
		cmocka_unit_test(adding_continues_where_the_first_part_ended),
	};

	return cmocka_run_group_tests_name("checksum", tests, NULL, NULL);
}
