/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/util.h"
#include "mpi-agent/popular/popular_format.h"
#include "tests/unit/golden.h"

static const uint32_t hosts[5];
static const struct merge_conf conf = { .max = 10, .nr_owners = 2, .nr_nodes = 5, .hosts = hosts };
static struct popular entries[] = {
	{ .fp = { .lo = 7 }, .count = 1, .nr_owners = 1, .owners = { 4 } },
	{ .fp = { .lo = 1, .hi = 3 }, .count = 5, .nr_owners = 2, .owners = { 0, 3 }, .has = 2 },
	{ .fp = { .lo = 2, .hi = 3 }, .count = 2, .nr_owners = 1, .owners = { 0 } },
};
static const struct popular_set set = { entries, ARRAY_SIZE(entries) };

#define LEN (sizeof(struct popular_header_disk) + 3 * 28)

static void sets_come_back(void **state _unused_)
{
	uint8_t bytes[LEN + 100] = { 0 };
	struct popular_set s;

	assert_int_equal(popular_encoded_len(&conf, set.nr), LEN);
	popular_encode(&conf, &set, bytes);
	assert_int_equal(popular_decode(&conf, bytes, sizeof(bytes), &s), 0);
	assert_int_equal(s.nr, set.nr);
	assert_memory_equal(s.v, set.v, s.nr * sizeof(*s.v));
	popular_set_release(&s);
}

static void sets_have_these_bytes(void **state _unused_)
{
	uint8_t bytes[LEN + sizeof(struct popular_header_disk)] = { 0 };

	popular_encode(&conf, &set, bytes);
	popular_encode_error(&conf, -ENOMEM, bytes + LEN);
	golden_expect("popular/v1.txt", "a set of popular pages, and one that has failed", bytes, sizeof(bytes));
}

static void any_changed_byte_is_found(void **state _unused_)
{
	uint8_t bytes[LEN];
	struct popular_set s;

	popular_encode(&conf, &set, bytes);
	for (size_t i = 0; i < LEN; i++) {
		bytes[i] ^= 1u << i % 8;
		assert_int_equal(popular_decode(&conf, bytes, LEN, &s), -EBADMSG);
		bytes[i] ^= 1u << i % 8;
	}
	for (size_t len = 0; len < LEN; len++)
		assert_int_equal(popular_decode(&conf, bytes, len, &s), -EBADMSG);
}

static void what_lies_is_refused(void **state _unused_)
{
	const struct popular lies[] = {
		{ .fp = { .lo = 1 }, .count = 6, .nr_owners = 1 }, /* more nodes than there are */
		{ .fp = { .lo = 1 }, .count = 0, .nr_owners = 1 },
		{ .fp = { .lo = 1 }, .count = 1, .nr_owners = 2, .owners = { 0, 1 } }, /* more owners than holders */
		{ .fp = { .lo = 1 }, .count = 3, .nr_owners = 3, .owners = { 0, 1, 2 } },
		{ .fp = { .lo = 1 }, .count = 3, .nr_owners = 0 },
		{ .fp = { .lo = 1 }, .count = 3, .nr_owners = 1, .owners = { 5 } },
		{ .fp = { .lo = 1 }, .count = 3, .nr_owners = 2, .owners = { 2, 2 } },
		{ .fp = { .lo = 1 }, .count = 3, .nr_owners = 2, .owners = { 3, 2 } },
		{ .fp = { .lo = 7 }, .count = 3, .nr_owners = 1 }, /* out of order: the one before it has 7, too */
		{ .fp = { .lo = 6 }, .count = 3, .nr_owners = 1 },
	};
	uint8_t bytes[LEN];
	struct popular_set s;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct popular two[] = { entries[0], lies[i] };

		if (i < 8)
			two[1].fp.hi = 1;
		popular_encode(&conf, &(struct popular_set){ two, 2 }, bytes);
		assert_int_equal(popular_decode(&conf, bytes, LEN, &s), -EBADMSG);
	}
	popular_encode(&conf, &set, bytes);
	assert_int_equal(popular_decode(&(struct merge_conf){ .max = 2, .nr_owners = 2, .nr_nodes = 5 }, bytes, LEN, &s),
			 -EBADMSG);
	assert_int_equal(popular_decode(&(struct merge_conf){ .max = 10, .nr_owners = 1, .nr_nodes = 5 }, bytes, LEN, &s),
			 -EBADMSG);
}

static void what_has_failed_says_so(void **state _unused_)
{
	uint8_t bytes[LEN];
	struct popular_header_disk *h = (struct popular_header_disk *)bytes;
	struct popular_set s;

	popular_encode_error(&conf, -ENOMEM, bytes);
	assert_int_equal(popular_decode(&conf, bytes, LEN, &s), -ENOMEM);
	popular_encode(&conf, &set, bytes);
	h->version = le32_put(3);
	h->header_crc32c = le32_put(crc32c(h, offsetof(struct popular_header_disk, header_crc32c)));
	assert_int_equal(popular_decode(&conf, bytes, LEN, &s), -EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sets_come_back),
		cmocka_unit_test(sets_have_these_bytes),
		cmocka_unit_test(any_changed_byte_is_found),
		cmocka_unit_test(what_lies_is_refused),
		cmocka_unit_test(what_has_failed_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
